//! What a buffer can do before, while and after it travels.

use crate::kit::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

#[test]
fn freezing_keeps_bytes_and_place() {
    let (_dog, a) = watched();
    let pool = pool(&a, 4);
    let mut writable = pool.alloc(100).expect("alloc");
    writable.copy_from_slice(&[7; 100]);
    let (id, at) = (writable.id(), writable.as_ptr());
    writable.truncate(1000);
    assert_eq!(writable.len(), 100);
    writable.truncate(60);
    let frozen = writable.freeze();
    assert_eq!((frozen.len(), frozen.id()), (60, id));
    let bytes = frozen.bytes().expect("one's own");
    assert_eq!((bytes, bytes.as_ptr()), (&[7; 60][..], at));
    assert_eq!(frozen.to_vec(), [7; 60]);
}

#[test]
fn clones_and_parts_share_memory() {
    let (_dog, a) = watched();
    let pool = pool(&a, 4);
    let whole = pool
        .copy(&(0..=255).collect::<Vec<u8>>())
        .expect("alloc")
        .freeze();
    let clone = whole.clone();
    assert_eq!(clone.id(), whole.id());
    let part = whole.slice(10..20);
    assert_eq!(part.bytes().expect("own"), (10..20).collect::<Vec<u8>>());
    assert_eq!(part.slice(..=2).to_vec(), [10, 11, 12]);
    assert_eq!(part.slice(8..).to_vec(), [18, 19]);
    assert_eq!(part.slice(..).len(), 10);
    assert!(whole.slice(256..).is_empty());
    drop((whole, clone));
    assert_eq!(part.to_vec()[0], 10, "the part keeps all of it");
    for bad in [(0, 11), (11, 11), (5, 4)] {
        let outside = catch_unwind(AssertUnwindSafe(|| part.slice(bad.0..bad.1)));
        assert!(outside.is_err(), "{bad:?}");
    }
}

#[test]
fn writing_again_is_in_place_only_if_never_sent_and_not_shared() {
    let (_dog, a, b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 4);

    let alone = filled(&pool, 500, 1);
    let (id, at) = (alone.id(), alone.bytes().expect("own").as_ptr());
    let alone = writable(alone, &pool);
    assert_eq!((alone.id(), alone.as_ptr()), (id, at));

    let part = alone.freeze().slice(100..200);
    let part = writable(part, &pool);
    assert_eq!((part.len(), part.as_ptr()), (100, at.wrapping_add(100)));
    let alone = part.freeze();

    let shared = alone.clone();
    let mut copy = writable(alone, &pool);
    assert_ne!(copy.id(), shared.id());
    copy.fill(9);
    assert_eq!(shared.to_vec(), [1; 100]);

    drop(shared);

    let sent = filled(&pool, 300, 5);
    sender.send(sent.clone()).expect("send");
    let mut copy = writable(sent.clone(), &pool);
    assert_ne!(copy.id(), sent.id(), "still mine, but others know it");
    copy.fill(6);
    let got = buf(receiver.recv().expect("recv"));
    assert_eq!(got.to_vec(), [5; 300]);

    // The receiver's way to write: a copy in a pool of its own.
    let theirs = crate::kit::pool(&b, 4);
    let mut copy = writable(got, &theirs);
    assert_eq!(*copy, [5; 300]);
    copy.fill(0);
}

#[test]
fn a_received_buffer_is_a_view_until_the_writer_is_trusted() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 4);
    let buf_a = filled(&pool, 1000, 3);
    sender.send(buf_a.clone()).expect("send");
    sender.send(buf_a.slice(500..)).expect("send");
    let got = buf(receiver.recv().expect("recv"));
    assert!(got.bytes().is_none());
    assert_eq!(got.id(), buf_a.id(), "the same id in every domain");
    let view = got.view();
    assert_eq!(view.len(), 1000);
    assert_eq!(view.read::<u8>(999).expect("inside"), 3);
    assert!(view.read::<u8>(1000).is_err() && view.sub(900..1001).is_err());
    // SAFETY: the test writes no sent buffer.
    unsafe { receiver.trust_writer() };
    let part = buf(receiver.recv().expect("recv"));
    assert_eq!(part.bytes(), Some(&[3u8; 500][..]));
    assert!(got.bytes().is_none(), "only what is received from now on");
    assert_eq!(part.slice(1..3).bytes().map(<[u8]>::len), Some(2));
}

