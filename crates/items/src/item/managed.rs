//! An item zone's part in reclamation and forks.

use super::object::Object;
use super::supply::Supply;
use std::sync::Arc;
use tranship_zone::PAGE;
use tranship_zone::reaper::{Managed, Phase, Shared};

impl<O: Object> Managed for Supply<O> {
    fn act(&self) {
        self.notifier.act();
    }

    fn purge(&self) -> u64 {
        self.keg.reap();
        self.keg.arena().purge() * PAGE
    }

    fn shared(&self) -> [Arc<dyn Shared>; 2] {
        [self.keg.clone(), self.keg.arena().clone()]
    }

    fn hold_for_fork(&self, phase: Phase) {
        match phase {
            Phase::Pressure => self.pressed.hold(),
            Phase::Limit => {
                self.limit.hold();
                if let Some(debug) = &self.debug {
                    debug.lock().hold();
                }
            }
            Phase::Thief | Phase::Caches | Phase::Depot => {}
        }
    }

    unsafe fn release_after_fork(&self, phase: Phase, child: bool) {
        // SAFETY: passed on to the caller.
        unsafe {
            match phase {
                Phase::Pressure => self.pressed.release(),
                Phase::Limit => {
                    if let Some(debug) = &self.debug {
                        debug.lock().release();
                    }
                    self.limit.release(child);
                }
                Phase::Thief | Phase::Caches | Phase::Depot => {}
            }
        }
    }
}
