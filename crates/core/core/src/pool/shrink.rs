//! Less memory: free chunks go back, the emptiest are drained, and a pool without handles goes away.

use super::own::OwnPool;
use super::resizing::Resizing;
use crate::base::{lock, retired};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_proto::Request;

/// How often a pool looks whether it has more than it uses.
const PERIOD: Duration = Duration::from_millis(250);

impl OwnPool {
    /// Notes that the manager wants the pool to have at most this many bytes of chunks.
    pub(crate) fn set_shrink_target(&self, bytes: u64) {
        self.shrink_target.store(bytes, Ordering::Relaxed);
    }

    /// Takes note of a new quota: a pool that was to shrink may keep what the quota covers.
    pub(crate) fn lift_shrink_target(&self, quota_bytes: u64) {
        // Relaxed: read by the next turn.
        self.shrink_target.fetch_max(quota_bytes, Ordering::Relaxed);
    }

    /// Does the work that is due. Called from `turn`, never under the socket's lock; cheap when nothing is due.
    pub(crate) fn tend(&self) {
        if self.handles.load(Ordering::Acquire) == 0 {
            self.try_destroy();
            return;
        }
        self.memory.give_back_large();
        let Ok(mut resizing) = self.memory.resizing.try_lock() else {
            return;
        };
        let now = Instant::now();
        let target = self.shrink_target.load(Ordering::Relaxed);
        let pressed = self.memory.bytes_present() > target;
        if !pressed
            && resizing
                .last_look
                .is_some_and(|last| now.duration_since(last) < PERIOD)
        {
            return;
        }
        resizing.last_look = Some(now);
        // No memory goes back while no manager could grant it again.
        if !self.domain().is_managed() {
            return;
        }

        // Sent buffers count as used until they are collected, and perhaps no caller allocates any more.
        let needless = {
            let store = lock(&self.memory.store);
            store.runs.present() > 1 || store.large.len() > 0
        };
        if needless {
            let _ = self.collector.collect_garbage(&self.memory);
        }
        self.settle_large();
        if pressed {
            self.come_down_to(target);
        } else {
            self.settle(&mut resizing);
        }
        self.say_figures(&resizing.peaks);
        if self.memory.bytes_present() <= target {
            self.end_shrink();
        }
    }

    /// Gives back memory that was made for a caller that has not come for it, and large buffers that are over.
    fn settle_large(&self) {
        if self.waiters.count() == 0 {
            lock(&self.memory.store).large.forget_ready();
        }
        self.memory.give_back_large();
    }

    /// Gives back chunks that were not needed at any moment of the last periods, but never the last chunk.
    fn settle(&self, resizing: &mut Resizing) {
        resizing.looks = resizing.looks.wrapping_add(1);
        // Memory in threads' caches counts as used. The caches are emptied now and then; then only memory that is
        // allocated again counts.
        if resizing.looks.is_multiple_of(2) && self.memory.is_scattered() {
            let _ = self.collector.reclaim(&self.memory); // what is missed comes with the next turn
        } else {
            self.memory.reap();
        }
        resizing.peaks.rotate_right(1);
        resizing.peaks[0] = lock(&self.memory.store).runs.take_most_busy();
        let peak = resizing.peaks.iter().copied().max().unwrap_or(0);
        let kept = self.options().keep_bytes.div_ceil(self.chunk_bytes());
        let kept = u32::try_from(kept).unwrap_or(u32::MAX);
        self.memory.return_free_chunks(peak.max(kept).max(1));
    }

    /// Shrinks to the manager's target: free memory goes at once, the rest as it is released.
    fn come_down_to(&self, target: u64) {
        let keep = u32::try_from(target / self.chunk_bytes()).unwrap_or(u32::MAX);
        let _ = self.collector.reclaim(&self.memory); // what is missed comes with the next turn
        self.memory.return_free_chunks(keep);
        self.drain_emptiest(keep);
        self.memory.return_free_chunks(keep);
    }

    /// Stops allocating from the emptiest chunks (the paper's `inconsistent`, a private mark) and asks readers to tell
    /// this domain of releases (its `relinquish`).
    fn drain_emptiest(&self, keep: u32) {
        self.waiters.set_shrinking(&self.memory, true);
        let store = &mut *lock(&self.memory.store);
        let present = store.runs.present();
        let draining = (0..self.memory.chunks.most())
            .filter(|i| store.runs.is_draining(*i))
            .count();
        for _ in draining..usize::try_from(present - keep.min(present)).unwrap_or(0) {
            let Some(index) = store.runs.emptiest() else {
                break;
            };
            self.memory.set_draining(store, index, true);
        }
    }

