//! A zone: items of one class for many threads.

use crate::cache::{Cache, Claim, Home};
use crate::config::{Level, ZoneConfig, ZoneStats};
use crate::depot::Depot;
use crate::local;
use crate::registry::Identity;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// Where a zone's items come from and go to.
///
/// Called by any thread, with no lock of the zone held; may call the zone.
pub trait Backend: Send + Sync + 'static {
    /// Appends items to `out`: about `want`, fewer or none if there are not so many.
    fn import(&self, out: &mut Vec<u32>, want: usize);
    /// Takes items back.
    fn release(&self, items: &[u32]);
    /// Under pressure, after items were released: somebody who waits may be served.
    fn pressure_free(&self) {}
}

/// Items of one class, cached per thread.
///
/// `alloc` and `free` normally touch only the calling thread's cache: no lock, no atomic read-modify-write. When `alloc`
/// fails, items may still lie in other threads' caches: [`drain`](Self::drain) brings them to the backend.
pub struct Zone<B: Backend> {
    inner: Arc<Inner<B>>,
}

/// Control word: identity above, then an epoch of 23 bits, then whether there is pressure.
const PRESSURE: u64 = 1;
const EPOCH: u64 = 2;
const EPOCH_MASK: u64 = (1 << 24) - 1;

struct Inner<B> {
    /// Caches whose `seen` equals this may be used by their owners without a lock. Changes with every request to all
    /// threads; they then flush, and adopt the new value (not under pressure: then nothing is cached).
    control: AtomicU64,
    identity: Identity,
    limit: AtomicU32,
    max: AtomicU32,
    keep: AtomicU32,
    closed: AtomicBool,
    config: ZoneConfig,
    depot: Mutex<Depot>,
    members: Mutex<Members>,
    /// One thief at a time, as it holds many caches' locks.
    thief: Mutex<()>,
    counters: Counters,
    backend: B,
    me: Weak<Self>,
}

/// Counters of slow paths, and of threads that can have no cache.
#[derive(Debug, Default)]
struct Counters {
    allocs: AtomicU64,
    frees: AtomicU64,
    failures: AtomicU64,
    imported: AtomicU64,
    released: AtomicU64,
    contended: AtomicU64,
}

#[derive(Default)]
struct Members {
    caches: Vec<Arc<Cache>>,
    /// Of the threads that have ended.
    allocs: u64,
    frees: u64,
}

impl<B: Backend> Zone<B> {
    /// A zone over `backend`.
    #[must_use]
    pub fn new(config: ZoneConfig, backend: B) -> Self {
        let identity = Identity::new();
        let inner = Arc::new_cyclic(|me| Inner {
            control: AtomicU64::new(identity.number << 24),
            identity,
            limit: AtomicU32::new(config.initial.min(config.max)),
            max: AtomicU32::new(config.max),
            keep: AtomicU32::new(config.depot_items),
            closed: AtomicBool::new(false),
            config,
            depot: Mutex::default(),
            members: Mutex::default(),
            thief: Mutex::new(()),
            counters: Counters::default(),
            backend,
            me: me.clone(),
        });
        Self { inner }
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.inner.backend
    }

