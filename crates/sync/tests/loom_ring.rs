//! The ring under loom: one producer, one consumer, two lines, so that it wraps and fills up.
//!
//! Seen failing: the producer's store of word 0 relaxed (torn line); the consumer's load of word 0 relaxed
//! (torn line); the head's store relaxed, or its load relaxed (the payload cell is written while it is read).
#![cfg(loom)]
#![allow(clippy::cast_possible_truncation, reason = "numbers below ten")]

mod model;

use loom::{cell::UnsafeCell, sync::Arc, thread};
use tranship_sync::{
    Consumer, Line, Lines, Producer, Publish, Push,
    atomic::{AtomicU64, Ordering, yield_now},
};

const MESSAGES: u64 = 4;

#[derive(Default)]
struct Shared {
    lines: [Line; 2],
    head: AtomicU64,
    /// Stands for what a message points to: whoever reuses a line may reuse this too.
    payload: [UnsafeCell<u64>; 2],
}

fn words(n: u64) -> [u64; 8] {
    std::array::from_fn(|i| if i == 0 { n << 32 } else { n * 10 + i as u64 })
}

fn run(publish: Publish) {
    let shared = Arc::new(Shared::default());
    let theirs = Arc::clone(&shared);
    let producer = thread::spawn(move || {
        let lines = Lines::new(&theirs.lines).unwrap();
        let mut producer = Producer::new();
        for n in 0..MESSAGES {
            let load = || theirs.head.load(Ordering::Acquire);
            while producer.room(lines, 1, load).unwrap() == 0 {
                yield_now();
            }
            theirs.payload[n as usize % 2].with_mut(|cell| {
                // SAFETY: what is tested: loom checks that the consumer's last read happened before.
                unsafe { *cell = n }
            });
            assert_eq!(producer.push(lines, publish, words(n)), Push::Done);
        }
    });
    let lines = Lines::new(&shared.lines).unwrap();
    let mut consumer = Consumer::new();
    for n in 0..MESSAGES {
        let got = loop {
            match consumer.try_pop(lines) {
                Some(got) => break got,
                None => yield_now(),
            }
        };
        assert_eq!(got, words(n));
        shared.payload[n as usize % 2].with(|cell| {
            // SAFETY: as above, with the producer's write.
            assert_eq!(unsafe { *cell }, n);
        });
        shared.head.store(consumer.head(), Ordering::Release);
    }
    assert_eq!(consumer.try_pop(lines), None);
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
