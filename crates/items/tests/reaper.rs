//! The thread that keeps time.

mod common;

use common::watchdog;
use std::sync::Arc;
use std::time::Duration;
use tranship_items::reaper::{self, Driver};
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("tasks").count()
}

#[test]
fn nobody_calls_and_the_memory_goes_back_and_the_thread_sleeps_and_wakes() {
    let _watchdog = watchdog();
    reaper::set_period(Duration::from_millis(2));
    let arena = Arc::new(Arena::private(1 << 30).expect("arena"));
    let keg = ItemKeg::new(&arena, 2048, 16).expect("keg");
    let before = threads();
    let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("z"));
    assert_eq!(threads(), before, "a zone alone starts no thread");
    for _ in 0..3 {
        let items: Vec<_> = (0..5000).map(|_| zone.alloc(()).expect("room")).collect();
        // SAFETY: each once.
        items
            .into_iter()
            .for_each(|item| unsafe { zone.free(item) });
        assert_eq!(threads(), before + 1);
        // No bound on the time: a hang is the failure.
        while arena.stats().committed_pages > 0 {
            std::thread::yield_now();
        }
        assert_eq!(zone.stats().items, 0);
    }
    // Calls can keep time too.
    reaper::set_driver(Driver::Calls);
    let spike = |items| {
        let items: Vec<_> = (0..items).map(|_| zone.alloc(()).expect("room")).collect();
        // SAFETY: each once.
        items
            .into_iter()
            .for_each(|item| unsafe { zone.free(item) });
    };
    spike(5000);
    while arena.stats().given_back_pages < 4 * 2500 - 1000 {
        spike(200);
    }
}
