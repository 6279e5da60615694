//! Releases that are told: the sender gets a word for what the receiver has let go of, and the memory is free by then.

use crate::kit::*;
use tranship_core::{
    Body, BufferId, ChannelOptions, ErrorKind, PollItem, Released, Sender, Trust, poll,
};

#[track_caller]
fn told(to: &mut Sender) -> (Option<BufferId>, u64) {
    let reply = to.try_recv_back().expect("no lie").expect("it is told");
    assert_eq!((reply.len(), reply.to_vec()), (0, Vec::new()));
    match reply.body {
        Body::Released(id) => (id, reply.word),
        other => panic!("a release was expected, not {other:?}"),
    }
}

/// Of shared and of moved buffers, at each level at which memory is shared: by name.
#[test]
fn the_sender_learns_which_buffer_and_can_have_its_memory() {
    for trust in [Trust::Producer, Trust::Half, Trust::Full] {
        let (_dog, a, _b, mut to, mut from) = linked();
        let pool = pool_of(&a, trust);
        for moved in [false, true] {
            let mut buf = pool.alloc(4 * CHUNK).expect("all of it");
            buf.write(0, b"x").expect("inside");
            let id = buf.id();
            match moved {
                true => to.send(buf).expect("move"),
                false => to.send(buf.freeze()).expect("send"),
            };
            let message = from.recv().expect("recv");
            assert!(pool.alloc_now(1).is_err(), "the receiver has it");
            from.send_back((Released(message.body), 9))
                .expect("release");
            assert_eq!(told(&mut to), (Some(id), 9), "{trust}");
            drop(pool.alloc_now(4 * CHUNK).expect("nobody has it"));
        }
        assert!(to.try_recv_back().expect("no lie").is_none());
    }
}

/// Only the handle goes that is released.
#[test]
fn another_handle_keeps_the_buffer() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let pool = pool_of(&a, Trust::Producer);
    to.send(pool.alloc(4 * CHUNK).expect("all of it").freeze())
        .expect("send");
    let buf = from.recv().expect("recv").into_buffer().expect("shared");
    from.send_back((Released(buf.slice(3..7)), 1))
        .expect("release");
    assert_eq!(told(&mut to), (Some(buf.id()), 1));
    assert!(pool.alloc_now(1).is_err(), "the receiver has it still");
    from.send_back((Released(buf), 2)).expect("release");
    assert_eq!(told(&mut to).1, 2);
    drop(pool.alloc_now(4 * CHUNK).expect("nobody has it"));
}

/// Payloads without a name that both ends know: copies, inline bytes, aggregates.
#[test]
fn what_has_no_name_is_told_without() {
    let (_dog, a, b) = pair();
    let copies = pool(&b, 4);
    let options = ChannelOptions::new().snapshots(copies.id());
    let (mut to, mut from) = link_to(&a, &b, "x", options);
    let none = pool_of(&a, Trust::None);
    to.send(none.copy(b"copied").expect("a buffer").freeze())
        .expect("send");
    to.send(b"inline").expect("send");
    let mut all = tranship_core::Aggregate::new();
    let plain = pool_of(&a, Trust::Producer);
    all.push_back(plain.copy(b"piece").expect("a buffer").freeze())
        .expect("room");
    to.send(all).expect("send");
    for word in 1..4 {
        let message = from.recv().expect("recv");
        from.send_back((Released(message.body), word))
            .expect("release");
        assert_eq!(told(&mut to), (None, word));
    }
    uses(&copies, 0);
    uses(&plain, 0);
}

#[test]
fn what_cannot_be_told_comes_back() {
    let (_dog, a, b) = pair();
    let (mut to, mut from) = link_with(&a, &b, "x", ChannelOptions::new().lines(2));
    let (mut other, mut from_other) = link(&a, &b, "y");
    let pool = pool_of(&a, Trust::Producer);
    let buf = || pool.copy(b"x").expect("a buffer").freeze();
    // By the channel by which it came, or one that has its pool.
    other.send(buf()).expect("send");
    let strange = from_other.recv().expect("recv");
    let failed = from
        .send_back(Released(strange.body))
        .expect_err("another channel");
    assert_eq!(failed.kind(), ErrorKind::PoolNotAssigned, "{failed}");
    from_other
        .send_back((Released(failed.unsent), 5))
        .expect("that one");
    assert_eq!(told(&mut other).1, 5);
    // There is room for so many words.
    for _ in 0..2 {
        to.send(buf()).expect("send");
        let body = from.recv().expect("recv").body;
        from.send_back(Released(body)).expect("room");
    }
    to.send(buf()).expect("send");
    let body = from.recv().expect("recv").body;
    let failed = from.send_back(Released(body)).expect_err("no room");
    assert_eq!(failed.kind(), ErrorKind::Full, "{failed}");
    // It is not released.
    uses(&pool, 1);
    told(&mut to);
    from.send_back((Released(failed.unsent), 6)).expect("room");
    told(&mut to);
    assert_eq!(told(&mut to).1, 6);
    let twice = from.send_back(Released(Body::Released(None)));
    assert_eq!(
        twice.expect_err("no such thing").kind(),
        ErrorKind::BadArgument
    );
    // Nobody is there.
    to.send(buf()).expect("send");
    let body = from.recv().expect("recv").body;
    drop(to);
    let failed = from.send_back(Released(body)).expect_err("nobody hears it");
    assert_eq!(failed.kind(), ErrorKind::PeerGone, "{failed}");
    drop(failed);
    uses(&pool, 0);
}

/// Words of all kinds come in their order, and a wait for them ends.
#[test]
fn words_come_in_order_and_are_waited_for() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let pool = pool_of(&a, Trust::Producer);
    let now = Some(std::time::Duration::ZERO);
    let ready = poll(&mut [PollItem::control(&mut to)], now).expect("poll");
    assert!(ready.is_empty(), "nothing is there");
    for _ in 0..2 {
        to.send(pool.alloc(10).expect("a buffer")).expect("move");
    }
    std::thread::scope(|s| {
        s.spawn(|| {
            from.send_back((b"first", 1)).expect("room");
            let one = buf(from.recv().expect("recv"));
            let two = buf(from.recv().expect("recv"));
            from.send_back((Released(two), 2)).expect("release");
            from.send_back((one, 3)).expect("pass");
        });
        for wanted in 1..4 {
            let reply = loop {
                if let Some(reply) = to.try_recv_back().expect("no lie") {
                    break reply;
                }
                let ready = poll(&mut [PollItem::control(&mut to)], None).expect("poll");
                assert_eq!(ready, [0]);
            };
            assert_eq!(reply.word, wanted);
            let fits = match wanted {
                1 => matches!(reply.body, Body::Inline(_)),
                2 => matches!(reply.body, Body::Released(Some(_))),
                _ => matches!(reply.body, Body::Buffer(_)),
            };
            assert!(fits, "{reply:?}");
        }
    });
    drop(from);
    assert_eq!(
        poll(&mut [PollItem::control(&mut to)], None).expect("poll"),
        [0],
        "its end"
    );
}

/// It outlives the receiver.
#[test]
fn what_it_said_before_it_went_is_there() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let pool = pool_of(&a, Trust::Producer);
    to.send(pool.alloc(10).expect("a buffer").freeze())
        .expect("send");
    let body = from.recv().expect("recv").body;
    from.send_back((Released(body), 4)).expect("release");
    drop(from);
    until(|| to.status().peer_gone);
    assert_eq!(told(&mut to).1, 4);
    let error = to.send(b"x").expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::PeerGone);
}
