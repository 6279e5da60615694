//! A producer beside consumers that lie.

use super::*;
use crate::{Consumer, ConsumerOptions, Item, Queues};
use std::sync::atomic::Ordering;
use tranship_ring::broadcast::{Claim, OPEN, Open, sequence};
use tranship_sys::crash;
use tranship_testkit::Watchdog;

fn join(here: &Domain) -> Domain {
    let socket = here.socket_path().expect("a socket");
    Domain::builder().socket(socket).connect().expect("join")
}

/// A producer, and a consumer that has its first item.
fn with_item(options: QueueOptions) -> (Domain, Producer, Consumer, Item) {
    let here = Domain::embedded().expect("a domain");
    let producer = join(&here).produce_with("jobs", options);
    let mut producer = producer.expect("produce");
    let consumer = join(&here).consume_with("jobs", ConsumerOptions::new());
    let mut consumer = consumer.expect("consume");
    producer.try_send(&b"first"[..]).expect("there is room");
    let item = loop {
        if let Some(item) = consumer.try_recv().expect("it can receive") {
            break item;
        }
        producer.tend().expect("tend");
    };
    (here, producer, consumer, item)
}

#[test]
fn what_a_consumer_is_to_be_told_is_bounded() {
    let _dog = Watchdog::new();
    let (_here, mut producer, _consumer, item) = with_item(QueueOptions::new());
    let opens = item.entry().expect("it is open").shown.desk.opens();
    while opens.enter(7, OPEN).is_some() {}
    // It reads nothing of what it is told.
    for n in 0..50 {
        for entry in 0..OPEN {
            opens.hand_back(entry, 1000 + n, Open::Back);
        }
        producer.tend().expect("tend");
    }
    let most = producer.with(|writing| writing.seats.untold());
    let most = most.expect("it is no child");
    assert!(most <= OPEN, "{most} of {OPEN} entries");
}

#[test]
fn a_producer_is_woken_by_the_one_that_reads() {
    let _dog = Watchdog::new();
    let options = QueueOptions::new().depth(8);
    let (_here, mut producer, mut consumer, first) = with_item(options);
    first.ack().expect("acknowledged");
    producer.writing.enter().settle();
    for _ in 0..8 {
        producer.try_send(&b"item"[..]).expect("there is room");
    }
    let producer = std::rc::Rc::new(producer);
    let beside = std::rc::Rc::clone(&producer);
    let first = producer.writing.look().published.first();
    assert_eq!(producer.writing.look().wanted(), first + 1, "a quarter");
    crash::insert("queue.taken", move || {
        let writing = beside.writing.look();
        let claims = writing.claims.claims();
        for position in first + 1..first + 8 {
            let Claim::Free(seen) = claims.of(position) else {
                panic!("it waits");
            };
            assert!(claims.take(position, seen, 99));
        }
        claims.want_room(writing.wanted());
    });
    let item = consumer.try_recv().expect("it can receive");
    let woken = producer
        .writing
        .look()
        .claims
        .claims()
        .room()
        .load(Ordering::Relaxed);
    assert_eq!(woken, 1, "by the one that has read the first line");
    drop(item);
}

/// The producer gives the items of a consumer that it dismisses to others: none of them can be acknowledged any more.
#[test]
fn an_acknowledgement_after_the_producers_decision_is_too_late() {
    let _dog = Watchdog::new();
    let (_here, mut producer, mut consumer, first) = with_item(QueueOptions::new());
    producer.try_send(&b"second"[..]).expect("there is room");
    let second = consumer
        .try_recv()
        .expect("it can receive")
        .expect("it waits");
    first.ack().expect("in time");
    let leaving = producer.writing.enter().dismiss(0);
    let open: Vec<u64> = leaving.into_iter().flat_map(|it| it.open_items()).collect();
    assert_eq!(open, [sequence(1)], "the first one is done");
    let error = second.ack().expect_err("another consumer may have it");
    assert_eq!(error.kind(), ErrorKind::PeerGone);
}

/// Rounds are due by the lines that have ended, and not by the buffers that consumers keep.
#[test]
fn buffers_that_are_kept_begin_no_rounds() {
    const KEPT: usize = 90;
    let _dog = Watchdog::new();
    let options = QueueOptions::new().depth(4).keep(200);
    let (_here, mut producer, mut consumer, first) = with_item(options);
    first.ack().expect("acknowledged");
    let mut kept = Vec::new();
    let (mut rounds, mut was_under_way) = (0, false);
    for n in 0..KEPT + 128 {
        let job = producer.alloc(64).expect("memory");
        producer.send(job.freeze()).expect("sent");
        let item = consumer.recv().expect("an item").ack().expect("in time");
        if n < KEPT {
            kept.push(item);
            continue;
        }
        let is_under_way = producer.writing.look().rounds.is_under_way();
        rounds += u32::from(is_under_way && !was_under_way);
        was_under_way = is_under_way;
    }
    assert!(rounds <= 4, "{rounds} rounds in 128 sends");
}
