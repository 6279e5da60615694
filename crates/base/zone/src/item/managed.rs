//! An item zone's part in reclamation and forks.

use super::keg::ItemKeg;
use super::object::Object;
use super::supply::Supply;
use crate::config::Level;
use crate::reaper::{Managed, Phase, Report};
use crate::zone::Inner;
use std::sync::Arc;

impl<O: Object> Managed for Inner<Supply<O>> {
    fn period(&self) -> bool {
        self.period_over()
    }

    fn is_allocator(&self) -> bool {
        self.config.allocator
    }

    fn report(&self) -> Report {
        Report {
            name: self.backend.name.to_string(),
            stats: self.backend.stats(self.stats()),
        }
    }

    fn drain(&self, level: Level) {
        self.drain_to(level);
    }

    fn keg(&self) -> &Arc<ItemKeg> {
        &self.backend.keg
    }

    fn act(&self) {
        self.backend.notifier.act();
    }

    fn hold(&self, phase: Phase) {
        match phase {
            Phase::Pressure => self.backend.pressed.hold(),
            Phase::Limit => {
                self.backend.limit.hold();
                if let Some(debug) = &self.backend.debug {
                    debug.lock().hold();
                }
            }
            phase => self.hold_zone(phase),
        }
    }

    unsafe fn release(&self, phase: Phase, child: bool) {
        // SAFETY: passed on to the caller.
        unsafe {
            match phase {
                Phase::Pressure => self.backend.pressed.release(),
                Phase::Limit => {
                    if let Some(debug) = &self.backend.debug {
                        debug.lock().release();
                    }
                    self.backend.limit.release(child);
                }
                phase => self.release_zone(phase, child),
            }
        }
    }
}
