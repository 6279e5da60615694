//! Large buffers of pools of level `none`: nobody can write them any more when they are sent, so nobody copies them.

use crate::kit::*;
use tranship_core::admin::StatRecord;
use tranship_core::error::{Limit, Shortage};
use tranship_core::{
    Aggregate, Body, ChannelOptions, Domain, ErrorKind, Message, Pool, PoolOptions, Receiver,
    Sender, Trust,
};
use tranship_testkit::probe::Access;

/// The smallest that is sealed here.
const LARGE: usize = CHUNK / 2;

/// A pool of so many chunks, from which buffers of half a chunk and more are sealed.
fn sealing(domain: &Domain, chunks: usize) -> Pool {
    let options = PoolOptions::new((chunks * CHUNK) as u64).chunk_bytes(CHUNK as u64);
    let options = options.trust(Trust::None).seal_from(LARGE as u64);
    domain.create_pool(options).expect("a pool")
}

/// The file that is mapped there.
fn file_at(at: *const u8) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let found = maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        let inside = (hex(from)?..hex(to)?).contains(&at.addr());
        inside.then(|| words.nth(3)?.parse().ok())?
    });
    found.expect("it is mapped")
}

/// Returns the manager's counts of a pool's chunks.
fn counted(domain: &Domain, pool: &Pool) -> u64 {
    let records = domain.admin().stat().expect("stat");
    let of = records.iter().find_map(|record| match record {
        StatRecord::Pool(stat) if stat.pool == pool.id() => Some(stat.data_bytes),
        _ => None,
    });
    of.expect("it is known")
}

#[test]
fn a_large_buffer_is_the_same_memory_and_nobody_can_write_it() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, copies) = copying(&a, &b, "x", 1);
    let none = sealing(&a, 6);
    for len in [LARGE, CHUNK, CHUNK + 1, 3 * CHUNK] {
        let mut large = none.alloc(len).expect("room");
        let at = large.view().as_ptr();
        assert_eq!(access(at), Access::ReadWrite);
        large.fill(7);
        large.write(1, &[8]).expect("it is open");
        let large = large.freeze();
        assert_eq!(access(at), Access::ReadWrite, "sealed when it is sent");
        to.send(large.clone()).expect("send");
        let got = buf(from.recv().expect("recv"));
        assert_eq!(got.id(), large.id(), "no copy");
        let theirs = got.view().as_ptr();
        assert_eq!(file_at(at), file_at(theirs));
        for at in [at, theirs] {
            assert_eq!(access(at), Access::Read);
            assert_eq!(access(at.wrapping_add(len - 1)), Access::Read);
        }
        let mut expected = vec![7; len];
        expected[1] = 8;
        assert_eq!(got.bytes(), Some(&expected[..]));
        assert_eq!(large.bytes(), Some(&expected[..]));
        // What is smaller is copied beside it.
        to.send(filled(&none, LARGE - 1, 3)).expect("send");
        let small = buf(from.recv().expect("recv"));
        assert_eq!(small.id().pool(), copies.id());
        assert_eq!(small.to_vec(), [3; LARGE - 1]);
        assert_eq!(
            counted(&a, &none),
            (len.div_ceil(CHUNK) as u64 + 1) * CHUNK as u64
        );
        // With the last handle the memory goes back.
        drop((got, large, small));
        until(|| {
            a.turn().expect("turn");
            b.turn().expect("turn");
            counted(&a, &none) <= CHUNK as u64 && file_at(theirs) == 0
        });
    }
}

/// At level `none` a send shows a pool to the domain of its first receiver alone.
#[test]
fn a_receiver_that_was_sent_nothing_maps_nothing() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let (mut to_b, mut at_b, _copies) = copying(&a, &b, "ab", 1);
    let (mut beside, mut at_beside, _copies) = copying(&a, &b, "ab2", 1);
    let (mut to_c, mut at_c, _copies) = copying(&a, &c, "ac", 1);
    let none = pool_of(&a, Trust::None);
    let secret = filled(&none, 100, 1);
    let file = file_at(secret.view().as_ptr());
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let inode = |line: &str| line.split_whitespace().nth(4)?.parse().ok();
        maps.lines()
            .filter(|line| inode(line) == Some(file))
            .count()
    };
    let alone = mappings();
    to_b.send(secret).expect("its first reader");
    assert_eq!(at_b.recv().expect("recv").to_vec(), [1; 100]);
    assert_eq!(mappings(), alone + 1);
    // To the same domain it goes over any channel.
    beside.send(filled(&none, 100, 2)).expect("the same reader");
    assert_eq!(at_beside.recv().expect("recv").to_vec(), [2; 100]);
    let refused = to_c
        .send(filled(&none, 100, 3))
        .expect_err("a second reader");
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains("assign"), "{refused}");
    assert!(at_c.try_recv().expect("open").is_none());
    assert_eq!(mappings(), alone + 1);
    // The program says so.
    to_c.assign(&none).expect("a second reader");
    to_c.send(refused.unsent).expect("send");
    assert_eq!(at_c.recv().expect("recv").to_vec(), [3; 100]);
    assert_eq!(mappings(), alone + 2);
}

