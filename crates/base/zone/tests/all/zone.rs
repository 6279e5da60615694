//! Zones under threads: every item has one owner at a time, and none gets lost.

use crate::common::watchdog;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use tranship_zone::{Backend, Level, Zone, ZoneConfig};

const SEED: u64 = 0x5eed_2004;

fn membarrier() -> bool {
    const REGISTER: libc::c_int = 1 << 4;
    const EXPEDITED: libc::c_int = 1 << 3;
    // SAFETY: membarrier reads and writes no memory of ours.
    let call = |command: libc::c_int| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    call(REGISTER) == 0 && call(EXPEDITED) == 0
}

/// `count` items; knows which are here.
struct Store {
    here: Mutex<Vec<u32>>,
    out: Vec<AtomicBool>,
    told: AtomicU32,
}

impl Store {
    fn new(count: u32) -> Arc<Self> {
        let out = std::iter::repeat_with(AtomicBool::default)
            .take(count as usize)
            .collect();
        Arc::new(Self {
            here: Mutex::new((0..count).collect()),
            out,
            told: AtomicU32::new(0),
        })
    }

    fn here(&self) -> usize {
        self.here.lock().expect("no panic in the store").len()
    }
}

struct Shared(Arc<Store>);

impl Backend for Shared {
    fn import(&self, out: &mut Vec<u32>, want: usize) {
        let mut here = self.0.here.lock().expect("no panic in the store");
        for _ in 0..want {
            let Some(item) = here.pop() else { return };
            assert!(
                !self.0.out[item as usize].swap(true, Ordering::Relaxed),
                "item {item} was out"
            );
            out.push(item);
        }
    }

    fn release(&self, items: &[u32]) {
        for &item in items {
            assert!(
                self.0.out[item as usize].swap(false, Ordering::Relaxed),
                "item {item} was here"
            );
        }
        self.0
            .here
            .lock()
            .expect("no panic in the store")
            .extend_from_slice(items);
    }

    fn pressure_free(&self) {
        self.0.told.fetch_add(1, Ordering::Relaxed);
    }
}

fn config(max: u32) -> ZoneConfig {
    ZoneConfig {
        initial: max.min(4),
        max,
        depot_items: 2 * max,
        barrier: Some(membarrier),
        allocator: false,
        shut_in_child: false,
    }
}

fn zone(items: u32, config: ZoneConfig) -> (Arc<Zone<Shared>>, Arc<Store>) {
    let store = Store::new(items);
    (Arc::new(Zone::new(config, Shared(store.clone()))), store)
}

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Set when a worker ends, also by a panic.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs threads that allocate, free, and free the items of other threads.
fn churn(zone: &Arc<Zone<Shared>>, items: u32, threads: u64, rounds: u32, stop: &Arc<AtomicBool>) {
    let owned: Arc<Vec<AtomicBool>> = Arc::new(
        std::iter::repeat_with(AtomicBool::default)
            .take(items as usize)
            .collect(),
    );
    let exchange: Arc<Mutex<Vec<u32>>> = Arc::default();
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let (zone, owned, exchange, stop) =
                (zone.clone(), owned.clone(), exchange.clone(), stop.clone());
            thread::spawn(move || {
                let _stop = StopOnDrop(stop);
                let mut state = SEED + number;
                let mut held = Vec::new();
                let free = |item: u32| {
                    assert!(
                        owned[item as usize].swap(false, Ordering::Relaxed),
                        "item {item} freed, not owned"
                    );
                    zone.free(item);
                };
                for _ in 0..rounds {
                    match random(&mut state) % 8 {
                        0..4 => {
                            if let Some(item) = zone.alloc() {
                                assert!(
                                    !owned[item as usize].swap(true, Ordering::Relaxed),
                                    "item {item} twice"
                                );
                                held.push(item);
                            }
                        }
                        4..7 if !held.is_empty() => {
                            let at =
                                usize::try_from(random(&mut state)).expect("31 bits") % held.len();
                            free(held.swap_remove(at));
                        }
                        _ => {
                            let mut exchange = exchange.lock().expect("no panic");
                            std::mem::swap(&mut *exchange, &mut held);
                        }
                    }
                }
                held.into_iter().for_each(free);
            })
        })
        .collect();
    for worker in workers {
        worker
            .join()
            .unwrap_or_else(|_| panic!("a worker failed; seed {SEED:#x}"));
    }
    for item in exchange.lock().expect("no panic").drain(..) {
        assert!(owned[item as usize].swap(false, Ordering::Relaxed));
        zone.free(item);
    }
}

