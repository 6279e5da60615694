//! Buffers that are moved: each has one holder at a time, who may write it where the pool's level of trust lets him, and comes back to its pool
//! when that holder drops it.

mod walk;

use crate::kit::*;
use tranship_core::{
    Body, Buffer, BufferId, BufferMut, ChannelOptions, ErrorKind, Pool, PoolOptions, Receiver,
    RefusalCode, Sender, Trust, WhenFull,
};
use tranship_testkit::probe::Access;

const LEVELS: [Trust; 3] = [Trust::Producer, Trust::Half, Trust::Full];

#[track_caller]
fn moved(from: &mut Receiver) -> BufferMut {
    let message = from.recv().expect("recv");
    match message.body {
        Body::BufferMut(buf) => buf,
        other => panic!("a moved buffer was expected, not {other:?}"),
    }
}

fn written(pool: &Pool, len: usize, byte: u8) -> BufferMut {
    let mut buf = pool.alloc(len).expect("a buffer");
    buf.write(0, &vec![byte; len]).expect("inside");
    buf
}

/// All of a pool can be had at once, so nobody has any of it.
fn is_whole(pool: &Pool) {
    drop(pool.alloc(4 * CHUNK).expect("all of it"));
}

/// Who can touch it, what it says, and that it comes back as another buffer.
#[test]
fn a_moved_buffer_is_its_receivers() {
    for trust in LEVELS {
        for len in [10, 3 * CHUNK] {
            let _dog = dog();
            let (a, b) = pair();
            let (mut to, mut from) = link(&a, &b, "x");
            let pool = pool_of(&a, trust);
            let buf = written(&pool, len, 1);
            let (id, at) = (buf.id(), buf.view().as_ptr());
            to.send((buf, 7)).expect("move");
            let here = match trust {
                Trust::Half => Access::None,
                _ => Access::ReadWrite,
            };
            assert_eq!(access(at), here, "{trust}: what was moved is not ours");
            let message = from.recv().expect("recv");
            assert_eq!((message.word, message.len()), (7, len));
            assert_eq!(message.to_vec(), vec![1; len]);
            let mut got = message.into_buffer_mut().expect("it was moved");
            assert_eq!(got.id(), id);
            let there = got.view().as_ptr();
            let writes = trust.all_write();
            assert_eq!(got.is_writable(), writes);
            assert!(got.bytes().is_none() && got.bytes_mut().is_none());
            let (most, byte) = if writes {
                got.write(0, &vec![2; len]).expect("it may");
                assert!(got.write(1, &vec![3; len]).is_err(), "beyond its end");
                (Access::ReadWrite, 2)
            } else {
                let error = got.write(0, &[2]).expect_err("it may not");
                assert_eq!(error.kind(), ErrorKind::BufferState, "{error}");
                (Access::Read, 1)
            };
            assert_eq!(access(there), most);
            assert!(pool.alloc_now(2 * CHUNK).is_err() || len == 10);
            let frozen = got.freeze();
            assert_eq!(frozen.to_vec(), vec![byte; len]);
            let left = match trust {
                Trust::Full => Access::ReadWrite,
                _ => Access::Read,
            };
            assert_eq!(access(there), left);
            let frozen = frozen.try_into_mut().expect_err("of another's pool");
            drop(frozen);
            if trust == Trust::Half {
                assert_eq!(access(there), Access::None);
            }
            is_whole(&pool);
            for _ in 0..20 {
                assert_ne!(written(&pool, len, 4).id(), id, "it names nothing any more");
            }
        }
    }
}

#[test]
fn slices_of_it_are_there_for_who_trusts() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let (mut to, mut from) = link(&a, &b, "x");
        // SAFETY: whoever writes here writes only what is his.
        unsafe { from.trust_writer() };
        let pool = pool_of(&a, trust);
        // The first comes another way than the others.
        for _ in 0..3 {
            to.send(written(&pool, 8, 1)).expect("move");
            let mut got = moved(&mut from);
            assert_eq!(got.bytes(), Some(&[1; 8][..]));
            assert_eq!(got.bytes_mut().is_some(), trust.all_write());
            if let Some(bytes) = got.bytes_mut() {
                bytes.fill(2);
            }
            got.truncate(4);
            let byte = if trust.all_write() { 2 } else { 1 };
            assert_eq!(got.freeze().bytes(), Some(&[byte; 4][..]));
        }
    }
}

