//! The pool as its manager has it: its id, its quota, its place in the control page.

use crate::domain::DomainCore;
use crate::options::PoolOptions;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_proto::{PoolId, Request, Trust};
use tranship_region::layout::LoadU64;
use tranship_sys::ForkGuard;

/// A pool's registration at the manager.
pub(super) struct Registration {
    pub(super) domain: DomainCore,
    /// A copy of the domain's fork guard, at hand.
    pub(super) fork: ForkGuard,
    pub(super) id: PoolId,
    pub(super) options: PoolOptions,
    /// The pool's maximum, whole chunks.
    pub(super) max_bytes: u64,
    /// Index in the control page.
    entry: AtomicU32,
}

/// The place in the control page of a pool that has none at the moment.
const NO_ENTRY: u32 = u32::MAX;

impl Registration {
    pub(super) fn new(
        domain: &DomainCore,
        id: PoolId,
        entry: u32,
        options: PoolOptions,
        max_bytes: u64,
    ) -> Registration {
        Registration {
            domain: domain.clone(),
            fork: domain.fork,
            id,
            options,
            max_bytes,
            entry: AtomicU32::new(entry),
        }
    }

    /// Ordering: Acquire pairs with the manager's Release, which comes before it lets a source send.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch_word()
            .map_or(u64::MAX, |e| e.load(Ordering::Acquire))
    }

    /// Returns the epoch's word in the control page. It is loaded with acquire.
    #[inline(always)]
    pub(super) fn epoch_word(&self) -> Option<LoadU64<'_>> {
        let control_page = self.domain.control_page();
        control_page.epoch(self.entry.load(Ordering::Relaxed))
    }

    /// Whether the control page has the pool. Ordering: Acquire pairs with the manager's Release, which comes before it tells a sink
    /// that it may take.
    pub(super) fn is_listed(&self) -> bool {
        let (control_page, id) = (self.domain.control_page(), u64::from(self.id.0));
        let pools = (0..).map_while(|i| control_page.pool(i));
        pools.map(|p| p.load(Ordering::Acquire)).any(|p| p == id)
    }

    pub(super) fn quota_bytes(&self) -> u64 {
        if self.fork.is_child() {
            return 0; // the control page is not mapped here
        }
        loop {
            let control_page = self.domain.control_page();
            // Ordering: Acquire pairs with `leave_page` and `enter_page`: with one and the same control page and entry before and
            // after, the quota was of that entry of that control page, or of none.
            let entry = self.entry.load(Ordering::Acquire);
            let quota = control_page.quota(entry).map(|q| q.load(Ordering::Acquire));
            if std::ptr::eq(control_page, self.domain.control_page())
                && entry == self.entry.load(Ordering::Acquire)
            {
                // Between two managers the quota is not known.
                return quota.unwrap_or(self.max_bytes).min(self.max_bytes);
            }
        }
    }

    /// Leaves the control page, which is about to change.
    pub(super) fn leave_page(&self) {
        // Ordering: before the page is another one; partner: the acquires in `quota_bytes`, which looks at the page before and after.
        self.entry.store(NO_ENTRY, Ordering::SeqCst);
    }

    /// Notes the pool's place in the present control page.
    pub(super) fn enter_page(&self, entry: u32) {
        // Ordering: after the page; partner: the acquires in `quota_bytes`.
        self.entry.store(entry, Ordering::Release);
    }

    /// Tells the manager of a returned chunk. Returns whether the manager was told.
    pub(super) fn tell_returned(&self, index: u32, serial: u32) -> bool {
        let pool = self.id;
        let gone = Request::ReturnChunk {
            pool,
            index,
            serial,
        };
        self.domain.tell(&gone, &[]).is_ok()
    }

    /// Tells the manager that so many granted chunks are not made.
    pub(super) fn ungrant(&self, chunks: u32) {
        let pool = self.id;
        let _ = self.domain.tell(&Request::Ungrant { pool, chunks }, &[]);
    }

    /// Whether it is of level `half`.
    pub(super) fn is_guarded(&self) -> bool {
        self.options.trust == Trust::Half
    }
}
