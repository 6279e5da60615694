//! Buffers that are taken by their ids alone, which come by another way than the buffers.

use crate::kit::*;
use tranship_core::{BufferId, Domain, ErrorKind, Inbox, Sender, Trust};

#[track_caller]
fn text(inbox: &Inbox, id: BufferId) -> Vec<u8> {
    inbox.take(id).expect("it was sent").to_vec()
}

#[track_caller]
fn stale(inbox: &Inbox, id: BufferId) {
    let error = inbox.take(id).expect_err("it was not sent");
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.to_string().contains(&id.to_string()), "{error}");
}

#[test]
fn ids_find_what_was_sent_in_any_order_and_nothing_else() {
    let (_dog, a, b) = pair();
    let (pool, other) = (pool(&a, 4), pool(&a, 4));
    let (mut sender, receiver) = link(&a, &b, "data");
    let inbox = Inbox::new(receiver, 100);
    let all: Vec<_> = (0..10u8)
        .map(|n| pool.copy(&[n; 1000]).expect("memory").freeze())
        .collect();
    for buffer in &all {
        sender.send(buffer.clone()).expect("room");
    }
    sender.send((all[3].clone(), 42)).expect("room");
    for n in (0..10u8).rev() {
        assert_eq!(text(&inbox, all[usize::from(n)].id()), [n; 1000]);
    }
    // It was sent twice; the others once.
    assert_eq!(inbox.take(all[3].id()).expect("once more").word, 42);
    for buffer in &all {
        stale(&inbox, buffer.id());
    }
    // One that stayed where it is, and one of a pool that this end has never seen.
    stale(&inbox, pool.copy(b"kept").expect("memory").freeze().id());
    stale(&inbox, other.copy(b"kept").expect("memory").freeze().id());
    stale(&inbox, BufferId(0));
    stale(&inbox, BufferId(u64::MAX));
    // An aggregate has the id of its first piece.
    let mut pieces = pieces([all[1].clone(), all[2].clone()]);
    pieces.set_list_pool(&pool);
    sender.send(pieces).expect("room");
    assert_eq!(text(&inbox, all[1].id()).len(), 2000);
    assert!(inbox.is_empty());
}

#[test]
fn an_inbox_has_a_limit_and_outlives_its_senders() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let (mut sender, receiver) = link(&a, &b, "first");
    let (mut second, more) = link(&a, &b, "second");
    let inbox = Inbox::new(receiver, 3);
    inbox.add(more);
    let all: Vec<_> = (0..5u8)
        .map(|n| pool.copy(&[n; 100]).expect("memory").freeze())
        .collect();
    for buffer in &all[..4] {
        sender.send(buffer.clone()).expect("room");
    }
    sender.send(&b"no id"[..]).expect("room");
    second.send(all[4].clone()).expect("room");
    // A channel at its limit does not hinder the other one.
    assert_eq!(text(&inbox, all[4].id()), [4; 100]);
    second.send(all[4].clone()).expect("room");
    let error = inbox.take(all[3].id()).expect_err("behind too many");
    assert_eq!((error.kind(), inbox.len()), (ErrorKind::Limit, 4));
    // What was found stays, and makes room as it is taken.
    assert_eq!(text(&inbox, all[1].id()), [1; 100]);
    assert_eq!(text(&inbox, all[3].id()), [3; 100]);
    assert_eq!(inbox.drain().len(), 3);
    second.send(all[4].clone()).expect("room");
    drop((sender, second)); // closes both in order
    assert_eq!(text(&inbox, all[4].id()), [4; 100]);
    stale(&inbox, all[0].id());
    assert!(inbox.is_empty());
}

/// Sends a buffer with a hole, which breaks a rule.
fn send_hole(sender: &mut Sender, from: &Domain, inbox: &Inbox) {
    let pool = pool_of(from, Trust::Full);
    let len = 3 * CHUNK;
    // The reader has the chunks, and found them whole.
    let whole = pool.alloc(len).expect("a buffer").freeze();
    let id = whole.id();
    sender.send(whole).expect("send");
    assert_eq!(text(inbox, id).len(), len);
    let holed = pool.alloc(len).expect("a buffer");
    let at = holed.view().as_ptr().cast_mut();
    // SAFETY: a page of a buffer that no thread looks at; the page reads as zeros then.
    let punched = unsafe { libc::madvise(at.cast(), 4096, libc::MADV_REMOVE) };
    assert_eq!(punched, 0, "{}", std::io::Error::last_os_error());
    sender.send(holed.freeze()).expect("send");
}

#[test]
fn a_sender_that_breaks_a_rule_or_dies_hinders_no_other() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let (mut wrong, receiver) = link(&a, &b, "wrong");
    let (dead, died) = link(&a, &b, "dead");
    let (mut right, more) = link(&a, &b, "right");
    let inbox = Inbox::new(receiver, 10);
    inbox.add(died);
    inbox.add(more);
    send_hole(&mut wrong, &a, &inbox);
    dead.abandon();
    let buffer = pool.copy(b"right").expect("memory").freeze();
    for _ in 0..2 {
        right.send(buffer.clone()).expect("room");
        assert_eq!(text(&inbox, buffer.id()), b"right");
    }
    stale(&inbox, buffer.id());
    // The error is told once if the id is not found.
    let (mut wrong, receiver) = link(&a, &b, "again");
    inbox.add(receiver);
    send_hole(&mut wrong, &a, &inbox);
    let error = inbox.take(BufferId(0)).expect_err("a hole");
    assert_eq!(error.kind(), ErrorKind::PeerViolation);
    stale(&inbox, BufferId(0));
}

#[test]
fn a_sender_that_never_stops_does_not_keep_a_taker() {
    let (_dog, a, b) = pair();
    let (mut sender, receiver) = link(&a, &b, "data");
    let inbox = Inbox::new(receiver, 10);
    std::thread::scope(|scope| {
        scope.spawn(move || while sender.send(&b"no id"[..]).is_ok() {});
        for _ in 0..100 {
            stale(&inbox, BufferId(0));
        }
        drop(inbox); // ends the sender
    });
}

#[test]
fn many_threads_take_each_its_own() {
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let (mut sender, receiver) = link(&a, &b, "data");
    let inbox = Inbox::new(receiver, 1000);
    let (ids, taken) = std::sync::mpsc::sync_channel::<(BufferId, u8)>(16);
    let taken = std::sync::Mutex::new(taken);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let next = taken.lock().expect("no panic").recv();
                    let Ok((id, n)) = next else { break };
                    assert_eq!(text(&inbox, id), [n; 500]);
                }
            });
        }
        for n in (0..250u8).cycle().take(2000) {
            let buffer = pool.copy(&[n; 500]).expect("memory comes back").freeze();
            let id = buffer.id();
            sender.send(buffer).expect("room");
            ids.send((id, n)).expect("a taker");
        }
        drop(ids);
    });
    assert!(inbox.is_empty());
}