#[test]
fn every_item_has_one_owner_and_all_come_back() {
    let _watchdog = watchdog();
    for (items, max) in [(5, 0), (40, 4), (300, 16), (3000, 254)] {
        let (zone, store) = zone(items, config(max));
        churn(&zone, items, 4, 60_000, &Arc::default());
        assert_eq!(zone.outstanding(), 0);
        assert_eq!(
            zone.stats().cached() + store.here() as u64,
            u64::from(items),
            "{:?}",
            zone.stats()
        );
        zone.drain(Level::All);
        assert_eq!(store.here(), items as usize, "{:?}", zone.stats());
    }
}

#[test]
fn drains_pressure_and_new_capacities_may_come_at_any_moment() {
    let _watchdog = watchdog();
    let (zone, store) = zone(500, config(16));
    let stop = Arc::<AtomicBool>::default();
    let thief = thread::spawn({
        let (zone, stop) = (zone.clone(), stop.clone());
        move || {
            let mut state = SEED;
            while !stop.load(Ordering::Relaxed) {
                match random(&mut state) % 5 {
                    0 => zone.set_pressure(true),
                    1 => zone.set_pressure(false),
                    2 => zone
                        .set_capacity(u32::try_from(random(&mut state) % 20).expect("small"), 30),
                    _ => zone.drain(Level::All),
                }
                // Frees are read first, so never more frees than allocs.
                let stats = zone.stats();
                assert!(stats.allocs >= stats.frees, "{stats:?}");
            }
        }
    });
    churn(&zone, 500, 3, 200_000, &stop);
    thief
        .join()
        .unwrap_or_else(|_| panic!("the thief failed; seed {SEED:#x}"));
    assert_eq!(zone.outstanding(), 0);
    zone.drain(Level::All);
    assert_eq!(store.here(), 500, "{:?}", zone.stats());
}

#[test]
fn a_thief_and_an_owner_in_its_fast_path_never_take_the_same_item() {
    let _watchdog = watchdog();
    let (zone, store) = zone(64, config(16));
    let stop = Arc::<AtomicBool>::default();
    let owned: Vec<_> = std::iter::repeat_with(AtomicBool::default)
        .take(64)
        .collect();
    thread::scope(|scope| {
        let work = || {
            let _stop = StopOnDrop(stop.clone());
            while !stop.load(Ordering::Relaxed) {
                let items: [_; 6] =
                    std::array::from_fn(|_| zone.alloc().expect("64 items, few threads"));
                for item in items {
                    assert!(
                        !owned[item as usize].swap(true, Ordering::Relaxed),
                        "item {item} twice"
                    );
                }
                for item in items {
                    owned[item as usize].store(false, Ordering::Relaxed);
                    zone.free(item);
                }
            }
        };
        scope.spawn(work);
        for _ in 0..30_000 {
            zone.drain(Level::All);
        }
        stop.store(true, Ordering::Relaxed);
    });
    zone.drain(Level::All);
    assert_eq!((zone.outstanding(), store.here()), (0, 64));
}

/// Starts a thread that has cached items and then waits; on a second message it allocates and frees one item.
fn idler(zone: &Arc<Zone<Shared>>) -> (thread::JoinHandle<()>, Arc<Barrier>) {
    let (zone, gate) = (zone.clone(), Arc::new(Barrier::new(2)));
    let inside = gate.clone();
    let handle = thread::spawn(move || {
        let held: Vec<_> = (0..8).map_while(|_| zone.alloc()).collect();
        held.into_iter().for_each(|item| zone.free(item));
        inside.wait();
        inside.wait();
        if let Some(item) = zone.alloc() {
            zone.free(item);
        }
        inside.wait();
        inside.wait();
    });
    gate.wait();
    (handle, gate)
}

