//! Warning and action of a zone at its limit. Both may be set at any time.

use super::types::{M_NOWAIT, UmaMaxaction, Zone};
use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Wanted {
    zone: *mut Zone,
    text: Option<String>,
    action: UmaMaxaction,
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
