//! Pools of level `none`: what is received is a copy of the receiver's own, and nothing that its sender does later changes it.

use crate::kit::*;
use std::time::Duration;
use tranship_core::error::{Awaited, RefusalCode, TimedOut, TooLarge};
use tranship_core::{
    Aggregate, Body, ChannelOptions, ErrorKind, PoolOptions, Receiver, Sender, Trust,
};

#[test]
fn who_has_no_room_for_copies_takes_no_such_pool() {
    let (_dog, a, b, mut to, _from) = linked();
    let none = pool_of(&a, Trust::None);
    let error = to.send(filled(&none, 8, 1)).expect_err("no place");
    assert_eq!(error.kind(), ErrorKind::ChannelTrust, "{error}");
    is_refused(&error.error, RefusalCode::Trust);
    // Another domain's pool is no place either.
    let options = ChannelOptions::new().snapshots(none.id());
    let listener = a.listen::<Sender>("y").expect("listen");
    std::thread::scope(|s| {
        let opener = s.spawn(|| b.open_with::<Receiver>("y", options).expect_err("a's pool"));
        let _ = listener.accept();
        let error = opener.join().expect("no panic");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    });
}

#[test]
fn a_copy_is_the_receivers_own() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, copies) = copying(&a, &b, "x", 4);
    let none = pool_of(&a, Trust::None);
    let mut held = Vec::new();
    for round in 0..20u8 {
        let shared = filled(&none, 500, round);
        let id = shared.id();
        to.send(shared.slice(100..300)).expect("send");
        let copy = buf(from.recv().expect("recv"));
        assert!(copy.id() != id && copy.id().pool() == copies.id());
        assert_eq!(copy.bytes(), Some(&[round; 200][..]));
        let mut again = copy.try_into_mut().expect("nobody else has it");
        again.fill(100 + round);
        assert_eq!(shared.bytes(), Some(&[round; 500][..]));
        held.push((again.freeze(), 100 + round));
        let moved = none.copy(&[round; 700]).expect("a buffer");
        to.send(moved).expect("move");
        let mut moved = from
            .recv()
            .expect("recv")
            .into_buffer_mut()
            .expect("it was moved");
        assert_eq!(moved.id().pool(), copies.id());
        assert_eq!(moved[..], [round; 700]);
        moved.fill(round + 1);
        held.push((moved.freeze(), round + 1));
    }
    // Nothing of the sender's is held; what it does with its memory is its own business.
    let mut all = none.alloc(4 * CHUNK).expect("all of it");
    all.fill(255);
    for (copy, byte) in &held {
        assert!(copy.to_vec().iter().all(|b| b == byte));
    }
    drop(held);
    drop(copies.alloc(4 * CHUNK).expect("all of it"));
}

#[test]
fn everything_is_copied_and_nothing_else() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, copies) = copying(&a, &b, "x", 4);
    let (none, shown) = (pool_of(&a, Trust::None), pool_of(&a, Trust::Producer));
    for round in 0..50u8 {
        let pieces = pieces([
            filled(&none, 3000, round),
            filled(&shown, 100, round),
            filled(&none, 0, round),
        ]);
        to.send(pieces).expect("send");
        to.send(filled(&shown, 200, round)).expect("send");
        to.send(&[round]).expect("send");
        let Body::Aggregate(got) = from.recv().expect("recv").body else {
            panic!("an aggregate was sent")
        };
        assert_eq!(got.to_vec(), [round; 3100]);
        let of: Vec<_> = got.pieces().iter().map(|p| p.id().pool()).collect();
        assert_eq!(of, [copies.id(), shown.id(), copies.id()]);
        let direct = buf(from.recv().expect("recv"));
        assert_eq!(
            (direct.id().pool(), direct.to_vec()),
            (shown.id(), vec![round; 200])
        );
        assert_eq!(from.recv().expect("recv").to_vec(), [round]);
    }
    for pool in [&none, &shown, &copies] {
        drop(pool.alloc(4 * CHUNK).expect("all of it"));
    }
}

