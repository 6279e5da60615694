//! Signs that carriers check before they delay work. All of them are hints, which are checked again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Whether threads of a domain wait for memory: buffers whose bytes carriers have received are then given back at once.
#[derive(Debug, Default)]
pub struct MemoryPressure {
    /// There are carriers.
    carried: AtomicBool,
    /// Threads that wait for memory.
    waiting: AtomicU32,
}

impl MemoryPressure {
    /// Records that there is a carrier.
    pub fn has_carriers(&self) {
        self.carried.store(true, Ordering::Relaxed);
    }

    /// Says whether there may be a carrier.
    pub fn is_carried(&self) -> bool {
        self.carried.load(Ordering::Relaxed)
    }

    pub fn is_under(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub fn enter(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
