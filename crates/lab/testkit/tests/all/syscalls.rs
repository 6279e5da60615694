//! The counter sees exactly the calls of a child.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tranship_testkit::syscalls::SyscallCounter;
use tranship_testkit::{Control, Watchdog, child};

static STEP: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// Two threads: this one does as it is told, the other spins, and makes a system call only when asked.
child!(
    fn busy(ctl: Control) {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let spinner = std::thread::spawn({
            let stop = stop.clone();
            move || {
                while !stop.load(Ordering::SeqCst) {
                    STEP.fetch_add(1, Ordering::SeqCst);
                    if CALLS.load(Ordering::SeqCst) > 0 {
                        // SAFETY: no arguments.
                        unsafe { libc::syscall(libc::SYS_getppid) };
                        CALLS.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            }
        });
        while let Some(n) = ctl.recv::<u64>().unwrap() {
            CALLS.store(n, Ordering::SeqCst);
            let from = STEP.load(Ordering::SeqCst);
            // A spin without system calls until the other has done its part and a million steps.
            while CALLS.load(Ordering::SeqCst) > 0 || STEP.load(Ordering::SeqCst) < from + 1_000_000
            {
                std::hint::spin_loop();
            }
            let late = std::thread::spawn(|| {
                // SAFETY: no arguments.
                unsafe { libc::syscall(libc::SYS_getpgid, 0) };
            });
            late.join().unwrap();
            ctl.send(&n).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        spinner.join().unwrap();
    }
);

child!(
    fn spins(ctl: Control) {
        ctl.send(&0).unwrap();
        loop {
            STEP.fetch_add(1, Ordering::SeqCst);
        }
    }
);

/// User time of a process.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(11)
        .unwrap()
        .parse()
        .unwrap()
}

fn number(n: libc::c_long) -> u64 {
    u64::try_from(n).unwrap()
}

#[test]
fn counts_every_thread_and_lets_go() {
    let _dog = Watchdog::new();
    let peer = busy().start().unwrap();
    peer.ask::<u64>(&0);
    let counter = SyscallCounter::attach(peer.pid()).unwrap();
    peer.ask::<u64>(&0);
    let mark = counter.counts();
    peer.ask::<u64>(&5);
    let since = counter.since(&mark);
    assert_eq!(since.get(&number(libc::SYS_getppid)), Some(&5), "{since:?}");
    let mark = counter.counts();
    peer.ask::<u64>(&7);
    let since = counter.since(&mark);
    assert_eq!(
        since.get(&number(libc::SYS_getpgid)),
        Some(&1),
        "threads that start later too: {since:?}"
    );
    peer.stop();
    peer.resume();
    drop(counter);
    assert_eq!(peer.ask::<u64>(&3), 3, "runs on without us");
    let status = std::fs::read_to_string(format!("/proc/{}/status", peer.pid())).unwrap();
    assert!(status.contains("TracerPid:\t0"), "{status}");
}

#[test]
fn of_one_thread_what_others_do_is_not_counted() {
    let _dog = Watchdog::new();
    let peer = busy().start().unwrap();
    peer.ask::<u64>(&0);
    let counter = SyscallCounter::attach_thread(peer.pid()).unwrap();
    peer.ask::<u64>(&0);
    let mark = counter.counts();
    peer.ask::<u64>(&5);
    let since = counter.since(&mark);
    assert!(!since.is_empty(), "what came and went is its own");
    for others in [libc::SYS_getppid, libc::SYS_getpgid] {
        assert_eq!(since.get(&number(others)), None, "{since:?}");
    }
    peer.stop();
    peer.resume();
    drop(counter);
    assert_eq!(peer.ask::<u64>(&3), 3, "runs on without us");
}

#[test]
fn a_spinning_process_makes_none() {
    let _dog = Watchdog::new();
    let peer = spins().start().unwrap();
    peer.expect::<i32>();
    let counter = SyscallCounter::attach(peer.pid()).unwrap();
    let mark = counter.counts();
    let from = cpu_ticks(peer.pid());
    while cpu_ticks(peer.pid()) < from + 5 {
        std::thread::yield_now();
    }
    assert_eq!(counter.since(&mark), Default::default());
    peer.kill();
}

#[test]
fn what_cannot_be_traced_is_an_error() {
    assert!(SyscallCounter::attach(u32::MAX >> 1).is_err());
}