    /// An item; `None` if neither the caches nor the backend have one, or the zone is closed.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<u32> {
        self.alloc_cached().or_else(|| self.inner.alloc_slow())
    }

    /// What `alloc` does when `alloc_cached` found nothing, without counting a failure.
    pub(crate) fn obtain(&self) -> Option<u32> {
        self.inner.obtain()
    }

    /// An allocation failed after all.
    pub(crate) fn count_failure(&self) {
        self.inner.counters.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Items came from the backend, and went out, past the zone.
    pub(crate) fn count_imported(&self, items: u64) {
        let counters = &self.inner.counters;
        counters.imported.fetch_add(items, Ordering::Relaxed);
        // Ordering: as in `Cache::count_alloc`.
        counters.allocs.fetch_add(items, Ordering::Release);
    }

    /// Whether [`close`](Self::close) was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::Relaxed)
    }

    /// As [`alloc`](Self::alloc), out of the calling thread's cache or not at all; always `None` under pressure and once
    /// the zone is closed.
    #[inline]
    #[must_use]
    pub fn alloc_cached(&self) -> Option<u32> {
        let inner = &*self.inner;
        // SAFETY: `with` passes a cache of the calling thread.
        local::with(inner.identity.index, |cache| unsafe {
            cache?.pop(&inner.control)
        })
    }

    /// Takes an item back, on any thread.
    #[inline]
    pub fn free(&self, item: u32) {
        if !self.free_cached(item) {
            self.inner.free_slow(item);
        }
    }

    /// As [`free`](Self::free), into the calling thread's cache; `false` if it has no room: nothing has changed then.
    #[inline]
    #[must_use]
    pub fn free_cached(&self, item: u32) -> bool {
        let inner = &*self.inner;
        local::with(inner.identity.index, |cache| {
            // SAFETY: `with` passes a cache of the calling thread.
            cache.is_some_and(|cache| unsafe { cache.push(&inner.control, item) })
        })
    }

    /// Gives what is cached to the backend.
    pub fn drain(&self, level: Level) {
        self.inner.drain(level);
    }

    /// While set, nothing is cached: a freed item goes to the backend, which is told (`pressure_free`). Setting it
    /// also brings to the backend what is cached now.
    pub fn set_pressure(&self, pressure: bool) {
        let closed = self.inner.closed.load(Ordering::Relaxed);
        self.inner.new_epoch(Some(pressure || closed));
        if pressure {
            self.inner.drain(Level::All);
        }
    }

    /// Whether pressure is set.
    #[must_use]
    pub fn pressure(&self) -> bool {
        self.inner.control.load(Ordering::Relaxed) & PRESSURE != 0
    }

    /// Changes the most items of a bucket, and of the depot; what is cached goes to the backend.
    pub fn set_capacity(&self, max: u32, depot_items: u32) {
        let inner = &*self.inner;
        inner.max.store(max, Ordering::Relaxed);
        inner.keep.store(depot_items, Ordering::Relaxed);
        inner
            .limit
            .store(inner.config.initial.min(max), Ordering::Relaxed);
        inner.new_epoch(None);
        inner.drain(Level::All);
    }

    /// No more allocations; what is freed goes to the backend. When `outstanding` is 0, nothing is lost by dropping it.
    pub fn close(&self) {
        self.inner.closed.store(true, Ordering::Relaxed);
        self.set_pressure(true);
    }

    /// Items that were out have come back to the backend past the zone (a collector found them dead): they count as
    /// freed and as released.
    pub fn took_back(&self, items: u64) {
        self.inner
            .counters
            .released
            .fetch_add(items, Ordering::Relaxed);
        // Ordering: as in `Cache::count_free`.
        self.inner
            .counters
            .frees
            .fetch_add(items, Ordering::Release);
    }

    /// Items that are out: exact when nobody allocates or frees meanwhile, never less than were out all the time.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.stats().outstanding()
    }

    /// What the zone has done.
    #[must_use]
    pub fn stats(&self) -> ZoneStats {
        self.inner.stats()
    }
}

impl<B: Backend> Inner<B> {
    #[cold]
    fn alloc_slow(&self) -> Option<u32> {
        let item = self.obtain();
        if item.is_none() {
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
        }
        item
    }

    fn obtain(&self) -> Option<u32> {
        if self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let cache = self.cache();
        let item = match &cache {
            Some(cache) => self.refill(cache),
            None => self.depot().take_one(),
        };
        let item = item.or_else(|| self.import(cache.as_deref()));
        match (item, &cache) {
            (None, _) => {}
            (Some(_), Some(cache)) => cache.count_alloc(),
            // Ordering: as in `Cache::count_alloc`.
            (Some(_), None) => _ = self.counters.allocs.fetch_add(1, Ordering::Release),
        }
        item
    }

    #[cold]
    fn free_slow(&self, item: u32) {
        // Once the item is handed over, whoever waited for the last one may drop the zone.
        let _keep = self.me.upgrade();
        let cache = self.cache();
        if cache.as_ref().is_some_and(|cache| self.stash(cache, item)) {
            self.trim();
            return;
        }
        match &cache {
            Some(cache) => cache.count_free(),
            // Ordering: as in `Cache::count_free`.
            None => _ = self.counters.frees.fetch_add(1, Ordering::Release),
        }
        self.release(&[item]);
    }

