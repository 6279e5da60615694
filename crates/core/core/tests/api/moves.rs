//! Buffers that are given away: each has one holder at a time, which may write it where the pool's level of trust lets it, and comes back to its pool
//! when that holder drops it.

use crate::kit::*;
use tranship_core::{BufferMut, ChannelOptions, ErrorKind, Pool, PoolOptions, Trust, WhenFull};
use tranship_testkit::probe::Access;

const LEVELS: [Trust; 3] = [Trust::Producer, Trust::Half, Trust::Full];

/// All of a pool can be had at once, so nobody has any of it.
fn is_whole(pool: &Pool) {
    drop(pool.alloc(4 * CHUNK).expect("all of it"));
}

/// The domains that can touch a moved buffer, its contents, and its return as another buffer.
#[test]
fn a_moved_buffer_is_its_receivers() {
    for trust in LEVELS {
        for len in [10, 3 * CHUNK] {
            let (_dog, a, _b, mut to, mut from) = linked();
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
            let mut got = Given::of(message);
            assert_eq!(got.id(), id);
            let there = got.view().as_ptr();
            assert!(got.bytes().is_none());
            let (most, byte) = match &mut got {
                Given::Mine(got) => {
                    assert!(trust.all_write() && got.bytes_mut().is_none());
                    got.write(0, &vec![2; len]).expect("it may");
                    assert!(got.write(1, &vec![3; len]).is_err(), "beyond its end");
                    (Access::ReadWrite, 2)
                }
                Given::Shared(_) => {
                    assert!(!trust.all_write());
                    (Access::Read, 1)
                }
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
        let (_dog, a, _b, mut to, mut from) = linked();
        // SAFETY: each domain writes only buffers that it owns.
        unsafe { from.trust_writer() };
        let pool = pool_of(&a, trust);
        // The first comes another way than the others.
        for _ in 0..3 {
            to.send(written(&pool, 8, 1)).expect("move");
            let mut got = Given::next(&mut from, trust);
            assert_eq!(got.bytes(), Some(&[1; 8][..]));
            if let Given::Mine(got) = &mut got {
                got.bytes_mut().expect("slices too").fill(2);
                got.truncate(4);
            }
            let shown: &[u8] = if trust.all_write() { &[2; 4] } else { &[1; 8] };
            assert_eq!(got.freeze().bytes(), Some(shown));
        }
    }
}

/// A buffer that could not be moved is as it was.
#[test]
fn what_is_not_sent_comes_back() {
    for trust in LEVELS {
        let (_dog, a, b) = pair();
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
        assert_eq!(Given::next(&mut from, trust).to_vec(), [2; 8]);
        assert_eq!(Given::next(&mut from, trust).to_vec(), [3; 8]);
        to.set_when_full(WhenFull::DropNew);
        for _ in 0..3 {
            to.send(written(&pool, 8, 6)).expect("dropped");
        }
        assert_eq!(to.status().dropped, 1);
        drop(from);
        to.set_when_full(WhenFull::Wait);
        let error = to.send(back).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::PeerGone);
        let back = still_ours(error.unsent, 5);
        drop(back);
        is_whole(&pool);
    }
}

/// A buffer that another domain writes is not looked up. That domain may share it, also with its writer. A buffer that is only read there is.
#[test]
fn what_is_given_to_be_written_is_not_looked_up() {
    for trust in LEVELS {
        let (_dog, a, b, mut to, mut from) = linked();
        let (mut back, mut home) = link(&b, &a, "y");
        let pool = pool_of(&a, trust);
        pool.allow_forward(b.id()).expect("allow");
        to.send(written(&pool, 50, 1)).expect("move");
        let got = Given::next(&mut from, trust);
        let id = got.id();
        match pool.lookup(id) {
            Ok(found) => assert_eq!(
                (trust, &found.to_vec()[..50]),
                (Trust::Producer, &[1; 50][..])
            ),
            Err(error) => {
                assert!(trust.all_write());
                assert_eq!(error.kind(), ErrorKind::BufferInvalid, "{error}");
            }
        }
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

/// Handles of pools whose domain ends first do no harm.
#[test]
fn a_pool_stays_as_long_as_a_moved_buffer_of_it_is_out() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let options = PoolOptions::new(CHUNK as u64).trust(Trust::Full);
    let pool = a.create_pool(options.chunk_bytes(CHUNK as u64));
    let pool = pool.expect("a pool");
    to.send(written(&pool, 100, 1)).expect("move");
    drop((to, pool));
    let mut got = Given::next(&mut from, Trust::Full);
    got.write(&[2; 100]);
    drop(from);
    assert_eq!(got.to_vec(), [2; 100]);
}
