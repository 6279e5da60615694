//! The claims of a queue under loom: the orderings as they are written, with weak memory. `tso_models/claims.rs` has more
//! readers, under total store order.
//!
//! * An item is taken by one reader, and what it did with the item happened before the writer finds the item done.
//! * An acknowledgement that says it is in time is seen by a writer that dismisses the reader.
//! * No wake-up is lost: a sleep without end is a deadlock.

use crate::model;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use tranship_ring::broadcast::{Claim, Claims, Dismissed, Front, Open, Opens};
use tranship_ring::{Futex, Point, ROUND, TIMED, wake_some};
use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tranship_sync::full_fence;

/// A queue of one line, with two readers.
struct Queue {
    front: Front,
    words: [AtomicU64; 1],
    opens: [Opens; 2],
    item: UnsafeCell<u32>,
}

// SAFETY: this is under test: loom checks the accesses of `item`.
unsafe impl Sync for Queue {}

impl Queue {
    fn new() -> Queue {
        Queue {
            front: Front::default(),
            words: [AtomicU64::new(0)],
            opens: [Opens::default(), Opens::default()],
            item: UnsafeCell::new(0),
        }
    }

    fn claims(&self) -> Claims<'_> {
        Claims::new(&self.front, &self.words)
    }

    /// Takes the item if it waits, and acknowledges it.
    fn take(&self, reader: u16) -> bool {
        let opens = &self.opens[usize::from(reader - 1)];
        let Claim::Free(seen) = self.claims().of(0) else {
            return false;
        };
        let entry = opens.enter(0, 1).expect("it is free");
        let took = self.claims().take(0, seen, reader);
        if took {
            self.item.with_mut(|item| {
                // SAFETY: under test.
                unsafe { *item += 1 }
            });
            assert!(opens.acknowledge(entry, 0));
        } else {
            opens.clear(entry);
        }
        took
    }
}

#[test]
fn an_item_is_taken_once_and_done_when_it_is() {
    model::explore(3, || {
        let queue = Arc::new(Queue::new());
        let readers: Vec<_> = (1..3)
            .map(|reader| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.take(reader))
            })
            .collect();
        if let Claim::Taken(reader) = queue.claims().of(0) {
            match queue.opens[usize::from(reader - 1)].of(0) {
                // It is done: the writer may use its memory again.
                None => queue.item.with(|item| {
                    // SAFETY: under test.
                    assert_eq!(unsafe { *item }, 1, "the work came before");
                }),
                open => assert_eq!(open, Some(Open::Held)),
            }
        }
        let took = readers.into_iter().map(|it| it.join().expect("no panic"));
        assert_eq!(took.filter(|took| *took).count(), 1);
    });
}

/// The writer dismisses a reader that acknowledges.
fn dismisses(writer_fences: bool) {
    model::explore(3, move || {
        let shared = Arc::new((Opens::default(), Dismissed::default()));
        let entry = shared.0.enter(0, 1).expect("it is free");
        let theirs = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            let (opens, dismissed) = &*theirs;
            opens.acknowledge(entry, 0) && !dismissed.has(1)
        });
        let (opens, dismissed) = &*shared;
        dismissed.set(1, true);
        if writer_fences {
            full_fence();
        }
        let is_open = opens.of(0).is_some();
        let is_in_time = reader.join().expect("no panic");
        assert!(!(is_open && is_in_time), "two have the item");
    });
}

#[test]
fn an_acknowledgement_in_time_is_seen() {
    dismisses(true);
}

#[test]
#[should_panic(expected = "two have the item")]
fn a_writer_that_does_not_fence_gives_an_item_away_twice() {
    dismisses(false);
}

/// A reader sleeps until something is published.
fn sleeps(sleeper_fences: bool) {
    model::explore(3, move || {
        let shared = Arc::new((Queue::new(), AtomicU32::new(0)));
        let theirs = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let (queue, published) = &*theirs;
            published.store(1, Ordering::Release);
            full_fence();
            queue.claims().wake_one(|word| {
                wake_some(word);
                1
            });
        });
        let (queue, published) = &*shared;
        while published.load(Ordering::Acquire) == 0 {
            let seen = queue.claims().arm();
            if sleeper_fences {
                full_fence();
            }
            if published.load(Ordering::Acquire) == 0 {
                let point = Point::seen(queue.claims().bell(), seen);
                let Ok(_) = TIMED.wait_any(&[point], ROUND);
            }
        }
        writer.join().expect("no panic");
    });
}

#[test]
fn a_sleeper_is_woken() {
    sleeps(true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_that_does_not_fence_sleeps_for_ever() {
    sleeps(false);
}
