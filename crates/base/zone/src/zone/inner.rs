//! Parts of a zone, and their locks.

use crate::backend::Backend;
use crate::cache::Cache;
use crate::config::{ZoneConfig, ZoneStats};
use crate::depot::Depot;
use crate::direct::CachePlace;
use crate::lock::{Guard, Lock};
use crate::registry::Identity;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Control word: identity above, then an epoch of 23 bits, then whether there is pressure.
pub(super) const PRESSURE: u64 = 1;
pub(super) const EPOCH: u64 = 2;
pub(super) const EPOCH_MASK: u64 = (1 << 24) - 1;

/// The words that fast paths read, in cache lines of their own, which change seldom.
#[repr(align(128))]
pub(super) struct Hot {
    /// The control word. Owners of caches whose `seen` equals it may use these without a lock. It changes with every
    /// request to all threads. They then flush, and adopt the new value (but not under pressure: then nothing is
    /// cached).
    pub(super) control: AtomicU64,
    pub(super) place: CachePlace,
}

pub(super) struct Inner<B> {
    pub(super) hot: Hot,
    pub(super) identity: Identity,
    pub(super) limit: AtomicU32,
    pub(super) max: AtomicU32,
    pub(super) keep: AtomicU32,
    pub(super) closed: AtomicBool,
    pub(super) config: ZoneConfig,
    pub(super) depot: Lock<Depot>,
    pub(super) members: Lock<Members>,
    /// The lock of a thief: one at a time, because it holds many caches' locks.
    pub(super) thief: Lock<()>,
    /// `counters.contended` when buckets were last shrunk.
    pub(super) last_contended: AtomicU64,
    pub(super) counters: Counters,
    /// Whether the zone takes part in reclamation by time.
    pub(super) managed: bool,
    pub(super) backend: B,
    pub(super) me: Weak<Self>,
}

/// Counters of slow paths, and of threads that can have no cache.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) allocs: AtomicU64,
    pub(super) frees: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) imported: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) contended: AtomicU64,
}

#[derive(Default)]
pub(super) struct Members {
    pub(super) caches: Vec<Arc<Cache>>,
    /// The counts of threads that have ended.
    pub(super) allocs: u64,
    pub(super) frees: u64,
}

impl<B: Backend> Inner<B> {
    pub(super) fn stats(&self) -> ZoneStats {
        let (depot, working_set) = {
            let depot = self.depot.lock();
            (depot.items() as u64, depot.working_set() as u64)
        };
        let counters = &self.counters;
        let members = self.members();
        // Ordering: all frees, then all allocs, with acquire: for each free counted, its alloc is counted too (partner:
        // the release of `end` in `front.rs`).
        let direct = counters.frees.load(Ordering::Acquire);
        let frees = members.frees
            + direct
            + members
                .caches
                .iter()
                .map(|cache| cache.front().frees())
                .sum::<u64>();
        let direct = counters.allocs.load(Ordering::Acquire);
        let allocs = members.allocs
            + direct
            + members
                .caches
                .iter()
                .map(|cache| cache.front().allocs())
                .sum::<u64>();
        ZoneStats {
            allocs,
            frees,
            failures: counters.failures.load(Ordering::Relaxed),
            imported: counters.imported.load(Ordering::Relaxed),
            released: counters.released.load(Ordering::Relaxed),
            depot,
            working_set,
            contended: counters.contended.load(Ordering::Relaxed),
            bucket_items: self.limit.load(Ordering::Relaxed),
            threads: u32::try_from(members.caches.len()).unwrap_or(u32::MAX),
        }
    }

    /// Gives items to the backend.
    pub(super) fn release(&self, items: &[u32]) {
        self.counters
            .released
            .fetch_add(items.len() as u64, Ordering::Relaxed);
        self.backend.release(items);
        if self.hot.control.load(Ordering::Relaxed) & PRESSURE != 0 {
            self.backend.pressure_free();
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed) as usize
    }

    /// Locks the depot. If other threads are there, buckets grow, so that threads come here less often.
    pub(super) fn depot(&self) -> Guard<'_, Depot> {
        if let Some(depot) = self.depot.try_lock() {
            return depot;
        }
        self.counters.contended.fetch_add(1, Ordering::Relaxed);
        let depot = self.depot.lock();
        let (limit, max) = (
            self.limit.load(Ordering::Relaxed),
            self.max.load(Ordering::Relaxed),
        );
        if 0 < limit && limit < max {
            self.limit.store(limit + 1, Ordering::Relaxed);
        }
        depot
    }

    pub(super) fn members(&self) -> Guard<'_, Members> {
        self.members.lock()
    }
}
