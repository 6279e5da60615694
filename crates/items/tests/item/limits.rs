//! Limits, and the threads that sleep at them.

use super::*;

#[test]
fn at_the_limit_others_caches_are_no_reason_for_having_none() {
    let keg = keg(128);
    let zone = Arc::new(ItemZone::new(&keg, Bytes, ItemOptions::named("z").max(64)));
    let (to_main, from_other) = std::sync::mpsc::channel();
    let (to_other, from_main) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn({
        let zone = zone.clone();
        move || {
            let items: Vec<_> = (0..40).map(|_| zone.alloc(()).expect("room")).collect();
            // SAFETY: each once.
            items
                .into_iter()
                .for_each(|item| unsafe { zone.free(item) });
            to_main.send(()).expect("main");
            from_main.recv().expect("main");
        }
    });
    from_other.recv().expect("other");
    assert!(zone.stats().items > 0);
    let items: Vec<_> = (0..64).map(|_| zone.alloc(()).expect("64 of 64")).collect();
    assert_eq!(zone.alloc(()), None);
    assert_eq!(
        zone.request((), Request::default()),
        Err(AllocError::Limit { max: 64 })
    );
    let soon = Request::wait(Wait::at_most(Duration::from_millis(5)));
    assert_eq!(zone.request((), soon), Err(AllocError::Limit { max: 64 }));
    assert_eq!(zone.stats().sleeps, 1);
    zone.set_max(65);
    let one = zone.alloc(()).expect("one more");
    // SAFETY: each once.
    items
        .into_iter()
        .chain([one])
        .for_each(|item| unsafe { zone.free(item) });
    zone.set_max(3);
    let items: Vec<_> = std::iter::from_fn(|| zone.alloc(())).collect();
    assert_eq!(items.len(), 3);
    // SAFETY: each once.
    items
        .into_iter()
        .for_each(|item| unsafe { zone.free(item) });
    to_other.send(()).expect("other");
    other.join().expect("other");
}

#[test]
fn sleepers_are_served_in_the_order_in_which_they_came() {
    watched(|| {
        let keg = keg(128);
        let zone = Arc::new(ItemZone::new(&keg, Bytes, ItemOptions::named("z").max(4)));
        let held: Vec<_> = (0..4).map(|_| zone.alloc(()).expect("room")).collect();
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..8u64)
            .map(|number| {
                let (zone, order) = (zone.clone(), order.clone());
                let thread = std::thread::spawn({
                    let zone = zone.clone();
                    move || {
                        let item = zone
                            .request((), Request::wait(Wait::Forever))
                            .expect("served");
                        order.lock().expect("unpoisoned").push(number);
                        // SAFETY: once.
                        unsafe { zone.free(item) };
                    }
                });
                while zone.stats().sleepers <= number {
                    std::thread::yield_now();
                }
                thread
            })
            .collect();
        assert!(zone.is_exhausted());
        assert_eq!(zone.alloc(()), None, "nobody passes those who wait");
        // SAFETY: once. Each sleeper frees its item, which serves the next one.
        unsafe { zone.free(held[0]) };
        for thread in threads {
            thread.join().expect("sleeper");
        }
        assert_eq!(*order.lock().expect("unpoisoned"), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(zone.stats().sleeps, 8);
        // SAFETY: each once.
        held[1..]
            .iter()
            .for_each(|&item| unsafe { zone.free(item) });
        zone.drain(Level::All);
        assert_eq!(zone.stats().items, 0);
    });
}

#[test]
fn raising_the_limit_serves_who_sleeps() {
    watched(|| {
        let zone = Arc::new(ItemZone::new(
            &keg(128),
            Bytes,
            ItemOptions::named("z").max(1),
        ));
        let item = zone.alloc(()).expect("room");
        let sleeper = std::thread::spawn({
            let zone = zone.clone();
            move || {
                let item = zone.request((), Request::wait(Wait::Forever));
                // SAFETY: once.
                unsafe { zone.free(item.expect("served")) };
            }
        });
        while zone.stats().sleepers == 0 {
            std::thread::yield_now();
        }
        zone.set_max(2);
        sleeper.join().expect("sleeper");
        // SAFETY: once.
        unsafe { zone.free(item) };
    });
}

