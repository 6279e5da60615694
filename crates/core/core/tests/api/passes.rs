//! Moved buffers that their receivers pass back: they show what was written, and are their pool's again by the collector's verdict only.

use crate::kit::*;
use tranship_core::{
    Body, Buffer, ChannelOptions, ErrorKind, Message, Pool, Receiver, SendError, Sender, Trust,
};
use tranship_testkit::probe::Access;

const LEVELS: [Trust; 3] = [Trust::Producer, Trust::Half, Trust::Full];

#[track_caller]
fn given(from: &mut Receiver) -> Given {
    Given::of(from.recv().expect("recv"))
}

/// Hands back what comes next.
#[track_caller]
fn pass_next(from: &mut Receiver, word: u64) -> Result<(), SendError<Given>> {
    given(from).back(from, word)
}

#[track_caller]
fn back(to: &mut Sender) -> Message {
    let reply = to.try_recv_back().expect("no lie");
    reply.expect("something came back")
}

#[track_caller]
fn returned(to: &mut Sender) -> Buffer {
    buf(back(to))
}

/// All of a pool can be had at once, so nobody has any of it.
#[track_caller]
fn is_whole(pool: &Pool) {
    drop(pool.alloc_now(4 * CHUNK).expect("all of it"));
}

#[test]
fn what_is_passed_back_shows_what_its_receiver_wrote() {
    for trust in LEVELS {
        for len in [10, 3 * CHUNK] {
            let (_dog, a, _b, mut to, mut from) = linked();
            let pool = pool_of(&a, trust);
            for round in 0..3u8 {
                let own = written(&pool, len, round);
                let (id, at) = (own.id(), own.view().as_ptr());
                to.send(own).expect("move");
                let mut got = Given::next(&mut from, trust);
                let there = got.view().as_ptr();
                let mut shown = (round, len);
                if got.write(&vec![round + 100; len]) {
                    shown = (round + 100, len - 3);
                }
                // What it says is defined.
                if let Given::Mine(buf) = &mut got {
                    buf.truncate(len - 3);
                }
                got.back(&mut from, 7).expect("pass");
                if trust == Trust::Half {
                    assert_eq!(access(there), Access::None, "it is not the receiver's");
                }
                assert!(pool.alloc_now(4 * CHUNK).is_err(), "it is on its way");
                let reply = back(&mut to);
                let (byte, len) = shown;
                assert_eq!((reply.word, reply.len()), (7, len));
                let got = buf(reply);
                assert_eq!((got.id(), got.to_vec()), (id, vec![byte; len]));
                assert_eq!(got.view().as_ptr(), at);
                assert_eq!(got.bytes().is_some(), trust == Trust::Producer);
                // Not its pool's yet: as far as the writer knows another domain may have it that should not.
                let got = got.try_into_mut().expect_err("it was sent");
                assert!(pool.alloc_now(4 * CHUNK).is_err(), "we have it");
                drop(got);
                is_whole(&pool);
                assert_ne!(
                    written(&pool, len, 0).id(),
                    id,
                    "that names nothing any more"
                );
            }
        }
    }
}

