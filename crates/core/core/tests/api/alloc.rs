//! Allocation: at once, in time, blocked in order; limits; sizes.

use crate::kit::*;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tranship_core::error::{Holder, Limit, OutOfRange, Shortage, TooLarge};
use tranship_core::{ErrorKind, Pool, PoolOptions};
use tranship_manager::Config;
use tranship_testkit::Random;

#[test]
fn larger_than_the_maximum_is_an_error_at_once_however_one_asks() {
    let (_dog, a) = watched();
    let pool = pool(&a, 4);
    let all = pool.alloc(4 * CHUNK).expect("all of it");
    for result in [
        pool.alloc(4 * CHUNK + 1),
        pool.alloc_now(4 * CHUNK + 1),
        pool.alloc_timeout(usize::MAX, Duration::MAX),
        pool.alloc(usize::MAX),
    ] {
        let error = result.expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let Some(&TooLarge {
            need_bytes,
            max_bytes,
        }) = error.find()
        else {
            panic!("{error}");
        };
        assert!(need_bytes > max_bytes && max_bytes == 4 * CHUNK as u64);
    }
    drop(all);
    assert_eq!(pool.alloc_now(4 * CHUNK).expect("again").len(), 4 * CHUNK);
}

#[test]
fn the_quota_may_be_smaller_than_the_maximum() {
    let _dog = dog();
    let config = Config {
        default_quota: Some(2 * CHUNK as u64),
        ..Config::default()
    };
    let a = embedded_with(config);
    let pool = pool(&a, 8);
    assert_eq!(pool.max_bytes(), 8 * CHUNK as u64);
    assert_eq!(pool.stats().quota_bytes, 2 * CHUNK as u64);
    let error = pool.alloc_now(3 * CHUNK).expect_err("3");
    assert_eq!(
        error.kind(),
        ErrorKind::OutOfMemory,
        "it may be raised: {error}"
    );
    assert_eq!(
        pool.alloc(9 * CHUNK).expect_err("9").kind(),
        ErrorKind::TooLarge
    );
    let two = pool.alloc(2 * CHUNK).expect("2");
    assert_eq!(
        pool.alloc_now(1).expect_err("full").kind(),
        ErrorKind::OutOfMemory
    );
    drop(two);
    pool.alloc_now(1).expect("room again");
}

#[test]
fn the_total_of_all_pools_holds() {
    let _dog = dog();
    let config = Config {
        total: Some(4 * CHUNK as u64),
        ..Config::default()
    };
    let a = embedded_with(config);
    let (one, two) = (pool(&a, 4), pool(&a, 4));
    let held = one.alloc(3 * CHUNK).expect("one");
    let error = two.alloc_now(2 * CHUNK).expect_err("total");
    let left = CHUNK as u64;
    assert!(
        matches!(error.find(), Some(&Shortage { limit: Limit::Total { left_bytes }, .. }) if left_bytes == left),
        "{error}"
    );
    assert!(
        error.to_string().contains("has 65536 bytes left"),
        "{error}"
    );
    let small = two.alloc_now(CHUNK).expect("what is left");
    drop((held, small));
}

#[test]
fn full_without_waiting_and_with_a_time_limit() {
    let (_dog, a) = watched();
    let pool = pool(&a, 2);
    let held = [pool.alloc(CHUNK), pool.alloc(CHUNK)];
    assert!(held.iter().all(Result::is_ok));
    let error = pool.alloc_now(1).expect_err("full");
    assert!(
        matches!(error.find(), Some(&Shortage { quota_bytes, .. }) if quota_bytes == 2 * CHUNK as u64),
        "{error}"
    );
    let error = pool
        .alloc_timeout(1, Duration::from_millis(30))
        .expect_err("full");
    assert!(
        matches!(error.find(), Some(&Shortage { waited_ms, .. }) if waited_ms >= 20),
        "{error}"
    );
    assert_eq!(pool.stats().waiting, 0);
    drop(held);
    pool.alloc_now(CHUNK).expect("free again");
}

#[test]
fn blocked_callers_are_served_in_the_order_of_their_coming() {
    let (_dog, a) = watched();
    let pool = pool(&a, 4);
    let mut held: Vec<_> = (0..4).map(|_| pool.alloc(CHUNK).expect("alloc")).collect();
    let (served, order) = channel();
    thread::scope(|s| {
        for i in 0..4usize {
            let (pool, served) = (&pool, served.clone());
            s.spawn(move || {
                let buf = pool.alloc(CHUNK).expect("blocked alloc");
                served.send((i, buf)).expect("test is there");
            });
            until(|| pool.stats().waiting == i + 1);
        }
        let mut got = Vec::new();
        for i in 0..4 {
            assert!(order.try_recv().is_err(), "nobody is served early");
            assert_eq!(
                pool.alloc_now(1).expect_err("others wait").kind(),
                ErrorKind::OutOfMemory,
                "and nobody passes those who wait"
            );
            drop(held.pop());
            let (who, buf) = order.recv().expect("served");
            assert_eq!(who, i);
            got.push(buf);
        }
    });
    assert!(pool.stats().blocked_ns > 0 && pool.stats().waiting == 0);
}

