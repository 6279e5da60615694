//! Work that zones do of their own accord: when a thread ends, when a period is over, around a fork.
//!
//! If the program's allocator is made of zones it has to know of it: what is allocated meanwhile must not come from those
//! very zones, whose locks may be held.

use std::sync::OnceLock;

type Hooks = (fn(), fn());

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Has these called, in pairs, by the thread that does such work, before and after it. Once in a process: by its allocator.
pub fn around_own_work(before: fn(), after: fn()) {
    let _ = HOOKS.set((before, after));
}

/// Such work is done as long as this lives.
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