/// A buffer that goes there and back many times is counted right.
#[test]
fn it_goes_there_and_back_and_on() {
    for trust in LEVELS {
        let (_dog, a, b) = pair();
        let c = join(&a, "c");
        let (mut ab, mut b_in) = link(&a, &b, "ab");
        let (mut bc, mut c_in) = link(&b, &c, "bc");
        let (mut ac, mut c_direct) = link(&a, &c, "ac");
        let pool = pool_of(&a, trust);
        pool.allow_forward(b.id()).expect("allow");
        ab.send(written(&pool, 50, 1)).expect("move");
        for _ in 0..20 {
            pass_next(&mut b_in, 0).expect("pass");
            drop(returned(&mut ab));
            ab.send(written(&pool, 50, 1)).expect("move again");
        }
        if trust == Trust::Producer {
            is_handed_back_once(&mut ab, &mut b_in);
            is_whole(&pool);
            continue;
        }
        given(&mut b_in).send(&mut bc).expect("move on");
        // A domain that got it from a forwarder can pass it to the writer, over a channel from there and no other.
        let error = pass_next(&mut c_in, 0).expect_err("b is not its writer");
        assert_eq!(error.kind(), ErrorKind::PoolNotAssigned, "{error}");
        let error = (error.unsent.back(&mut c_direct, 0)).expect_err("not assigned to that");
        assert_eq!(error.kind(), ErrorKind::PoolNotAssigned, "{error}");
        ac.assign(&pool).expect("assign");
        error.unsent.back(&mut c_direct, 0).expect("pass");
        let got = returned(&mut ac);
        assert_eq!(got.to_vec(), [1; 50]);
        ab.send(got).expect("share");
        let shared = buf(b_in.recv().expect("recv"));
        assert!(pool.alloc_now(4 * CHUNK).is_err(), "b has it");
        drop(shared);
        is_whole(&pool);
    }
}

/// The handle that arrived hands the receipt back; its clones and parts are like any other's.
fn is_handed_back_once(to: &mut Sender, from: &mut Receiver) {
    let arrived = buf(from.recv().expect("recv"));
    let (clone, part) = (arrived.clone(), arrived.slice(10..20));
    for other in [clone.clone(), part] {
        let error = from.send_back(other).expect_err("a clone");
        assert_eq!(error.kind(), ErrorKind::BufferNotOwned, "{error}");
    }
    from.send_back(arrived).expect("it was given");
    let home = returned(to);
    to.send(home.clone()).expect("share");
    let shared = buf(from.recv().expect("recv"));
    let error = from.send_back(shared).expect_err("it was shared");
    assert_eq!(error.kind(), ErrorKind::BufferNotOwned, "{error}");
    assert_eq!((home.to_vec(), clone.to_vec()), (vec![1; 50], vec![1; 50]));
}

#[test]
fn what_cannot_be_passed_comes_back() {
    for trust in LEVELS {
        let (_dog, a, b) = pair();
        let (mut to, mut from) = link_with(&a, &b, "x", ChannelOptions::new().lines(2));
        let (mut outward, mut inward) = link(&b, &a, "y");
        let (pool, own) = (pool_of(&a, trust), pool_of(&b, trust));
        let error = from.send_back(written(&own, 8, 1)).expect_err("it is b's");
        assert_eq!(error.kind(), ErrorKind::BufferNotOwned, "{error}");
        outward.send(error.unsent).expect("move");
        pass_next(&mut inward, 0).expect("pass");
        let home = returned(&mut outward);
        let error = from.send_back(home).expect_err("it is b's");
        assert_eq!(error.kind(), ErrorKind::BufferNotOwned, "{error}");
        drop(error);
        is_whole(&own);
        let c = join(&a, "c");
        let (mut to_c, mut from_c) = link(&a, &c, "z");
        to.assign(&pool).expect("assign");
        to_c.send(written(&pool, 8, 1)).expect("move");
        let error = (given(&mut from_c).back(&mut from, 0)).expect_err("it is c's");
        assert_eq!(error.kind(), ErrorKind::BufferNotOwned, "{error}");
        error.unsent.back(&mut from_c, 0).expect("c may");
        assert_eq!(returned(&mut to_c).to_vec(), [1; 8]);
        to.assign(&pool).expect("assign");
        for byte in 1..3 {
            to.send(written(&pool, 8, byte)).expect("move");
            pass_next(&mut from, 0).expect("room");
        }
        to.send(written(&pool, 8, 3)).expect("move");
        let error = pass_next(&mut from, 0).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert_eq!(error.unsent.to_vec(), [3; 8]);
        assert_eq!(returned(&mut to).to_vec(), [1; 8]);
        error.unsent.back(&mut from, 0).expect("room");
        from.send_back(b"full").expect_err("again");
        assert_eq!(returned(&mut to).to_vec(), [2; 8]);
        from.send_back((b"more", 4)).expect("room");
        // Buffer and bytes arrive in the order in which they were sent back.
        assert_eq!(returned(&mut to).to_vec(), [3; 8]);
        let control = back(&mut to);
        assert_eq!((control.word, control.to_vec()), (4, b"more".to_vec()));
        assert!(to.try_recv_back().expect("no lie").is_none());
        to.send(written(&pool, 8, 5)).expect("move");
        let last = given(&mut from);
        drop(to);
        let error = last.back(&mut from, 0).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
        assert_eq!(error.unsent.to_vec(), [5; 8]);
        drop(error);
        is_whole(&pool);
    }
}

