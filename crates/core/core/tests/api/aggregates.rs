//! Aggregates: pieces of several pools as one message.

use crate::kit::*;
use std::io::{IoSlice, Read as _, Seek as _, Write as _};
use tranship_core::error::Limit;
use tranship_core::{Aggregate, Body, Buffer, ChannelOptions, ErrorKind, MAX_PIECES, Message};

#[track_caller]
fn aggregate(message: Message) -> Aggregate {
    match message.body {
        Body::Aggregate(aggregate) => aggregate,
        other => panic!("an aggregate was expected, not {other:?}"),
    }
}

fn text(pool: &tranship_core::Pool, text: &str) -> Buffer {
    pool.copy(text.as_bytes()).expect("alloc").freeze()
}

#[test]
fn pieces_are_put_in_front_behind_and_together() {
    let (_dog, a) = watched();
    let (one, two) = (pool(&a, 2), pool(&a, 2));
    let mut middle = Aggregate::new();
    assert!(middle.is_empty());
    middle.push_back(text(&one, "body")).expect("room");
    middle.insert(0, text(&two, "head ")).expect("room");
    let tail = text(&two, " and tail").slice(4..);
    middle.push_back(tail).expect("room");
    assert_eq!(middle.to_vec(), b"head body tail");
    assert_eq!((middle.len(), middle.pieces().len()), (14, 3));
    let slices = middle
        .pieces()
        .iter()
        .map(|piece| IoSlice::new(piece.bytes().expect("own")))
        .collect::<Vec<_>>();
    let lengths: Vec<_> = slices.iter().map(|s| s.len()).collect();
    assert_eq!(lengths, [5, 4, 5]);
    // Without copying: the slices are the buffers' own memory.
    let piece = &middle.pieces()[1];
    assert_eq!(slices[1].as_ptr(), piece.bytes().expect("own").as_ptr());
    let mut file = std::fs::File::from(
        rustix::fs::memfd_create("out", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd"),
    );
    assert_eq!(file.write_vectored(&slices).expect("writev"), 14);
    file.rewind().expect("seek");
    let mut written = String::new();
    file.read_to_string(&mut written).expect("read");
    assert_eq!(written, "head body tail");
}

#[test]
fn pieces_go_in_and_out_anywhere() {
    let (_dog, a) = watched();
    let pool = pool(&a, 2);
    let mut all = Aggregate::new();
    for (at, word) in [(0, "c"), (0, "a"), (1, "b"), (3, "d")] {
        all.insert(at, text(&pool, word)).expect("a place");
    }
    assert_eq!(all.to_vec(), b"abcd");
    let refused = all.insert(5, text(&pool, "e")).expect_err("no place");
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
    let piece = all.remove(2).expect("a piece");
    assert_eq!(piece.bytes(), Some(&b"c"[..]));
    assert!(all.remove(3).is_none());
    all.insert(0, piece).expect("a place");
    assert_eq!(all.to_vec(), b"cabd");
}

/// In one range, own pieces and received ones, also such as go over several chunks, while their memory is held.
#[test]
fn pieces_are_shown_in_one_range() {
    let (_dog, a, b) = pair();
    let (mut to, mut from) = link(&a, &b, "range");
    let page = tranship_sys::page_size();
    let pool = pool(&a, 128);
    let mut all = Aggregate::new();
    let mut expected = Vec::new();
    for (value, pages) in [(1u8, 1), (2, 100), (3, 2)] {
        let mut buf = pool.alloc(pages * page).expect("alloc");
        for (at, byte) in buf.iter_mut().enumerate() {
            *byte = value.wrapping_add(u8::try_from(at / page).expect("few pages"));
        }
        expected.extend_from_slice(&buf);
        all.push_back(buf.freeze()).expect("room");
    }
    // Part of one, from its second page on.
    let piece = all.pieces()[1].slice(page..3 * page);
    expected.extend_from_slice(piece.bytes().expect("own"));
    all.push_back(piece).expect("room");
    let mapped = all.clone().map().expect("a range");
    assert_eq!(
        (mapped.view().len(), mapped.bytes()),
        (expected.len(), Some(&expected[..]))
    );
    drop(mapped);
    to.send(all).expect("send");
    let came = aggregate(from.recv().expect("recv"));
    let mapped = came.map().expect("a range");
    assert_eq!(mapped.bytes(), None, "its writer is not trusted");
    assert_eq!(mapped.view().to_vec(), expected);
    uses(&pool, 3);
    drop(mapped);
    drop(pool.alloc(page).expect("alloc"));
    uses(&pool, 0);

    // Half pages are none.
    let odd = pieces([text(&pool, "odd")]);
    let refused = odd.map().expect_err("no page");
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
    assert!(Aggregate::new().map().is_err());
}

#[test]
fn a_received_one_can_be_walked_and_its_pieces_kept() {
    let (_dog, a, b) = pair();
    let pools = [pool(&a, 2), pool(&a, 2), pool(&a, 20)];
    let (mut sender, mut receiver) = link(&a, &b, "x");
    let mut all = Aggregate::new();
    for i in 0..30u8 {
        all.push_back(filled(&pools[usize::from(i) % 3], 100 + usize::from(i), i))
            .expect("room");
    }
    all.push_back(filled(&pools[2], 3 * CHUNK, 77))
        .expect("room");
    let expected = all.to_vec();
    sender.send((all.clone(), 5)).expect("send");
    // SAFETY: the test writes no sent buffer.
    unsafe { receiver.trust_writer() };
    sender.send(all).expect("send");
    let first = receiver.recv().expect("recv");
    assert_eq!((first.word, first.len()), (5, expected.len()));
    assert_eq!(first.to_vec(), expected);
    let first = aggregate(first);
    assert_eq!(first.pieces().len(), 31);
    for (i, piece) in (0u8..30).zip(first.pieces()) {
        assert_eq!(piece.to_vec(), vec![i; 100 + usize::from(i)]);
        assert_eq!(piece.id().pool(), pools[usize::from(i) % 3].id());
    }
    let slices = first.pieces().iter().map(|piece| piece.bytes());
    let slices: Vec<_> = slices.collect::<Option<_>>().expect("trusted");
    assert_eq!(slices.concat(), expected);
    let one = first.pieces()[3].clone();
    drop(first);
    drop(receiver.recv().expect("recv"));
    assert_eq!(one.to_vec(), [3; 103], "one piece outlives the rest");
    assert!(pools[0].alloc_now(2 * CHUNK).is_err());
    drop(one);
    for pool in &pools {
        let all = usize::try_from(pool.max_bytes()).expect("small");
        pool.alloc_now(all).expect("all pieces are free again");
    }
}

#[test]
fn an_untrusted_one_gives_no_slices() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 2);
    let all = pieces([text(&pool, "x")]);
    sender.send(all).expect("send");
    let got = aggregate(receiver.recv().expect("recv"));
    assert!(got.pieces()[0].bytes().is_none());
    assert_eq!(got.to_vec(), b"x");
}