#[test]
fn a_sleeping_thread_is_robbed() {
    let _watchdog = watchdog();
    let (zone, store) = zone(8, config(8));
    let (handle, gate) = idler(&zone);
    assert!(store.here() < 8 && zone.outstanding() == 0);
    zone.drain(Level::Depot);
    zone.drain(Level::Thread);
    assert!(store.here() < 8);
    zone.drain(Level::All);
    assert_eq!(store.here(), 8);
    gate.wait();
    gate.wait();
    gate.wait();
    handle.join().expect("no panic");
    assert_eq!(store.here() as u64 + zone.stats().cached(), 8);
}

#[test]
fn without_a_barrier_it_flushes_when_it_wakes_under_pressure() {
    let _watchdog = watchdog();
    let (zone, store) = zone(
        8,
        ZoneConfig {
            barrier: None,
            ..config(8)
        },
    );
    let (handle, gate) = idler(&zone);
    zone.set_pressure(true);
    assert!(store.here() < 8);
    gate.wait();
    gate.wait();
    assert_eq!(store.here(), 8);
    assert!(store.told.load(Ordering::Relaxed) > 0);
    gate.wait();
    handle.join().expect("no panic");
}

#[test]
fn a_thread_that_ends_leaves_nothing_behind() {
    let (zone, store) = zone(64, config(64));
    let shared = zone.clone();
    let alloc = move || {
        (0..20)
            .map(|_| shared.alloc().expect("64 items"))
            .collect::<Vec<_>>()
    };
    let items = thread::spawn(alloc).join().expect("no panic");
    assert_eq!((zone.outstanding(), zone.stats().threads), (20, 0));
    let shared = zone.clone();
    thread::spawn(move || items.into_iter().for_each(|item| shared.free(item)))
        .join()
        .expect("no panic");
    assert_eq!(zone.outstanding(), 0);
    zone.drain(Level::Depot);
    assert_eq!(store.here(), 64);
}

#[test]
fn items_can_be_freed_and_allocated_by_destructors_of_thread_locals() {
    struct Late(Option<(Arc<Zone<Shared>>, u32)>);
    impl Drop for Late {
        fn drop(&mut self) {
            if let Some((zone, item)) = self.0.take() {
                zone.free(item);
                let other = zone.alloc().expect("one was just freed");
                zone.free(other);
            }
        }
    }
    thread_local! {
        static EARLY: std::cell::RefCell<Late> = const { std::cell::RefCell::new(Late(None)) };
        static LATE: std::cell::RefCell<Late> = const { std::cell::RefCell::new(Late(None)) };
    }
    let (zone, store) = zone(16, config(8));
    let shared = zone.clone();
    let run = move || {
        // One destructor is registered before the caches' destructor, and one after it.
        EARLY.with(|_| ());
        let items = [shared.alloc(), shared.alloc()].map(|item| item.expect("16 items"));
        EARLY.set(Late(Some((shared.clone(), items[0]))));
        LATE.set(Late(Some((shared.clone(), items[1]))));
    };
    thread::spawn(run).join().expect("no panic");
    assert_eq!(zone.outstanding(), 0);
    zone.drain(Level::Depot);
    assert_eq!(store.here(), 16);
}

