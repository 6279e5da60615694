//! A buffer is looked up by its id in the middle of its first send: a thread that finds it holds it.

use crate::kit::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tranship_core::{Body, Buffer, BufferId, Message, Pool, Receiver, Sender};
use tranship_sys::crash;
use tranship_testkit::payload;

const POINTS: [&str; 4] = [
    "send.after_let_go",
    "send.after_generation",
    "send.after_sent",
    "send.after_publish",
];

/// Sends a buffer, and looks it up where the send reaches that point. Nothing is found before the generation is even.
fn found_at(
    point: &'static str,
    pool: &Pool,
    buf: Buffer,
    send: impl FnOnce(Buffer),
) -> Option<Buffer> {
    let found = Rc::new(Cell::new(None));
    let (id, pool, put) = (buf.id(), pool.clone(), Rc::clone(&found));
    crash::insert(point, move || put.set(pool.lookup(id).ok()));
    send(buf);
    found.take()
}

/// The receiver is done with everything, and only what was found is held: nobody gets its memory until it goes.
fn is_held_and_then_free(pool: &Pool, found: Buffer, byte: u8, chunks: usize) {
    let (id, len) = (found.id(), found.len());
    let mut others = Vec::new();
    while let Ok(mut other) = pool.alloc_now(CHUNK) {
        other.fill(!byte);
        others.push(other);
    }
    assert_eq!(others.len(), chunks - 1, "what is held takes one chunk");
    assert!(found.to_vec() == vec![byte; len]);
    let again = pool.lookup(id).expect("it is held");
    drop((found, others));
    assert!(pool.alloc_now(chunks * CHUNK).is_err(), "it is held twice");
    drop(again);
    pool.alloc_now(chunks * CHUNK).expect("all free");
}

fn each_way(send: impl Fn(&Pool, &mut Sender, Buffer), take: impl Fn(&mut Receiver), short: bool) {
    let _dog = dog();
    for point in POINTS {
        let (a, b) = domains();
        let pool = pool(&a, 2);
        let (mut sender, mut receiver) = link(&a, &b, "x");
        if short {
            // From the second on, a plain send goes the short way.
            sender.send(filled(&pool, CHUNK, 1)).expect("send");
            drop(receiver.recv().expect("recv"));
        }
        let fresh = filled(&pool, CHUNK, 7);
        let found = found_at(point, &pool, fresh, |buf| send(&pool, &mut sender, buf));
        take(&mut receiver);
        match found {
            Some(found) => is_held_and_then_free(&pool, found, 7, 2),
            None => assert_eq!(point, "send.after_let_go"),
        }
    }
}

fn take(receiver: &mut Receiver) {
    let got = buf(receiver.recv().expect("recv"));
    assert!(got.to_vec() == [7; CHUNK]);
}

#[test]
fn while_it_is_sent_the_short_way() {
    let send = |_: &Pool, sender: &mut Sender, buf| {
        sender.send(buf).expect("send");
    };
    each_way(send, take, true);
}

#[test]
fn while_it_is_sent_the_long_way() {
    let send = |_: &Pool, sender: &mut Sender, buf| {
        sender.send(buf).expect("send");
    };
    each_way(send, take, false);
}

#[test]
fn while_it_is_sent_in_a_batch() {
    let send = |_: &Pool, sender: &mut Sender, buf| {
        assert_eq!(sender.send_many([buf]).expect("send"), 1);
    };
    each_way(send, take, false);
}

#[test]
fn while_a_clone_of_it_is_held() {
    let send = |_: &Pool, sender: &mut Sender, buf: Buffer| {
        let clone = buf.clone();
        sender.send(buf).expect("send");
        drop(clone);
    };
    each_way(send, take, false);
}

#[test]
fn while_it_is_sent_in_an_aggregate() {
    let send = |pool: &Pool, sender: &mut Sender, buf| {
        let mut aggregate = pieces([buf]);
        aggregate.set_list_pool(pool);
        sender.send(aggregate).expect("send");
    };
    let take = |receiver: &mut Receiver| match receiver.recv().expect("recv") {
        Message {
            body: Body::Aggregate(got),
            ..
        } => assert!(got.to_vec() == [7; CHUNK]),
        other => panic!("an aggregate was expected, not {other:?}"),
    };
    each_way(send, take, false);
}

/// One thread sends, the other looks up whatever is being sent at the moment.
#[test]
fn by_another_thread_at_any_moment() {
    let (_dog, a, _b, mut sender, mut receiver) = linked();
    let pool = pool(&a, 4);
    let over = AtomicBool::new(false);
    let (next, rounds, len) = (AtomicU64::new(0), 8_000, 5000);
    let mut looked = 0;
    thread::scope(|s| {
        s.spawn(|| {
            for round in 1..=rounds {
                let mut buf = pool.alloc(len).expect("alloc");
                payload::fill(&mut buf, round, round);
                let buf = buf.freeze();
                next.store(buf.id().0, Ordering::Release);
                sender.send((buf, round)).expect("send");
            }
            over.store(true, Ordering::Release);
            drop(sender);
        });
        s.spawn(|| {
            while let Ok(message) = receiver.recv() {
                payload::verify(&message.to_vec(), message.word).expect("at receipt");
            }
        });
        let mut held = None;
        until(|| {
            let id = next.load(Ordering::Acquire);
            if let Ok(found) = pool.lookup(BufferId(id)) {
                looked += 1;
                let bytes = found.to_vec();
                if let Some((before, was)) = held.replace((found, bytes)) {
                    let before: Buffer = before;
                    assert!(before.to_vec() == was, "changed while it was held");
                }
            }
            over.load(Ordering::Acquire)
        });
    });
    eprintln!("{looked} found");
    pool.alloc_now(4 * CHUNK).expect("all free");
}