/// A receiver that did not take the pool has not seen it.
#[test]
fn a_refused_pool_goes_to_another_reader() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let (mut to_b, _at_b) = link(&a, &b, "ab");
    let (mut to_c, mut at_c, _copies) = copying(&a, &c, "ac", 1);
    let none = pool_of(&a, Trust::None);
    let failed = to_b
        .send(filled(&none, 100, 1))
        .expect_err("no room for copies");
    assert_eq!(failed.kind(), ErrorKind::ChannelTrust, "{failed}");
    to_c.send(failed.unsent).expect("its first reader");
    assert_eq!(at_c.recv().expect("recv").to_vec(), [1; 100]);
}

#[test]
fn what_was_never_sent_stays_writable() {
    let (_dog, a, _b) = pair();
    let none = sealing(&a, 2);
    let frozen = filled(&none, LARGE, 1);
    let copy = frozen.clone();
    let frozen = frozen.try_into_mut().expect_err("two handles");
    drop(copy);
    let mut again = frozen.try_into_mut().expect("its only handle");
    again.fill(2);
    assert_eq!(again.bytes(), Some(&[2; LARGE][..]));
    drop(again);
    drop(none.alloc_now(2 * CHUNK).expect("all of it"));
    let stats = none.stats();
    assert_eq!((stats.allocs, stats.frees), (2, 2));
    assert_eq!(stats.chunk_bytes_present, 0);
}

/// One after the other, in a pool that has room for two.
#[test]
fn memory_comes_back_for_the_next_one() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, _copies) = copying(&a, &b, "x", 1);
    let none = sealing(&a, 2);
    for round in 0..40u8 {
        let mut large = none.alloc(CHUNK).expect("room");
        assert!(large.iter().all(|byte| *byte == 0), "new memory");
        large.fill(round);
        to.send((large.freeze(), round.into())).expect("send");
        let got = from.recv().expect("recv");
        assert_eq!(got.to_vec(), [round; CHUNK]);
        // Small ones have the rest.
        to.send(filled(&none, 100, round)).expect("send");
        assert_eq!(from.recv().expect("recv").to_vec(), [round; 100]);
    }
    uses(&none, 0);
}

#[test]
fn one_is_sealed_once_for_all_and_travels_on() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let (mut to_b, mut at_b, _copies_b) = copying(&a, &b, "ab", 1);
    let (mut to_c, mut at_c, _copies_c) = copying(&a, &c, "ac", 1);
    let (mut on, mut from_b, copies) = copying(&b, &c, "bc", 1);
    let none = sealing(&a, 4);
    let large = filled(&none, 2 * CHUNK, 5);
    to_b.send(large.clone()).expect("send");
    let first = buf(at_b.recv().expect("recv"));
    let file = file_at(large.view().as_ptr());
    to_c.assign(&none).expect("a second reader");
    to_c.send(large.clone()).expect("send");
    let second = buf(at_c.recv().expect("recv"));
    // Handed on it needs the right, and is the same memory still.
    let refused = on.send(first).expect_err("no right");
    let first = refused.unsent;
    none.allow_forward(b.id()).expect("allow");
    on.send(first.slice(1..)).expect("forward");
    let third = buf(from_b.recv().expect("recv"));
    for got in [&first, &second, &third] {
        assert_eq!(got.id(), large.id());
        assert_eq!(file_at(got.view().as_ptr()), file);
    }
    assert_eq!(third.bytes(), Some(&[5; 2 * CHUNK - 1][..]));
    uses(&copies, 0);
    // Each of them keeps it.
    let copy = third.clone();
    drop((large, first, second, third));
    uses(&none, 1);
    assert_eq!(copy.bytes(), Some(&[5; 2 * CHUNK - 1][..]));
    drop(copy);
    uses(&none, 0);
}

#[test]
fn pieces_of_aggregates_are_sealed_and_mapped_side_by_side() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, copies) = copying(&a, &b, "x", 1);
    let none = sealing(&a, 6);
    let mut all = Aggregate::new();
    // Together more than there is room for copies.
    for (len, byte) in [(CHUNK, 1), (2 * CHUNK, 2)] {
        all.push_back(filled(&none, len, byte)).expect("room");
    }
    to.send(all).expect("send");
    let Body::Aggregate(got) = from.recv().expect("recv").body else {
        panic!("an aggregate was sent")
    };
    assert!(got.pieces().iter().all(|p| p.id().pool() == none.id()));
    let expected = [vec![1; CHUNK], vec![2; 2 * CHUNK]].concat();
    match got.map() {
        Ok(mapped) => assert_eq!(mapped.view().to_vec(), expected),
        // Kernels before 6.7 show what is sealed only privately.
        Err(failed) => assert_eq!(failed.unsent.to_vec(), expected),
    }
    uses(&copies, 0);
    uses(&none, 0);
}

