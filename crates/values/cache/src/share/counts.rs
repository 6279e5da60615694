//! Counts of the share server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the share server; only it writes them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connected now.
    pub(super) readers: AtomicU64,
    /// Keys asked for.
    pub(super) gets: AtomicU64,
    /// Questions for keys that were found.
    pub(super) hits: AtomicU64,
    /// Asks that were refused at a limit.
    pub(super) refused: AtomicU64,
    /// Readers that were sent away: they broke the protocol, or took no answers.
    pub(super) expelled: AtomicU64,
    /// Copies of values in the pool now.
    pub(super) copies: AtomicU64,
    /// Bytes copied to the pool: of each value once, as long as its copy stays there.
    pub(super) copied_bytes: AtomicU64,
}

impl Counts {
    pub(super) fn bump(count: &AtomicU64, by: u64) {
        // Relaxed: only the share server writes it, and nothing else depends on it.
        count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    pub(super) fn set(count: &AtomicU64, to: u64) {
        // Relaxed: as above.
        count.store(to, Ordering::Relaxed);
    }

    /// Names and values, as `stats` prints them.
    pub(crate) fn rows(&self) -> [(&'static str, u64); 7] {
        [
            ("shm_readers", &self.readers),
            ("shm_gets", &self.gets),
            ("shm_hits", &self.hits),
            ("shm_refused", &self.refused),
            ("shm_expelled", &self.expelled),
            ("shm_copies", &self.copies),
            ("shm_copied_bytes", &self.copied_bytes),
        ]
        // Relaxed: as above.
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}
