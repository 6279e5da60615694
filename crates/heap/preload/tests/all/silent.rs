//! A program that falls silent keeps nothing that it does not use.

use crate::common::{MIB, Stage, dog, resident};
use std::sync::mpsc::channel;
use std::thread;
use tranship_testkit::{Control, Peer, child};

/// Blocks of many sizes, so that there is something in many caches.
fn blocks(mib: usize) -> Vec<Vec<u8>> {
    const SIZES: [usize; 9] = [
        24, 100, 700, 5000, 20_000, 60_000, 200_000, 400_000, 900_000,
    ];
    let mut all = Vec::new();
    let mut bytes = 0;
    for size in SIZES.into_iter().cycle() {
        if bytes >= mib << 20 {
            return all;
        }
        for _ in 0..(400_000 / size).max(2) {
            all.push(vec![7; size]);
            bytes += size;
        }
    }
    all
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("tasks").count()
}

child!(
    /// Keeps a number of MiB, allocates and frees more on several threads, and falls silent, all threads alive. Reports
    /// the resident memory before and after.
    fn silent(ctl: Control) -> Result<(), String> {
        while let Some(keep) = ctl.recv::<usize>().map_err(|e| e.to_string())? {
            let before = resident();
            let kept = blocks(keep);
            let (done, all_done) = channel();
            let busy: Vec<_> = (0..3)
                .map(|_| {
                    let done = done.clone();
                    let (end, ended) = channel::<()>();
                    let work = move || {
                        drop(blocks(20));
                        done.send(()).expect("a receiver");
                        let _ = ended.recv();
                    };
                    (thread::spawn(work), end)
                })
                .collect();
            drop(blocks(20));
            (0..3).for_each(|_| all_done.recv().expect("a sender"));
            ctl.send(&(before, resident())).map_err(|e| e.to_string())?;
            // Silence, until the parent has seen enough.
            ctl.recv::<u8>().map_err(|e| e.to_string())?;
            for (thread, end) in busy {
                drop(end);
                thread.join().map_err(|_| "a thread panicked")?;
            }
            drop(kept);
        }
        Ok(())
    }
);

/// Returns the resident memory of a child.
fn resident_of(peer: &Peer) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", peer.pid())).expect("statm");
    let pages = statm.split(' ').nth(1).and_then(|p| p.parse::<u64>().ok());
    pages.expect("a number") * 4096
}

#[test]
fn a_silent_program_gives_back_what_it_does_not_use() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    let peer = stage.under(silent()).start().expect("start");
    // With a heap that keeps its thread, and with one that is small again.
    for keep in [30usize, 0] {
        let (before, busy): (u64, u64) = peer.ask(&keep);
        let used = keep as u64 * MIB;
        assert!(busy > before + used + 8 * MIB, "{before} before, {busy}");
        // Blocks have a fifth more than was asked for, at most.
        let least = used + used / 5 + 6 * MIB;
        let left = || (resident_of(&peer), stage.only_heap().admitted_bytes);
        while left().0 > before + least || left().1 > least {
            thread::yield_now();
        }
        peer.send(&0u8).expect("send");
    }
}

child!(
    /// Keeps a number of MiB. Reports the number of threads before and then.
    fn holder(ctl: Control) -> Result<(), String> {
        while let Some(keep) = ctl.recv::<usize>().map_err(|e| e.to_string())? {
            let before = threads();
            let kept = blocks(keep);
            ctl.send(&(before, threads())).map_err(|e| e.to_string())?;
            drop(kept);
        }
        Ok(())
    }
);

#[test]
fn only_a_large_heap_has_a_thread_and_only_if_it_may() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    let peer = stage.under(holder()).start().expect("start");
    assert_eq!(peer.ask::<(usize, usize)>(&2usize), (1, 1));
    assert_eq!(peer.ask::<(usize, usize)>(&20usize), (1, 2));
    let tasks = format!("/proc/{}/task", peer.pid());
    while std::fs::read_dir(&tasks).expect("tasks").count() > 1 {
        // It ends when the heap is small again.
        thread::yield_now();
    }
    let keeps = holder().env("TRANSHIP_HEAP_IDLE", "keep");
    let peer = stage.under(keeps).start().expect("start");
    assert_eq!(peer.ask::<(usize, usize)>(&20usize), (1, 1));
}

child!(
    /// Forks with a large heap; the child allocates and frees until it has a thread of its own.
    fn parent(ctl: Control) -> Result<(), String> {
        let kept = blocks(20);
        // SAFETY: the child uses the allocator alone, and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut had = threads();
            let good = had == 1;
            while had == 1 {
                drop(blocks(12));
                had = threads();
            }
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        let mut status = 0;
        // SAFETY: a child of ours, and a word of ours.
        let good = unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0;
        drop(kept);
        ctl.send(&good).map_err(|e| e.to_string())
    }
);

#[test]
fn a_forked_child_starts_a_thread_of_its_own() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    let peer = stage.under(parent()).start().expect("start");
    assert!(peer.expect::<bool>());
}
