//! A zone: items of one class for many threads.

mod fork;
mod inner;
mod reclaim;
mod slow;

use crate::backend::Backend;
use crate::config::{Level, ZoneConfig, ZoneStats};
use crate::direct::CachePlace;
use crate::local;
use crate::lock::Lock;
use crate::reaper::{self, Managed, Member, Phase};
use crate::registry::Identity;
use inner::{Counters, Hot, Inner, PRESSURE};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Items of one class, cached per thread.
///
/// `alloc` and `free` normally touch only the calling thread's cache: no lock, no atomic read-modify-write. When
/// `alloc` fails, items may still lie in other threads' caches: [`drain`](Self::drain) brings them to the backend.
pub struct Zone<B: Backend> {
    inner: Arc<Inner<B>>,
}

impl<B: Backend> Zone<B> {
    /// Makes a zone over `backend`.
    #[must_use]
    pub fn new(config: ZoneConfig, backend: B) -> Self {
        Self::with(config, backend, false)
    }

    fn with(config: ZoneConfig, backend: B, managed: bool) -> Self {
        reaper::survive_forks();
        let identity = Identity::new();
        let inner = Arc::new_cyclic(|me| Inner {
            hot: Hot {
                control: AtomicU64::new(identity.number << 24),
                place: CachePlace::of(identity.index),
            },
            identity,
            limit: AtomicU32::new(config.initial.min(config.max)),
            max: AtomicU32::new(config.max),
            keep: AtomicU32::new(config.depot_items),
            closed: AtomicBool::new(false),
            config,
            depot: Lock::default(),
            members: Lock::default(),
            thief: Lock::new(()),
            last_contended: AtomicU64::new(0),
            counters: Counters::default(),
            managed,
            backend,
            me: me.clone(),
        });
        Self { inner }
    }

    /// Makes a zone that takes part in reclamation by time, and survives a fork.
    #[must_use]
    pub fn managed(config: ZoneConfig, backend: B) -> Self
    where
        B: Managed,
    {
        let zone = Self::with(config, backend, true);
        let inner: Weak<Inner<B>> = Arc::downgrade(&zone.inner);
        reaper::join(inner);
        zone
    }

    /// Ends a period, for a zone for which no thread keeps time ([`ZoneConfig::allocator`]). Returns whether there may be
    /// more to do after the next period.
    pub fn period_over(&self) -> bool {
        self.inner.period_over()
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.inner.backend
    }

