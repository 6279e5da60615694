//! Counts of an arena so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the arena was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Values allocated.
    pub allocations: u64,
    /// Values freed.
    pub frees: u64,
    /// Bytes asked for in all.
    pub asked_bytes: u64,
    /// Pageblocks protected.
    pub frozen_blocks: u64,
    /// Bytes of pageblocks and of large values that are in use, pages that were never touched included.
    pub used_bytes: u64,
    /// The limit, bytes.
    pub max_bytes: u64,
    /// Bytes that are free here but may still be seen by a forked child.
    pub waiting_for_children_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    allocations: AtomicU64,
    frees: AtomicU64,
    asked: AtomicU64,
    frozen: AtomicU64,
}

// All relaxed: counts, on which nothing else depends.
impl Counters {
    pub(super) fn allocated(&self, len: usize) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        self.asked.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(super) fn freed(&self) {
        self.frees.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn frozen(&self, blocks: u32) {
        self.frozen.fetch_add(u64::from(blocks), Ordering::Relaxed);
    }

    pub(super) fn read(&self, used: u64, max: u64, waiting: u64) -> Stats {
        Stats {
            allocations: self.allocations.load(Ordering::Relaxed),
            frees: self.frees.load(Ordering::Relaxed),
            asked_bytes: self.asked.load(Ordering::Relaxed),
            frozen_blocks: self.frozen.load(Ordering::Relaxed),
            used_bytes: used,
            max_bytes: max,
            waiting_for_children_bytes: waiting,
        }
    }
}
