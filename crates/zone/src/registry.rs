//! Indices and identities of zones.
//!
//! An index is small and used again after its zone is gone; an identity is never used again, and is what a thread's
//! cache is checked against.

use crate::lock::Lock;

struct Registry {
    free: Vec<usize>,
    next_index: usize,
    next_identity: u64,
}

static REGISTRY: Lock<Registry> = Lock::new(Registry {
    free: Vec::new(),
    next_index: 0,
    next_identity: 1,
});

/// An index and an identity of its own, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) index: usize,
    pub(crate) number: u64,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let mut registry = REGISTRY.lock();
        let index = registry.free.pop().unwrap_or_else(|| {
            registry.next_index += 1;
            registry.next_index - 1
        });
        let number = registry.next_identity;
        registry.next_identity += 1;
        Self { index, number }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        REGISTRY.lock().free.push(self.index);
    }
}

/// Takes the lock before a fork.
pub(crate) fn hold() {
    REGISTRY.hold();
}

/// Gives it back.
///
/// # Safety
/// As [`Lock::release`].
pub(crate) unsafe fn release() {
    // SAFETY: passed on to the caller.
    unsafe { REGISTRY.release() };
}