    /// An item out of this thread's buckets or the depot.
    fn refill(&self, cache: &Cache) -> Option<u32> {
        let mut spill = Vec::new();
        // SAFETY: `self.cache` returned a cache of this thread.
        let mut claim = unsafe { cache.claim() };
        let caching = self.settle(&mut claim, &mut spill);
        let mut item = None;
        if caching {
            let buckets = claim.buckets();
            item = buckets.top.pop();
            if item.is_none() {
                std::mem::swap(&mut buckets.top, &mut buckets.spare);
                item = buckets.top.pop();
            }
            if item.is_none() {
                let mut depot = self.depot();
                if let Some(full) = depot.take_full() {
                    depot.put(std::mem::replace(&mut buckets.top, full));
                    item = buckets.top.pop();
                }
            }
        }
        drop(claim);
        if !spill.is_empty() {
            self.release(&spill);
        }
        item.or_else(|| {
            if caching {
                None
            } else {
                self.depot().take_one()
            }
        })
    }

    /// Puts an item into this thread's buckets; `false` if nothing may be cached. Counts it.
    fn stash(&self, cache: &Cache, item: u32) -> bool {
        let mut spill = Vec::new();
        // SAFETY: `self.cache` returned a cache of this thread.
        let mut claim = unsafe { cache.claim() };
        let caching = self.settle(&mut claim, &mut spill);
        if caching {
            let buckets = claim.buckets();
            if !buckets.top.push(item) {
                std::mem::swap(&mut buckets.top, &mut buckets.spare);
                if !buckets.top.push(item) {
                    let mut depot = self.depot();
                    let empty = depot.take_empty(self.limit());
                    depot.put(std::mem::replace(&mut buckets.top, empty));
                    drop(depot);
                    let pushed = buckets.top.push(item);
                    debug_assert!(pushed, "the limit is not 0 while caching");
                }
            }
            cache.count_free();
        }
        drop(claim);
        if !spill.is_empty() {
            self.release(&spill);
        }
        caching
    }

    /// If all threads were asked to flush since this one last looked: does so, into `spill`, and adopts what was asked.
    /// Returns whether items may be cached.
    fn settle(&self, claim: &mut Claim<'_>, spill: &mut Vec<u32>) -> bool {
        let control = self.control.load(Ordering::Relaxed);
        if claim.seen() == control {
            return true;
        }
        let limit = self.limit();
        let caching = control & PRESSURE == 0 && limit > 0;
        let buckets = claim.buckets();
        for bucket in [&mut buckets.top, &mut buckets.spare] {
            spill.extend_from_slice(bucket.items());
            if caching && bucket.capacity() == limit {
                bucket.clear();
            } else {
                *bucket = if caching {
                    crate::bucket::Bucket::new(limit)
                } else {
                    crate::bucket::Bucket::default()
                };
            }
        }
        claim.set_seen(if caching { control } else { 0 });
        caching
    }

    /// Asks the backend for a bucket's worth; keeps all but one.
    fn import(&self, cache: Option<&Cache>) -> Option<u32> {
        let pressure = self.control.load(Ordering::Relaxed) & PRESSURE != 0;
        let want = if pressure || cache.is_none() {
            1
        } else {
            self.limit().max(1)
        };
        let mut items = Vec::with_capacity(want);
        self.backend.import(&mut items, want);
        self.counters
            .imported
            .fetch_add(items.len() as u64, Ordering::Relaxed);
        let item = items.pop()?;
        if let Some(cache) = cache.filter(|_| !items.is_empty()) {
            let mut spill = Vec::new();
            // SAFETY: `self.cache` returned a cache of this thread.
            let mut claim = unsafe { cache.claim() };
            if self.settle(&mut claim, &mut spill) {
                while let Some(&next) = items.last()
                    && claim.buckets().top.push(next)
                {
                    items.pop();
                }
            }
            drop(claim);
            items.append(&mut spill);
        }
        if !items.is_empty() {
            self.release(&items);
        }
        Some(item)
    }

    /// This thread's cache, made if there is none; `None` if the thread is ending.
    fn cache(&self) -> Option<Arc<Cache>> {
        let index = self.identity.index;
        let mine = |cache: &Arc<Cache>| std::ptr::addr_eq(cache.home.as_ptr(), self);
        if let Some(cache) = local::get(index).filter(mine) {
            return Some(cache);
        }
        let home: Weak<dyn Home> = self.me.clone();
        let cache = Arc::new(Cache::new(home));
        if !local::set(index, cache.clone()) {
            return None;
        }
        self.members().caches.push(cache.clone());
        Some(cache)
    }

