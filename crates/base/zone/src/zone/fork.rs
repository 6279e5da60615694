//! A zone's locks over a fork.

use super::inner::Inner;
use crate::backend::Backend;
use crate::local;
use crate::reaper::Phase;

impl<B: Backend> Inner<B> {
    /// Takes the locks of a phase.
    pub(super) fn hold_zone(&self, phase: Phase) {
        match phase {
            Phase::Thief => self.thief.hold(),
            Phase::Caches => {
                let members = self.members.lock();
                members.caches.iter().for_each(|cache| cache.hold());
                std::mem::forget(members);
            }
            Phase::Depot => self.depot.hold(),
            Phase::Pressure | Phase::Limit => {}
        }
    }

    /// Releases a zone's locks. In the child, the other threads' caches have no owner.
    ///
    /// # Safety
    /// This thread, or the one it was forked from, called `hold_zone` with this phase.
    pub(super) unsafe fn release_zone(&self, phase: Phase, child: bool) {
        // SAFETY: the caller holds these locks.
        unsafe {
            match phase {
                Phase::Thief => self.thief.release(),
                Phase::Caches => {
                    let own = local::peek(self.identity.index);
                    for cache in &self.members.held().caches {
                        if child && !std::ptr::eq(cache.front(), own) {
                            cache.set_orphan();
                        }
                        cache.release();
                    }
                    self.members.release();
                }
                Phase::Depot => self.depot.release(),
                Phase::Pressure | Phase::Limit => {}
            }
        }
    }
}
