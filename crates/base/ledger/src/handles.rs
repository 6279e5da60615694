//! The writer's private references of a buffer: how many handles its process has, and whether the buffer is queued for
//! collection. One word, so that of all who let a handle go and the collector exactly one queues it, and nobody looks at
//! it after its last handle went.

use tranship_sync::atomic::{AtomicU32, Ordering};

use crate::generation::{StaleReference, is_published};

/// It waits to be collected, the collector looks at it, or it is on its way into the queue: who lets the last handle go
/// need not queue it.
const QUEUED: u32 = 1 << 31;

/// The word of one slot.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Handles(AtomicU32);

/// What became of a buffer when a handle went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LetGo {
    /// Others hold it, or it is queued: it is not ours to look at any more.
    Left,
    /// The last handle of a buffer that was never sent: it can be freed.
    Unsent,
    /// The last handle of one that was: it is marked as queued, and the caller queues it.
    ToQueue,
}

impl Handles {
    /// Nobody has the slot's buffer, which nobody else knows.
    #[inline]
    pub fn none(&self) {
        // Ordering: relaxed, as everything that the only one does: who gets the slot gets it through a lock, or a
        // handle passed on.
        self.0.store(0, Ordering::Relaxed);
    }

    /// The first handle of a buffer that nobody else knows.
    #[inline]
    pub fn begin(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Another handle, by who holds one.
    #[inline]
    pub fn hold(&self) {
        // Ordering: relaxed, a read-modify-write: it continues the release sequence of handles that went.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Another handle, by the writer, which finds its buffer by an id: by the program, or by who sends or passes it back. Under the collector's lock, when
    /// nobody could be collecting. `check` is asked what else there is to it, which it may do to the buffer as to one that is held.
    ///
    /// # Errors
    /// `stale` of what [`is_named`] says, or what `check` says: then no handle is counted.
    #[inline]
    pub fn find<T, E>(
        &self,
        generation: &AtomicU32,
        named: u32,
        stale: impl FnOnce(StaleReference) -> E,
        check: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        is_named(generation, named).map_err(stale)?;
        let found = check()?;
        self.hold();
        Ok(found)
    }

    /// Whether the caller's handle is the only one and the buffer was never sent: then nobody else knows it, and nobody
    /// can get to know it.
    #[inline(always)]
    pub fn is_private(&self, generation: &AtomicU32) -> bool {
        // Ordering: acquire; partner is the release with which other handles went: a generation made even under one
        // of them is seen by the load after.
        self.0.load(Ordering::Acquire) == 1 && !is_published(generation.load(Ordering::Relaxed))
    }

    /// The only handle goes of a buffer that is about to be sent for the first time; whoever does that queues it once it
    /// is sent. A plain store, and so only while the generation is odd: as soon as it is even, others may come to hold it.
    #[inline(always)]
    pub(crate) fn let_go_first(&self) {
        // Ordering: relaxed: what was done under the handle is shown by the generation to who finds the buffer, and by
        // the queue to the collector.
        self.0.store(QUEUED, Ordering::Relaxed);
    }

    /// A handle goes.
    #[inline(always)]
    pub fn let_go(&self, generation: &AtomicU32) -> LetGo {
        // Nobody else knows the buffer, so no read-modify-write is needed.
        if self.is_private(generation) {
            self.none();
            return LetGo::Unsent;
        }
        self.let_go_shared(generation)
    }

    /// The same of one that was sent, or has other handles; they may have gone meanwhile.
    #[inline(never)]
    fn let_go_shared(&self, generation: &AtomicU32) -> LetGo {
        // Ordering: acquire as in `is_private`.
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            // Asked only while the handle is the only one, so that nothing can change it.
            if now == 1 && !is_published(generation.load(Ordering::Relaxed)) {
                self.none();
                return LetGo::Unsent;
            }
            debug_assert!(now & !QUEUED > 0, "a handle that was not counted goes");
            let left = if now == 1 {
                QUEUED
            } else {
                now.wrapping_sub(1)
            };
            // Ordering: release; partner is the acquire in `count`: who sees no handle sees what was read and sent under
            // it; and the acquire among handles.
            match self
                .0
                .compare_exchange_weak(now, left, Ordering::Release, Ordering::Acquire)
            {
                // From here on it may be collected and somebody else's, unless it is to us to queue it.
                Ok(_) if now == 1 => return LetGo::ToQueue,
                Ok(_) => return LetGo::Left,
                Err(other) => now = other,
            }
        }
    }

    /// Handles, for the collector, which has taken the slot out of the queue.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        // Ordering: acquire; partner is the release with which a handle went.
        self.0.load(Ordering::Acquire) & !QUEUED
    }

    /// The collector found it alive. True if it has no handle: it stays marked, and the collector keeps it. Else who
    /// lets the last handle go queues it.
    pub fn stays_queued(&self) -> bool {
        // Ordering: relaxed: the mark orders nothing; what was done under handles is acquired by `count`.
        let mut now = self.0.load(Ordering::Relaxed);
        while now != QUEUED {
            let unmarked = now & !QUEUED;
            match self
                .0
                .compare_exchange_weak(now, unmarked, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return false,
                Err(other) => now = other,
            }
        }
        true
    }
}

/// Whether an id with the generation `named` is that of the slot's buffer now, in the writer itself. Under the collector's
/// lock, without which the generation that fits may be odd a moment later.
///
/// # Errors
/// [`StaleReference`]: it names an earlier or a future use, or a buffer that nobody has sent.
#[inline]
pub fn is_named(generation: &AtomicU32, named: u32) -> Result<(), StaleReference> {
    // Ordering: acquire; partner is the release of the first send, which may be under way in another thread: its handle
    // went before, and what it sends is written.
    let found = generation.load(Ordering::Acquire);
    if found == named && is_published(found) {
        Ok(())
    } else {
        Err(StaleReference { named, found })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
