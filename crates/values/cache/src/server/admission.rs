//! Admission of the values' memory by a manager, and the log entries when that changes.

use crate::store::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_core::heap::Heap;

/// State that the log reported last.
#[derive(Debug, Default)]
pub(super) struct Admission {
    alone: AtomicBool,
}

impl Admission {
    /// Returns the present state, as `stats` shows it.
    pub(super) fn state(heap: Option<&Heap>) -> &'static str {
        match heap {
            None => "none",
            Some(heap) if heap.is_alone() => "away",
            Some(_) => "present",
        }
    }

    /// Looks whether the manager went or came. One thread does it, now and then.
    pub(super) fn look(&self, store: &Store) {
        let Some(heap) = store.arena().heap() else {
            return;
        };
        let alone = heap.is_alone();
        // Relaxed: one thread alone uses it.
        if self.alone.swap(alone, Ordering::Relaxed) == alone {
            return;
        }
        let (memory, _) = store.memory();
        let (bytes, unadmitted) = (heap.held_bytes(), heap.unadmitted_bytes());
        match (alone, unadmitted) {
            (true, _) => tracing::warn!(
                bytes,
                memory,
                "the manager is gone: the cache goes on up to its own limit, and tells the next manager"
            ),
            (false, 0) => tracing::info!(
                bytes,
                "the manager is back and has admitted all memory of values"
            ),
            (false, _) => tracing::warn!(
                bytes,
                unadmitted,
                "the manager is back and has not admitted all memory of values: the cache evicts"
            ),
        }
    }
}
