//! Pools of the levels of trust: the domains that can write each memory, the slices, and the channels that take them.

use crate::kit::*;
use tranship_core::admin::StatRecord;
use tranship_core::error::{Refusal, RefusalCode};
use tranship_core::{ChannelOptions, ErrorKind, Outcome, Pool, PoolOptions, Trust};
use tranship_testkit::probe::Access;

/// Every mapping of a buffer's memory in its writer and in a reader.
#[test]
fn who_can_write() {
    for (trust, theirs) in [
        (Trust::Producer, Access::Read),
        (Trust::Full, Access::ReadWrite),
    ] {
        let (_dog, a, _b, mut to, mut from) = linked();
        let pool = pool_of(&a, trust);
        assert_eq!(pool.trust(), trust);
        let buf = pool.copy(b"some bytes").expect("a buffer").freeze();
        let copy = buf.clone();
        to.send(buf).expect("send");
        let got = crate::kit::buf(from.recv().expect("recv"));
        assert_eq!(got.to_vec(), b"some bytes");
        assert_eq!(access(copy.view().as_ptr()), Access::ReadWrite);
        assert_eq!(access(got.view().as_ptr()), theirs, "{trust}");
        let shown = a.admin().stat().expect("stat");
        let shown = shown.iter().find_map(|record| match record {
            StatRecord::Pool(stat) if stat.pool == pool.id() => Some(stat.trust),
            _ => None,
        });
        assert_eq!(shown, Some(trust));
    }
}

/// Where others write, each of them can punch holes into a chunk that its reader has mapped: the reader pays for what it touches there. It finds the
/// hole when it receives a large buffer.
#[test]
fn a_large_buffer_with_holes_is_refused() {
    for (trust, moves) in [
        (Trust::Full, false),
        (Trust::Full, true),
        (Trust::Half, false),
    ] {
        let (_dog, a, _b, mut to, mut from) = linked();
        let pool = pool_of(&a, trust);
        let len = 3 * CHUNK;
        // The reader has the chunks, and found them whole.
        to.send(pool.alloc(len).expect("a buffer").freeze())
            .expect("send");
        assert_eq!(from.recv().expect("recv").len(), len);
        let buf = pool.alloc(len).expect("a buffer");
        let at = buf.view().as_ptr().cast_mut();
        // SAFETY: a page of a buffer that nobody looks at; it reads as zeros then.
        let punched = unsafe { libc::madvise(at.cast(), 4096, libc::MADV_REMOVE) };
        assert_eq!(punched, 0, "{}", std::io::Error::last_os_error());
        let sent = match moves {
            true => to.send(buf).expect("move"),
            false => to.send(buf.freeze()).expect("send"),
        };
        assert_eq!(sent, Outcome::Sent);
        let error = from.recv().expect_err("a hole");
        assert_eq!(error.kind(), ErrorKind::PeerViolation, "{trust}: {error}");
        assert!(error.to_string().contains("holes"), "{trust}: {error}");
    }
}

/// At `half` each domain can do with a buffer's pages what it is to do with them at the moment, and nothing else.
#[test]
fn at_half_what_is_not_to_be_touched_faults() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let pool = pool_of(&a, Trust::Half);
    let mut buf = pool.alloc(10).expect("a buffer");
    buf.write(0, b"some bytes").expect("inside");
    let beside = pool.alloc(10).expect("a buffer");
    let apart = buf
        .view()
        .as_ptr()
        .addr()
        .abs_diff(beside.view().as_ptr().addr());
    assert!(apart >= 4096, "{apart}: a page is one buffer's");
    assert_eq!(access(buf.view().as_ptr()), Access::ReadWrite);
    let frozen = buf.freeze();
    assert_eq!(access(frozen.view().as_ptr()), Access::Read);
    assert_eq!(access(beside.view().as_ptr()), Access::ReadWrite);
    let again = writable(frozen, &pool);
    assert_eq!(access(again.view().as_ptr()), Access::ReadWrite);
    let kept = again.freeze();
    to.send(kept.clone()).expect("send");
    let got = crate::kit::buf(from.recv().expect("recv"));
    assert_eq!(got.to_vec(), b"some bytes");
    let theirs = got.view().as_ptr();
    let copy = got.clone();
    drop(got);
    assert_eq!(access(theirs), Access::Read);
    drop(copy);
    assert_eq!(access(theirs), Access::None);
    // Sent once more, in parts: the whole of it is readable until the last part is given back.
    to.send(kept.slice(..4)).expect("send");
    to.send(kept.slice(5..)).expect("send");
    let parts = [(); 2].map(|()| crate::kit::buf(from.recv().expect("recv")));
    let bytes = parts.each_ref().map(|part| part.to_vec());
    assert_eq!(bytes, [b"some".to_vec(), b"bytes".to_vec()]);
    assert_eq!(access(theirs), Access::Read);
    drop(parts);
    assert_eq!(access(theirs), Access::None);
    // What comes back is written anew.
    drop(kept);
    drop(beside);
    for _ in 0..200 {
        let mut buf = pool.alloc(10).expect("a buffer");
        assert_eq!(access(buf.view().as_ptr()), Access::ReadWrite);
        buf.write(0, b"more bytes").expect("inside");
        to.send(buf.freeze()).expect("send");
        assert_eq!(from.recv().expect("recv").to_vec(), b"more bytes");
    }
}