#[test]
fn a_small_request_waits_behind_a_large_one() {
    let (_dog, a) = watched();
    let pool = pool(&a, 4);
    let (held, more) = (
        pool.alloc(2 * CHUNK).expect("2"),
        pool.alloc(CHUNK).expect("1"),
    );
    let (served, order) = channel();
    thread::scope(|s| {
        for (n, len) in [4 * CHUNK, 64].into_iter().enumerate() {
            let (pool, served) = (&pool, served.clone());
            s.spawn(move || {
                let buf = pool.alloc(len).expect("blocked alloc");
                served.send(buf.len()).expect("test is there");
                drop(buf);
            });
            until(|| pool.stats().waiting == n + 1);
        }
        drop(held);
        // A chunk and more are free; the small request would fit, but it is not its turn.
        until(|| pool.stats().blocked_ns > 0 || pool.stats().waiting == 2);
        assert!(order.try_recv().is_err());
        drop(more);
        assert_eq!(order.recv().expect("first"), 4 * CHUNK);
        assert_eq!(order.recv().expect("second"), 64);
    });
}

#[test]
fn a_blocked_caller_is_woken_by_a_reader_that_lets_go() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 2);
    for i in 0..2 {
        sender.send(filled(&pool, CHUNK, i)).expect("send");
    }
    let got: Vec<_> = (0..2)
        .map(|_| buf(receiver.recv().expect("recv")))
        .collect();
    assert_eq!(
        pool.alloc_now(CHUNK).expect_err("held").kind(),
        ErrorKind::OutOfMemory
    );
    thread::scope(|s| {
        let blocked = s.spawn(|| pool.alloc(CHUNK).expect("blocked").len());
        until(|| pool.stats().waiting == 1);
        drop(got);
        assert_eq!(blocked.join().expect("thread"), CHUNK);
    });
}

#[test]
fn a_timed_out_caller_leaves_the_queue_to_the_next() {
    let (_dog, a) = watched();
    let pool = pool(&a, 2);
    let held = pool.alloc(CHUNK).expect("1");
    let other = pool.alloc(CHUNK).expect("1");
    thread::scope(|s| {
        let first = s.spawn(|| {
            pool.alloc_timeout(2 * CHUNK, Duration::from_millis(50))
                .is_err()
        });
        until(|| pool.stats().waiting == 1 || first.is_finished());
        let second = s.spawn(|| pool.alloc(CHUNK).expect("second").len());
        until(|| pool.stats().waiting == 2 || first.is_finished());
        drop(held);
        assert!(first.join().expect("first"), "two chunks never came");
        assert_eq!(second.join().expect("second"), CHUNK);
    });
    drop(other);
}

#[test]
fn every_size_from_nothing_to_several_chunks() {
    let (_dog, a) = watched();
    let pool = pool(&a, 64);
    let mut held = Vec::new();
    let sizes = (0..=64).chain((7..21).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 1]));
    for (i, len) in sizes.enumerate() {
        let mut buf = pool.alloc(len).expect("alloc");
        assert_eq!(buf.len(), len);
        assert_eq!(buf.is_empty(), len == 0);
        let byte = i.to_le_bytes()[0];
        buf.fill(byte);
        if len < 20 * CHUNK / 10 {
            held.push((byte, buf.freeze()));
        }
    }
    // Nobody wrote into anybody else.
    for (byte, buf) in &held {
        assert!(
            buf.to_vec().iter().all(|b| b == byte),
            "{} bytes",
            buf.len()
        );
    }
}

/// The error names each domain that holds buffers or has not taken messages, and the limit that is reached.
#[test]
fn an_error_names_who_is_in_the_way() {
    let (_dog, a, b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 1);
    let way = |pool: &Pool| {
        let error = pool.alloc_now(CHUNK).expect_err("full");
        let shortage: &Shortage = error.find().expect("a shortage");
        (shortage.limit, shortage.holder)
    };
    let own = pool.alloc(CHUNK).expect("alloc");
    assert_eq!(way(&pool), (Limit::Quota, None));
    drop(own);
    let quarters: Vec<_> = (0..4).map(|i| filled(&pool, CHUNK / 4, i)).collect();
    for quarter in quarters {
        sender.send(quarter).expect("send");
    }
    let by_b = |asked| {
        Some(Holder {
            domain: b.id(),
            buffers: asked,
            asked,
        })
    };
    assert_eq!(way(&pool), (Limit::Quota, by_b(4)), "it has not taken them");
    let held: Vec<_> = (0..3).map(|_| receiver.recv().expect("recv")).collect();
    drop(receiver.recv().expect("recv"));
    assert_eq!(way(&pool), (Limit::Quota, by_b(3)));
    let error = pool.alloc_now(CHUNK).expect_err("held").to_string();
    assert!(
        error.contains(&format!("domain {} holds 3", b.id())),
        "{error}"
    );
    drop(held);
    pool.alloc(CHUNK).expect("all free");
}

