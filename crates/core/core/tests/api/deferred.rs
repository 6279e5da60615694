//! Defer queues: a sender finds its dead buffers itself before it asks for the next one. A thread that is short of
//! memory finds all others.

use crate::kit::*;
use tranship_core::{ChannelOptions, Domain, PoolOptions, Wait};

const LEN: usize = 4 * KIB;

/// The writer has one thread, and nobody beside it: so every run is the same.
#[test]
fn a_steady_stream_never_collects_to_allocate() {
    let _dog = dog();
    let a = Domain::builder().name("a").embedded().expect("embedded");
    let b = join(&a, "b");
    let all = 16 * CHUNK as u64;
    let options = PoolOptions::new(all).chunk_bytes(CHUNK as u64);
    let pool = a.create_pool(options.preallocate(all)).expect("pool");
    let (mut sender, mut receiver) = link(&a, &b, "x");
    let mut send = |times| {
        for n in 0..times {
            sender.send((filled(&pool, LEN, 1), n)).expect("send");
            assert_eq!(receiver.recv().expect("recv").word, n);
        }
    };
    send(500);
    let before = pool.stats();
    send(2000);
    let after = pool.stats();
    assert_eq!(after.collections, before.collections);
    assert!(after.collected >= before.collected + 1900, "{after:?}");
    // And they are the same few buffers.
    assert_eq!(after.chunk_bytes_present, before.chunk_bytes_present);
}

#[test]
fn what_no_sender_has_looked_at_is_found_by_who_is_short() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    for count in [1, 7, 8, 9, 17, 40, 63] {
        let (mut sender, mut receiver) = link(&a, &b, &format!("x{count}"));
        for keep in [true, false] {
            for n in 0..count {
                sender.send((filled(&pool, KIB, 1), n)).expect("send");
            }
            let mut taken: Vec<_> = (0..count).map(|_| receiver.recv().expect("recv")).collect();
            let last = if keep { taken.pop() } else { None };
            drop(taken);
            if keep {
                assert!(pool.alloc_now(4 * CHUNK).is_err(), "the last is held");
            }
            drop(last);
            drop(pool.alloc_now(4 * CHUNK).expect("all of it"));
        }
        // Of a sender that is gone too.
        for n in 0..count {
            sender.send((filled(&pool, KIB, 1), n)).expect("send");
        }
        drop(sender);
        for n in 0..count {
            assert_eq!(receiver.recv().expect("recv").word, n);
        }
        drop(receiver);
        until(|| pool.alloc_now(4 * CHUNK).is_ok());
    }
}

/// A pool without free buffers checks many at once.
#[test]
fn of_many_that_are_dead_the_one_that_is_held_is_left() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 16);
    let all = 16 * CHUNK / LEN;
    let options = ChannelOptions::new().lines(256);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", options);
    for held in [0, 1, 15, 16, 17, 31, 32, 33, all / 2, all - 1] {
        for n in 0..all {
            let buf = filled(&pool, LEN, n.to_le_bytes()[0]);
            sender.send((buf, n as u64)).expect("send");
        }
        let mut taken: Vec<_> = (0..all).map(|_| receiver.recv().expect("recv")).collect();
        let kept = taken.remove(held);
        drop(taken);
        let mut others = Vec::new();
        while let Ok(mut buf) = pool.alloc_now(LEN) {
            buf.fill(0xff);
            others.push(buf);
        }
        assert_eq!(others.len(), all - 1, "{held} is held");
        let is_whole = kept
            .to_vec()
            .iter()
            .all(|byte| *byte == held.to_le_bytes()[0]);
        assert!(is_whole, "{held} was handed out");
        drop((kept, others));
    }
}

/// However many are under way. What has waited longer than the others is looked at too, beside the oldest few, in a pool with few buffers.
#[test]
fn a_sender_looks_at_what_its_receiver_is_well_past() {
    let (_dog, a, b) = pair();
    let all = 4 * CHUNK / LEN;
    // At the 64th send, by the numbers of messages; a pool of so few buffers asks for the receiver's cursor at each look.
    for (taken, collected) in [(23, 0), (24, 8), (39, 8), (40, 16)] {
        let pool = pool(&a, 4);
        let options = ChannelOptions::new().lines(256);
        let (mut sender, mut receiver) = link_with(&a, &b, &format!("x{taken}"), options);
        for n in 0..all {
            let buf = filled(&pool, LEN, 1);
            sender.send((buf, n as u64)).expect("send");
            drop(receiver.recv().expect("recv"));
        }
        drop(pool.alloc_now(4 * CHUNK).expect("all of it, and all news"));
        let before = pool.stats().collected;
        for n in 0..all {
            if n + 1 == all {
                (0..taken).for_each(|_| drop(receiver.recv().expect("recv")));
            }
            let buf = filled(&pool, LEN, 1);
            sender.send((buf, n as u64)).expect("send");
        }
        let found = pool.stats().collected - before;
        assert_eq!(found, collected, "{taken} taken of {all}");
        // A thread that is short of memory finds all dead buffers.
        let again: Vec<_> = std::iter::from_fn(|| pool.alloc_now(LEN).ok()).collect();
        assert_eq!(again.len(), taken);
    }
}

#[test]
fn more_can_be_under_way_than_a_trail_holds() {
    let (_dog, a, b) = pair();
    let options = PoolOptions::new(16 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let pool = a.create_pool(options.slots(4096)).expect("pool");
    let (mut sender, mut receiver) = link_with(&a, &b, "x", ChannelOptions::new().lines(2048));
    for _ in 0..3 {
        for n in 0..1500 {
            sender.send((filled(&pool, 64, 1), n)).expect("send");
        }
        for n in 0..1500 {
            assert_eq!(receiver.recv().expect("recv").word, n);
        }
        drop(pool.alloc_now(16 * CHUNK).expect("all of it"));
    }
}

/// A receiver that says that it spins, and is then awaited or polled, is still woken.
#[test]
fn a_receiver_that_spins_can_be_awaited() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 2);
    let options = ChannelOptions::new().wait(Wait::Spin);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", options);
    std::thread::scope(|s| {
        s.spawn(move || {
            for n in 0..100 {
                sender.send((filled(&pool, 64, 1), n)).expect("send");
                sender.wait_taken(None).expect("taken");
            }
        });
        for n in 0..100 {
            let message = match n % 2 {
                0 => receiver.recv(),
                _ => block_on(receiver.recv_async()),
            };
            assert_eq!(message.expect("recv").word, n);
        }
    });
}