/// A part of a buffer that nobody else has is moved with all of its slot; only the part is defined.
#[test]
fn a_part_is_moved_with_its_whole_slot() {
    for trust in LEVELS {
        let (_dog, a, _b, mut to, mut from) = linked();
        let pool = pool_of(&a, trust);
        let whole = written(&pool, 4000, 1).freeze();
        let part = whole.slice(100..300);
        let part = part.try_into_mut().expect_err("the whole is still there");
        drop(whole);
        let mut part = part.try_into_mut().expect("nobody else has it");
        part.write(0, &[2; 200]).expect("inside");
        part.write(0, &[3; 201]).expect_err("beyond the part");
        to.send(part).expect("move");
        let mut got = Given::next(&mut from, trust);
        assert_eq!(got.to_vec(), [2; 200]);
        if let Given::Mine(got) = &mut got {
            got.write(0, &[3; 201]).expect_err("beyond the part");
        }
        got.back(&mut from, 0).expect("pass");
        let got = returned(&mut to);
        assert_eq!(got.to_vec(), [2; 200]);
        drop(got);
        is_whole(&pool);
    }
}

/// What its receiver has is a copy, of which nothing is the sender's.
#[test]
fn a_copy_is_not_passed() {
    let (_dog, a, b) = pair();
    let copies = pool(&b, 1);
    let options = ChannelOptions::new().snapshots(copies.id());
    let (mut to, mut from) = link_to(&a, &b, "x", options);
    let none = pool_of(&a, Trust::None);
    to.send(written(&none, 100, 1)).expect("move");
    let error = pass_next(&mut from, 0).expect_err("b's own");
    assert_eq!(error.kind(), ErrorKind::BufferNotOwned, "{error}");
    is_whole(&none);
    assert_eq!(error.unsent.bytes(), Some(&[1; 100][..]));
}

/// Many at once, from another thread, as fast as both can.
#[test]
fn a_stream_of_passes_loses_nothing() {
    const MESSAGES: u64 = 3000;
    for trust in LEVELS {
        let (_dog, a, b) = pair();
        let (mut to, mut from) = link_with(&a, &b, "x", ChannelOptions::new().lines(16));
        let pool = pool_of(&a, trust);
        std::thread::scope(|s| {
            s.spawn(|| {
                for n in 0..MESSAGES {
                    let message = from.recv().expect("recv");
                    assert_eq!(message.word, n);
                    let mut unsent = Some(Given::of(message));
                    while let Some(given) = unsent.take() {
                        if let Err(error) = given.back(&mut from, n) {
                            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                            unsent = Some(error.unsent);
                        }
                    }
                }
            });
            let (mut sent, mut came) = (0u64, 0u64);
            while came < MESSAGES {
                if sent < MESSAGES && sent - came < 8 {
                    let byte = sent.to_le_bytes()[0];
                    to.send((written(&pool, 3000, byte), sent)).expect("move");
                    sent += 1;
                }
                if let Some(reply) = to.try_recv_back().expect("no lie") {
                    assert_eq!(reply.word, came);
                    let byte = came.to_le_bytes()[0];
                    assert!(matches!(reply.body, Body::Buffer(_)));
                    assert_eq!(reply.to_vec(), vec![byte; 3000]);
                    came += 1;
                }
            }
        });
        is_whole(&pool);
    }
}
