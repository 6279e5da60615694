//! The writer's private references of a buffer: how many handles its process has, and whether the buffer is queued for
//! collection. It is one word, so that of the threads that drop a handle and the collector exactly one queues it, and
//! no thread reads it after its last handle went.

use tranship_sync::atomic::{AtomicU32, Ordering};

use crate::generation::{StaleReference, is_published};

/// The buffer waits to be collected, the collector checks it, or it is on its way into the queue: the thread that drops
/// the last handle need not queue it.
const QUEUED: u32 = 1 << 31;

/// The word of one slot.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Handles(AtomicU32);

/// State of a buffer after a handle was dropped.
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
        // Ordering: relaxed, as there is no other user: the next user of the slot gets it through a lock, or by a
        // handle passed on.
        self.0.store(0, Ordering::Relaxed);
    }

    /// The first handle of a buffer that nobody else knows.
    #[inline]
    pub fn begin(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Counts another handle, for a thread that holds one.
    #[inline]
    pub fn hold(&self) {
        // Ordering: relaxed, a read-modify-write: it continues the release sequence of handles that went.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts another handle, for the writer that finds its buffer by an id: an id from the program, or from a domain
    /// that sends the buffer or passes it back. Under the collector's lock, when no thread can be collecting. `check`
    /// does the other checks, and may treat the buffer as held.
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

    /// Drops the only handle of a buffer that is about to be sent for the first time; the sending thread queues the
    /// buffer once it is sent. It is a plain store, and therefore only while the generation is odd: as soon as it is
    /// even, other threads may come to hold it.
    #[inline(always)]
    pub(crate) fn let_go_first(&self) {
        // Ordering: relaxed: the generation shows the work under the handle to a thread that finds the buffer, and the
        // queue shows it to the collector.
        self.0.store(QUEUED, Ordering::Relaxed);
    }

    /// Drops a handle.
    #[inline(always)]
    pub fn let_go(&self, generation: &AtomicU32) -> LetGo {
        // Nobody else knows the buffer, so no read-modify-write is needed.
        if self.is_private(generation) {
            self.none();
            return LetGo::Unsent;
        }
        self.let_go_shared(generation)
    }

    /// Drops a handle of a buffer that was sent, or that had other handles; they may have gone meanwhile.
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
            // Ordering: release; partner is the acquire in `count`: a thread that sees no handle sees everything that
            // was read and sent under it; and the acquire among handles.
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

    /// Returns the number of handles. Called by the collector, which has taken the slot out of the queue.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        // Ordering: acquire; partner is the release with which a handle went.
        self.0.load(Ordering::Acquire) & !QUEUED
    }

    /// Records that the collector found the buffer alive. Returns true if it has no handle: it stays marked, and the
    /// collector keeps it. Otherwise the thread that drops the last handle queues it.
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