    fn drain(&self, level: Level) {
        let mut items = Vec::new();
        if level == Level::All {
            self.steal(&mut items);
        } else if level == Level::Thread
            && let Some(cache) = local::get(self.identity.index)
            && std::ptr::addr_eq(cache.home.as_ptr(), self)
        {
            // SAFETY: `local` holds this thread's caches.
            empty(&mut unsafe { cache.claim() }, &mut items);
        }
        self.depot().trim(0, &mut items);
        if !items.is_empty() {
            self.release(&items);
        }
    }

    /// Takes what all threads have cached; who cannot be robbed flushes at its next call.
    fn steal(&self, items: &mut Vec<u32>) {
        let _one = self.thief.lock().unwrap_or_else(PoisonError::into_inner);
        let caches = self.members().caches.clone();
        let own = local::get(self.identity.index);
        let shut: Vec<_> = caches.iter().map(|cache| (cache, cache.shut())).collect();
        let fenced = self.config.barrier.is_some_and(|barrier| barrier());
        for (cache, shut) in shut {
            if fenced || own.as_ref().is_some_and(|own| Arc::ptr_eq(own, cache)) {
                // SAFETY: the barrier was passed after all were shut, or the cache is this thread's.
                if let Some(mut claim) = unsafe { shut.steal() } {
                    empty(&mut claim, items);
                }
            }
        }
    }

    /// Gives the oldest items of the depot back if it has too many.
    fn trim(&self) {
        let keep = self.keep.load(Ordering::Relaxed) as usize;
        let mut depot = self.depot();
        if depot.items() <= keep {
            return;
        }
        let mut items = Vec::new();
        depot.trim(keep, &mut items);
        drop(depot);
        self.release(&items);
    }

    /// Items go to the backend.
    fn release(&self, items: &[u32]) {
        self.counters
            .released
            .fetch_add(items.len() as u64, Ordering::Relaxed);
        self.backend.release(items);
        if self.control.load(Ordering::Relaxed) & PRESSURE != 0 {
            self.backend.pressure_free();
        }
    }

    /// Every thread flushes at its next call. Sets or clears the pressure, if `pressure` says so.
    fn new_epoch(&self, pressure: Option<bool>) {
        let next = |control: u64| {
            let epoch = control.wrapping_add(EPOCH) & EPOCH_MASK & !PRESSURE;
            let pressure = pressure.map_or(control & PRESSURE, u64::from);
            Some(control & !EPOCH_MASK | epoch | pressure)
        };
        // Always succeeds: `next` is never None.
        let _ = self
            .control
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed) as usize
    }

    /// Locks the depot; if others are there, buckets grow, so that threads come here less often.
    fn depot(&self) -> MutexGuard<'_, Depot> {
        match self.depot.try_lock() {
            Ok(depot) => return depot,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        self.counters.contended.fetch_add(1, Ordering::Relaxed);
        let depot = self.depot.lock().unwrap_or_else(PoisonError::into_inner);
        let (limit, max) = (
            self.limit.load(Ordering::Relaxed),
            self.max.load(Ordering::Relaxed),
        );
        if 0 < limit && limit < max {
            self.limit.store(limit + 1, Ordering::Relaxed);
        }
        depot
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> ZoneStats {
        let (depot, counters) = (self.depot().items() as u64, &self.counters);
        let members = self.members();
        // Ordering: all frees, then all allocs, with acquire: whoever's free is counted, so is its alloc.
        let direct = counters.frees.load(Ordering::Acquire);
        let frees = members.frees
            + direct
            + members
                .caches
                .iter()
                .map(|cache| cache.frees())
                .sum::<u64>();
        let direct = counters.allocs.load(Ordering::Acquire);
        let allocs = members.allocs
            + direct
            + members
                .caches
                .iter()
                .map(|cache| cache.allocs())
                .sum::<u64>();
        ZoneStats {
            allocs,
            frees,
            failures: counters.failures.load(Ordering::Relaxed),
            imported: counters.imported.load(Ordering::Relaxed),
            released: counters.released.load(Ordering::Relaxed),
            depot,
            contended: counters.contended.load(Ordering::Relaxed),
            bucket_items: self.limit.load(Ordering::Relaxed),
            threads: u32::try_from(members.caches.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Takes all items of a claimed cache.
fn empty(claim: &mut Claim<'_>, items: &mut Vec<u32>) {
    let buckets = claim.buckets();
    for bucket in [&mut buckets.top, &mut buckets.spare] {
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
        members.allocs += cache.allocs();
        members.frees += cache.frees();
        drop(members);
        if !items.is_empty() {
            self.release(&items);
        }
    }
}

impl<B: Backend> std::fmt::Debug for Zone<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zone")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