#[test]
fn a_zone_that_is_gone_leaves_nothing_in_the_next_one() {
    let _watchdog = watchdog();
    let gate = Arc::new(Barrier::new(2));
    let (first, _store) = zone(100, config(16));
    let (send, receive) = mpsc::channel::<Arc<Zone<Shared>>>();
    let worker = thread::spawn({
        let (first, gate) = (first.clone(), gate.clone());
        move || {
            let items: Vec<_> = (0..10).map(|_| first.alloc().expect("100 items")).collect();
            items.into_iter().for_each(|item| first.free(item));
            drop(first);
            gate.wait();
            let mut seen = Vec::new();
            for zone in receive {
                let item = zone.alloc().expect("one item");
                seen.push(item);
                zone.free(item);
            }
            seen
        }
    });
    gate.wait();
    drop(first);
    // Some of these get the index of the first; each has the one item 0.
    let zones: Vec<_> = (0..200).map(|_| zone(1, config(16)).0).collect();
    for zone in &zones {
        send.send(zone.clone()).expect("the worker listens");
    }
    drop(send);
    assert_eq!(worker.join().expect("no panic"), vec![0; 200]);
}

#[test]
fn an_import_may_fail_and_later_succeed() {
    let (zone, store) = zone(0, config(8));
    assert_eq!(zone.alloc(), None);
    assert_eq!((zone.stats().failures, zone.outstanding()), (1, 0));
    // Items from elsewhere, such as a new chunk, are found.
    store.here.lock().expect("no panic").clear();
    let (zone, store) = self::zone(3, config(8));
    let items: Vec<_> = (0..4).map(|_| zone.alloc()).collect();
    assert!(items[..3].iter().all(Option::is_some) && items[3].is_none());
    zone.free(items[0].expect("checked"));
    assert_eq!(zone.alloc(), items[0]);
    assert_eq!((store.here(), zone.outstanding()), (0, 3));
}

#[test]
fn under_pressure_nothing_is_cached_and_the_backend_is_told() {
    let (zone, store) = zone(10, config(8));
    let items: Vec<_> = (0..6).map(|_| zone.alloc().expect("10 items")).collect();
    zone.set_pressure(true);
    assert_eq!(store.here(), 4);
    let told = store.told.load(Ordering::Relaxed);
    zone.free(items[0]);
    assert_eq!(
        (store.here(), store.told.load(Ordering::Relaxed)),
        (5, told + 1)
    );
    assert!(zone.alloc().is_some());
    assert_eq!(store.here(), 4);
    zone.set_pressure(false);
    zone.free(items[1]);
    assert_eq!(store.here(), 4);
}

#[test]
fn a_closed_zone_takes_but_does_not_give() {
    let (zone, store) = zone(10, config(8));
    let item = zone.alloc().expect("10 items");
    zone.close();
    zone.set_pressure(false);
    assert_eq!(
        (zone.alloc(), zone.outstanding(), store.here()),
        (None, 1, 9)
    );
    zone.free(item);
    assert_eq!((zone.outstanding(), store.here()), (0, 10));
}

#[test]
fn what_the_backend_took_back_itself_is_not_out() {
    let (zone, store) = zone(10, config(4));
    let item = zone.alloc().expect("10 items");
    zone.backend().release(&[item]);
    zone.took_back(1);
    assert_eq!(zone.outstanding(), 0);
    assert_eq!(zone.stats().cached() + store.here() as u64, 10);
}

#[test]
fn a_backend_may_call_its_zone() {
    /// Frees to its own zone while it imports, as a collector does.
    struct Collector(
        std::sync::OnceLock<std::sync::Weak<Zone<Collector>>>,
        AtomicU64,
    );
    impl Backend for Collector {
        fn import(&self, out: &mut Vec<u32>, want: usize) {
            let next = || u32::try_from(self.1.fetch_add(1, Ordering::Relaxed)).expect("few");
            out.extend((0..want).map(|_| next()));
            if let Some(zone) = self.0.get().and_then(std::sync::Weak::upgrade)
                && let Some(item) = out.pop()
            {
                zone.free(item);
            }
        }
        fn release(&self, _items: &[u32]) {}
    }
    let zone = Arc::new(Zone::new(
        config(4),
        Collector(std::sync::OnceLock::new(), AtomicU64::new(0)),
    ));
    assert!(zone.backend().0.set(Arc::downgrade(&zone)).is_ok());
    let mut items: Vec<_> = (0..100).map(|_| zone.alloc().expect("endless")).collect();
    items.sort_unstable();
    items.dedup();
    assert_eq!(items.len(), 100);
}
