//! The manager wants memory back: what nobody has asked for for longest goes, and what is left of its pageblocks is moved together.

use super::Store;

/// Pageblocks that are emptied in one go.
const BLOCKS: usize = 64;

impl Store {
    /// Evicts no more than what is wanted back. As long as other values keep pageblocks from being empty the next call finds something to do.
    pub(super) fn come_down(&self) {
        let wanted = self.arena.excess();
        if wanted == 0 {
            return;
        }
        // Relaxed: a sum.
        let used = || self.used.load(std::sync::atomic::Ordering::Relaxed);
        let floor = used().saturating_sub(wanted);
        tracing::info!(bytes = wanted, "the manager wants memory back");
        while used() > floor && self.arena.excess() > 0 {
            if !self.evict_some(used() - floor) {
                break;
            }
        }
        if self.arena.excess() > 0 {
            self.empty_blocks(BLOCKS);
        }
    }
}
