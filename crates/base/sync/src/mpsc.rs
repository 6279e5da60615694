//! A queue of slot numbers in private memory: any thread pushes, one thread at a time takes, first in first out.
//!
//! Vyukov's intrusive queue with indices for pointers: a push is one swap and one store, and never waits.

use crate::atomic::{AtomicU32, Ordering};

const NONE: u32 = u32::MAX;

/// The result of a look at the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pop {
    /// The oldest slot.
    Slot(u32),
    /// Nothing was pushed.
    Empty,
    /// A push has begun and not ended: a slot will be there soon. Do not spin on it, because the pusher may be
    /// preempted. Look again later.
    Busy,
}

/// A FIFO of slot numbers, each at most once in it.
#[derive(Debug)]
pub struct SlotQueue {
    /// The successor of each slot; the last entry is the stub's.
    next: Box<[AtomicU32]>,
    /// The youngest.
    last: AtomicU32,
    stub: u32,
}

/// The right to take from a [`SlotQueue`]: made once, together with it, and not copyable.
#[derive(Debug)]
pub struct Taker {
    first: u32,
}

impl SlotQueue {
    /// Makes an empty queue for the slots `0..slots`, and the right to take from it.
    ///
    /// # Panics
    /// If `slots` is `u32::MAX`.
    pub fn new(slots: u32) -> (Self, Taker) {
        assert!(
            slots < NONE,
            "a queue of {slots} slots: one number is needed for none"
        );
        let next = (0..=slots).map(|_| AtomicU32::new(NONE)).collect();
        (
            Self {
                next,
                last: AtomicU32::new(slots),
                stub: slots,
            },
            Taker { first: slots },
        )
    }

    /// Appends a slot, which must not be in the queue (or it loses others; memory stays safe).
    ///
    /// # Panics
    /// If the slot is not below the number given to [`SlotQueue::new`].
    #[inline]
    pub fn push(&self, slot: u32) {
        assert!(slot < self.stub, "slot {slot} of a queue of {}", self.stub);
        self.link(slot);
    }

    #[inline]
    fn link(&self, slot: u32) {
        // Ordering: relaxed; made visible by the swap.
        self.next[slot as usize].store(NONE, Ordering::Relaxed);
        // Ordering: release publishes this thread's NONE to the next pusher (partner: its acquire here). Acquire takes
        // the same from the pusher before, so that the store below is later than that pusher's NONE.
        let before = self.last.swap(slot, Ordering::AcqRel);
        // Between these two the queue is Busy from `before` on. Private memory: no other domain sees it, and a
        // thread cannot die here alone.
        // Ordering: release; partner: the taker's acquire loads of next.
        self.next[before as usize].store(slot, Ordering::Release);
    }

    /// Returns the oldest slot, which stays in the queue.
    pub fn front(&self, taker: &mut Taker) -> Pop {
        if taker.first == self.stub {
            // Ordering: acquire; partner: link's release store.
            match self.next[self.stub as usize].load(Ordering::Acquire) {
                // Ordering: relaxed; only tells empty from busy.
                NONE if self.last.load(Ordering::Relaxed) == self.stub => return Pop::Empty,
                NONE => return Pop::Busy,
                slot => taker.first = slot,
            }
        }
        Pop::Slot(taker.first)
    }

    /// Takes the oldest slot.
    pub fn pop(&self, taker: &mut Taker) -> Pop {
        let slot = match self.front(taker) {
            Pop::Slot(slot) => slot,
            nothing => return nothing,
        };
        // Ordering: acquire; partner: link's release store. A slot leaves only once its successor is known, for
        // the next push of the same slot writes its `next`.
        let mut next = self.next[slot as usize].load(Ordering::Acquire);
        if next == NONE {
            // Ordering: relaxed; a hint: the load of next below decides.
            if self.last.load(Ordering::Relaxed) != slot {
                return Pop::Busy;
            }
            self.link(self.stub);
            // Ordering: acquire; as above.
            next = self.next[slot as usize].load(Ordering::Acquire);
            if next == NONE {
                return Pop::Busy;
            }
        }
        taker.first = next;
        Pop::Slot(slot)
    }
}
