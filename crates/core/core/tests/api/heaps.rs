//! Heaps: memory that is admitted by the byte.

use crate::kit::*;
use std::path::Path;
use tranship_core::admin::{HeapStat, StatRecord};
use tranship_core::error::RefusalCode;
use tranship_core::heap::{Heap, HeapOptions};
use tranship_core::{Domain, Error, ErrorKind};
use tranship_manager::{Config, Embedded, PressureConfig};

const MIB: u64 = 1 << 20;

fn refused(result: Result<u64, Error>) -> RefusalCode {
    let error = result.expect_err("a refusal");
    refusal(&error).unwrap_or_else(|| panic!("a refusal was expected, not {error}"))
}

/// Returns the manager's figures of the heaps, and the memory that it has granted in all.
fn books(domain: &Domain) -> (Vec<HeapStat>, u64) {
    let stat = domain.admin().stat().expect("stat");
    let granted = stat.iter().find_map(|r| match r {
        StatRecord::Manager(m) => Some(m.granted_bytes),
        _ => None,
    });
    let heaps = stat.into_iter().filter_map(|r| match r {
        StatRecord::Heap(h) => Some(h),
        _ => None,
    });
    (heaps.collect(), granted.expect("the manager"))
}

fn heap(domain: &Domain, max_bytes: u64) -> Heap {
    let options = HeapOptions::new(max_bytes).name("bytes");
    Heap::create(domain, options).expect("heap")
}

#[test]
fn bytes_are_admitted_up_to_the_quota_in_part_and_given_back() {
    let (_dog, domain) = watched();
    let a = heap(&domain, 10 * MIB);
    assert_eq!(a.quota_bytes(), 10 * MIB);
    assert_eq!(a.admit(1, 4 * MIB + 1).expect("admit"), 4 * MIB + 1);
    assert_eq!(a.admit(MIB, 100 * MIB).expect("a part"), 6 * MIB - 1);
    assert_eq!(refused(a.admit(1, 1)), RefusalCode::Quota);
    assert_eq!(refused(a.admit(0, 1)), RefusalCode::BadArgument);
    let (heaps, granted) = books(&domain);
    assert_eq!((heaps.len(), granted), (1, 10 * MIB));
    assert_eq!(
        (heaps[0].name.as_str(), heaps[0].owner),
        ("bytes", domain.id())
    );
    assert_eq!((heaps[0].heap, heaps[0].admitted_bytes), (a.id(), 10 * MIB));
    a.give_back(9 * MIB);
    a.give_back(5 * MIB); // more than there is
    assert_eq!((a.held_bytes(), books(&domain).1), (0, 0));
    a.admit(1, MIB).expect("again");
    drop(a);
    let (heaps, granted) = books(&domain);
    assert!(heaps.is_empty() && granted == 0, "{heaps:?} {granted}");
}

#[test]
fn heaps_and_pools_share_the_total_and_press_each_other() {
    let _dog = dog();
    let config = Config {
        total: Some(16 * MIB),
        pressure: PressureConfig {
            watch: false,
            ..PressureConfig::default()
        },
        ..Config::default()
    };
    let a = embedded_with(config);
    let b = join(&a, "b");
    let (full, asker) = (heap(&a, 1 << 40), heap(&b, 1 << 40));
    assert_eq!(full.quota_bytes(), 16 * MIB, "the total is the most");
    assert_eq!(full.admit(1, 15 * MIB).expect("admit"), 15 * MIB);
    assert_eq!(refused(asker.admit(2 * MIB, 2 * MIB)), RefusalCode::Total);
    until(|| full.pressure().is_some());
    assert_eq!(full.pressure(), Some(8 * MIB), "an equal share");
    full.give_back(7 * MIB);
    assert_eq!(full.pressure(), None);
    until(|| matches!(asker.admit(2 * MIB, 3 * MIB), Ok(got) if got == 3 * MIB));
    // Pools are asked for room by heaps, and heaps by pools.
    let pool = pool(&a, 1024);
    let used = pool.alloc_now(4 << 20).expect("the rest");
    assert_eq!(refused(asker.admit(4 * MIB, 4 * MIB)), RefusalCode::Total);
    full.admit(1, MIB).expect("the last of it");
    // It is asked again after a while only.
    until(|| {
        let refused = pool.alloc_now(2 << 20).expect_err("no room");
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
        full.pressure().is_some()
    });
    drop(used);
}

fn manager(path: &Path) -> Embedded {
    let config = Config {
        total: Some(64 * MIB),
        pressure: PressureConfig {
            watch: false,
            ..PressureConfig::default()
        },
        ..Config::default()
    };
    Embedded::start(config, Some(path)).expect("manager")
}

#[test]
fn a_new_manager_is_told_what_a_heap_holds() {
    let _dog = dog();
    let dir = tranship_testkit::folder().expect("dir");
    let path = dir.path().join("socket");
    let first = manager(&path);
    let a = Domain::builder().name("a").socket(&path).connect();
    let a = a.expect("connect");
    let (small, large) = (heap(&a, 1 << 40), heap(&a, 1 << 40));
    small.admit(1, 10 * MIB).expect("admit");
    large.admit(1, 40 * MIB).expect("admit");
    drop(first);
    // Freed and refused meanwhile.
    small.give_back(MIB);
    until(|| {
        large
            .admit(1, 1)
            .is_err_and(|error| error == ErrorKind::ManagerAway)
    });
    let second = manager(&path);
    until(|| a.admin().stat().is_ok_and(|s| s.len() >= 4));
    let (heaps, granted) = books(&a);
    assert_eq!((heaps.len(), granted), (2, 49 * MIB), "{heaps:?}");
    assert!(
        heaps
            .iter()
            .any(|h| h.heap == small.id() && h.admitted_bytes == 9 * MIB)
    );
    assert_eq!(large.admit(1, 100 * MIB).expect("the rest"), 15 * MIB);
    drop(second);

    // Somebody else is there first: what is owed is paid before there is more.
    let third = manager(&path);
    let b = Domain::builder().name("b").socket(&path).connect();
    let b = b.expect("connect");
    let thief = heap(&b, 1 << 40);
    assert_eq!(thief.admit(1, 30 * MIB).expect("admit"), 30 * MIB);
    until(|| books_of(&a).is_some_and(|n| n == 64 * MIB));
    assert_eq!(refused(large.admit(1, 1)), RefusalCode::Total);
    let held = small.held_bytes() + large.held_bytes();
    assert_eq!(held, 64 * MIB, "what it has is not less for that");
    thief.give_back(30 * MIB);
    large.give_back(10 * MIB);
    small.give_back(4 * MIB);
    until(|| matches!((small.admit(1, 1), large.admit(1, 1)), (Ok(1), Ok(1))));
    assert_eq!(books(&a).1, small.held_bytes() + large.held_bytes());
    drop(third);
}

/// Returns the memory that is granted in all, if the manager is there.
fn books_of(domain: &Domain) -> Option<u64> {
    domain.admin().stat().ok()?.iter().find_map(|r| match r {
        StatRecord::Manager(m) => Some(m.granted_bytes),
        _ => None,
    })
}
