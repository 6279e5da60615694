//! The cache that a thread's fast path finds: its own, that of a zone of a high index, or in a forked child none.

mod common;

use common::watchdog;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tranship_zone::{Backend, CachePlace, Level, Zone, ZoneConfig};

#[derive(Default)]
struct Store(Mutex<Vec<u32>>);

impl Store {
    fn of(items: std::ops::Range<u32>) -> Store {
        Store(Mutex::new(items.collect()))
    }
}

impl Backend for Store {
    fn import(&self, out: &mut Vec<u32>, want: usize) {
        let mut here = self.0.lock().expect("no panic in the store");
        let rest = here.len().saturating_sub(want);
        out.extend(here.drain(rest..));
    }

    fn release(&self, items: &[u32]) {
        let mut here = self.0.lock().expect("no panic in the store");
        here.extend_from_slice(items);
    }
}

/// The lock of tests that use up the places of zones, and of those that need one: all are in one process.
static PLACES: Mutex<()> = Mutex::new(());

fn places() -> MutexGuard<'static, ()> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More zones than have a place of their own: each hands out its own items, from its cache.
#[test]
fn many_zones_do_not_mix_their_items() {
    let _places = places();
    const ZONES: u32 = 300;
    let zones: Vec<Zone<Store>> = (0..ZONES)
        .map(|zone| {
            let items = zone * 200..zone * 200 + 200;
            Zone::new(ZoneConfig::for_item(64), Store::of(items))
        })
        .collect();
    let work = || {
        for round in 0..3 {
            for (zone, first) in zones.iter().zip((0..).step_by(200)) {
                let item = zone.alloc().expect("200 items");
                assert!((first..first + 200).contains(&item), "{item} of {first}");
                zone.free(item);
                assert_eq!(zone.alloc(), Some(item), "cached, round {round}");
                zone.free(item);
            }
        }
    };
    work();
    // Joined by hand: a scope does not wait for the thread to have given its caches back.
    std::thread::scope(|scope| scope.spawn(work).join()).expect("thread");
    for zone in &zones {
        let stats = zone.stats();
        assert_eq!((stats.allocs, stats.frees), (12, 12));
        let once_a_thread = stats.imported <= 2 * u64::from(stats.bucket_items);
        assert!(once_a_thread, "{stats:?}");
        zone.drain(Level::All);
        let back = zone.backend().0.lock().expect("no panic").len();
        assert_eq!(back, 200);
    }
}

/// A zone finds a cache only with its own place, and puts freed items only there.
#[test]
fn in_the_place_of_another_zone_nothing_is_found() {
    let _places = places();
    let [one, two] =
        [0..100, 100..200].map(|items| Zone::new(ZoneConfig::for_item(64), Store::of(items)));
    for zone in [&one, &two] {
        zone.free(zone.alloc().expect("100 items"));
    }
    assert_ne!(one.place(), two.place());
    // The cache of the other zone has an item, and room for one.
    let _other = two.alloc().expect("99 more");
    for number in 0..=u8::MAX {
        let place = CachePlace::numbered(number);
        let is_its = place == one.place();
        assert_eq!(place.number() == number, number < 128, "{number}");
        let item = one.alloc_cached_at(place);
        assert_eq!(item.is_some(), is_its, "{number}");
        let item = item.or_else(|| one.alloc()).expect("cached");
        assert!(item < 100, "{item} is the other's");
        let is_freed = one.free_cached_at(place, item);
        assert_eq!(is_freed, is_its, "{number}");
        if !is_freed {
            one.free(item);
        }
    }
    let stats = one.stats();
    assert_eq!((stats.allocs, stats.frees), (257, 257));
}

/// A cache that was shut takes no item, although it has room.
#[test]
fn under_pressure_nothing_is_put_into_a_cache() {
    let _places = places();
    let zone = Zone::new(ZoneConfig::for_item(64), Store::of(0..100));
    let items: Vec<_> = (0..4).map(|_| zone.alloc().expect("100 items")).collect();
    assert!(zone.free_cached_all(&items[..2]));
    zone.set_pressure(true);
    assert!(!zone.free_cached_all(&items[2..]));
    assert!(!zone.free_cached(items[2]));
    items[2..].iter().for_each(|item| zone.free(*item));
    assert_eq!(zone.stats().cached(), 0);
    zone.set_pressure(false);
    let item = zone.alloc().expect("100 items");
    assert!(zone.free_cached(item));
}