/// A domain that has moved a buffer on cannot touch it, however often the buffer goes and comes back.
#[test]
fn at_half_what_came_back_and_goes_again_faults_again() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let pool = pool_of(&a, Trust::Half);
    for _ in 0..5 {
        let mut buf = pool.alloc(10).expect("a buffer");
        buf.write(0, b"some bytes").expect("inside");
        let at = buf.view().as_ptr();
        to.send(buf).expect("move");
        assert_eq!(access(at), Access::None);
        let there = from.recv().expect("recv").into_buffer_mut().expect("moved");
        let theirs = there.view().as_ptr();
        assert_eq!(access(theirs), Access::ReadWrite);
        until_passed(&mut from, Given::Mine(there));
        assert_eq!(access(theirs), Access::None);
        let back = to.try_recv_back().expect("no lie").expect("it is back");
        let _back = crate::kit::buf(back);
        assert_eq!(access(at), Access::Read);
    }
}

#[test]
fn bytes_are_written_in_place_by_who_may_write_them() {
    let (_dog, a, _b, mut to, mut from) = linked();
    for trust in [Trust::Producer, Trust::Half, Trust::Full] {
        let pool = pool_of(&a, trust);
        let mut buf = pool.alloc(100).expect("a buffer");
        let at = buf.writable_ptr().expect("it is ours");
        // SAFETY: its first byte, mapped for writing.
        unsafe { at.write_volatile(7) };
        to.send(buf).expect("move");
        let mut got = Given::next(&mut from, trust);
        assert_eq!(got.view().read::<u8>(0), Ok(7), "{trust}");
        if let Given::Mine(got) = &mut got {
            let at = got.writable_ptr().expect("it is ours");
            // SAFETY: as above.
            unsafe { at.write_volatile(8) };
        }
        until_passed(&mut from, got);
        let back = to.try_recv_back().expect("no lie").expect("it is back");
        let back = crate::kit::buf(back);
        let shows = if trust.all_write() { 8 } else { 7 };
        assert_eq!(back.view().read::<u8>(0), Ok(shows), "{trust}");
    }
}

/// The manager may have to confirm first that the pool is here.
fn until_passed(from: &mut tranship_core::Receiver, given: Given) {
    let mut given = Some(given);
    until(|| {
        let passed = given.take().expect("it came back").back(from, 0);
        given = passed.err().map(|failed| {
            assert_eq!(failed.kind(), ErrorKind::PoolPending, "{failed}");
            failed.unsent
        });
        given.is_none()
    });
}

#[test]
fn a_pool_whose_buffers_need_too_many_mappings_is_refused() {
    let a = embedded();
    let options = PoolOptions::new(1 << 30).trust(Trust::Half);
    let error = a.create_pool(options.clone().slots(1 << 20));
    let error = error.expect_err("too many");
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert!(error.to_string().contains("vm.max_map_count"), "{error}");
    drop(a.create_pool(options.slots(1000)).expect("few"));
}

/// Slices are there only where nobody else can write.
#[test]
fn memory_that_others_write_has_no_slices() {
    let a = embedded();
    let all = [
        (pool_of(&a, Trust::Producer), true),
        (pool_of(&a, Trust::Full), false),
    ];
    for (pool, slices) in all {
        let mut buf = pool.alloc(4).expect("a buffer");
        assert_eq!(buf.bytes_mut().is_some(), slices);
        assert_eq!(buf.bytes().is_some(), slices);
        buf.write(1, b"xyz").expect("inside");
        assert!(buf.write(2, b"xyz").is_err() && buf.write(usize::MAX, b"x").is_err());
        assert_eq!(buf.view().to_vec()[1..], *b"xyz");
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buf[0]));
        assert_eq!(read.is_ok(), slices);
        let frozen = buf.freeze();
        assert_eq!(frozen.bytes().is_some(), slices);
        let again = writable(frozen, &pool);
        assert_eq!(again.bytes().is_some(), slices);
        let copy = again.freeze();
        let other = writable(copy.clone(), &pool);
        assert_eq!(other.view().to_vec()[1..], *b"xyz");
    }
}

#[test]
fn a_receiver_takes_the_levels_that_it_says() {
    let (_dog, a, b) = pair();
    let options = ChannelOptions::new().accept_trust([Trust::Producer]);
    let (mut to, mut from) = link_with(&a, &b, "x", options);
    let full = pool_of(&a, Trust::Full);
    let error = to.assign(&full).expect_err("another level");
    assert_eq!(error.kind(), ErrorKind::ChannelTrust, "{error}");
    assert!(error.to_string().contains("`full`"), "{error}");
    let refused = to.send(filled_volatile(&full)).expect_err("another level");
    assert_eq!(refused.error.kind(), ErrorKind::ChannelTrust, "{refused}");
    let why = refused
        .error
        .find::<Refusal>()
        .expect("the manager's answer");
    assert_eq!(
        (why.code, why.asked),
        (RefusalCode::Trust, Trust::Full as u64)
    );
    // The channel goes on.
    to.send(filled(&pool_of(&a, Trust::Producer), 8, 1))
        .expect("send");
    assert_eq!(from.recv().expect("recv").to_vec(), [1; 8]);
}

fn filled_volatile(pool: &Pool) -> tranship_core::Buffer {
    pool.copy(&[1; 8]).expect("a buffer").freeze()
}
