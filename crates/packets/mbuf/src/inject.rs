//! A test's hooks: the n-th allocation of the calling thread fails; an action runs in the middle of a release of
//! storage.
//!
//! Without the feature `inject` nothing of it is compiled, and no allocation pays for it.

#[cfg(feature = "inject")]
use std::cell::{Cell, RefCell};

#[cfg(feature = "inject")]
thread_local! {
    /// 0: no failure; n: the n-th allocation from now fails.
    static COUNTDOWN: Cell<u64> = const { Cell::new(0) };
    static ASKED: Cell<u64> = const { Cell::new(0) };
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Makes the `n`-th allocation from now on this thread fail (1: the next one), once; 0: none.
#[cfg(feature = "inject")]
pub fn fail_at(n: u64) {
    COUNTDOWN.set(n);
    ASKED.set(0);
}

/// Returns how many allocations this thread has asked for since `fail_at`.
#[cfg(feature = "inject")]
#[must_use]
pub fn asked() -> u64 {
    ASKED.get()
}

/// Says whether the allocation that is about to be made fails.
#[inline(always)]
pub(crate) fn fails() -> bool {
    #[cfg(feature = "inject")]
    {
        ASKED.set(ASKED.get() + 1);
        let left = COUNTDOWN.get();
        COUNTDOWN.set(left.saturating_sub(1));
        left == 1
    }
    #[cfg(not(feature = "inject"))]
    false
}

/// Runs `happens` the next time that this thread drops a reference to storage that it has found shared, just before the
/// drop. It stands for another thread in the same moment.
#[cfg(feature = "inject")]
pub fn meanwhile(happens: impl FnOnce() + 'static) {
    MEANWHILE.set(Some(Box::new(happens)));
}

/// Runs the test's action after storage was found shared.
#[inline(always)]
pub(crate) fn found_shared() {
    #[cfg(feature = "inject")]
    if let Some(happens) = MEANWHILE.take() {
        happens();
    }
}
