//! One's own buffers by their ids, as others name them.

use super::own::OwnPool;
use crate::cbuf::{Cbuf, Tag};
use crate::domain::lock;
use crate::error::{StaleId, Violation};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use tranship_ledger::generation;
use tranship_proto::CbufId;

impl OwnPool {
    /// A buffer of ours that another domain sends back. Under the collector's lock: while it is held, an even
    /// generation that matches cannot become odd.
    pub(crate) fn take_back(
        &self,
        id: CbufId,
        offset: u64,
        length: u64,
    ) -> Result<Cbuf, Violation> {
        let slot = id.slot();
        let slots = self.slot_count();
        let private = self
            .slots
            .get(slot as usize)
            .ok_or(Violation::Slot { slot, slots })?;
        let _gc = lock(&self.gc);
        let now = self.generation(slot);
        if now != id.generation() || !generation::is_published(now) {
            return Err(Violation::Dead { id, now });
        }
        let start = private.offset();
        let capacity = self.entry(slot).length.load(Ordering::Relaxed);
        let inside = offset
            .checked_sub(start)
            .and_then(|at| at.checked_add(length))
            .is_some_and(|end| end <= capacity);
        if !inside {
            return Err(Violation::Range {
                offset,
                length,
                max_bytes: self.max_bytes,
            });
        }
        private.hold();
        #[allow(clippy::cast_possible_truncation)]
        let len = length as usize;
        // SAFETY: the reference was just counted; the range is inside the slot's memory.
        Ok(unsafe {
            Cbuf::own(
                self.at(offset),
                len,
                NonNull::from(self),
                Tag::own(slot, private.class(), 0),
            )
        })
    }

    /// A buffer of ours by its id, whole, if it was sent and is not collected yet. Under the collector's lock, as
    /// `take_back`.
    pub(crate) fn lookup(&self, id: CbufId) -> Result<Cbuf, StaleId> {
        let slot = id.slot();
        let stale = StaleId { id, pool: self.id };
        if self.fork.is_child() || id.pool() != self.id || slot >= self.slot_count() {
            return Err(stale);
        }
        let _gc = lock(&self.gc);
        let now = self.generation(slot);
        if now != id.generation() || !generation::is_published(now) {
            return Err(stale);
        }
        let private = self.private(slot);
        let length = self.entry(slot).length.load(Ordering::Relaxed); // own word
        private.hold();
        #[allow(clippy::cast_possible_truncation)] // 64-bit only
        let len = length as usize;
        // SAFETY: the reference was just counted; an entry's length is what its slot has.
        Ok(unsafe {
            Cbuf::own(
                self.at(private.offset()),
                len,
                NonNull::from(self),
                Tag::own(slot, private.class(), 0),
            )
        })
    }
}
