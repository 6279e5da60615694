//! What carriers look at before they take their time. All of it is a hint, looked at again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Whether somebody in a domain needs back at once what carriers have brought to its place.
#[derive(Debug, Default)]
pub struct Haste {
    /// There are carriers.
    carried: AtomicBool,
    /// Those who wait for memory.
    waiting: AtomicU32,
}

impl Haste {
    /// A carrier has come.
    pub fn has_carriers(&self) {
        self.carried.store(true, Ordering::Relaxed);
    }

    /// Whether there may be one.
    pub fn is_carried(&self) -> bool {
        self.carried.load(Ordering::Relaxed)
    }

    pub fn is_needed(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub fn begin(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
