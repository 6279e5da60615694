//! The debug mode catches each kind of wrong use, and names the code that did it.

mod common;

use common::watchdog;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tranship_items::item::{Alarm, AllocError, DebugOptions, Refused, Request, Wait};
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone, Level, Object};

fn keg() -> Arc<ItemKeg> {
    let arena = Arc::new(Arena::private(64 << 20).expect("arena"));
    ItemKeg::with_slack(&arena, 100, 16, 16).expect("keg")
}

fn zone(keg: &Arc<ItemKeg>, name: &str) -> ItemZone<Bytes> {
    let options = ItemOptions::named(name).debug(DebugOptions::default());
    ItemZone::new(keg, Bytes, options)
}

/// Returns the message of the panic that `work` ends in.
fn caught(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("nothing was noticed");
    panic
        .downcast::<String>()
        .map_or_else(|_| String::new(), |text| *text)
}

#[inline(never)]
fn the_culprit_allocates(zone: &ItemZone<Bytes>) -> NonNull<u8> {
    zone.alloc(()).expect("room")
}

#[inline(never)]
fn the_culprit_frees(zone: &ItemZone<Bytes>, item: NonNull<u8>) {
    // SAFETY: to be found out, not to be harmful: the debug mode stops it.
    unsafe { zone.free(item) };
}

#[test]
fn a_double_free_is_caught_and_both_are_named() {
    let (keg, item);
    keg = self::keg();
    let zone = zone(&keg, "twice");
    item = the_culprit_allocates(&zone);
    the_culprit_frees(&zone, item);
    let text = caught(|| the_culprit_frees(&zone, item));
    assert!(text.contains("zone twice: double free"), "{text}");
    assert!(
        text.contains("the_culprit_allocates") && text.contains("the_culprit_frees"),
        "{text}"
    );
}

#[test]
fn a_use_after_free_is_caught_when_the_item_leaves_quarantine() {
    let _watchdog = watchdog();
    for keeps in [false, true] {
        let keg = keg();
        let text = if keeps {
            let options = ItemOptions::named("late").debug(DebugOptions::default());
            let zone = ItemZone::new(&keg, Kept, options);
            let item = zone.alloc(()).expect("room");
            // SAFETY: ours, until it is freed; then wrong on purpose, but not in use elsewhere yet.
            unsafe {
                zone.free(item);
                item.as_ptr().add(60).write(1);
            }
            caught(|| zone.drain(Level::Depot))
        } else {
            let zone = zone(&keg, "late");
            let item = the_culprit_allocates(&zone);
            the_culprit_frees(&zone, item);
            // SAFETY: wrong on purpose; not in use elsewhere yet.
            unsafe { item.as_ptr().add(99).write(1) };
            caught(|| {
                for _ in 0..300 {
                    let item = zone.alloc(()).expect("room");
                    the_culprit_frees(&zone, item);
                }
            })
        };
        assert!(text.contains("zone late: use after free"), "{text}");
    }
}

/// An object whose `init` state survives a free.
struct Kept;

impl Object for Kept {
    type Arg<'a> = ();
    const INITIALIZED: bool = true;

    fn init(&self, item: NonNull<u8>, _wait: Wait) -> Result<(), Refused> {
        // SAFETY: ours.
        unsafe { item.as_ptr().write_bytes(9, 100) };
        Ok(())
    }

    fn fini(&self, item: NonNull<u8>) {
        // SAFETY: ours.
        assert_eq!(unsafe { item.as_ptr().add(50).read() }, 9);
    }
}

#[test]
fn what_init_made_survives_the_quarantine() {
    let keg = keg();
    let options = ItemOptions::named("kept").debug(DebugOptions::default());
    let zone = ItemZone::new(&keg, Kept, options);
    for _ in 0..1000 {
        let item = zone.alloc(()).expect("room");
        // SAFETY: once.
        unsafe { zone.free(item) };
    }
}

#[test]
fn an_overrun_is_caught_at_the_free() {
    let keg = keg();
    for past in [0, 1, 15] {
        let zone = zone(&keg, "long");
        let item = the_culprit_allocates(&zone);
        // SAFETY: past the end, on purpose: the keg left 12 bytes and more there.
        unsafe { item.as_ptr().add(100 + past).write(7) };
        let text = caught(|| the_culprit_frees(&zone, item));
        assert!(
            text.contains(&format!(
                "overrun of {item:p} (100 bytes): the byte at {past}"
            )),
            "{text}"
        );
        assert!(text.contains("the_culprit_allocates"), "{text}");
    }
}