    fn end_shrink(&self) {
        self.shrink_target.store(u64::MAX, Ordering::Relaxed);
        let mut store = lock(&self.memory.store);
        for index in 0..self.memory.chunks.most() {
            if store.runs.is_draining(index) {
                self.memory.set_draining(&mut store, index, false);
            }
        }
        drop(store);
        self.waiters.set_shrinking(&self.memory, false);
    }

    /// Takes the pool down once all its buffers are dead. No handle of the pool is left.
    fn try_destroy(&self) {
        let Ok(mut one) = self.memory.resizing.try_lock() else {
            return;
        };
        self.memory.stop_growing(&mut one);
        let _ = self.collector.reclaim(&self.memory); // what is missed comes with the next turn
        self.settle_large();
        self.memory.return_free_chunks(0);
        if lock(&self.memory.store).runs.present() > 0 {
            return;
        }
        self.memory
            .zones
            .iter()
            .for_each(tranship_zone::Zone::close);
        let (domain, pool) = (self.domain(), self.id());
        let _ = domain.tell(&Request::DestroyPool { pool }, &[]);
        if let Some(own) = domain.register.remove_own(pool) {
            retired::retire(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{BufferMut, Domain, PoolOptions};
    use std::ptr::NonNull;
    use std::sync::atomic::Ordering;

    const CHUNK: u64 = 64 << 10;

    #[test]
    fn a_pool_that_is_to_shrink_uses_what_stays_and_asks_for_news_until_it_has() {
        let _dog = tranship_testkit::Watchdog::new();
        let domain = Domain::embedded().expect("a domain");
        let options = PoolOptions::new(4 * CHUNK).chunk_bytes(CHUNK);
        let pool = domain.create_pool(options).expect("a pool");
        let own = pool.own_arc();
        let len = usize::try_from(CHUNK / 2).expect("small");
        let half = || pool.alloc(len).expect("room");
        let chunk = |buf: &BufferMut| own.offset_of(NonNull::from(&buf[0])) / CHUNK;
        let asks = || own.memory.slots.shared.relinquish().load(Ordering::Relaxed) != 0;
        // One half of each chunk stays in use.
        let mut held: Vec<BufferMut> = Vec::new();
        for buf in [(); 8].map(|()| half()) {
            if held.iter().all(|h| chunk(h) != chunk(&buf)) {
                held.push(buf);
            }
        }
        assert_eq!((held.len(), asks()), (4, false));
        own.set_shrink_target(2 * CHUNK);
        own.tend();
        assert!(asks());
        let more = [(); 2].map(|()| half());
        assert!(pool.try_alloc(len).is_err(), "in a chunk that is to go");
        held.retain(|h| more.iter().any(|m| chunk(m) == chunk(h)));
        assert_eq!(held.len(), 2, "one of the two has room in each");
        own.tend();
        assert_eq!((own.memory.bytes_present(), asks()), (2 * CHUNK, false));
        drop([(); 4].map(|()| half()));
    }

    /// A caller that always takes again at once what it has freed does not keep memory that is to go.
    #[test]
    fn a_pool_that_is_to_shrink_does_so_under_a_thread_that_frees_and_allocates() {
        let domain = Domain::embedded().expect("a domain");
        let options = PoolOptions::new(8 * CHUNK).chunk_bytes(CHUNK);
        let pool = domain.create_pool(options).expect("a pool");
        let own = pool.own_arc();
        let len = usize::try_from(CHUNK / 4).expect("small");
        let mut held: std::collections::VecDeque<BufferMut> =
            (0..32).map(|_| pool.alloc(len).expect("room")).collect();
        assert_eq!(own.memory.bytes_present(), 8 * CHUNK);
        own.set_shrink_target(3 * CHUNK);
        own.tend();
        for _ in 0..32 {
            drop(held.pop_front());
            held.extend(pool.try_alloc(len).ok());
        }
        own.tend();
        assert_eq!((own.memory.bytes_present(), held.len()), (3 * CHUNK, 12));
    }

    #[test]
    fn what_was_needed_in_one_of_the_last_periods_stays() {
        let domain = Domain::embedded().expect("a domain");
        let options = PoolOptions::new(4 * CHUNK).chunk_bytes(CHUNK);
        let pool = domain.create_pool(options).expect("a pool");
        let own = pool.own_arc();
        let all = usize::try_from(4 * CHUNK).expect("small");
        drop(pool.alloc(all).expect("room"));
        let mut resizing = crate::base::lock(&own.memory.resizing);
        for _ in 0..crate::pool::resizing::PERIODS {
            own.settle(&mut resizing);
            assert_eq!(own.memory.bytes_present(), 4 * CHUNK);
        }
        own.settle(&mut resizing);
        assert_eq!(own.memory.bytes_present(), CHUNK);
    }
}
