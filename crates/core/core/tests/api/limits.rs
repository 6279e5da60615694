//! Why a pool has no more memory: the reasons that no other test here is about. Those that only a manager's answer brings are in `hung`.

use crate::kit::*;
use std::thread;
use std::time::Duration;
use tranship_core::error::Limit;
use tranship_core::{Domain, Error, ErrorKind, PoolOptions};

#[track_caller]
fn limit(error: &Error) -> Limit {
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    short(error).expect("the figures")
}

/// Half of it is free, in pieces too short.
#[test]
fn no_hole_is_long_enough() {
    let (_dog, a) = watched();
    let pool = pool(&a, 4);
    let mut held: Vec<_> = (0..4)
        .map(|_| Some(pool.alloc(CHUNK).expect("room")))
        .collect();
    // In the order of their addresses.
    held.sort_by_key(|buf| buf.as_ref().map(|buf| buf.view().as_ptr().addr()));
    (held[0], held[2]) = (None, None);
    let error = pool.alloc_now(2 * CHUNK).expect_err("no two in a row");
    assert_eq!(limit(&error), Limit::Window, "{error}");
    let error = pool.alloc_timeout(2 * CHUNK, Duration::from_millis(1));
    assert_eq!(limit(&error.expect_err("nor later")), Limit::Window);
    drop(pool.alloc_now(CHUNK).expect("one fits"));
    held[1] = None;
    drop(pool.alloc_now(3 * CHUNK).expect("now there are three"));
}

#[test]
fn others_wait_already() {
    let (_dog, a) = watched();
    let pool = pool(&a, 1);
    let held = pool.alloc(CHUNK).expect("room");
    thread::scope(|scope| {
        let first = scope.spawn(|| drop(pool.alloc(CHUNK).expect("its turn comes")));
        until(|| pool.stats().waiting == 1);
        let error = pool.alloc_timeout(CHUNK, Duration::from_millis(1));
        let error = error.expect_err("the second in the queue");
        assert_eq!(limit(&error), Limit::Queue, "{error}");
        let error = pool.try_alloc(CHUNK).expect_err("nobody passes");
        assert_eq!(limit(&error), Limit::Queue, "{error}");
        drop(held);
        first.join().expect("no panic");
    });
}

#[test]
fn nobody_is_there_to_ask() {
    let _dog = dog();
    let (_dir, path) = place();
    let manager = a_manager(&path);
    let builder = Domain::builder()
        .name("left")
        .socket(&path)
        .autostart(false);
    let left = builder.connect().expect("connect");
    let pool = pool(&left, 2);
    let held = pool.alloc(CHUNK).expect("granted");
    drop(manager);
    let error = pool.alloc_now(CHUNK).expect_err("nobody grants it");
    assert_eq!(limit(&error), Limit::Away, "{error}");
    // What the pool has can be had.
    drop(held);
    drop(pool.alloc_now(CHUNK).expect("the first one"));
    let another = left.create_pool(PoolOptions::new(1 << 20));
    assert_eq!(another.expect_err("none").kind(), ErrorKind::ManagerAway);
}
