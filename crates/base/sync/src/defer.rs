//! A defer queue: the buffers of one pool that one sender has sent, in order, until the collector checks them. It is a
//! ring that the sender writes, and that the holder of the collector's lock takes from. Unlike the queue of all sent
//! buffers, it costs the sender no locked instruction. It also records when each buffer was sent, so that the sender
//! checks only buffers that the receiver has probably released.

use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// Buffers that a defer queue holds; more go to the pool's queue.
const LENGTH: u32 = if cfg!(loom) { 2 } else { 512 };
/// The number of messages that the receiver must be past a buffer before the sender checks it: the receiver has then
/// released the buffer, unless it keeps it.
const LAG: u32 = 16;

/// The ring. All reads of it need the collector's lock.
#[derive(Debug)]
pub struct DeferQueue {
    /// The message's number in the upper half, the slot in the lower.
    entries: [AtomicU64; LENGTH as usize],
    /// Written by the sender.
    tail: Apart,
    /// Written under the collector's lock.
    head: Apart,
    /// The sender's end is gone.
    is_left: AtomicBool,
}

/// A value on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(AtomicU32);

impl DeferQueue {
    fn new() -> DeferQueue {
        DeferQueue {
            entries: std::array::from_fn(|_| AtomicU64::new(0)),
            tail: Apart::default(),
            head: Apart::default(),
            is_left: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    fn entry(&self, at: u32) -> &AtomicU64 {
        // SAFETY: the index is below the number of entries.
        unsafe { self.entries.get_unchecked((at % LENGTH) as usize) }
    }

    #[inline(always)]
    fn slot(&self, at: u32) -> u32 {
        slot_of(self.entry(at))
    }

    /// Returns the slot that will be the last of the next `count` to be taken, or a slot of an earlier use of the
    /// queue: a hint. If slots follow each other, the counters of the others lie beside the slot's own, or beside those
    /// of the slots before. The caller holds the collector's lock.
    #[inline]
    pub fn ahead(&self, count: u32) -> u32 {
        let head = self.head.0.load(Ordering::Relaxed);
        self.slot(head.wrapping_add(count - 1))
    }

    /// Says whether the sender is gone and all that it pushed was taken. The caller holds the collector's lock.
    pub fn is_over(&self) -> bool {
        // Ordering: acquire; partner is the release with which the sender's end left: everything that it pushed before
        // is seen.
        let is_left = self.is_left.load(Ordering::Acquire);
        is_left && self.head.0.load(Ordering::Relaxed) == self.tail.0.load(Ordering::Relaxed)
    }

    /// Returns the oldest slot. The caller holds the collector's lock.
    #[inline]
    pub fn oldest(&self) -> Option<u32> {
        // Relaxed, acquire: as in `take`.
        let head = self.head.0.load(Ordering::Relaxed);
        let is_there = self.tail.0.load(Ordering::Acquire) != head;
        is_there.then(|| self.slot(head))
    }

    /// Returns the `N` oldest slots, or `None` if there are fewer. They stay until they are [taken](Self::take_oldest).
    /// The caller holds the collector's lock.
    #[inline(always)]
    pub fn few<const N: usize>(&self) -> Option<[u32; N]> {
        // Relaxed, acquire: as in `take`.
        let head = self.head.0.load(Ordering::Relaxed);
        let there = self.tail.0.load(Ordering::Acquire).wrapping_sub(head);
        #[allow(clippy::cast_possible_truncation)] // a few
        let count = N as u32;
        if there < count {
            return None;
        }
        let oldest = self.entries.get((head % LENGTH) as usize..);
        match oldest.and_then(|entries| entries.first_chunk::<N>()) {
            Some(entries) => Some(entries.each_ref().map(slot_of)),
            None => Some(self.slots_around(head)),
        }
    }

    /// Takes `count` of the slots that [`few`](Self::few) has found. The caller has held the collector's lock since
    /// then.
    #[inline(always)]
    pub fn take_oldest(&self, count: u32) {
        let head = self.head.0.load(Ordering::Relaxed).wrapping_add(count);
        // Ordering: release, as in `take`.
        self.head.0.store(head, Ordering::Release);
    }

    /// Reads slots that lie around the ring's end.
    #[cold]
    #[inline(never)]
    fn slots_around<const N: usize>(&self, head: u32) -> [u32; N] {
        #[allow(clippy::cast_possible_truncation)] // a few
        std::array::from_fn(|at| self.slot(head.wrapping_add(at as u32)))
    }

    /// Takes up to `most` of the oldest slots. The caller holds the collector's lock.
    #[inline]
    pub fn take(&self, slots: &mut Vec<u32>, most: usize) {
        // Relaxed: written under the collector's lock.
        let head = self.head.0.load(Ordering::Relaxed);
        // Ordering: acquire; partner is the release in `push`: the entries are written, and the sender has released the
        // slots.
        let there = self.tail.0.load(Ordering::Acquire).wrapping_sub(head);
        #[allow(clippy::cast_possible_truncation)] // at most LENGTH
        let count = there.min(most.min(LENGTH as usize) as u32);
        slots.extend((0..count).map(|at| self.slot(head.wrapping_add(at))));
        // Ordering: release; partner is the acquire in `push`: they are read.
        self.head
            .0
            .store(head.wrapping_add(count), Ordering::Release);
    }
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // the lower half is meant
fn slot_of(entry: &AtomicU64) -> u32 {
    entry.load(Ordering::Relaxed) as u32
}

/// The sender's end.
#[derive(Debug)]
pub struct DeferProducer {
    queue: Arc<DeferQueue>,
    /// The head at the last look.
    head: u32,
}

impl DeferProducer {
    /// Makes a defer queue, which the collector knows from here on.
    pub fn new(queues: &mut Vec<Arc<DeferQueue>>) -> DeferProducer {
        let queue = Arc::new(DeferQueue::new());
        queues.push(queue.clone());
        DeferProducer { queue, head: 0 }
    }

    #[inline]
    pub fn queue(&self) -> &DeferQueue {
        &self.queue
    }

    /// Reads the sender's own word: a private copy beside it would be one more store for each message.
    #[inline(always)]
    fn tail(&self) -> u32 {
        self.queue.tail.0.load(Ordering::Relaxed)
    }

    /// Appends a buffer that was sent with message `message`; it belongs to the collector from here on. Returns how
    /// many came into the queue so far, modulo 2^32, or `None` if there is no room.
    #[inline(always)]
    pub fn push(&mut self, message: u32, slot: u32) -> Option<u32> {
        let tail = self.tail();
        if tail.wrapping_sub(self.head) >= LENGTH && !self.look() {
            return None;
        }
        let (queue, number) = (&*self.queue, tail.wrapping_add(1));
        let entry = u64::from(message) << 32 | u64::from(slot);
        // Ordering: relaxed; shown by the tail, and not before the last use of the entry is over, as the head was
        // acquired.
        queue.entry(tail).store(entry, Ordering::Relaxed);
        // Ordering: release; partner is the acquire in `take`.
        queue.tail.0.store(number, Ordering::Release);
        Some(number)
    }

    /// Reads the collector's progress; returns false if there is still no room.
    #[cold]
    fn look(&mut self) -> bool {
        // Ordering: acquire; partner is the release in `take`.
        self.head = self.queue.head.0.load(Ordering::Acquire);
        self.tail().wrapping_sub(self.head) < LENGTH
    }

    /// Says whether the receiver, which has taken `taken` messages, is well past the oldest `count` buffers. The
    /// receiver's number is not trusted: a buffer that is alive is found to be alive.
    #[inline]
    pub fn is_due(&mut self, count: u32, taken: u32) -> bool {
        // Ordering: acquire; partner is the release in `take`, as in `look`: there may be room again.
        self.head = self.queue.head.0.load(Ordering::Acquire);
        if self.tail().wrapping_sub(self.head) < count {
            return false;
        }
        let last = self.head.wrapping_add(count - 1);
        let message = (self.queue.entry(last).load(Ordering::Relaxed) >> 32) as u32;
        let past = taken.wrapping_sub(message).wrapping_sub(1);
        (LAG..u32::MAX / 2).contains(&past)
    }
}

impl Drop for DeferProducer {
    fn drop(&mut self) {
        // Ordering: release; partner is the acquire in `is_over`.
        self.queue.is_left.store(true, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn take_few<const N: usize>(queue: &DeferQueue) -> Option<[u32; N]> {
        let few = queue.few::<N>()?;
        assert_eq!(queue.few(), Some(few), "they stay");
        queue.take_oldest(u32::try_from(N).expect("a few"));
        Some(few)
    }

    fn taken(queue: &DeferQueue, most: usize) -> Vec<u32> {
        let mut slots = Vec::new();
        queue.take(&mut slots, most);
        slots
    }

    #[test]
    fn what_was_sent_comes_in_its_order_and_no_more_than_fits() {
        let mut queues = Vec::new();
        let mut sender = DeferProducer::new(&mut queues);
        let queue = queues[0].clone();
        let mut message = u32::MAX - 100; // numbers wrap
        for round in 0..5 {
            for slot in 0..LENGTH {
                assert!(sender.push(message, slot).is_some());
                message = message.wrapping_add(1);
            }
            assert_eq!(sender.push(message, 7), None, "round {round}: it is full");
            assert_eq!(taken(&queue, 3), [0, 1, 2]);
            assert_eq!(take_few(&queue), Some([3, 4]));
            assert!(sender.push(message, 1 << 20).is_some());
            message = message.wrapping_add(1);
            let rest = taken(&queue, usize::MAX);
            assert_eq!(rest.len(), LENGTH as usize - 4);
            assert_eq!((rest[0], rest.last()), (5, Some(&(1 << 20))));
            assert!(taken(&queue, 1).is_empty() && take_few::<1>(&queue).is_none());
        }
        drop(queues);
        assert!(!queue.is_over(), "the sender is there");
        assert!(sender.push(0, 5).is_some());
        drop(sender);
        assert!(!queue.is_over(), "something is in it");
        assert_eq!(taken(&queue, 8), [5]);
        assert!(queue.is_over());
    }

    #[test]
    fn a_few_may_lie_around_the_end_of_the_ring() {
        let mut queues = Vec::new();
        let mut sender = DeferProducer::new(&mut queues);
        let queue = queues[0].clone();
        let mut slot = 0;
        for first in [LENGTH - 8, LENGTH - 7, LENGTH - 1, LENGTH] {
            while slot % LENGTH != first % LENGTH {
                assert_eq!(sender.push(slot, slot), Some(slot + 1));
                assert_eq!(take_few(&queue), Some([slot]));
                slot += 1;
            }
            let few: [u32; 8] = std::array::from_fn(|_| {
                assert_eq!(sender.push(slot, slot), Some(slot + 1));
                slot += 1;
                slot - 1
            });
            assert_eq!(take_few(&queue), Some(few), "from {first} on");
            assert_eq!(take_few::<1>(&queue), None);
        }
    }

    #[test]
    fn what_is_due_was_passed_by_far() {
        let mut sender = DeferProducer::new(&mut Vec::new());
        let first = u32::MAX - 3;
        for n in 0..8 {
            assert_eq!(sender.push(first.wrapping_add(n), n), Some(n + 1));
        }
        let last = first.wrapping_add(7);
        assert!(!sender.is_due(8, last.wrapping_add(LAG)));
        assert!(sender.is_due(8, last.wrapping_add(LAG + 1)));
        assert!(sender.is_due(4, last.wrapping_add(LAG - 3)));
        assert!(!sender.is_due(9, last.wrapping_add(LAG + 9)), "there are 8");
        // A receiver's number is no promise.
        for lie in [first, last, last.wrapping_add(1), 0] {
            assert!(!sender.is_due(8, lie));
        }
    }
}