#[test]
fn nobody_gets_it_again_while_a_clone_or_a_part_lives() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 1);
    let free = |pool: &tranship_core::Pool| pool.alloc_now(CHUNK).is_ok();
    sender.send(filled(&pool, CHUNK, 1)).expect("send");
    assert!(!free(&pool), "it is on its way");
    let got = buf(receiver.recv().expect("recv"));
    let (clone, part) = (got.clone(), got.slice(5..6));
    drop(got);
    assert!(!free(&pool));
    drop(clone);
    assert!(!free(&pool));
    drop(part);
    assert!(free(&pool));
    // The writer's own handle counts like any other.
    let kept = filled(&pool, CHUNK, 2);
    sender.send(kept.clone()).expect("send");
    drop(receiver.recv().expect("recv"));
    assert!(!free(&pool));
    drop(kept);
    assert!(free(&pool));
}

#[test]
fn small_buffers_travel_whole() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 4);
    let mut ids = std::collections::HashSet::new();
    let mut held = Vec::new();
    for len in 0..=64usize {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 3).to_le_bytes()[0]).collect();
        sender
            .send(pool.copy(&bytes).expect("alloc").freeze())
            .expect("send");
        let got = buf(receiver.recv().expect("recv"));
        assert_eq!(got.to_vec(), bytes);
        assert!(ids.insert(got.id()));
        held.push((got, bytes));
    }
    for (got, bytes) in held {
        assert_eq!(got.to_vec(), bytes);
    }
}

#[test]
fn a_reused_slot_has_another_id() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 1);
    let mut before = None;
    for i in 0..10 {
        sender.send(filled(&pool, CHUNK, i)).expect("send");
        let got = buf(receiver.recv().expect("recv"));
        assert_ne!(Some(got.id()), before, "an old id names nothing");
        assert_eq!(
            before
                .map(|id: tranship_core::BufferId| id.slot())
                .unwrap_or(got.id().slot()),
            got.id().slot()
        );
        before = Some(got.id());
    }
}

#[test]
fn an_id_names_its_buffer_until_that_is_collected() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 1);
    let fresh = filled(&pool, CHUNK, 1);
    let id = fresh.id();
    let stale = pool.lookup(id).expect_err("it was never sent");
    assert_eq!(stale.kind(), tranship_core::ErrorKind::Stale, "{stale}");
    sender.send(fresh).expect("send");
    let found = pool.lookup(id).expect("the receiver will hold it");
    assert_eq!((found.id(), found.to_vec()), (id, vec![1; CHUNK]));
    drop(receiver.recv().expect("recv"));
    assert!(pool.alloc_now(CHUNK).is_err(), "it is held here");
    drop(found);
    drop(pool.alloc(CHUNK).expect("it was the last handle"));
    assert!(pool.lookup(id).is_err());
    let wild = tranship_core::BufferId::new(pool.id(), u32::MAX >> 9, id.generation());
    assert!(pool.lookup(wild).is_err());
}

#[test]
fn an_id_names_a_buffer_of_its_own_pool() {
    let (_dog, a, b) = pair();
    let [one, other] = [(); 2].map(|()| pool(&a, 1));
    let (mut sender, mut receiver) = link(&a, &b, "x");
    let [id, twin] = [&one, &other].map(|pool| {
        let fresh = filled(pool, CHUNK, 1);
        let id = fresh.id();
        sender.send(fresh).expect("send");
        id
    });
    let place = |id: tranship_core::BufferId| (id.slot(), id.generation());
    assert_eq!(place(id), place(twin), "they differ by their pools only");
    assert!(one.lookup(id).is_ok() && other.lookup(twin).is_ok());
    assert!(one.lookup(twin).is_err() && other.lookup(id).is_err());
    drop([(); 2].map(|()| receiver.recv().expect("recv")));
}

/// A reader that has not yet heard that a chunk behind the first was replaced does not read the one that it had.
#[test]
fn a_buffer_is_not_read_in_a_chunk_that_was_replaced() {
    let (_dog, a, b) = bare_pair();
    let pool = pool(&a, 2);
    let (mut sender, mut receiver) = link(&a, &b, "x");
    thread::scope(|s| {
        let first = s.spawn(|| receiver.recv().expect("recv").to_vec());
        sender.send(filled(&pool, 2 * CHUNK, 1)).expect("send");
        assert_eq!(first.join().expect("reader"), vec![1; 2 * CHUNK]);
    });
    // The pool gives back what it does not use, the last chunk first; `b` looks at nothing meanwhile.
    until(|| {
        a.turn().expect("turn");
        pool.stats().chunk_bytes_present == CHUNK as u64
    });
    for byte in [2, 3] {
        sender.send(filled(&pool, 2 * CHUNK, byte)).expect("send");
        let got = receiver.recv().expect("recv").to_vec();
        assert!(got.iter().all(|b| *b == byte), "{byte}");
    }
    // What has no bytes lies in no chunk, also at the window's end.
    let whole = filled(&pool, 2 * CHUNK, 4);
    sender.send(whole.slice(2 * CHUNK..)).expect("send");
    assert!(receiver.recv().expect("recv").to_vec().is_empty());
}
