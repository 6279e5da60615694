//! Reclamation, with time kept by hand.

mod common;

use common::watchdog;
use std::ptr::NonNull;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard};
use tranship_items::arena::{Arena, File};
use tranship_items::reaper::{self, Driver};
use tranship_items::{Bytes, ItemKeg, ItemOptions, ItemZone, Level};

/// The reaper's time belongs to the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    reaper::set_driver(Driver::Nobody);
    one
}

fn make(bytes: u64) -> (Arc<Arena>, Arc<ItemKeg>, Arc<ItemZone<Bytes>>) {
    let arena = Arc::new(Arena::private(1 << 30).expect("arena"));
    let keg = ItemKeg::new(&arena, bytes, 16).expect("keg");
    let zone = Arc::new(ItemZone::new(&keg, Bytes, ItemOptions::named("spiky")));
    (arena, keg, zone)
}

fn spike(zone: &ItemZone<Bytes>, items: usize) {
    let all: Vec<NonNull<u8>> = (0..items).map(|_| zone.alloc(()).expect("room")).collect();
    for &item in &all {
        // SAFETY: ours, of at least 64 bytes.
        unsafe { item.as_ptr().write_bytes(1, 64) };
    }
    // SAFETY: each once.
    all.into_iter().for_each(|item| unsafe { zone.free(item) });
}

#[test]
fn after_a_spike_the_memory_goes_back_without_a_call() {
    let _watchdog = watchdog();
    let _alone = alone();
    for file in [false, true] {
        let (arena, keg, zone) = if file {
            let memory = File::create("reclaim", 1 << 30).expect("memfd");
            let arena = Arc::new(Arena::new(memory).expect("arena"));
            let keg = ItemKeg::new(&arena, 2048, 2048).expect("keg");
            let zone = Arc::new(ItemZone::new(&keg, Bytes, ItemOptions::named("file")));
            (arena, keg, zone)
        } else {
            make(2048)
        };
        spike(&zone, 20_000);
        assert!(arena.stats().committed_pages >= 10_000);
        let mut periods = 0;
        while reaper::period_over() {
            periods += 1;
            assert!(periods < 12, "{:?} {:?}", zone.stats(), arena.stats());
        }
        assert_eq!((zone.stats().items, keg.used_items()), (0, 0));
        assert_eq!(arena.stats().committed_pages, 0);
        assert_eq!(
            arena.stats().given_back_pages,
            arena.stats().given_back_pages.max(10_000)
        );
        // The zone still works.
        spike(&zone, 1000);
    }
}

#[test]
fn what_is_needed_again_and_again_stays() {
    let _watchdog = watchdog();
    let _alone = alone();
    let (arena, _keg, zone) = make(4096);
    for _ in 0..30 {
        spike(&zone, 4000);
        reaper::period_over();
    }
    let stats = zone.stats();
    assert!(stats.zone.working_set >= 3000, "{stats:?}");
    let (imported, given) = (stats.zone.imported, arena.stats().given_back_pages);
    for _ in 0..10 {
        spike(&zone, 4000);
        reaper::period_over();
    }
    let more = zone.stats().zone.imported - imported;
    assert!(more < 10 * 4000 / 4, "{more} of 40000 imported again");
    assert!(arena.stats().given_back_pages - given < 10_000);
}

#[test]
fn a_thread_that_sleeps_is_robbed_after_a_while_and_one_that_works_is_not() {
    let _watchdog = watchdog();
    let _alone = alone();
    let (_arena, keg, zone) = make(256);
    let (to_main, from_other) = channel();
    let (to_other, from_main) = channel::<()>();
    let other = std::thread::spawn({
        let zone = zone.clone();
        move || {
            spike(&zone, 20);
            to_main.send(()).expect("main");
            from_main.recv().expect("main");
            spike(&zone, 20);
        }
    });
    from_other.recv().expect("other");
    let item = zone.alloc(()).expect("room");
    // SAFETY: once.
    unsafe { zone.free(item) };
    let all = zone.stats().items;
    for _ in 0..3 {
        reaper::period_over();
    }
    assert_eq!(zone.stats().items, all, "not yet");
    for _ in 0..8 {
        let item = zone.alloc(()).expect("room");
        // SAFETY: once.
        unsafe { zone.free(item) };
        reaper::period_over();
    }
    let left = zone.stats().items;
    assert!(
        0 < left && left < all,
        "{left} of {all}: mine are there, the other's are not"
    );
    to_other.send(()).expect("other");
    other.join().expect("other");
    while reaper::period_over() {}
    assert_eq!((zone.stats().items, keg.used_items()), (0, 0));
    assert_eq!(zone.stats().zone.outstanding(), 0);
}

