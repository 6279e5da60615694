//! A defer queue of two entries under loom: a sender, and the holders of the collector's lock: the sender itself, and a
//! second thread of the writer. A taken slot is filled anew: a slot that comes before its sender has released it, or
//! twice, is a data race.
//!
//! Seen failing, besides the case kept as a test: the release of `push` and of the sender's end relaxed; each acquire
//! of the tail, and that of `is_over`; a sender's end that is not said; one entry more than there are. Not seen:
//! release and acquire of the head, without which an entry could be written before it is read. Neither loom nor x86-64
//! has loads that see later stores.

use crate::model;
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tranship_sync::{DeferProducer, DeferQueue};

const SLOTS: usize = 3;

/// A writer, its buffers and its collector.
struct Writer {
    buffers: [UnsafeCell<u32>; SLOTS],
    gc: Mutex<Gc>,
}

struct Gc {
    queue: Option<Arc<DeferQueue>>,
    /// The slots in the order in which they were taken.
    taken: Vec<u32>,
}

type Take = fn(&DeferQueue, &mut Vec<u32>);

fn take_one(queue: &DeferQueue) -> Option<u32> {
    let [oldest] = queue.few()?;
    queue.take_oldest(1);
    Some(oldest)
}

/// The ways in which the collector takes slots from the queue.
const TAKES: [Take; 3] = [
    |queue, slots| queue.take(slots, 2),
    |queue, slots| slots.extend(take_one(queue)),
    |queue, slots| {
        if let Some(oldest) = queue.oldest() {
            assert_eq!(take_one(queue), Some(oldest), "nobody else takes");
            slots.push(oldest);
        }
    },
];

impl Writer {
    fn new() -> (Arc<Writer>, DeferProducer) {
        let mut queues = Vec::new();
        let producer = DeferProducer::new(&mut queues);
        let writer = Writer {
            buffers: std::array::from_fn(|_| UnsafeCell::new(0)),
            gc: Mutex::new(Gc {
                queue: queues.pop(),
                taken: Vec::new(),
            }),
        };
        (Arc::new(writer), producer)
    }

    fn fill(&self, slot: u32, was: u32) {
        self.buffers[slot as usize].with_mut(|bytes| {
            // SAFETY: this is under test: loom checks that no other thread uses it.
            unsafe {
                assert_eq!(*bytes, was, "the slot comes twice, or too early");
                *bytes += 1;
            }
        });
    }

    /// Fills and sends buffers; those without room stay with the sender. Returns the number sent.
    fn send(&self, producer: &mut DeferProducer, slots: std::ops::Range<u32>) -> u32 {
        for slot in slots.clone() {
            self.fill(slot, 0);
            if producer.push(slot, slot).is_none() {
                return slot;
            }
        }
        slots.end
    }

    fn collect(&self, take: Take) {
        let gc = &mut *self.gc.lock().unwrap();
        if let Some(queue) = &gc.queue {
            let before = gc.taken.len();
            take(queue, &mut gc.taken);
            gc.taken[before..]
                .iter()
                .for_each(|slot| self.fill(*slot, 1));
            if queue.is_over() {
                gc.queue = None;
            }
        }
    }

    /// Checks, after the sender is gone, that each of its `sent` slots was taken, once and in order, and that no thread
    /// reads the queue any more.
    fn ends(&self, sent: u32) {
        self.collect(|queue, slots| queue.take(slots, SLOTS));
        let gc = self.gc.lock().unwrap();
        assert!(
            gc.taken.iter().copied().eq(0..sent),
            "{:?} of {sent}",
            gc.taken
        );
        assert!(gc.queue.is_none(), "it is looked at for ever");
    }
}

/// Runs `send` beside a thread that collects twice in one of the ways.
fn beside_a_collector(send: impl Fn(&Writer, DeferProducer) -> u32 + Send + Sync + Copy + 'static) {
    for take in TAKES {
        model::explore(3, move || {
            let (writer, producer) = Writer::new();
            let collector = thread::spawn({
                let writer = Arc::clone(&writer);
                move || (0..2).for_each(|_| writer.collect(take))
            });
            let sender = thread::spawn({
                let writer = Arc::clone(&writer);
                move || send(&writer, producer)
            });
            collector.join().unwrap();
            let sent = sender.join().unwrap();
            writer.ends(sent);
        });
    }
}

#[test]
fn what_one_sends_another_collects() {
    beside_a_collector(|writer, mut producer| writer.send(&mut producer, 0..3));
}

#[test]
fn what_the_sender_looks_at_itself_others_do_not() {
    beside_a_collector(|writer, mut producer| {
        let sent = writer.send(&mut producer, 0..2);
        // The number is far past: a receiver's word decides when to look, never the result.
        if producer.is_due(1, 100) {
            writer.collect(|queue, slots| slots.extend(take_one(queue)));
        }
        match sent {
            2 => writer.send(&mut producer, 2..3),
            _ => sent,
        }
    });
}

#[test]
fn who_takes_without_the_lock() {
    let take = |writer: &Writer, queue: &DeferQueue| {
        let mut slots = Vec::new();
        queue.take(&mut slots, 2);
        slots.iter().for_each(|slot| writer.fill(*slot, 1));
    };
    let system = move || {
        let (writer, mut producer) = Writer::new();
        writer.send(&mut producer, 0..1);
        let queue = writer.gc.lock().unwrap().queue.take().unwrap();
        let other = thread::spawn({
            let (writer, queue) = (Arc::clone(&writer), Arc::clone(&queue));
            move || take(&writer, &queue)
        });
        take(&writer, &queue);
        other.join().unwrap();
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| model::explore(3, system)));
    assert!(outcome.is_err(), "nothing went wrong");
}