/// What could not be moved is as it was.
#[test]
fn what_is_not_sent_comes_back() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let c = join(&a, "c");
        let options = ChannelOptions::new().lines(2);
        let (mut to, mut from) = link_with(&a, &b, "x", options);
        let (mut strange, _inward) = link(&b, &c, "y");
        let pool = pool_of(&a, trust);
        to.assign(&pool).expect("assign");
        let still_ours = |mut buf: BufferMut, byte| {
            assert_eq!(buf.to_vec(), [byte; 8]);
            buf.write(0, &[byte + 1; 8]).expect("it is ours");
            assert_eq!(access(buf.view().as_ptr()), Access::ReadWrite);
            buf
        };
        let error = strange.send(written(&pool, 8, 1)).expect_err("a's");
        assert_eq!(error.kind(), ErrorKind::BufferNotOwned);
        let back = still_ours(error.unsent, 1);
        to.send(back).expect("room");
        to.send(written(&pool, 8, 3)).expect("room");
        let error = to.try_send(written(&pool, 8, 4)).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::Full);
        let back = still_ours(error.unsent, 4);
        assert_eq!(moved(&mut from).to_vec(), [2; 8]);
        assert_eq!(moved(&mut from).to_vec(), [3; 8]);
        to.set_when_full(WhenFull::DropNew);
        for _ in 0..3 {
            to.send(written(&pool, 8, 6)).expect("dropped");
        }
        assert_eq!(to.dropped(), 1);
        drop(from);
        to.set_when_full(WhenFull::Wait);
        let error = to.send(back).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::PeerGone);
        let back = still_ours(error.unsent, 5);
        drop(back);
        is_whole(&pool);
    }
}

/// Shared and moved ones, in parts and inline, come as they went, in order.
#[test]
fn both_kinds_travel_on_one_channel() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let (mut to, mut from) = link(&a, &b, "x");
        let pool = pool_of(&a, trust);
        for round in 0..200u8 {
            let kept = written(&pool, 100, round).freeze();
            to.send(kept.slice(10..30)).expect("send");
            to.send(written(&pool, 200, round + 1)).expect("move");
            to.send((&[round], 3)).expect("inline");
            to.send(written(&pool, 300, round + 2).freeze())
                .expect("send");
            let part = buf(from.recv().expect("recv"));
            assert_eq!(part.to_vec(), [round; 20]);
            let mut whole = moved(&mut from);
            assert_eq!(whole.to_vec(), [round + 1; 200]);
            if whole.is_writable() {
                whole.write(100, &[0; 100]).expect("inside");
            }
            assert_eq!(from.recv().expect("recv").to_vec(), [round]);
            assert_eq!(from.recv().expect("recv").to_vec(), [round + 2; 300]);
            assert_eq!(part.to_vec(), [round; 20]);
            assert_eq!(kept.to_vec(), [round; 100]);
        }
        is_whole(&pool);
    }
}

#[test]
fn it_goes_on_and_comes_back() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let c = join(&a, "c");
        let (mut ab, mut b_in) = link(&a, &b, "ab");
        let (mut bc, mut c_in) = link(&b, &c, "bc");
        let (mut ca, mut a_in) = link(&c, &a, "ca");
        let pool = pool_of(&a, trust);
        ab.send(written(&pool, 50, 1)).expect("move");
        let got = moved(&mut b_in);
        let (id, at_b) = (got.id(), got.view().as_ptr());
        let error = bc.send(got).expect_err("no right");
        assert_eq!(refusal(&error.error), Some(RefusalCode::NotYours));
        let mut got = error.unsent;
        for domain in [&b, &c] {
            pool.allow_forward(domain.id()).expect("allow");
        }
        let byte = u8::from(trust.all_write()) + 1;
        assert_eq!(got.write(0, &[2; 50]).is_ok(), trust.all_write());
        bc.send(got).expect("move on");
        if trust == Trust::Half {
            assert_eq!(access(at_b), Access::None, "b has it no more");
        }
        let got = moved(&mut c_in);
        assert_eq!((got.id(), got.to_vec()), (id, vec![byte; 50]));
        ca.send(got).expect("move back");
        let mut home = moved(&mut a_in);
        assert_eq!((home.id(), home.to_vec()), (id, vec![byte; 50]));
        assert_eq!(home.bytes().is_some(), trust == Trust::Producer);
        // Somebody may have it who should not, as far as the writer knows: the collector will say.
        assert!(!home.is_writable() && home.bytes_mut().is_none());
        let error = home.write(0, &[3]).expect_err("not yet");
        assert_eq!(error.kind(), ErrorKind::BufferState, "{error}");
        // Around once more as what it is, and then as one that is shared.
        ab.send(home).expect("move");
        bc.send(moved(&mut b_in)).expect("move on");
        ca.send(moved(&mut c_in)).expect("move back");
        ab.send(moved(&mut a_in).freeze()).expect("share");
        let shared = buf(b_in.recv().expect("recv"));
        assert_eq!((shared.id(), shared.to_vec()), (id, vec![byte; 50]));
        assert!(pool.alloc_now(4 * CHUNK).is_err(), "b has it");
        drop(shared);
        is_whole(&pool);
    }
}

