//! The queue of slots against a plain queue, and with real threads.
//!
//! Seen failing: the stub given out as a slot.
#![cfg(not(loom))]

use std::{collections::VecDeque, thread};

use proptest::prelude::*;
use tranship_sync::{Pop, SlotQueue};

const SLOTS: u32 = 6;

proptest! {
    /// `Some`: push the slot if it is not in the queue; `None`: take one.
    #[test]
    fn first_in_first_out(steps in prop::collection::vec(prop::option::of(0..SLOTS), 0..300)) {
        let (queue, mut taker) = SlotQueue::new(SLOTS);
        let mut plain = VecDeque::new();
        for step in steps {
            if let Some(slot) = step {
                if !plain.contains(&slot) {
                    queue.push(slot);
                    plain.push_back(slot);
                }
                continue;
            }
            let want = plain.pop_front().map_or(Pop::Empty, Pop::Slot);
            prop_assert_eq!(queue.front(&mut taker), want);
            prop_assert_eq!(queue.pop(&mut taker), want);
        }
    }
}

#[test]
fn threads_lose_nothing() {
    const THREADS: u32 = 4;
    const EACH: u32 = 10_000;
    let (queue, mut taker) = SlotQueue::new(THREADS * EACH);
    let mut next = [0; THREADS as usize];
    thread::scope(|scope| {
        let queue = &queue;
        for thread in 0..THREADS {
            scope.spawn(move || (0..EACH).for_each(|n| queue.push(thread * EACH + n)));
        }
        let mut got = 0;
        while got < THREADS * EACH {
            let Pop::Slot(slot) = queue.pop(&mut taker) else {
                thread::yield_now();
                continue;
            };
            let next = &mut next[(slot / EACH) as usize];
            assert_eq!(slot % EACH, *next, "out of order");
            *next += 1;
            got += 1;
        }
    });
    assert_eq!(queue.pop(&mut taker), Pop::Empty);
}

#[test]
#[should_panic(expected = "slot 2 of a queue of 2")]
fn a_slot_that_does_not_exist() {
    SlotQueue::new(2).0.push(2);
}