/// Items freed above a lowered limit are not handed out again: not out of caches either.
#[test]
fn a_lowered_limit_holds_as_soon_as_items_come_back() {
    for elsewhere in [false, true] {
        let zone = Arc::new(ItemZone::new(
            &keg(128),
            Bytes,
            ItemOptions::named("z").max(1000),
        ));
        let mut out: Vec<_> = (0..5).map(|_| zone.alloc(()).expect("room")).collect();
        zone.set_max(2);
        let mut free = |count: usize| {
            for item in out.drain(..count) {
                let address = item.addr();
                let work = || {
                    let base = zone.keg().arena().base();
                    // SAFETY: once each.
                    unsafe { zone.free(base.with_addr(address)) };
                };
                if elsewhere {
                    std::thread::scope(|scope| scope.spawn(work).join()).expect("thread");
                } else {
                    work();
                }
            }
        };
        for left in [4, 3] {
            free(1);
            assert_eq!(zone.alloc(()), None, "{left} are out");
            assert_eq!(zone.stats().items, left);
        }
        free(3);
        // From here on the zone caches again, up to the limit.
        for _ in 0..2 {
            let item = zone.alloc(()).expect("none is out");
            // SAFETY: once.
            unsafe { zone.free(item) };
        }
        let cached = zone.alloc_cached().expect("what was just freed");
        let second = zone.alloc(()).expect("two are allowed");
        assert_eq!((zone.alloc(()), zone.stats().items), (None, 2));
        for item in [cached, second] {
            // SAFETY: each once.
            unsafe { zone.free(item) };
        }
    }
}

#[test]
fn closing_refuses_who_sleeps() {
    watched(|| {
        let keg = keg(128);
        let zone = Arc::new(ItemZone::new(&keg, Bytes, ItemOptions::named("z").max(1)));
        let item = zone.alloc(()).expect("room");
        let sleeper = std::thread::spawn({
            let zone = zone.clone();
            move || zone.request((), Request::wait(Wait::Forever)).is_err()
        });
        while zone.stats().sleepers == 0 {
            std::thread::yield_now();
        }
        zone.close();
        assert!(sleeper.join().expect("sleeper"));
        assert_eq!(
            zone.request((), Request::default()),
            Err(AllocError::Closed)
        );
        // SAFETY: once.
        unsafe { zone.free(item) };
        assert_eq!(keg.used_items(), 0);
    });
}

#[test]
fn a_zone_at_its_limit_loses_nothing_under_many_threads() {
    watched(|| {
        let keg = keg(64);
        let zone = Arc::new(ItemZone::new(&keg, Bytes, ItemOptions::named("z").max(10)));
        let out = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..4u32)
            .map(|seed| {
                let (zone, out) = (zone.clone(), out.clone());
                std::thread::spawn(move || {
                    for round in 0..2000 {
                        let wait = match (seed + round) % 3 {
                            0 => Wait::No,
                            1 => Wait::Forever,
                            _ => Wait::at_most(Duration::from_micros(50)),
                        };
                        let mut items = Vec::new();
                        for _ in 0..1 + round % 2 {
                            items.extend(zone.request((), Request::wait(wait)));
                            let now = out.fetch_add(1, Ordering::Relaxed);
                            assert!(now < 16);
                        }
                        out.fetch_sub(1 + round % 2, Ordering::Relaxed);
                        // SAFETY: each once.
                        items
                            .into_iter()
                            .for_each(|item| unsafe { zone.free(item) });
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("thread");
        }
        zone.drain(Level::All);
        let stats = zone.stats();
        assert_eq!((stats.items, stats.sleepers, keg.used_items()), (0, 0, 0));
        assert_eq!(stats.zone.outstanding(), 0);
    });
}