/// Items that go back together stay together, however full the first bucket is.
#[test]
fn several_items_stay_together_in_a_bucket() {
    let _places = places();
    let config = ZoneConfig {
        initial: 8,
        max: 8,
        ..ZoneConfig::for_item(64)
    };
    let zone = Zone::new(config, Store::of(0..100));
    let items: Vec<_> = (0..29).map(|_| zone.alloc().expect("100 items")).collect();
    // Three are left in the first bucket, the second one is empty.
    assert_eq!(zone.stats().cached(), 3);
    let [first, second, third] = [&items[..8], &items[8..16], &items[16..24]];
    assert!(zone.free_cached_all(first));
    assert!(!zone.free_cached_all(second), "no bucket is empty");
    let mut again: Vec<_> = (0..8).map(|_| zone.alloc().expect("cached")).collect();
    again.reverse();
    assert_eq!(again, first);
    assert!(zone.free_cached_all(third) && zone.stats().cached() == 11);
    let stats = zone.stats();
    assert_eq!((stats.allocs, stats.frees), (37, 16));
    assert!(
        !zone.free_cached_all(&items[..9]),
        "more than a bucket has room for"
    );
}

/// A place is had by the next zone, however many there were at once.
#[test]
fn after_many_zones_there_are_places_again() {
    let _places = places();
    let make = || Zone::new(ZoneConfig::for_item(64), Store::of(0..1));
    drop((0..300).map(|_| make()).collect::<Vec<_>>());
    let zones: Vec<_> = (0..100).map(|_| make()).collect();
    for zone in zones {
        zone.free(zone.alloc().expect("an item"));
        assert_eq!(zone.alloc_cached(), Some(0));
    }
}

/// A zone may be dropped while threads have caches of it; another zone then takes its place in their tables.
#[test]
fn a_place_that_is_used_again_has_nothing_of_the_zone_before() {
    let _places = places();
    for round in 0..200u32 {
        let zone = Zone::new(ZoneConfig::for_item(64), Store::of(round..round + 1));
        assert_eq!(zone.alloc_cached(), None);
        assert_eq!(zone.alloc(), Some(round));
        zone.free(round);
        assert_eq!(zone.alloc_cached(), Some(round));
    }
}

fn in_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls only functions that survive a fork, and ends with `_exit`, or by SIGALRM if it hangs.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: ends the process.
        unsafe {
            libc::alarm(60);
            libc::_exit(i32::from(!work()));
        }
    }
    let mut status = 0;
    // SAFETY: our own child.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status
}

#[test]
fn a_child_finds_shut_what_shall_be_shut_in_it() {
    let _watchdog = watchdog();
    let _places = places();
    let config = ZoneConfig::for_item(64);
    let open = Zone::new(config, Store::of(0..100));
    let shut = Zone::new(config.shut_in_child(), Store::of(0..100));
    let [kept, out] = [&open, &shut].map(|zone| zone.alloc().expect("100 items"));
    for zone in [&open, &shut] {
        let item = zone.alloc().expect("100 items");
        zone.free(item);
    }
    let status = in_child(|| {
        let open = open.alloc_cached().is_some() && open.free_cached(kept);
        let shut = shut.alloc_cached().is_none() && !shut.free_cached(out);
        // A zone of the child's own is not harmed by the cleared page.
        let own = Zone::new(config.shut_in_child(), Store::of(0..100));
        let item = own.alloc().expect("100 items");
        own.free(item);
        let cached = own.alloc_cached() == Some(item);
        open && shut && cached
    });
    assert_eq!(status, 0);
    assert!(shut.free_cached(out), "the parent's are as they were");
    assert!(shut.alloc_cached().is_some());
}

/// Threads without a cache yet all look into the same front without an owner, whose count they disturb for each other.
#[test]
fn threads_begin_together() {
    let _dog = watchdog();
    let zone = Zone::new(ZoneConfig::for_item(64), Store::of(0..4096));
    for _ in 0..2000 {
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            let begins = || {
                barrier.wait();
                zone.free(zone.alloc().expect("an item"));
            };
            // Joined by hand, as above: the items that they had cached are there for the next ones.
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(begins)).collect();
            threads
                .into_iter()
                .for_each(|thread| thread.join().expect("thread"));
        });
    }
}