/// Nobody can write it, so giving it away is sharing it: also the receiver reads it where it is.
#[test]
fn one_that_is_given_away_is_shared() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, copies) = copying(&a, &b, "x", 2);
    let none = sealing(&a, 2);
    let mut large = none.alloc(CHUNK).expect("room");
    large.fill(4);
    let at = large.view().as_ptr();
    to.send(large).expect("move");
    assert_eq!(access(at), Access::Read);
    let got = buf(from.recv().expect("recv"));
    assert_eq!(got.id().pool(), none.id());
    assert_eq!(got.bytes(), Some(&[4; CHUNK][..]));
    uses(&copies, 0);
    // A given buffer's receipt can be handed back.
    from.send_back(got).expect("pass");
    let back = buf(to.try_recv_back().expect("no lie").expect("it is back"));
    assert_eq!(back.bytes(), Some(&[4; CHUNK][..]));
    uses(&none, 1);
    drop(back);
    uses(&none, 0);
}

/// Inside a process, and wherever bytes are carried, nothing is sealed.
#[test]
fn a_channel_inside_the_process_seals_nothing() {
    let (_dog, a) = watched();
    let copies = pool(&a, 2);
    let options = ChannelOptions::new().snapshots(copies.id());
    let listener = a.listen_with::<Receiver>("local:x", options);
    let mut to = a.open::<Sender>("local:x").expect("open");
    let mut from = listener.expect("listen").accept().expect("accept");
    let none = sealing(&a, 2);
    let large = filled(&none, CHUNK, 6);
    to.send(large.clone()).expect("send");
    let got: Message = from.recv().expect("recv");
    assert_eq!(got.to_vec(), [6; CHUNK]);
    assert_eq!(access(large.view().as_ptr()), Access::ReadWrite);
    drop((got, large));
    uses(&none, 0);
}

#[test]
fn a_full_ring_is_found_before_anything_is_sealed() {
    let (_dog, a, b) = pair();
    let (mut to, mut from, _copies) = copying(&a, &b, "x", 1);
    let none = sealing(&a, 2);
    to.assign(&none).expect("assign");
    while to.try_send(b"x").is_ok() {}
    let mut large = none.alloc(CHUNK).expect("room");
    large.fill(1);
    let failed = to.try_send(large).expect_err("full");
    assert_eq!(failed.kind(), ErrorKind::Full);
    let mut large = failed.unsent;
    large.fill(2);
    from.recv().expect("room for one");
    until(
        || match to.send(std::mem::replace(&mut large, none.alloc(1).expect("room")).freeze()) {
            Ok(_) => true,
            Err(failed) => panic!("{failed}"),
        },
    );
    loop {
        let message = from.recv().expect("recv");
        if message.len() == CHUNK {
            assert_eq!(message.to_vec(), [2; CHUNK]);
            break;
        }
    }
}

#[test]
fn the_default_chunk_holds_one() {
    let a = embedded();
    let chunk = |options: PoolOptions| {
        let pool = a.create_pool(options.trust(Trust::None)).expect("a pool");
        drop(pool.alloc(1).expect("room"));
        pool.stats().chunk_bytes_present
    };
    let options = || PoolOptions::new(64 << 20);
    assert_eq!(chunk(options().seal_from(1 << 20)), 1 << 20);
    assert_eq!(chunk(options().seal_from(1 << 30)), 4 << 20);
    assert_eq!(chunk(options().seal_from(u64::MAX)), 256 << 10);
    assert_eq!(chunk(options().seal_from(0)), 256 << 10);
}

/// Half of the pool is free, but no two chunks that follow each other.
#[test]
fn no_gap_is_long_enough() {
    let (_dog, a) = watched();
    let none = sealing(&a, 4);
    let alloc = || Some(none.alloc_now(CHUNK).expect("room"));
    let mut held = [alloc(), alloc(), alloc(), alloc()];
    // In the order of their addresses.
    held.sort_by_key(|buf| buf.as_ref().map(|buf| buf.view().as_ptr().addr()));
    (held[0], held[2]) = (None, None);
    let error = none.alloc_now(2 * CHUNK).expect_err("no two in a row");
    let shortage = error.find::<Shortage>().expect("the figures");
    assert_eq!(shortage.limit, Limit::Window, "{error}");
    drop(none.alloc_now(CHUNK).expect("one fits"));
    held[1] = None;
    drop(none.alloc_now(3 * CHUNK).expect("now there are three"));
}
