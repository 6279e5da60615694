//! Aggregates that are given away: every piece is what one that is given by itself is, all go or none, and all are written or none.

use crate::kit::*;
use std::collections::VecDeque;
use tranship_core::error::Limit;
use tranship_core::{
    Aggregate, AggregateMut, Body, ChannelOptions, ErrorKind, MAX_PIECES, Pool, PoolOptions,
    Receiver, Released, Trust,
};
use tranship_testkit::probe::Access;

#[track_caller]
fn moved(from: &mut Receiver) -> AggregateMut {
    match from.recv().expect("recv").body {
        Body::AggregateMut(all) => all,
        other => panic!("a moved aggregate was expected, not {other:?}"),
    }
}

#[track_caller]
fn shared(from: &mut Receiver) -> Aggregate {
    match from.recv().expect("recv").body {
        Body::Aggregate(all) => all,
        other => panic!("an aggregate was expected, not {other:?}"),
    }
}

fn of(pool: &Pool, pieces: &[(usize, u8)]) -> AggregateMut {
    let mut all = AggregateMut::new();
    for (len, byte) in pieces {
        let mut buf = pool.alloc(*len).expect("a buffer");
        buf.write(0, &vec![*byte; *len]).expect("inside");
        all.push_back(buf).expect("room");
    }
    all
}

#[test]
fn all_pieces_are_the_receivers_at_every_level() {
    for trust in [Trust::Producer, Trust::Half, Trust::Full] {
        let (_dog, a, _b, mut to, mut from) = linked();
        let (pool, lists) = (pool_of(&a, trust), pool(&a, 1));
        // One is larger than a chunk.
        let mut all = of(&pool, &[(10, 1), (CHUNK + 1, 2), (5000, 3)]);
        all.set_list_pool(&lists);
        let ids: Vec<_> = all.pieces().iter().map(|piece| piece.id()).collect();
        let at: Vec<_> = all
            .pieces()
            .iter()
            .map(|piece| piece.view().as_ptr())
            .collect();
        to.send((all, 7)).expect("move");
        for (id, at) in ids.iter().zip(at) {
            let found = pool.lookup(*id).map(drop).map_err(|error| error.kind());
            let expected = match trust.all_write() {
                true => Err(ErrorKind::BufferInvalid),
                false => Ok(()),
            };
            assert_eq!(found, expected, "{trust}");
            if trust == Trust::Half {
                assert_eq!(access(at), Access::None, "it is not the sender's");
            }
        }
        let writable = trust.all_write();
        let mut pieces: VecDeque<Given> = match writable {
            true => {
                let mut got = moved(&mut from);
                for (piece, byte) in got.pieces_mut().zip(1u8..) {
                    assert_eq!(piece.to_vec(), vec![byte; piece.len()]);
                    piece.write(0, &[byte + 10]).expect("ours to write");
                }
                got.into_pieces().into_iter().map(Given::Mine).collect()
            }
            false => {
                let mut got = shared(&mut from);
                let pieces = std::iter::from_fn(|| got.remove(0));
                pieces.map(Given::Shared).collect()
            }
        };
        let found: Vec<_> = pieces.iter().map(Given::id).collect();
        assert_eq!(found, ids, "in their order");
        // The list is read.
        uses(&lists, 0);
        uses(&pool, 3);
        // Each by itself from here on: one goes back, one is released, one dropped.
        let (back, told) = (pieces.remove(0).expect("3"), pieces.remove(0).expect("2"));
        back.back(&mut from, 1).expect("pass");
        from.send_back((Released(told.freeze()), 2))
            .expect("release");
        drop(pieces);
        let reply = to.try_recv_back().expect("no lie").expect("it is back");
        let first = if writable { 11 } else { 1 };
        assert_eq!((reply.word, reply.to_vec()[0]), (1, first));
        drop(reply);
        let reply = to.try_recv_back().expect("no lie").expect("it is told");
        assert!(matches!(reply.body, Body::Released(Some(id)) if id == ids[1]));
        drop(pool.alloc_now(4 * CHUNK).expect("nobody has any"));
    }
}

/// An aggregate out of a pool of level `none` is copied, all of it or nothing.
#[test]
fn what_is_copied_waits_for_room_for_all() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, copies) = copying(&a, &b, "x", 2);
    let (none, plain) = (pool_of(&a, Trust::None), pool_of(&a, Trust::Half));
    let mut all = of(&plain, &[(10, 1)]);
    for piece in of(&none, &[(CHUNK, 2), (CHUNK, 3)]).into_pieces() {
        all.push_back(piece).expect("room");
    }
    all.set_list_pool(&pool(&a, 1));
    let held = copies.alloc(CHUNK).expect("a buffer");
    to.send(all).expect("move");
    for _ in 0..3 {
        assert!(from.try_recv().expect("it waits").is_none());
        // Nothing is lost.
        uses(&plain, 1);
        uses(&none, 2);
    }
    drop(held);
    let mut got = moved(&mut from);
    let bytes: Vec<_> = got.pieces().iter().map(|piece| piece.to_vec()[0]).collect();
    assert_eq!(bytes, [1, 2, 3]);
    assert!(got.pieces_mut().all(|piece| piece.write(0, b"x").is_ok()));
    uses(&plain, 1);
    uses(&none, 0);
    uses(&copies, 2);
}

#[test]
fn what_cannot_be_sent_comes_back_whole() {
    let (_dog, a, b) = pair();
    let (mut to, mut from) = link_with(&a, &b, "x", ChannelOptions::new().lines(2));
    let (mut on, _end) = link(&b, &a, "y");
    let pool = pool_of(&a, Trust::Half);
    to.assign(&pool).expect("assign");
    for _ in 0..2 {
        to.send(of(&pool, &[(10, 1), (10, 2)])).expect("room");
    }
    let failed = to
        .try_send(of(&pool, &[(10, 3), (10, 4)]))
        .expect_err("full");
    assert_eq!(failed.kind(), ErrorKind::Full);
    let mut back = failed.unsent;
    assert_eq!(back.pieces().len(), 2);
    assert!(
        back.pieces_mut()
            .all(|piece| piece.write(0, b"again").is_ok())
    );
    // Without a pool of its own the forwarder has no place for the list, and without the right it may not forward.
    let got = moved(&mut from);
    let failed = on.send(got).expect_err("no list");
    assert_eq!(short(&failed.error), Some(Limit::NoPool), "{failed}");
    let mut got = failed.unsent;
    got.set_list_pool(&crate::kit::pool(&b, 1));
    let failed = on.send(got).expect_err("no right");
    assert_eq!(
        (failed.kind(), failed.unsent.pieces().len()),
        (ErrorKind::Refused, 2)
    );
}

#[test]
fn pieces_are_put_behind_each_other_and_there_is_a_limit() {
    let (_dog, a) = watched();
    let options = PoolOptions::new(4 << 20).slots(8192);
    let pool = a.create_pool(options).expect("a pool");
    let buf = |byte| pool.copy(&[byte]).expect("a buffer");
    let mut all = AggregateMut::new();
    assert!(all.is_empty());
    for byte in 0..4 {
        all.push_back(buf(byte)).expect("room");
    }
    assert_eq!((all.len(), all.pieces().len()), (4, 4));
    let shared = all.freeze();
    assert_eq!(shared.to_vec(), [0, 1, 2, 3]);
    let mut many = AggregateMut::new();
    for _ in 0..MAX_PIECES {
        many.push_back(buf(0)).expect("room");
    }
    let failed = many.push_back(buf(0)).expect_err("too many");
    assert_eq!(failed.kind(), ErrorKind::BadArgument, "{failed}");
}