#[test]
fn without_room_a_message_stays_the_next_one() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, copies) = copying(&a, &b, "x", 1);
    let none = pool_of(&a, Trust::None);
    to.send(filled(&none, CHUNK, 1)).expect("send");
    to.send(filled(&none, CHUNK, 2)).expect("send");
    to.send(&[3]).expect("send");
    let first = from.recv().expect("room");
    assert_eq!(first.to_vec(), [1; CHUNK]);
    for _ in 0..3 {
        assert!(from.try_recv().expect("no error").is_none());
    }
    let error = from
        .recv_timeout(Duration::from_millis(1))
        .expect_err("no room");
    let awaited = error.find().map(|out: &TimedOut| out.awaited.clone());
    assert_eq!(awaited, Some(Awaited::Memory(copies.id())), "{error}");
    std::thread::scope(|s| {
        let second = s.spawn(|| from.recv().expect("there is room at last"));
        drop(first);
        assert_eq!(second.join().expect("no panic").to_vec(), [2; CHUNK]);
    });
    assert_eq!(from.recv().expect("recv").to_vec(), [3]);
    drop(none.alloc(4 * CHUNK).expect("all of it"));
}

#[test]
fn what_is_larger_than_the_pool_for_copies_is_an_error() {
    let (_dog, a, b) = pair();
    for parts in [1, 3] {
        let (mut to, mut from, _copies) = copying(&a, &b, "x", 1);
        let none = pool_of(&a, Trust::None);
        let mut pieces = Aggregate::new();
        let part = filled(&none, CHUNK, 1);
        match parts {
            1 => to
                .send(filled(&none, 2 * CHUNK, 1))
                .map(drop)
                .expect("send"),
            _ => {
                for _ in 0..parts {
                    pieces.push_back(part.clone()).expect("room");
                }
                to.send(pieces).expect("send");
            }
        }
        for _ in 0..3 {
            let error = from.recv().expect_err("it never fits");
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
            let figures = error.find().map(|large: &TooLarge| large.max_bytes);
            assert_eq!(figures, Some(CHUNK as u64), "{error}");
        }
        drop((from, part));
        drop(none.alloc(4 * CHUNK).expect("all of it"));
    }
}

/// Each channel of one listener has a pool by itself. A receiver that keeps all its buffers holds up no other receiver.
#[test]
fn channels_with_arrivals_copy_to_pools_of_their_own() {
    let (_dog, a, b) = pair();
    let options = ChannelOptions::new().arrivals(PoolOptions::new(128 << 10).chunk_bytes(64 << 10));
    let listener = b.listen_with::<Receiver>("x", options).expect("listen");
    let none = pool_of(&a, Trust::None);
    let mut ends: Vec<(Sender, Receiver)> = (0..2)
        .map(|_| {
            std::thread::scope(|s| {
                let sender = s.spawn(|| a.open::<Sender>("x").expect("open"));
                let receiver = listener.accept().expect("accept");
                (sender.join().expect("opener"), receiver)
            })
        })
        .collect();
    let mut kept = Vec::new();
    for _ in 0..2 {
        ends[0].0.send(filled(&none, 60_000, 1)).expect("send");
        kept.push(buf(ends[0].1.recv().expect("recv")));
    }
    ends[0].0.send(filled(&none, 60_000, 2)).expect("send");
    assert!(ends[0].1.try_recv().expect("no room").is_none());
    ends[1].0.send(filled(&none, 60_000, 3)).expect("send");
    let other = buf(ends[1].1.recv().expect("recv"));
    assert_ne!(other.id().pool(), kept[0].id().pool());
    assert_eq!(other.bytes(), Some(&[3; 60_000][..]));
    kept.clear();
    let last = buf(ends[0].1.recv().expect("recv"));
    assert_eq!(last.bytes(), Some(&[2; 60_000][..]));
}

#[test]
fn a_pool_knows_how_many_of_its_buffers_somebody_has() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let pool = pool(&a, 4);
    assert_eq!(pool.in_use(), 0);
    let here = pool.alloc(100).expect("memory");
    to.send(filled(&pool, 100, 1)).expect("send");
    // One here, one on its way.
    uses(&pool, 2);
    let there = buf(from.recv().expect("recv"));
    drop(here);
    uses(&pool, 1);
    drop(from);
    // The channel's end does not end what came by it.
    uses(&pool, 1);
    drop(there);
    uses(&pool, 0);
}
