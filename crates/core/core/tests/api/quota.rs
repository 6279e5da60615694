//! Quotas that are set from outside, while what they are for is in use.

use crate::kit::*;
use std::thread;
use tranship_core::{HeapOptions, Kind, Limit, PoolId, RefusalCode, Shortage};

#[test]
fn a_pool_gets_what_its_quota_says_from_now_on() {
    let _dog = dog();
    let (a, admin) = pair();
    let pool = pool(&a, 8);
    let bytes = |chunks: usize| (chunks * CHUNK) as u64;
    let full = |pool: &tranship_core::Pool| {
        let error = pool.alloc_now(CHUNK).expect_err("the quota");
        assert!(
            matches!(
                error.find(),
                Some(&Shortage {
                    limit: Limit::Quota,
                    ..
                })
            ),
            "{error}"
        );
    };
    let mut held: Vec<_> = (0..4).map(|_| pool.alloc(CHUNK).expect("room")).collect();
    let set = |chunks| admin.set_quota(pool.id(), bytes(chunks)).expect("set");
    assert_eq!(set(4), bytes(4));
    until(|| pool.quota_bytes() == bytes(4));
    full(&pool);
    // Lower than what is out: what is given back is not had again.
    assert_eq!(set(2), bytes(2));
    held.pop();
    until(|| pool.stats().chunk_bytes_present <= bytes(3));
    full(&pool);
    held.truncate(1);
    until(|| pool.stats().chunk_bytes_present <= bytes(2));
    held.push(pool.alloc_now(CHUNK).expect("within it"));
    full(&pool);
    // Who waits goes on when it is raised.
    thread::scope(|s| {
        let waits = s.spawn(|| pool.alloc(CHUNK).expect("in the end"));
        until(|| pool.stats().waiting == 1);
        set(3);
        held.push(waits.join().expect("a thread"));
    });
    assert_eq!(set(8), bytes(8));
    held.extend((0..5).map(|_| pool.alloc(CHUNK).expect("all of it")));
    assert_eq!(set(0), 0);
    drop(held);
    until(|| pool.stats().chunk_bytes_present == 0);
    assert_eq!(pool.alloc_now(1).expect_err("none").kind(), Kind::TooLarge);
}

#[test]
fn a_heap_is_asked_to_come_down_to_its_quota() {
    let _dog = dog();
    let (a, admin) = pair();
    const MIB: u64 = 1 << 20;
    let heap = a.create_heap(HeapOptions::new(8 * MIB)).expect("heap");
    heap.admit(4 * MIB, 4 * MIB).expect("admitted");
    assert_eq!(admin.set_quota(heap.id(), 2 * MIB).expect("set"), 2 * MIB);
    until(|| heap.pressure() == Some(2 * MIB));
    assert_eq!(heap.quota_bytes(), 2 * MIB);
    let error = heap.admit(1, 1).expect_err("over it");
    assert!(refusal(&error) == Some(RefusalCode::Quota), "{error}");
    heap.give_back(3 * MIB);
    assert_eq!(heap.admit(1, 8 * MIB).expect("the rest"), MIB);
    assert_eq!(admin.set_quota(heap.id(), 8 * MIB).expect("set"), 8 * MIB);
    heap.admit(6 * MIB, 6 * MIB).expect("raised");
}

#[test]
fn what_cannot_be_set_is_refused() {
    let _dog = dog();
    let (a, admin) = pair();
    let pool = pool(&a, 2);
    let max = pool.max_bytes();
    let error = admin.set_quota(pool.id(), max + 1).expect_err("too much");
    assert!(refusal(&error) == Some(RefusalCode::BadArgument), "{error}");
    let error = admin.set_quota(PoolId(7777), 1).expect_err("nobody's");
    assert!(refusal(&error) == Some(RefusalCode::NoSuchId), "{error}");
    assert_eq!(pool.quota_bytes(), max);
}