#[test]
fn buckets_shrink_when_nobody_meets() {
    let _watchdog = watchdog();
    let _alone = alone();
    let (_arena, _keg, zone) = make(64);
    let start = zone.stats().zone.bucket_items;
    let hot = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (zone, hot) = (zone.clone(), hot.clone());
            std::thread::spawn(move || {
                while hot.load(std::sync::atomic::Ordering::Relaxed) {
                    spike(&zone, 600);
                }
            })
        })
        .collect();
    while zone.stats().zone.bucket_items < start + 4 {
        std::thread::yield_now();
    }
    hot.store(false, std::sync::atomic::Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("thread");
    }
    let grown = zone.stats().zone.bucket_items;
    zone.drain(Level::All);
    let drained = zone.stats().zone.bucket_items;
    assert!(drained < grown, "{grown} to {drained}");
    for _ in 0..300 {
        reaper::period_over();
    }
    assert_eq!(zone.stats().zone.bucket_items, start);
}

#[test]
fn all_zones_can_be_drained() {
    let _watchdog = watchdog();
    let _alone = alone();
    let (arena, _keg, zone) = make(128);
    spike(&zone, 1000);
    assert!(zone.stats().zone.cached() > 0);
    assert!(reaper::reclaim(Level::All) > 0);
    assert_eq!(arena.stats().committed_pages, 0);
    assert_eq!(zone.stats().items, 0);
}

/// The zone of an allocator: only the thread that keeps its time, and a drain of the whole process, grow and shrink its
/// caches.
#[test]
fn caches_that_were_enlarged_hold_what_goes_to_and_fro_and_give_it_back_when_drained() {
    let _watchdog = watchdog();
    let _alone = alone();
    let arena = Arc::new(Arena::private(64 << 20).expect("arena"));
    let keg = ItemKeg::new(&arena, 4096, 16).expect("keg");
    let cache = tranship_items::ZoneConfig {
        initial: 4,
        max: 4,
        depot_items: 4,
        allocator: true,
        ..tranship_items::ZoneConfig::for_item(4096)
    };
    let options = ItemOptions {
        cache: Some(cache),
        ..ItemOptions::named("sized")
    };
    let zone = ItemZone::new(&keg, Bytes, options);
    let imported = |rounds| {
        let before = zone.stats().zone.imported;
        (0..rounds).for_each(|_| spike(&zone, 32));
        zone.stats().zone.imported - before
    };
    imported(2);
    assert!(imported(10) >= 10 * (32 - 3 * 4), "12 fit");
    zone.resize_caches(32, 8);
    imported(3);
    assert_eq!(imported(10), 0);
    assert!(zone.stats().zone.depot <= 8);
    // The depot holds buckets of both sizes while they change.
    zone.resize_caches(4, 4);
    zone.drain(Level::All);
    assert_eq!(zone.stats().items, 0);
    assert!(imported(10) >= 10 * (32 - 3 * 4));
}

#[test]
fn free_pages_lose_their_memory_in_the_order_in_which_they_were_freed() {
    let arena = Arena::private(64 << 20).expect("arena");
    let runs: Vec<_> = (0..8)
        .map(|_| arena.alloc_pages(16).expect("room"))
        .collect();
    // SAFETY: ours; nothing uses them afterwards.
    let free = |at: usize| unsafe {
        runs[at].write(1);
        arena.free_pages(runs[at]);
    };
    // SAFETY: the window is mapped with and without memory, and nothing writes there.
    let has_memory = |at: usize| unsafe { runs[at].read_volatile() == 1 };
    free(6);
    assert_eq!(arena.age(), 0);
    (0..6).for_each(free);
    assert_eq!(arena.used_and_spare(), (16, 112));
    assert_eq!(arena.trim(200), 0);
    assert_eq!(arena.trim(80), 32, "run 6, then run 0");
    assert_eq!(arena.used_and_spare(), (16, 80));
    assert_eq!([6, 0, 1, 5].map(has_memory), [false, false, true, true]);
    assert_eq!(arena.trim(79), 16, "whole runs");
    assert_eq!(arena.age(), 0, "what was old is gone already");
    assert_eq!((arena.trim(0), arena.used_and_spare()), (64, (16, 0)));
    let stats = arena.stats();
    assert_eq!((stats.used_pages, stats.committed_pages), (16, 16));
    free(7);
    assert_eq!((arena.purge(), arena.used_and_spare()), (16, (0, 0)));
}
