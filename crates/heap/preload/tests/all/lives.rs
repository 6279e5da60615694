//! Forks, `exec`, and managers that come and go.

use crate::common::{MIB, Stage, dog};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tranship_testkit::{Control, child};

/// Blocks of all kinds, marked.
fn some(mib: usize, byte: u8) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut bytes = 0;
    for size in [40usize, 3000, 90_000, 1_500_000].into_iter().cycle() {
        if bytes >= mib << 20 {
            return all;
        }
        all.push(vec![byte; size]);
        bytes += size;
    }
    all
}

fn intact(all: &[Vec<u8>], byte: u8) -> bool {
    all.iter().all(|block| block.iter().all(|b| *b == byte))
}

child!(
    /// Forks repeatedly, while other threads allocate and free. Each child has its parent's blocks, more of its own,
    /// threads of its own, and a child of its own.
    fn forker(ctl: Control) -> Result<(), String> {
        let times: u32 = ctl.recv().map_err(|e| e.to_string())?.ok_or("no task")?;
        static STOP: AtomicBool = AtomicBool::new(false);
        let noise: Vec<_> = (0..3)
            .map(|n| {
                thread::spawn(move || {
                    let mut round = 0usize;
                    while !STOP.load(Ordering::Relaxed) {
                        round += 1;
                        let blocks: Vec<Vec<u8>> = (0..50)
                            .map(|i| vec![n; 1 + (round * 37 + i * 411) % 90_000])
                            .collect();
                        assert!(intact(&blocks, n));
                    }
                })
            })
            .collect();
        let kept = some(8, 1);
        for _ in 0..times {
            // SAFETY: the child uses nothing that a thread of the parent may hold but the allocator, and leaves by
            // `_exit`.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let good = std::panic::catch_unwind(|| {
                    let mine = some(8, 2);
                    let threads: Vec<_> = (0..2)
                        .map(|n| thread::spawn(move || intact(&some(2, n), n)))
                        .collect();
                    let good = threads.into_iter().all(|t| t.join().is_ok_and(|good| good));
                    // SAFETY: as above.
                    let grandchild = unsafe { libc::fork() };
                    if grandchild == 0 {
                        let more = some(4, 3);
                        let good = intact(&kept, 1) && intact(&mine, 2) && intact(&more, 3);
                        // SAFETY: ends the process.
                        unsafe { libc::_exit(i32::from(!good)) }
                    }
                    good && ended_well(grandchild) && intact(&kept, 1) && intact(&mine, 2)
                });
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(!good.unwrap_or(false))) }
            }
            if !ended_well(pid) {
                return Err("a child found its memory changed, or hung".into());
            }
        }
        STOP.store(true, Ordering::Relaxed);
        noise.into_iter().for_each(|n| n.join().expect("noise"));
        ctl.send(&intact(&kept, 1)).map_err(|e| e.to_string())
    }
);

fn ended_well(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: a child of ours, and a word of ours.
    pid > 0 && unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0
}

#[test]
fn children_keep_their_copies_and_connect_by_themselves() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let peer = stage.under(forker()).start().expect("start");
    let good: bool = peer.ask(&if torture { 1000u32 } else { 8 });
    assert!(good);
    drop(peer);
    stage.wait_until_empty();
}

child!(
    /// A child that stays: it has the parent's 20 MiB, and takes 30 more on request.
    fn splitter(ctl: Control) -> Result<(), String> {
        let kept = some(20, 1);
        // SAFETY: no other threads; both sides go on alone, the child's with a copy of the control socket.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let more = some(30, 2);
            let good = intact(&kept, 1) && intact(&more, 2);
            let _ = ctl.send(&good);
            let _ = ctl.recv::<u8>();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        let good = ended_well(pid);
        ctl.send(&good).map_err(|e| e.to_string())?;
        // Until the books have been looked at.
        ctl.recv::<u8>().map(drop).map_err(|e| e.to_string())
    }
);

#[test]
fn a_childs_heap_is_charged_to_the_child() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    let peer = stage.under(splitter()).start().expect("start");
    assert!(peer.expect::<bool>(), "in the child");
    let (mut heaps, _) = stage.books();
    heaps.sort_by_key(|heap| heap.admitted_bytes);
    let sizes: Vec<u64> = heaps.iter().map(|heap| heap.admitted_bytes / MIB).collect();
    assert_eq!(heaps.len(), 2, "{heaps:?}");
    assert!(
        (20..40).contains(&sizes[0]) && (50..80).contains(&sizes[1]),
        "{sizes:?} MiB"
    );
    assert_ne!(heaps[0].owner, heaps[1].owner);
    assert!(peer.ask::<bool>(&0u8), "the child has ended");
    assert_eq!(stage.books().0.len(), 1);
}

#[test]
fn a_program_that_execs_is_charged_for_the_new_one_only() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    // The shell takes memory, then becomes a program that waits.
    let script = "x=$(head -c 8000000 /dev/zero | tr '\\0' a); exec cat";
    let mut cat = stage.command("bash");
    let cat = cat
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut cat = cat.spawn().expect("bash");
    let mut input = cat.stdin.take().expect("a pipe");
    let mut output = cat.stdout.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"x").expect("write");
    std::io::Read::read_exact(&mut output, &mut [0]).expect("it is cat now");
    // The manager notices the old connection's end at any time.
    while stage.books().1 > 4 * MIB {
        thread::yield_now();
    }
    drop((input, output));
    assert!(cat.wait().expect("cat").success());
    stage.wait_until_empty();
}

child!(
    /// Keeps a number of further MiB, then tries to get one more block of a given size; reports whether it could.
    fn worker(ctl: Control) -> Result<(), String> {
        let mut kept = Vec::new();
        while let Some((keep, more)) = ctl.recv::<(usize, usize)>().map_err(|e| e.to_string())? {
            kept.extend(some(keep, 1));
            let mut block: Vec<u8> = Vec::new();
            let could = block.try_reserve_exact(more << 20).is_ok();
            if could {
                block.resize(more << 20, 2);
            }
            assert!(intact(&kept, 1));
            ctl.send(&could).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
);

#[test]
fn a_heap_outlives_managers_and_tells_the_next_one() {
    let _dog = dog();
    let mut stage = Stage::new(4096 * MIB);
    let peer = stage.under(worker()).start().expect("start");
    assert!(peer.ask::<bool>(&(20usize, 5usize)));
    assert!(stage.only_heap().admitted_bytes >= 20 * MIB);
    for _ in 0..3 {
        stage.end();
        assert!(peer.ask::<bool>(&(1usize, 10usize)), "without a manager");
        stage.begin(4096 * MIB);
        // It searches for a manager when it needs memory, now and then.
        while stage.books().0.is_empty() {
            assert!(peer.ask::<bool>(&(0usize, 2usize)));
        }
        let admitted = stage.only_heap().admitted_bytes;
        assert!((20..64).contains(&(admitted / MIB)), "{admitted}");
    }
    assert!(peer.ask::<bool>(&(5usize, 10usize)), "and it goes on");
}