/// Its new owner may share it, also with whom it came from, but nobody else helps himself.
#[test]
fn what_is_away_is_not_looked_up() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let (mut to, mut from) = link(&a, &b, "x");
        let (mut back, mut home) = link(&b, &a, "y");
        let pool = pool_of(&a, trust);
        pool.allow_forward(b.id()).expect("allow");
        to.send(written(&pool, 50, 1)).expect("move");
        let got = moved(&mut from);
        let id = got.id();
        let error = pool.lookup(id).expect_err("it is b's");
        assert_eq!(error.kind(), ErrorKind::BufferInvalid, "{error}");
        back.send(got.freeze()).expect("share");
        let shared = buf(home.recv().expect("recv"));
        assert_ne!(access(shared.view().as_ptr()), Access::None);
        assert_eq!((shared.id(), shared.to_vec()), (id, vec![1; 50]));
        drop(shared);
        is_whole(&pool);
        assert_eq!(pool.lookup(id).expect_err("over").kind(), ErrorKind::Stale);
        // The next one in its place is like any other.
        for _ in 0..200 {
            let buf = written(&pool, 50, 2).freeze();
            to.send(buf.clone()).expect("send");
            pool.lookup(buf.id()).expect("it is shared");
            drop(from.recv().expect("recv"));
        }
    }
}

#[test]
fn a_frozen_buffer_that_nobody_else_has_is_exclusive_again() {
    for trust in LEVELS {
        let _dog = dog();
        let (a, b) = pair();
        let (mut to, mut from) = link(&a, &b, "x");
        let pool = pool_of(&a, trust);
        for len in [50, 2 * CHUNK] {
            let frozen = written(&pool, len, 1).freeze();
            let copy = frozen.clone();
            let frozen = frozen.try_into_mut().expect_err("there is a copy");
            drop(copy);
            let mut again = frozen.try_into_mut().expect("there is none");
            again.write(0, &vec![2; len]).expect("inside");
            to.send(again).expect("move");
            assert_eq!(moved(&mut from).to_vec(), vec![2; len]);
            let frozen = written(&pool, len, 3).freeze();
            to.send(frozen.clone()).expect("send");
            drop(from.recv().expect("recv"));
            drop(frozen.try_into_mut().expect_err("it was sent"));
        }
        is_whole(&pool);
    }
}

/// What a domain of the random walk has.
enum Held {
    Mut(BufferMut),
    Shared(Buffer),
}

/// Handles of pools whose domain ends first do no harm.
#[test]
fn a_pool_stays_as_long_as_a_moved_buffer_of_it_is_out() {
    let _dog = dog();
    let (a, b) = pair();
    let (mut to, mut from) = link(&a, &b, "x");
    let options = PoolOptions::new(CHUNK as u64).trust(Trust::Full);
    let pool = a.create_pool(options.chunk_bytes(CHUNK as u64));
    let pool = pool.expect("a pool");
    to.send(written(&pool, 100, 1)).expect("move");
    drop((to, pool));
    let mut got = moved(&mut from);
    got.write(0, &[2; 100]).expect("it is ours");
    drop(from);
    assert_eq!(got.to_vec(), [2; 100]);
}
