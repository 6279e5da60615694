//! The work of `alloc` and `free` when the calling thread's first bucket cannot serve them.

use super::inner::{Inner, PRESSURE};
use crate::backend::Backend;
use crate::cache::{Cache, Claim, Home};
use crate::front::OwnFront;
use crate::local;
use crate::reaper;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

impl<B: Backend> Inner<B> {
    #[cold]
    pub(super) fn alloc_slow(&self) -> Option<u32> {
        let item = self.obtain();
        if item.is_none() {
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
        }
        item
    }

    pub(super) fn obtain(&self) -> Option<u32> {
        if let Some(front) = local::far_front(self.identity.index)
            // SAFETY: the calling thread's, and there until its slow path replaces it.
            && let Some(item) = unsafe { (*front).pop(&self.hot.control) }
        {
            return Some(item);
        }
        if self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let cache = self.cache();
        let item = match &cache {
            Some(cache) => self.refill(cache),
            None => self.depot().take_one(),
        };
        let item = item.or_else(|| self.import(cache.as_deref()));
        self.arm();
        match (item, &cache) {
            (None, _) => {}
            (Some(_), Some(cache)) => cache.front().count_alloc(),
            // Ordering: as in `Front::count_alloc`.
            (Some(_), None) => _ = self.counters.allocs.fetch_add(1, Ordering::Release),
        }
        item
    }

    #[cold]
    pub(super) fn free_slow(&self, item: u32) {
        if let Some(front) = local::far_front(self.identity.index)
            // SAFETY: as in `obtain`.
            && unsafe { (*front).push(&self.hot.control, item) }
        {
            return;
        }
        // Once the item is handed over, a thread that waited for the last item may drop the zone (but not an
        // allocator's).
        let _keep = (!self.config.allocator).then(|| self.me.upgrade());
        let cache = self.cache();
        if let Some(cache) = &cache
            && let Some(surplus) = self.stash(cache, item)
        {
            if surplus {
                self.trim(self.keep.load(Ordering::Relaxed) as usize);
            }
            self.arm();
            return;
        }
        match &cache {
            Some(cache) => cache.front().count_free(),
            // Ordering: as in `Front::count_free`.
            None => _ = self.counters.frees.fetch_add(1, Ordering::Release),
        }
        self.release(&[item]);
    }

    fn arm(&self) {
        if self.managed && !self.config.allocator {
            reaper::arm();
        }
    }

    /// Takes an item out of this thread's buckets or the depot.
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
                std::mem::swap(buckets.top, buckets.spare);
                item = buckets.top.pop();
            }
            if item.is_none() {
                let mut depot = self.depot();
                if let Some(mut full) = depot.take_full() {
                    // A bucket of the size before the buckets grew: its items are taken, and it goes back empty.
                    if full.capacity() < buckets.top.capacity() {
                        buckets.top.take_all(&mut full);
                    } else {
                        std::mem::swap(buckets.top, &mut full);
                    }
                    depot.put(full);
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

    /// Puts an item into this thread's buckets, and counts it; `None` if nothing may be cached. Returns whether the
    /// depot got more than it keeps.
    fn stash(&self, cache: &Cache, item: u32) -> Option<bool> {
        let mut spill = Vec::new();
        let mut surplus = false;
        // SAFETY: `self.cache` returned a cache of this thread.
        let mut claim = unsafe { cache.claim() };
        let caching = self.settle(&mut claim, &mut spill);
        if caching {
            let buckets = claim.buckets();
            if !buckets.top.push(item) {
                std::mem::swap(buckets.top, buckets.spare);
                if !buckets.top.push(item) {
                    let mut depot = self.depot();
                    let mut full = depot.take_empty(self.limit());
                    std::mem::swap(buckets.top, &mut full);
                    if full.capacity() < buckets.top.capacity() {
                        // They have grown since.
                        buckets.top.take_all(&mut full);
                    }
                    depot.put(full);
                    surplus = depot.items() > self.keep.load(Ordering::Relaxed) as usize;
                    drop(depot);
                    if !buckets.top.push(item) {
                        // A new capacity of 0 came since this thread looked.
                        spill.push(item);
                    }
                }
            }
            cache.front().count_free();
        }
        drop(claim);
        if !spill.is_empty() {
            self.release(&spill);
        }
        caching.then_some(surplus)
    }

    /// Puts several items into this thread's empty spare bucket, which is the first bucket from then on. Returns false,
    /// and does nothing, if the spare is not empty, or has no room for all.
    #[cold]
    pub(super) fn stash_all(&self, items: &[u32]) -> bool {
        let Some(cache) = self.cache() else {
            return false;
        };
        let mut spill = Vec::new();
        // SAFETY: `self.cache` returned a cache of this thread.
        let mut claim = unsafe { cache.claim() };
        let caching = self.settle(&mut claim, &mut spill);
        let buckets = claim.buckets();
        let is_stashed = caching && buckets.spare.is_empty() && buckets.spare.push_all(items);
        if is_stashed {
            std::mem::swap(buckets.top, buckets.spare);
            cache.front().count_frees(items.len());
        }
        drop(claim);
        if !spill.is_empty() {
            self.release(&spill);
        }
        is_stashed
    }

    /// Flushes into `spill` if all threads were asked to flush since this one last looked, and takes over the new
    /// control word. Returns whether items may be cached.
    fn settle(&self, claim: &mut Claim<'_>, spill: &mut Vec<u32>) -> bool {
        let control = self.hot.control.load(Ordering::Relaxed);
        if claim.seen() == control {
            return true;
        }
        let limit = self.limit();
        let caching = control & PRESSURE == 0 && limit > 0;
        let buckets = claim.buckets();
        for bucket in [buckets.top, buckets.spare] {
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

    /// Asks the backend for a bucket of items; keeps all but one.
    fn import(&self, cache: Option<&Cache>) -> Option<u32> {
        let pressure = self.hot.control.load(Ordering::Relaxed) & PRESSURE != 0;
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

    /// Returns this thread's cache, and makes it if there is none; `None` if the thread is ending, or is giving memory
    /// back.
    fn cache(&self) -> Option<Arc<Cache>> {
        let index = self.identity.index;
        let mine = |cache: &Arc<Cache>| std::ptr::addr_eq(cache.home.as_ptr(), self);
        if let Some(cache) = local::get(index).filter(mine) {
            return Some(cache);
        }
        if local::Reclaiming::is_on() {
            return None;
        }
        let front = match self.config.shut_in_child {
            false => OwnFront::new(),
            true => OwnFront::wiped()?,
        };
        let home: Weak<dyn Home> = self.me.clone();
        let cache = Arc::new(Cache::new(front, home));
        if !local::set(index, cache.clone()) {
            return None;
        }
        self.members().caches.push(cache.clone());
        Some(cache)
    }
}
