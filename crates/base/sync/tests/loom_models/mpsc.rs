//! The queue of slots under loom: nothing is lost, each pusher's order is kept, and a thread that takes a slot sees its
//! pusher's earlier writes.
//!
//! Seen failing: link's store of the successor relaxed (the payload is read while it is written); the swap relaxed (a
//! slot is lost: NONE overwrites a successor); pop returning a slot whose successor is unknown.

use crate::model;
use loom::{cell::UnsafeCell, sync::Arc, thread};
use tranship_sync::{Pop, SlotQueue, Taker, atomic::yield_now};

struct Shared {
    queue: SlotQueue,
    payload: Vec<UnsafeCell<u32>>,
}

impl Shared {
    fn new(slots: u32) -> (Arc<Self>, Taker) {
        let (queue, taker) = SlotQueue::new(slots);
        (
            Arc::new(Self {
                queue,
                payload: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
            }),
            taker,
        )
    }

    fn push(&self, slot: u32, value: u32) {
        self.payload[slot as usize].with_mut(|cell| {
            // SAFETY: this is under test: loom checks that no other thread uses it.
            unsafe { *cell = value }
        });
        self.queue.push(slot);
    }

    fn take(&self, taker: &mut Taker) -> (u32, u32) {
        loop {
            match self.queue.pop(taker) {
                Pop::Slot(slot) => {
                    // SAFETY: as above.
                    let value = self.payload[slot as usize].with(|cell| unsafe { *cell });
                    return (slot, value);
                }
                Pop::Empty | Pop::Busy => yield_now(),
            }
        }
    }
}

#[test]
fn two_pushers_one_taker() {
    model::explore(3, || {
        let (shared, mut taker) = Shared::new(3);
        let (one, two) = (Arc::clone(&shared), Arc::clone(&shared));
        let pushers = [
            thread::spawn(move || {
                one.push(0, 10);
                one.push(1, 11);
            }),
            thread::spawn(move || two.push(2, 12)),
        ];
        let mut got: Vec<_> = (0..3).map(|_| shared.take(&mut taker)).collect();
        let place = |slot| got.iter().position(|&(s, _)| s == slot);
        assert!(place(0) < place(1), "{got:?}");
        got.sort_unstable();
        assert_eq!(got, [(0, 10), (1, 11), (2, 12)]);
        for pusher in pushers {
            pusher.join().unwrap();
        }
        assert_eq!(shared.queue.pop(&mut taker), Pop::Empty);
    });
}

/// A taken slot is pushed again at once, by a thread other than its first pusher.
#[test]
fn a_slot_goes_round() {
    model::explore(3, || {
        let (shared, mut taker) = Shared::new(2);
        let other = Arc::clone(&shared);
        let pusher = thread::spawn(move || other.push(1, 21));
        shared.push(0, 20);
        let first = shared.take(&mut taker);
        shared.push(first.0, first.1 + 10);
        let mut rest = [shared.take(&mut taker), shared.take(&mut taker)];
        rest.sort_unstable();
        match first {
            (0, 20) => assert_eq!(rest, [(0, 30), (1, 21)]),
            (1, 21) => assert_eq!(rest, [(0, 20), (1, 31)]),
            other => panic!("{other:?}"),
        }
        pusher.join().unwrap();
        assert_eq!(shared.queue.pop(&mut taker), Pop::Empty);
    });
}

/// A slot behind one whose push has not ended may not be reachable yet, but the queue is not empty.
#[test]
fn what_was_pushed_is_in_it() {
    model::explore(3, || {
        let (shared, mut taker) = Shared::new(2);
        let other = Arc::clone(&shared);
        let pusher = thread::spawn(move || other.push(1, 21));
        shared.push(0, 20);
        assert_ne!(shared.queue.pop(&mut taker), Pop::Empty);
        pusher.join().unwrap();
    });
}
