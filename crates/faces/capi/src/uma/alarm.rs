//! Functions of a zone that may be set at any time: warning and action at its limit, and the end of its pages.

use super::types::{M_NOWAIT, UmaFree, UmaMaxaction, Zone};
use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Wanted {
    zone: *mut Zone,
    text: Option<String>,
    action: UmaMaxaction,
    free: UmaFree,
}

// SAFETY: the pointer is only handed to the program.
unsafe impl Send for Wanted {}

#[derive(Debug)]
pub(super) struct Callbacks(Mutex<Wanted>);

impl Default for Callbacks {
    fn default() -> Callbacks {
        Callbacks(Mutex::new(Wanted {
            zone: null_mut(),
            text: None,
            action: None,
            free: None,
        }))
    }
}

impl Callbacks {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// NULL: of none any more.
    pub(super) fn is_of(&self, zone: *mut Zone) {
        self.wanted().zone = zone;
    }

    pub(super) fn zone(&self) -> *mut Zone {
        self.wanted().zone
    }

    pub(super) fn free_pages_by(&self, free: UmaFree) {
        self.wanted().free = free;
    }

    pub(super) fn free(&self) -> UmaFree {
        self.wanted().free
    }

    pub(super) fn say(&self, text: Option<String>) {
        self.wanted().text = text;
    }

    pub(super) fn call(&self, action: UmaMaxaction) {
        self.wanted().action = action;
    }

    pub(super) fn warn(&self, name: &str) {
        let text = self.wanted().text.clone();
        if let Some(text) = text {
            let _ = writeln!(std::io::stderr(), "[zone: {name}] {text}");
        }
    }

    pub(super) fn act(&self) {
        let wanted = self.wanted();
        let (zone, action) = (wanted.zone, wanted.action);
        // The program's function may call in.
        drop(wanted);
        if let Some(action) = action
            && !zone.is_null()
        {
            // SAFETY: the program's function, called as it was promised.
            unsafe { action(zone, M_NOWAIT) };
        }
    }
}
