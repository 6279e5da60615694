//! A forked child has a whole copy of every zone, whatever other threads were doing.

mod common;

use common::watchdog;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_items::reaper::{self, Driver};
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone, Level};

fn churn(zone: &ItemZone<Bytes>, items: usize) {
    let all: Vec<NonNull<u8>> = (0..items).map(|_| zone.alloc(()).expect("room")).collect();
    for &item in &all {
        // SAFETY: ours.
        unsafe { item.as_ptr().write_bytes(7, 100) };
    }
    // SAFETY: each once.
    all.into_iter().for_each(|item| unsafe { zone.free(item) });
}

/// A thread of the parent has at most this many items in use.
const OUT: usize = 700;

/// Runs in the child: no other thread exists there.
fn child(zones: &[Arc<ItemZone<Bytes>>], kept: NonNull<u8>) -> i32 {
    for zone in zones {
        churn(zone, 3000);
        zone.drain(Level::All);
    }
    // SAFETY: the parent's, copied.
    if unsafe { kept.as_ptr().read() } != 42 {
        return 2;
    }
    while reaper::period_over() {}
    // Cached items go back here too; the parent's threads had at most `OUT` items each in use, or in a cache that was
    // being used in that moment.
    let most = 1 + OUT + 2 * 254;
    match zones.iter().any(|zone| zone.stats().items > most as u64) {
        true => 3,
        false => 0,
    }
}

#[test]
fn children_forked_at_any_moment_work() {
    let _watchdog = watchdog();
    reaper::set_driver(Driver::Nobody);
    let arena = Arc::new(Arena::private(1 << 30).expect("arena"));
    let keg = ItemKeg::new(&arena, 128, 16).expect("keg");
    let other = ItemKeg::new(&arena, 512, 16).expect("keg");
    let zones: Vec<_> = [&keg, &keg, &other]
        .map(|keg| {
            Arc::new(ItemZone::new(
                keg,
                Bytes,
                ItemOptions::named("z").max(100_000),
            ))
        })
        .into();
    let kept = zones[0].alloc(()).expect("room");
    // SAFETY: ours.
    unsafe { kept.as_ptr().write(42) };
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = zones
        .iter()
        .cloned()
        .map(|zone| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    churn(&zone, 1 + round % OUT);
                    round += 37;
                    if round % 16 == 0 {
                        zone.drain(Level::All);
                    }
                }
            })
        })
        .collect();
    let rounds = if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        1000
    } else {
        20
    };
    for round in 0..rounds {
        // SAFETY: the child calls only this crate and the C library's memory, which survive a fork, and ends
        // with `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // SAFETY: ends the process; SIGALRM does, if it hangs.
            unsafe {
                libc::alarm(60);
                libc::_exit(child(&zones, kept));
            }
        }
        let mut status = 0;
        // SAFETY: our own child.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!((waited, status), (pid, 0), "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("thread");
    }
    // SAFETY: once.
    unsafe { zones[0].free(kept) };
    for zone in &zones {
        zone.drain(Level::All);
        assert_eq!(zone.stats().items, 0);
    }
    assert_eq!(keg.used_items() + other.used_items(), 0);
}