#[test]
fn a_free_to_the_wrong_zone_is_caught() {
    let keg = keg();
    let (one, other, elsewhere) = (
        zone(&keg, "one"),
        zone(&keg, "other"),
        zone(&self::keg(), "far"),
    );
    let item = the_culprit_allocates(&one);
    let text = caught(|| the_culprit_frees(&other, item));
    assert!(
        text.contains("zone other: free of") && text.contains("not allocated from it"),
        "{text}"
    );
    let text = caught(|| the_culprit_frees(&elsewhere, item));
    assert!(text.contains("no item of its keg"), "{text}");
    // SAFETY: inside the item.
    let inner = unsafe { item.add(16) };
    assert!(caught(|| the_culprit_frees(&one, inner)).contains("wrong address"));
    let holders = one.holders();
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].0, item);
    assert!(
        holders[0].1.contains("the_culprit_allocates"),
        "{}",
        holders[0].1
    );
    the_culprit_frees(&one, item);
    assert!(one.holders().is_empty());
}

#[test]
fn a_zone_that_is_destroyed_says_who_did_not_give_back() {
    let keg = keg();
    let zone = zone(&keg, "leaky");
    let item = the_culprit_allocates(&zone);
    the_culprit_frees(&zone, the_culprit_allocates(&zone));
    let out = zone.destroy().expect_err("one is out");
    assert_eq!((out.items, out.holders.len()), (1, 1));
    let text = out.to_string();
    assert!(text.contains(&format!("{item:p}: allocated by")), "{text}");
    assert!(text.contains("the_culprit_allocates"), "{text}");
}

#[test]
fn without_debugging_a_double_free_is_caught_at_the_latest_by_the_keg() {
    let keg = keg();
    let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("fast"));
    let item = the_culprit_allocates(&zone);
    the_culprit_frees(&zone, item);
    the_culprit_frees(&zone, item);
    let text = caught(|| zone.drain(Level::All));
    assert!(text.contains("free already"), "{text}");
    // The zone's accounts are wrong from here on: it must not be dropped as if nothing had happened.
    std::mem::forget(zone);
}

#[test]
fn a_debugged_zone_has_its_whole_limit() {
    let _watchdog = watchdog();
    let keg = keg();
    let options = ItemOptions::named("z")
        .max(10)
        .debug(DebugOptions::default());
    let zone = Arc::new(ItemZone::new(&keg, Bytes, options));
    for _ in 0..3 {
        let items: Vec<_> = std::iter::from_fn(|| zone.alloc(())).collect();
        assert_eq!(items.len(), 10);
        let sleeper = std::thread::spawn({
            let zone = zone.clone();
            move || {
                let item = zone
                    .request((), Request::wait(Wait::Forever))
                    .expect("served");
                // SAFETY: once.
                unsafe { zone.free(item) };
            }
        });
        while !zone.is_exhausted() {
            std::thread::yield_now();
        }
        // SAFETY: each once.
        items
            .into_iter()
            .for_each(|item| unsafe { zone.free(item) });
        sleeper.join().expect("sleeper");
    }
}

#[test]
fn the_limit_warns_now_and_then_and_wants_its_action_done() {
    let _watchdog = watchdog();
    let keg = keg();
    let (warned, acted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let alarm = Alarm::default()
        .warn(Duration::from_secs(300), {
            let warned = warned.clone();
            move |warning| {
                assert_eq!((warning.name, warning.max, warning.times), ("full", 2, 1));
                warned.fetch_add(1, Ordering::Relaxed);
            }
        })
        .action({
            let acted = acted.clone();
            move || _ = acted.fetch_add(1, Ordering::Relaxed)
        });
    let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("full").max(2).alarm(alarm));
    let items = [zone.alloc(()), zone.alloc(())].map(|item| item.expect("room"));
    assert_eq!(
        (
            warned.load(Ordering::Relaxed),
            acted.load(Ordering::Relaxed)
        ),
        (0, 0)
    );
    for _ in 0..10 {
        assert_eq!(
            zone.request((), Request::default()),
            Err(AllocError::Limit { max: 2 })
        );
    }
    assert_eq!(warned.load(Ordering::Relaxed), 1);
    // No bound on the time: a hang is the failure.
    while acted.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    // SAFETY: each once.
    items
        .into_iter()
        .for_each(|item| unsafe { zone.free(item) });
}