#[test]
fn small_buffers_share_pages() {
    let (_dog, a) = watched();
    let options = PoolOptions::new(CHUNK as u64)
        .chunk_bytes(CHUNK as u64)
        .slots(1024);
    let pool = a.create_pool(options).expect("pool");
    let all: Vec<_> = (0..900u32)
        .map(|i| pool.copy(&i.to_le_bytes()).expect("alloc"))
        .collect();
    assert_eq!(pool.stats().chunk_bytes_present, CHUNK as u64);
    for (i, buf) in (0u32..).zip(&all) {
        assert_eq!(**buf, i.to_le_bytes());
    }
}

/// As many buffers as were asked for can exist at once, of whatever sizes, and not one more.
#[test]
fn a_pool_has_as_many_slots_as_were_asked_for() {
    let (_dog, a) = watched();
    let mut random = Random::printed("a_pool_has_as_many_slots_as_were_asked_for");
    let mut below = |n: usize| usize::try_from(random.below(n as u64)).expect("below n");
    let some: Vec<u32> = (0..12)
        .map(|_| 1 + u32::try_from(below(20_000)).expect("small"))
        .collect();
    for slots in (1..=66).chain([100, 127, 128, 255, 1000]).chain(some) {
        let sizes: &[usize] = match slots {
            ..=130 => &[0, 100, 100, 1000, 5000, CHUNK, 2 * CHUNK],
            _ => &[0, 64, 64, 200],
        };
        let options = PoolOptions::new(1 << 30).chunk_bytes(CHUNK as u64);
        let pool = a.create_pool(options.slots(slots)).expect("a pool");
        let mut held = Vec::new();
        for round in 0..3 {
            while held.len() < slots as usize {
                let len = sizes[below(sizes.len())];
                match pool.alloc_now(len) {
                    Ok(buf) => held.push(buf),
                    Err(error) => panic!("{} of {slots}, {len} bytes: {error}", held.len()),
                }
            }
            for &len in sizes {
                let error = pool.alloc_now(len).expect_err("all are in use");
                assert!(
                    matches!(error.find(), Some(Shortage { limit: Limit::Slots { slots: all }, .. }) if *all == slots),
                    "{slots}: {error}"
                );
                let text = format!("all its {slots} slots");
                assert!(error.to_string().contains(&text), "{error}");
            }
            // The next round has others in their places.
            for _ in 0..(held.len() * (round + 1)).div_ceil(3) {
                held.swap_remove(below(held.len()));
            }
        }
        drop(held);
        pool.alloc_now(4096).expect("slots come back");
    }
}

#[test]
fn a_buffer_of_many_chunks_is_one_piece_and_can_be_had_again() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 16);
    for round in 0..20u8 {
        // Small ones before and after tear holes.
        let small: Vec<_> = (0..8).map(|_| pool.alloc(5000).expect("small")).collect();
        let len = 12 * CHUNK + usize::from(round);
        let mut big = pool.alloc(len).expect("big");
        for (i, block) in big.chunks_mut(1000).enumerate() {
            block.fill(round.wrapping_add(i.to_le_bytes()[0]));
        }
        sender.send(big.freeze()).expect("send");
        drop(small);
        let got = receiver.recv().expect("recv").to_vec();
        assert_eq!(got.len(), len);
        for (i, block) in got.chunks(1000).enumerate() {
            let expected = round.wrapping_add(i.to_le_bytes()[0]);
            assert!(block.iter().all(|b| *b == expected), "block {i}");
        }
    }
    assert!(pool.stats().chunk_bytes_present <= 16 * CHUNK as u64);
}

#[test]
fn nonsense_is_refused_with_the_numbers() {
    let a = embedded();
    let bad = [
        PoolOptions::new(0),
        PoolOptions::new(1 << 60),
        PoolOptions::new(1 << 44),
        PoolOptions::new(1 << 20).chunk_bytes(4096),
        PoolOptions::new(1 << 20).chunk_bytes(100_000),
        PoolOptions::new(1 << 20).chunk_bytes(1 << 40),
        PoolOptions::new(1 << 20).slots(0),
        PoolOptions::new(1 << 20).slots(u32::MAX),
    ];
    for options in bad {
        let error = a.create_pool(options.clone()).expect_err("nonsense");
        assert!(
            error.find::<OutOfRange>().is_some() && error.kind() == ErrorKind::BadArgument,
            "{options:?}: {error}"
        );
    }
}
