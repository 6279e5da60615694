//! The ring under loom: one producer, one consumer, two lines, so that it wraps and fills up.
//!
//! Seen failing: the producer's store of word 0 relaxed (torn line); the consumer's load of word 0 relaxed
//! (torn line); the head's store relaxed, or its load relaxed (the payload cell is written while it is read).
#![allow(clippy::cast_possible_truncation, reason = "numbers below ten")]

use crate::model;
use loom::{cell::UnsafeCell, sync::Arc, thread};
use tranship_ring::{Consumer, Producer, Publish, Push, Ring};
use tranship_sync::atomic::yield_now;

const MESSAGES: u64 = 4;

/// The memory that messages point to: a thread that reuses a line may reuse this too.
type Payload = Arc<[UnsafeCell<u64>; 2]>;

fn words(n: u64) -> [u64; 8] {
    std::array::from_fn(|i| if i == 0 { n << 32 } else { n * 10 + i as u64 })
}

fn run(publish: Publish) {
    let (source, sink) = Ring::pair(2);
    let payload: Payload = Arc::default();
    let theirs = Arc::clone(&payload);
    let producer = thread::spawn(move || {
        let mut producer = Producer::new();
        for n in 0..MESSAGES {
            let head = || source.their_head();
            while producer.room(source.own_lines(), 1, head).unwrap() == 0 {
                yield_now();
            }
            theirs[n as usize % 2].with_mut(|cell| {
                // SAFETY: this is under test: loom checks that the consumer's last read happened before.
                unsafe { *cell = n }
            });
            let pushed = producer.push(source.own_lines(), publish, words(n));
            assert_eq!(pushed, Push::Done);
        }
    });
    let mut consumer = Consumer::new();
    for n in 0..MESSAGES {
        let got = loop {
            match consumer.try_pop(sink.their_lines()) {
                Some(got) => break got,
                None => yield_now(),
            }
        };
        assert_eq!(got, words(n));
        payload[n as usize % 2].with(|cell| {
            // SAFETY: as above, with the producer's write.
            assert_eq!(unsafe { *cell }, n);
        });
        sink.give_back(consumer.head());
    }
    assert_eq!(consumer.try_pop(sink.their_lines()), None);
    producer.join().unwrap();
}

#[test]
fn in_order_and_whole_with_release() {
    model::explore(3, || run(Publish::Release));
}

#[test]
fn in_order_and_whole_with_seqcst() {
    model::explore(3, || run(Publish::SeqCst));
}
