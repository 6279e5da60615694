//! Bringing cached items back: drains, thefts, the ends of threads, and periodic work.

use super::inner::{EPOCH, EPOCH_MASK, Inner, PRESSURE};
use crate::backend::Backend;
use crate::cache::{Cache, Claim, Home};
use crate::config::Level;
use crate::local;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Periods without an allocation or free after which a thread's cache is taken away.
const IDLE_PERIODS: u32 = 4;

impl<B: Backend> Inner<B> {
    pub(super) fn drain_to(&self, level: Level) {
        let keep = match level {
            Level::WorkingSet => self.depot().working_set(),
            _ => 0,
        };
        if level == Level::All {
            let caches = self.members().caches.clone();
            self.steal(&caches);
            self.shrink_buckets(true);
        } else if level == Level::Thread
            && let Some(cache) = local::get(self.identity.index)
            && std::ptr::addr_eq(cache.home.as_ptr(), self)
        {
            let mut items = Vec::new();
            // SAFETY: `local` holds this thread's caches.
            empty(&mut unsafe { cache.claim() }, &mut items);
            self.release_all(&items);
        }
        self.trim(keep);
    }

    /// Takes items that threads have cached. A thread whose cache cannot be taken flushes at its next call.
    fn steal(&self, caches: &[Arc<Cache>]) {
        let mut items = Vec::new();
        let one = self.thief.lock();
        let own = local::get(self.identity.index);
        let shut: Vec<_> = caches.iter().map(|cache| (cache, cache.shut())).collect();
        let fenced = self.config.barrier.is_some_and(|barrier| barrier());
        for (cache, shut) in shut {
            if fenced || own.as_ref().is_some_and(|own| Arc::ptr_eq(own, cache)) {
                // SAFETY: the barrier was passed after all were shut, or the cache is this thread's.
                if let Some(mut claim) = unsafe { shut.steal() } {
                    empty(&mut claim, &mut items);
                }
            }
        }
        drop(one);
        self.release_all(&items);
    }

    /// Gives the oldest items of the depot back, as long as it has more than `keep`.
    pub(super) fn trim(&self, keep: usize) {
        loop {
            let Some(bucket) = self.depot().take_surplus(keep) else {
                break;
            };
            self.release(bucket.items());
        }
    }

    fn release_all(&self, items: &[u32]) {
        if !items.is_empty() {
            self.release(items);
        }
    }

    /// Ends a period and returns whether there may be more to do later. Items that lay untouched in the depot for two
    /// periods go back, and so do items cached by threads that did nothing for a while. Buckets shrink if no thread was
    /// in another's way.
    pub(super) fn period_over(&self) -> bool {
        let keep = self.depot().period();
        self.trim(keep);
        self.shrink_buckets(false);
        let caches = self.members().caches.clone();
        let idle: Vec<_> = caches
            .iter()
            .filter(|cache| cache.period() == IDLE_PERIODS)
            .cloned()
            .collect();
        if !idle.is_empty() {
            self.steal(&idle);
            self.forget_orphans();
        }
        let awake = caches.iter().any(|cache| cache.is_awake(IDLE_PERIODS));
        self.backend.period() || awake || self.depot().items() > 0
    }

    /// Shrinks buckets. They grow when threads meet at the depot. They shrink by one in a period without such a
    /// meeting, and half way to their first size when everything is drained.
    fn shrink_buckets(&self, drained: bool) {
        if self.config.allocator {
            return; // the component that keeps its time also sets its sizes
        }
        let contended = self.counters.contended.load(Ordering::Relaxed);
        let before = self.last_contended.swap(contended, Ordering::Relaxed);
        let (limit, initial) = (
            self.limit.load(Ordering::Relaxed),
            self.config.initial.min(self.max.load(Ordering::Relaxed)),
        );
        if limit > initial && (drained || before == contended) {
            let by = if drained {
                (limit - initial).div_ceil(2)
            } else {
                1
            };
            self.limit.store(limit - by, Ordering::Relaxed);
        }
    }

    /// Makes every thread flush at its next call. Sets or clears the pressure, if `pressure` says so.
    pub(super) fn new_epoch(&self, pressure: Option<bool>) {
        let next = |control: u64| {
            let epoch = control.wrapping_add(EPOCH) & EPOCH_MASK & !PRESSURE;
            let pressure = pressure.map_or(control & PRESSURE, u64::from);
            Some(control & !EPOCH_MASK | epoch | pressure)
        };
        // Always succeeds: `next` is never None.
        let _ = self
            .hot
            .control
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Forgets the caches of threads that a fork left behind, once they are empty.
    fn forget_orphans(&self) {
        let mut members = self.members();
        let members = &mut *members;
        members.caches.retain(|cache| {
            let keep = !cache.is_orphan();
            if !keep {
                members.allocs += cache.front().allocs();
                members.frees += cache.front().frees();
            }
            keep
        });
    }
}

/// Takes all items of a claimed cache.
fn empty(claim: &mut Claim<'_>, items: &mut Vec<u32>) {
    let buckets = claim.buckets();
    for bucket in [buckets.top, buckets.spare] {
        items.extend_from_slice(bucket.items());
        bucket.clear();
    }
}

impl<B: Backend> Home for Inner<B> {
    fn thread_exit(&self, cache: &Cache) {
        let mut items = Vec::new();
        // SAFETY: only the cache's own thread calls this.
        empty(&mut unsafe { cache.claim() }, &mut items);
        let mut members = self.members();
        members
            .caches
            .retain(|member| !std::ptr::eq(&**member, cache));
        members.allocs += cache.front().allocs();
        members.frees += cache.front().frees();
        drop(members);
        self.release_all(&items);
    }
}
