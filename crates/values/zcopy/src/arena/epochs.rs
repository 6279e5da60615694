//! Number of times that each pageblock's pages were replaced. A sender that noted the pages of a protected block knows
//! by it whether they are still the same.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A count for each pageblock, odd while its pages are being replaced.
#[derive(Debug)]
pub(crate) struct Epochs {
    counts: Box<[AtomicU32]>,
    renewed: AtomicU64,
}

impl Epochs {
    pub(super) fn new(blocks: u32) -> Epochs {
        // Zeros, which the kernel provides when they are touched.
        let zeros = vec![0u32; blocks as usize].into_boxed_slice();
        // SAFETY: an atomic integer has the layout of a plain one, and the box is ours.
        let counts = unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [AtomicU32]) };
        Epochs {
            counts,
            renewed: AtomicU64::new(0),
        }
    }

    pub(crate) fn of(&self, block: usize) -> u32 {
        // Ordering: acquire, partner of the release in `turn`.
        self.counts[block].load(Ordering::Acquire)
    }

    /// Prefetches a count into the caches.
    pub(crate) fn prefetch(&self, block: usize) {
        let at = self.counts.as_ptr().wrapping_add(block);
        tranship_sync::prefetch_read(at.cast());
    }

    /// Returns the number of protected pageblocks that were given back so far.
    pub(crate) fn renewed(&self) -> u64 {
        // Relaxed: a count.
        self.renewed.load(Ordering::Relaxed)
    }

    /// Notes that the pages of these blocks are about to be replaced, or have been.
    pub(super) fn turn(&self, first: u32, blocks: u32) {
        for block in first..first + blocks {
            // Ordering: release: a thread that sees a new even count sees the block's new state too.
            self.counts[block as usize].fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) fn count(&self, protected: u64) {
        // Relaxed: a count.
        self.renewed.fetch_add(protected, Ordering::Relaxed);
    }
}
