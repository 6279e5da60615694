//! Work that zones do without a request: when a thread ends, when a period is over, around a fork.
//!
//! A program's allocator that consists of zones has to know of this work. Allocations meanwhile must not come from
//! those zones, because their locks may be held.

use std::sync::OnceLock;

type Hooks = (fn(), fn());

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Registers a pair of functions. The thread that does such work calls one before it and the other after it. A
/// process's allocator registers them once.
pub fn around_own_work(before: fn(), after: fn()) {
    let _ = HOOKS.set((before, after));
}

/// Marks such work as long as this value lives.
pub(crate) struct OwnWork(Option<fn()>);

impl OwnWork {
    pub(crate) fn begin() -> Self {
        let hooks = HOOKS.get();
        if let Some((before, _)) = hooks {
            before();
        }
        Self(hooks.map(|(_, after)| *after))
    }
}

impl Drop for OwnWork {
    fn drop(&mut self) {
        if let Some(after) = self.0 {
            after();
        }
    }
}