    /// Allocates an item. Returns `None` if neither the caches nor the backend have one, or the zone is closed.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<u32> {
        self.alloc_cached().or_else(|| self.inner.alloc_slow())
    }

    /// Does the work of `alloc` after `alloc_cached` found nothing, without counting a failure.
    #[must_use]
    pub fn obtain(&self) -> Option<u32> {
        self.inner.obtain()
    }

    /// Records that an allocation failed after all.
    pub fn count_failure(&self) {
        self.inner.counters.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts items that came from the backend, and went out, past the zone.
    pub fn count_imported(&self, items: u64) {
        let counters = &self.inner.counters;
        counters.imported.fetch_add(items, Ordering::Relaxed);
        // Ordering: as in `Front::count_alloc`.
        counters.allocs.fetch_add(items, Ordering::Release);
    }

    /// Says whether an allocator consists of the zone, see [`ZoneConfig::allocator`].
    #[must_use]
    pub fn is_allocator(&self) -> bool {
        self.inner.config.allocator
    }

    /// Says whether [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::Relaxed)
    }

    /// Allocates out of the calling thread's cache or not at all. Returns `None` under pressure and once the zone is
    /// closed. It also does if there were 127 zones before this one, whose caches `alloc` finds elsewhere.
    #[inline(always)]
    #[must_use]
    pub fn alloc_cached(&self) -> Option<u32> {
        self.alloc_cached_at(self.place())
    }

    /// Allocates like [`alloc_cached`](Self::alloc_cached), with the zone's [`place`](Self::place) at hand: finding the
    /// place takes as long as the rest. With another place the result is `None`.
    #[inline(always)]
    #[must_use]
    pub fn alloc_cached_at(&self, place: CachePlace) -> Option<u32> {
        // SAFETY: the calling thread's, or always shut.
        unsafe { (*local::front(place)).pop(&self.inner.hot.control) }
    }

    /// Returns the place at which threads find their caches of this zone. It never changes.
    #[inline(always)]
    #[must_use]
    pub fn place(&self) -> CachePlace {
        self.inner.hot.place
    }

    /// Takes an item back, on any thread.
    #[inline]
    pub fn free(&self, item: u32) {
        if !self.free_cached(item) {
            self.inner.free_slow(item);
        }
    }

    /// Frees an item into the calling thread's cache. Returns `false`, and changes nothing, if the cache has no room.
    #[inline(always)]
    #[must_use]
    pub fn free_cached(&self, item: u32) -> bool {
        self.free_cached_at(self.place(), item)
    }

    /// Frees like [`free_cached`](Self::free_cached), with the zone's [`place`](Self::place) at hand. With another
    /// place the result is `false`.
    #[inline(always)]
    #[must_use]
    pub fn free_cached_at(&self, place: CachePlace, item: u32) -> bool {
        // SAFETY: as in `alloc_cached_at`.
        unsafe { (*local::front(place)).push(&self.inner.hot.control, item) }
    }

    /// Frees several items like [`free_cached`](Self::free_cached), if one of the thread's buckets has room for all, so
    /// that they stay together. The last of them is handed out first.
    #[inline(always)]
    #[must_use]
    pub fn free_cached_all(&self, items: &[u32]) -> bool {
        let hot = &self.inner.hot;
        // SAFETY: as in `alloc_cached_at`.
        let pushed = unsafe { (*local::front(hot.place)).push_many(&hot.control, items) };
        pushed || self.inner.stash_all(items)
    }

    /// Gives cached items to the backend.
    pub fn drain(&self, level: Level) {
        self.inner.drain_to(level);
    }

    /// Sets or clears the pressure. Under pressure nothing is cached: a freed item goes to the backend, which is told
    /// (`pressure_free`). Setting it also gives cached items to the backend.
    pub fn set_pressure(&self, pressure: bool) {
        let closed = self.inner.closed.load(Ordering::Relaxed);
        self.inner.new_epoch(Some(pressure || closed));
        if pressure {
            self.inner.drain_to(Level::All);
        }
    }

    /// Says whether pressure is set.
    #[must_use]
    pub fn pressure(&self) -> bool {
        self.inner.hot.control.load(Ordering::Relaxed) & PRESSURE != 0
    }

    /// Changes the most items of a bucket, and of the depot; cached items go to the backend.
    pub fn set_capacity(&self, max: u32, depot_items: u32) {
        let inner = &*self.inner;
        inner.max.store(max, Ordering::Relaxed);
        inner.keep.store(depot_items, Ordering::Relaxed);
        inner
            .limit
            .store(inner.config.initial.min(max), Ordering::Relaxed);
        inner.new_epoch(None);
        inner.drain_to(Level::All);
    }

    /// Sets the size of buckets and of the depot, in items. Buckets change as they are next exchanged, and cached items
    /// stay.
    pub fn resize_caches(&self, bucket_items: u32, depot_items: u32) {
        let inner = &*self.inner;
        inner.max.store(bucket_items, Ordering::Relaxed);
        inner.limit.store(bucket_items, Ordering::Relaxed);
        inner.keep.store(depot_items, Ordering::Relaxed);
    }

    /// Ends allocation; freed items go to the backend. When `outstanding` is 0, nothing is lost by dropping the zone.
    pub fn close(&self) {
        self.inner.closed.store(true, Ordering::Relaxed);
        self.set_pressure(true);
    }

    /// Counts items in use that came back to the backend past the zone, because a collector found them dead, as freed
    /// and as released.
    pub fn took_back(&self, items: u64) {
        self.inner
            .counters
            .released
            .fetch_add(items, Ordering::Relaxed);
        // Ordering: as in `Front::count_free`.
        self.inner
            .counters
            .frees
            .fetch_add(items, Ordering::Release);
    }

    /// Returns the number of items in use. It is exact if no thread allocates or frees meanwhile. Otherwise it is at
    /// least the number of items that are in use during the whole call.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.stats().outstanding()
    }

    /// Returns the zone's counters.
    #[must_use]
    pub fn stats(&self) -> ZoneStats {
        self.inner.stats()
    }
}

impl<B: Managed> Member for Inner<B> {
    fn period(&self) -> bool {
        self.period_over()
    }

    fn is_allocator(&self) -> bool {
        self.config.allocator
    }

    fn drain(&self, level: Level) {
        self.drain_to(level);
    }

    fn backend(&self) -> &dyn Managed {
        &self.backend
    }

    fn hold(&self, phase: Phase) {
        self.hold_zone(phase);
        self.backend.hold_for_fork(phase);
    }

    unsafe fn release(&self, phase: Phase, child: bool) {
        // SAFETY: passed on to the caller.
        unsafe {
            self.backend.release_after_fork(phase, child);
            self.release_zone(phase, child);
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
