//! Moved buffers that their receivers pass back: they show what was written, and are their pool's again by the collector's verdict only.

use crate::kit::*;
use tranship_core::{
    Body, BufferMut, ChannelOptions, ErrorKind, Message, Pool, Receiver, SendError, Sender, Trust,
};
use tranship_testkit::probe::Access;

const LEVELS: [Trust; 3] = [Trust::Producer, Trust::Half, Trust::Full];

#[track_caller]
fn moved(from: &mut Receiver) -> BufferMut {
    let message = from.recv().expect("recv");
    message.into_buffer_mut().expect("a moved buffer")
}

/// Passes back what comes next.
#[track_caller]
fn pass_next(from: &mut Receiver, word: u64) -> Result<(), SendError<BufferMut>> {
    let buf = moved(from);
    let passed = from.send_back((buf, word));
    passed.map_err(|failed| failed.map(|(buf, _)| buf))
}

#[track_caller]
fn back(to: &mut Sender) -> Message {
    let reply = to.try_recv_back().expect("no lie");
    reply.expect("something came back")
}

#[track_caller]
fn returned(to: &mut Sender) -> BufferMut {
    back(to).into_buffer_mut().expect("a buffer came back")
}

fn written(pool: &Pool, len: usize, byte: u8) -> BufferMut {
    let mut buf = pool.alloc(len).expect("a buffer");
    buf.write(0, &vec![byte; len]).expect("inside");
    buf
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
            let _dog = dog();
            let (a, b) = pair();
            let (mut to, mut from) = link(&a, &b, "x");
            let pool = pool_of(&a, trust);
            for round in 0..3u8 {
                let buf = written(&pool, len, round);
                let (id, at) = (buf.id(), buf.view().as_ptr());
                to.send(buf).expect("move");
                let mut got = moved(&mut from);
                let there = got.view().as_ptr();
                let byte = match got.write(0, &vec![round + 100; len]) {
                    Ok(()) => round + 100,
                    Err(_) => round,
                };
                // What it says is defined.
                got.truncate(len - 3);
                from.send_back((got, 7)).expect("pass");
                if trust == Trust::Half {
                    assert_eq!(access(there), Access::None, "it is not the receiver's");
                }
                assert!(pool.alloc_now(4 * CHUNK).is_err(), "it is on its way");
                let reply = back(&mut to);
                assert_eq!((reply.word, reply.len()), (7, len - 3));
                let mut got = reply.into_buffer_mut().expect("a buffer");
                assert_eq!((got.id(), got.to_vec()), (id, vec![byte; len - 3]));
                assert_eq!(got.view().as_ptr(), at);
                assert_eq!(got.bytes().is_some(), trust == Trust::Producer);
                // Not its pool's yet: as far as the writer knows somebody may have it who should not.
                assert!(!got.is_writable() && got.bytes_mut().is_none());
                let error = got.write(0, &[1]).expect_err("not yet");
                assert_eq!(error.kind(), ErrorKind::BufferState, "{error}");
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

/// It goes round as often as one likes, and is counted right.
#[test]
fn it_goes_there_and_back_and_on() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let c = join(&a, "c");
        let (mut ab, mut b_in) = link(&a, &b, "ab");
        let (mut bc, mut c_in) = link(&b, &c, "bc");
        let (mut ac, mut c_direct) = link(&a, &c, "ac");
        let pool = pool_of(&a, trust);
        pool.allow_forward(b.id()).expect("allow");
        ab.send(written(&pool, 50, 1)).expect("move");
        for _ in 0..20 {
            pass_next(&mut b_in, 0).expect("pass");
            let again = returned(&mut ab);
            ab.send(again).expect("move again");
        }
        bc.send(moved(&mut b_in)).expect("move on");
        // Who got it from a forwarder can pass it to the writer, over a channel from there and no other.
        let error = pass_next(&mut c_in, 0).expect_err("b is not its writer");
        assert_eq!(error.kind(), ErrorKind::PoolNotAssigned, "{error}");
        let error = c_direct
            .send_back(error.unsent)
            .expect_err("not assigned to that");
        assert_eq!(error.kind(), ErrorKind::PoolNotAssigned, "{error}");
        ac.assign(&pool).expect("assign");
        c_direct.send_back(error.unsent).expect("pass");
        let got = returned(&mut ac);
        assert_eq!(got.to_vec(), [1; 50]);
        ab.send(got.freeze()).expect("share");
        let shared = buf(b_in.recv().expect("recv"));
        assert!(pool.alloc_now(4 * CHUNK).is_err(), "b has it");
        drop(shared);
        is_whole(&pool);
    }
}

#[test]
fn what_cannot_be_passed_comes_back() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
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
        let error = from.send_back(moved(&mut from_c)).expect_err("it is c's");
        assert_eq!(error.kind(), ErrorKind::BufferNotOwned, "{error}");
        from_c.send_back(error.unsent).expect("c may");
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
        assert_eq!(error.unsent.is_writable(), trust.all_write());
        assert_eq!(returned(&mut to).to_vec(), [1; 8]);
        from.send_back(error.unsent).expect("room");
        from.send_back(b"full").expect_err("again");
        assert_eq!(returned(&mut to).to_vec(), [2; 8]);
        from.send_back((b"more", 4)).expect("room");
        // In the order in which it went.
        assert_eq!(returned(&mut to).to_vec(), [3; 8]);
        let control = back(&mut to);
        assert_eq!((control.word, control.to_vec()), (4, b"more".to_vec()));
        assert!(to.try_recv_back().expect("no lie").is_none());
        to.send(written(&pool, 8, 5)).expect("move");
        let last = moved(&mut from);
        drop(to);
        let error = from.send_back(last).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
        assert_eq!(error.unsent.to_vec(), [5; 8]);
        drop(error);
        is_whole(&pool);
    }
}

