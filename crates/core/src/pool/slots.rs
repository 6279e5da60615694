//! What a pool's writer keeps about each slot in private memory.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use tranship_zone::Place;

/// The class of buffers larger than a chunk, which are runs of their own.
pub(crate) const HUGE: u8 = u8::MAX;

/// One slot's private half: half a cache line, beside nothing that another thread's slot shares unless
/// they are neighbours in one slab.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Slot {
    /// Handles in this process, and [`QUEUED`]: one word, so that of all who let a handle go and the collector exactly
    /// one queues the slot, and nobody looks at it after its last handle went.
    word: AtomicU32,
    slab: AtomicU32,
    /// Window offset of the buffer's memory.
    offset: AtomicU64,
    index: AtomicU16,
    class: AtomicU8,
}

/// It waits to be collected, or the collector looks at it: who lets the last handle go need not queue it.
const QUEUED: u32 = 1 << 31;

/// What became of a slot when a handle went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LetGo {
    /// Others hold it, or it is queued: it is not ours to look at any more.
    Left,
    /// The last handle of a buffer that was never sent: it can be freed.
    Unsent,
    /// The last handle of one that was: it is marked as queued, and the caller queues it.
    ToQueue,
}

impl Slot {
    /// The slab was cut: where the item lies from now on.
    pub(crate) fn place_at(&self, offset: u64, class: u8, place: Place) {
        // Relaxed: whoever gets the slot gets it through a lock or a handle passed on.
        self.offset.store(offset, Ordering::Relaxed);
        self.class.store(class, Ordering::Relaxed);
        self.slab.store(place.slab, Ordering::Relaxed);
        self.index.store(place.index, Ordering::Relaxed);
        self.word.store(0, Ordering::Relaxed);
    }
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }
    #[inline]
    pub(crate) fn class(&self) -> u8 {
        self.class.load(Ordering::Relaxed)
    }
    pub(crate) fn place(&self) -> Place {
        Place {
            slab: self.slab.load(Ordering::Relaxed),
            index: self.index.load(Ordering::Relaxed),
        }
    }

    /// A buffer is frozen: its first handle. Nobody else knows the slot.
    #[inline]
    pub(crate) fn begin(&self) {
        self.word.store(1, Ordering::Relaxed);
    }
    /// Another handle, by who holds one, or under the collector's lock.
    #[inline]
    pub(crate) fn hold(&self) {
        self.word.fetch_add(1, Ordering::Relaxed);
    }
    /// Whether there is one handle only and the slot is not queued.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        // Ordering: Acquire pairs with the Release of other handles' going: what they did to the generation before
        // is seen by a load after.
        self.word.load(Ordering::Acquire) == 1
    }
    /// The only handle of a buffer that was never sent goes unused.
    #[inline]
    pub(crate) fn end(&self) {
        self.word.store(0, Ordering::Relaxed);
    }
    /// The only handle of a buffer that is being sent for the first time goes; the caller queues it once it is sent.
    #[inline]
    pub(crate) fn let_go_queued(&self) {
        // Ordering: Release; partner is the collector's `handles`: who sees no handle sees what was sent under it.
        self.word.store(QUEUED, Ordering::Release);
    }
    /// A handle goes. `is_sent` loads the generation; it is asked only while the handle is the only one, so that
    /// nothing can change it.
    pub(crate) fn let_go(&self, is_sent: impl Fn() -> bool) -> LetGo {
        // Ordering: Acquire as in `is_single`.
        let mut now = self.word.load(Ordering::Acquire);
        loop {
            if now == 1 && !is_sent() {
                self.end();
                return LetGo::Unsent;
            }
            let left = if now == 1 { QUEUED } else { now - 1 };
            // Ordering: Release as in `let_go_queued`; Acquire among handles.
            match self
                .word
                .compare_exchange_weak(now, left, Ordering::AcqRel, Ordering::Acquire)
            {
                // From here on the slot may be collected and somebody else's, unless it is to us to queue it.
                Ok(_) if now == 1 => return LetGo::ToQueue,
                Ok(_) => return LetGo::Left,
                Err(other) => now = other,
            }
        }
    }
    /// Handles, for the collector, which has taken the slot out of the queue and not yet let it go.
    #[inline(always)]
    pub(crate) fn handles(&self) -> u32 {
        // Ordering: Acquire; partner is the Release with which a handle went.
        self.word.load(Ordering::Acquire) & !QUEUED
    }
    /// The collector found it alive. True if it has no handle: it stays marked, and the collector keeps it. Else who
    /// lets the last handle go queues it.
    pub(crate) fn stays_queued(&self) -> bool {
        // Ordering: Relaxed: the mark orders nothing; what was done under handles is acquired by `handles`.
        self.word
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                (word != QUEUED).then_some(word & !QUEUED)
            })
            .is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(word: u32) -> Slot {
        let slot = Slot::default();
        slot.word.store(word, Ordering::Relaxed);
        slot
    }
    fn word(slot: &Slot) -> u32 {
        slot.word.load(Ordering::Relaxed)
    }

    #[test]
    fn the_last_handle_decides_once() {
        let held = slot(2);
        assert_eq!(held.let_go(|| panic!("not the last")), LetGo::Left);
        assert_eq!(held.let_go(|| false), LetGo::Unsent);
        assert_eq!(word(&held), 0);
        let sent = slot(2);
        assert_eq!(sent.let_go(|| true), LetGo::Left);
        assert_eq!(sent.let_go(|| true), LetGo::ToQueue);
        assert_eq!((word(&sent), sent.handles()), (QUEUED, 0));
        // It comes back and goes again while it is queued: once is enough.
        sent.hold();
        assert!(!sent.is_single());
        assert_eq!(sent.let_go(|| panic!("it was sent")), LetGo::Left);
        assert_eq!(word(&sent), QUEUED);
    }

    #[test]
    fn what_is_alive_is_queued_by_the_collector_or_by_its_last_handle() {
        let free = slot(QUEUED);
        assert!(free.stays_queued());
        assert_eq!(word(&free), QUEUED);
        free.hold();
        assert!(!free.stays_queued());
        assert_eq!(free.let_go(|| true), LetGo::ToQueue);
    }

    /// A handle goes at any moment of a collector's turn: the slot is queued by one of the two, never by both.
    #[test]
    fn of_a_collector_and_a_handle_that_goes_one_queues() {
        for _ in 0..2000 {
            let shared = slot(QUEUED | 1);
            let (kept, queued) = std::thread::scope(|s| {
                let goes = s.spawn(|| shared.let_go(|| true) == LetGo::ToQueue);
                (shared.stays_queued(), goes.join().expect("no panic"))
            });
            assert!(kept != queued, "kept: {kept}, queued: {queued}");
            assert_eq!(word(&shared), QUEUED);
        }
    }
}