#[test]
fn empty_ones_and_the_longest_travel() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 64);
    let mut none = Aggregate::new();
    none.set_list_pool(&pool);
    sender.send(none).expect("send");
    assert!(
        aggregate(receiver.recv().expect("recv"))
            .pieces()
            .is_empty()
    );
    let piece = filled(&pool, 10, 4);
    let mut most = Aggregate::new();
    for i in 0..MAX_PIECES {
        most.push_back(piece.slice(i % 10..)).expect("room");
    }
    sender.send(most.clone()).expect("send");
    let got = aggregate(receiver.recv().expect("recv"));
    assert_eq!(got.pieces().len(), MAX_PIECES);
    assert_eq!(got.to_vec(), most.to_vec());
    let more = most.push_back(piece).expect_err("one too many");
    assert_eq!(
        (more.kind(), more.unsent.len()),
        (ErrorKind::BadArgument, 10)
    );
    assert_eq!(
        more.to_string(),
        "an aggregate of 4096 pieces cannot take 1 more: it has at most 4096; send it and begin another"
    );
    let mut two = pieces([more.unsent]);
    two.insert(0, two.pieces()[0].slice(..5)).expect("room");
    let back = most.insert(0, two.pieces()[0].clone());
    assert!(back.is_err_and(|full| full.unsent.len() == 5));
    assert_eq!(most.pieces().len(), MAX_PIECES);
}