/// Who passes back and goes has passed back.
#[test]
fn what_was_passed_stays_when_its_receiver_goes() {
    for trust in LEVELS {
        for turns in [false, true] {
            let _dog = dog();
            let (a, b) = pair();
            let (mut to, mut from) = link(&a, &b, "x");
            let pool = pool_of(&a, trust);
            for byte in 1..4 {
                to.send(written(&pool, 100, byte)).expect("move");
                pass_next(&mut from, u64::from(byte)).expect("pass");
            }
            from.send_back((b"bye", 4)).expect("control");
            assert_eq!(returned(&mut to).to_vec(), [1; 100]);
            drop((from, b));
            if turns {
                until(|| to.is_peer_gone());
            }
            assert!(pool.alloc_now(4 * CHUNK).is_err(), "two are out");
            for byte in 2..4 {
                let reply = back(&mut to);
                assert_eq!(reply.word, u64::from(byte));
                assert_eq!(reply.to_vec(), [byte; 100]);
            }
            assert_eq!(back(&mut to).to_vec(), b"bye");
            assert!(to.try_recv_back().expect("no lie").is_none());
            is_whole(&pool);
        }
    }
}

/// What nobody takes goes with the end that could have, whoever goes first.
#[test]
fn what_was_passed_and_not_taken_is_the_pools() {
    for trust in LEVELS {
        for sender_first in [true, false] {
            let _dog = dog();
            let (a, b) = pair();
            let (mut to, mut from) = link(&a, &b, "x");
            let pool = pool_of(&a, trust);
            for byte in 1..4 {
                to.send(written(&pool, 100, byte)).expect("move");
                pass_next(&mut from, 0).expect("pass");
            }
            if sender_first {
                drop(to);
                is_whole(&pool);
                drop(from);
            } else {
                drop(from);
                until(|| to.is_peer_gone());
                drop(to);
            }
            is_whole(&pool);
        }
    }
}

/// A part of a buffer that nobody else has is moved with all of its slot; only the part is defined.
#[test]
fn a_part_is_moved_with_its_whole_slot() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let (mut to, mut from) = link(&a, &b, "x");
        let pool = pool_of(&a, trust);
        let whole = written(&pool, 4000, 1).freeze();
        let part = whole.slice(100..300);
        let part = part.try_into_mut().expect_err("the whole is still there");
        drop(whole);
        let mut part = part.try_into_mut().expect("nobody else has it");
        part.write(0, &[2; 200]).expect("inside");
        part.write(0, &[3; 201]).expect_err("beyond the part");
        to.send(part).expect("move");
        let mut got = moved(&mut from);
        assert_eq!(got.to_vec(), [2; 200]);
        got.write(0, &[3; 201]).expect_err("beyond the part");
        from.send_back(got).expect("pass");
        let got = returned(&mut to);
        assert_eq!(got.to_vec(), [2; 200]);
        drop(got);
        is_whole(&pool);
    }
}

/// What its receiver has is a copy, of which nothing is the sender's.
#[test]
fn a_copy_is_not_passed() {
    let _dog = dog();
    let (a, b) = pair();
    let copies = pool(&b, 1);
    let options = ChannelOptions::new().snapshots(copies.id());
    let (mut to, mut from) = link_with_sink(&a, &b, options);
    let none = pool_of(&a, Trust::None);
    to.send(written(&none, 100, 1)).expect("move");
    let error = pass_next(&mut from, 0).expect_err("b's own");
    assert_eq!(error.kind(), ErrorKind::BufferNotOwned, "{error}");
    is_whole(&none);
    assert_eq!(error.unsent.bytes(), Some(&[1; 100][..]));
}

fn link_with_sink(
    from: &tranship_core::Domain,
    to: &tranship_core::Domain,
    options: ChannelOptions,
) -> (Sender, Receiver) {
    let listener = from.listen::<Sender>("x");
    let listener = listener.expect("listen");
    std::thread::scope(|s| {
        let receiver = s.spawn(|| to.open_with::<Receiver>("x", options).expect("open"));
        let sender = listener.accept().expect("accept");
        (sender, receiver.join().expect("opener"))
    })
}

/// Many at once, from another thread, as fast as both can.
#[test]
fn a_stream_of_passes_loses_nothing() {
    const MESSAGES: u64 = 3000;
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let (mut to, mut from) = link_with(&a, &b, "x", ChannelOptions::new().lines(16));
        let pool = pool_of(&a, trust);
        std::thread::scope(|s| {
            s.spawn(|| {
                for n in 0..MESSAGES {
                    let message = from.recv().expect("recv");
                    assert_eq!(message.word, n);
                    let mut unsent = message.into_buffer_mut();
                    while let Some(buf) = unsent.take() {
                        if let Err(error) = from.send_back((buf, n)) {
                            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                            unsent = Some(error.unsent.0);
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
                    assert!(matches!(reply.body, Body::BufferMut(_)));
                    assert_eq!(reply.to_vec(), vec![byte; 3000]);
                    came += 1;
                }
            }
        });
        is_whole(&pool);
    }
}