#[test]
fn what_cannot_be_sent_comes_back_whole() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 2);
    let options = ChannelOptions::new().lines(2);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", options);
    sender.assign(&pool).expect("assign");
    let all = pieces([text(&pool, "one "), text(&pool, "two")]);
    sender.send(all.clone()).expect("room");
    sender.send(all.clone()).expect("room");
    let error = sender.try_send(all).expect_err("full");
    assert_eq!(error.error.kind(), ErrorKind::Full);
    let back = error.unsent;
    assert_eq!(back.to_vec(), b"one two");
    receiver.recv().expect("recv");
    sender.send(back).expect("room");
    for _ in 0..2 {
        assert_eq!(receiver.recv().expect("recv").to_vec(), b"one two");
    }
    pool.alloc_now(2 * CHUNK)
        .expect("lists and pieces are free");
    // Without any pool of one's own there is no place for the list.
    let error = sender.send(Aggregate::new()).expect_err("no list pool");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("list of the aggregate"));
}

#[test]
fn it_can_be_forwarded_with_pieces_of_ones_own() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let (pools, own) = ([pool(&a, 2), pool(&a, 2)], pool(&b, 2));
    pools
        .iter()
        .for_each(|pool| pool.allow_forward(b.id()).expect("allow"));
    let (mut first, mut middle_in) = link(&a, &b, "x");
    let (mut middle_out, mut last) = link(&b, &c, "y");
    for round in 0..50 {
        let all = pieces([
            filled(&pools[0], 1000, round),
            filled(&pools[1], 2000, round),
        ]);
        first.send(all).expect("send");
        let mut got = aggregate(middle_in.recv().expect("recv"));
        got.insert(0, filled(&own, 10, round)).expect("room");
        middle_out.send(got).expect("forward");
        let got = aggregate(last.recv().expect("recv"));
        assert_eq!(got.to_vec(), [round; 3010]);
        assert_eq!(got.pieces()[0].id().pool(), own.id());
        assert_eq!(got.pieces()[2].id().pool(), pools[1].id());
    }
    for pool in pools.iter().chain([&own]) {
        pool.alloc_now(2 * CHUNK).expect("all free");
    }
}

#[test]
fn forwarding_anothers_one_needs_a_pool_for_the_list() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let (theirs, own) = (pool(&a, 2), pool(&b, 2));
    theirs.allow_forward(b.id()).expect("allow");
    let (mut first, mut middle_in) = link(&a, &b, "x");
    let (mut middle_out, mut last) = link(&b, &c, "y");
    let all = pieces([filled(&theirs, 1000, 1)]);
    first.send(all).expect("send");
    let error = middle_out
        .send(aggregate(middle_in.recv().expect("recv")))
        .expect_err("no pool");
    assert_eq!(short(&error.error), Some(Limit::NoPool), "{error}");
    let mut back = error.unsent;
    back.set_list_pool(&own);
    middle_out.send(back).expect("forward");
    assert_eq!(last.recv().expect("recv").to_vec(), [1; 1000]);
}

/// Counts bytes, and remembers the longest piece that came at once.
#[derive(Default)]
struct Sink {
    bytes: usize,
    longest: usize,
}

impl std::io::Write for Sink {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        self.bytes += part.len();
        self.longest = self.longest.max(part.len());
        Ok(part.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn one_buffer_named_again_and_again_is_written_with_little_memory() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 3);
    let whole = filled(&pool, CHUNK + 1, 7);
    let mut many = Aggregate::new();
    for _ in 0..1000 {
        many.push_back(whole.clone()).expect("room");
    }
    sender.send(many).expect("send");
    let got = receiver.recv().expect("recv");
    assert_eq!(got.len(), 1000 * (CHUNK + 1));
    let mut sink = Sink::default();
    got.write_to(&mut sink).expect("write");
    assert_eq!(sink.bytes, got.len());
    assert!(sink.longest <= 64 * KIB, "{} bytes at once", sink.longest);
    drop(got);
    // The same bytes as a copy has, also of what travels inside the line.
    let mixed = pool.copy(b"0123456789").expect("alloc").freeze();
    let mut two = pieces([mixed.slice(5..)]);
    two.insert(0, mixed.slice(..5)).expect("room");
    sender.send(two).expect("send");
    sender.send(b"0123456789").expect("send");
    for _ in 0..2 {
        let got = receiver.recv().expect("recv");
        let mut written = Vec::new();
        got.write_to(&mut written).expect("write");
        assert_eq!(
            (&written[..], &got.to_vec()[..]),
            (&b"0123456789"[..], &b"0123456789"[..])
        );
    }
}
