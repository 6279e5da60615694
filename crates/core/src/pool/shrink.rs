//! Less memory: free chunks go back, the emptiest are drained, and a pool without handles goes away.

use super::own::OwnPool;
use super::resizing::Resizing;
use super::store::Store;
use crate::base::{lock, retired};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_proto::Request;
use tranship_sys::crash;
use tranship_zone::PAGE;

/// How often a pool looks whether it has more than it uses.
const PERIOD: Duration = Duration::from_millis(250);
impl OwnPool {
    /// The manager wants the pool to have at most this many bytes of chunks.
    pub(crate) fn set_shrink_target(&self, bytes: u64) {
        self.shrink_target.store(bytes, Ordering::Relaxed);
    }

    /// The quota is this now: who was to have less, and has more, may keep it.
    pub(crate) fn lift_shrink_target(&self, quota_bytes: u64) {
        // Relaxed: read by the next turn.
        self.shrink_target.fetch_max(quota_bytes, Ordering::Relaxed);
    }

    /// Work that is due. Called from `turn`, never under the socket's lock; cheap when nothing is due.
    pub(crate) fn tend(&self) {
        if self.handles.load(Ordering::Acquire) == 0 {
            self.try_destroy();
            return;
        }
        self.give_back_large();
        let Ok(mut resizing) = self.resizing.try_lock() else {
            return;
        };
        let now = Instant::now();
        let target = self.shrink_target.load(Ordering::Relaxed);
        let pressed = self.bytes_present() > target;
        if !pressed
            && resizing
                .last_look
                .is_some_and(|last| now.duration_since(last) < PERIOD)
        {
            return;
        }
        resizing.last_look = Some(now);
        // Nothing goes back while there is nobody to ask for it again.
        if !self.domain.is_managed() {
            return;
        }

        // Sent buffers count as used until they are collected, and nobody may be allocating any more.
        let needless = {
            let store = lock(&self.store);
            store.runs.present() > 1 || store.large.len() > 0
        };
        if needless {
            let (collected, garbage) =
                (&self.counters.collected_bytes, &self.counters.garbage_bytes);
            let before = collected.load(Ordering::Relaxed);
            let _ = self.collect_idle();
            let after = collected.load(Ordering::Relaxed);
            // Relaxed: statistics.
            garbage.store(after.saturating_sub(before), Ordering::Relaxed);
        }
        self.settle_large();
        if pressed {
            self.come_down_to(target);
        } else {
            self.settle(&mut resizing);
        }
        self.say_figures(&resizing.peaks);
        if self.bytes_present() <= target {
            self.end_shrink();
        }
    }

    /// Gives back what was not needed at any moment of the last periods, whoever looks when; but never the last chunk.
    fn settle(&self, resizing: &mut Resizing) {
        resizing.looks = resizing.looks.wrapping_add(1);
        // What threads have cached counts as used. Taken from them now and then, it is only used if it is taken again.
        if resizing.looks.is_multiple_of(2) && self.is_scattered() {
            let _ = self.reclaim(); // what is missed comes with the next turn
        } else {
            self.reap();
        }
        resizing.peaks.rotate_right(1);
        resizing.peaks[0] = lock(&self.store).runs.take_most_busy();
        let peak = resizing.peaks.iter().copied().max().unwrap_or(0);
        let kept = self.options.keep_bytes.div_ceil(self.chunk_bytes());
        let kept = u32::try_from(kept).unwrap_or(u32::MAX);
        self.return_free_chunks(peak.max(kept).max(1));
    }

    /// The manager wants memory back: what is free at once, the rest as it is released.
    fn come_down_to(&self, target: u64) {
        let keep = u32::try_from(target >> self.chunk_shift).unwrap_or(u32::MAX);
        let _ = self.reclaim(); // what is missed comes with the next turn
        self.return_free_chunks(keep);
        self.drain_emptiest(keep);
        self.return_free_chunks(keep);
    }

    pub(super) fn bytes_present(&self) -> u64 {
        u64::from(lock(&self.store).runs.present()) << self.chunk_shift
    }

    /// Whether what is in use, but for what is only cached, would fit into fewer chunks.
    fn is_scattered(&self) -> bool {
        let store = lock(&self.store);
        let all = self.zones.iter().zip(&store.kegs);
        let cached: u64 = all
            .map(|(zone, keg)| zone.stats().cached() * keg.shape().item_bytes)
            .sum();
        let used = (store.runs.total_used_pages() * PAGE).saturating_sub(cached);
        u64::from(store.runs.busy()) > used.div_ceil(self.chunk_bytes())
    }

    /// Returns wholly free chunks, highest first, while more than `keep` are there.
    pub(super) fn return_free_chunks(&self, keep: u32) {
        loop {
            let index = {
                let mut store = lock(&self.store);
                if store.runs.present() <= keep {
                    return;
                }
                let Some(index) = store.runs.free_chunks().last() else {
                    return;
                };
                store.runs.set_draining(index, false);
                if !store.runs.take_chunk(index) {
                    return;
                }
                index
            };
            let serial = self.serials[index as usize].swap(0, Ordering::AcqRel);
            // Crash: unmapped and closed before the manager hears of it, so the memory is gone whatever follows.
            // SAFETY: wholly free, and taken from the run allocator: no buffer lies in it.
            let _ = unsafe { self.window.detach(index) };
            drop(lock(&self.chunk_fds).remove(&index));
            crash::point("shrink.before_return");
            let told = self.domain.tell(
                &Request::ReturnChunk {
                    pool: self.id,
                    index,
                    serial,
                },
                &[],
            );
            // That one is gone; the others stay, for there is nobody to ask for them again.
            if told.is_err() && keep > 0 {
                return;
            }
        }
    }

    /// Stops allocating from the emptiest chunks (the paper's `inconsistent`, a private mark) and asks
    /// readers to tell us of releases (its `relinquish`).
    fn drain_emptiest(&self, keep: u32) {
        self.set_shrinking(true);
        let store = &mut *lock(&self.store);
        let present = store.runs.present();
        let draining = (0..u32::try_from(self.serials.len()).unwrap_or(u32::MAX))
            .filter(|i| store.runs.is_draining(*i))
            .count();
        for _ in draining..usize::try_from(present - keep.min(present)).unwrap_or(0) {
            let Some(index) = store.runs.emptiest() else {
                break;
            };
            self.set_draining(store, index, true);
        }
    }

    fn set_draining(&self, store: &mut Store, index: u32, drain: bool) {
        store.runs.set_draining(index, drain);
        let pages = store.runs.pages_of(index);
        for (class, keg) in store.kegs.iter_mut().enumerate() {
            let mut hooks = super::slabs::Hooks {
                pool: self,
                class,
                numbers: &mut store.numbers,
            };
            keg.set_draining(pages.clone(), drain, &mut store.runs, &mut hooks);
        }
    }

    fn end_shrink(&self) {
        self.shrink_target.store(u64::MAX, Ordering::Relaxed);
        let mut store = lock(&self.store);
        for index in 0..u32::try_from(self.serials.len()).unwrap_or(u32::MAX) {
            if store.runs.is_draining(index) {
                self.set_draining(&mut store, index, false);
            }
        }
        drop(store);
        self.set_shrinking(false);
    }

    /// Nobody has a handle of the pool: once all its buffers are dead it is taken down.
    fn try_destroy(&self) {
        let Ok(mut one) = self.resizing.try_lock() else {
            return;
        };
        self.stop_growing(&mut one);
        let _ = self.reclaim(); // what is missed comes with the next turn
        self.settle_large();
        self.return_free_chunks(0);
        if lock(&self.store).runs.present() > 0 {
            return;
        }
        self.zones.iter().for_each(tranship_zone::Zone::close);
        let _ = self
            .domain
            .tell(&Request::DestroyPool { pool: self.id }, &[]);
        if let Some(own) = self.domain.register.remove_own(self.id) {
            retired::retire(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CbufMut, Domain, PoolOptions};
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
        let chunk = |buf: &CbufMut| own.offset_of(NonNull::from(&buf[0])) / CHUNK;
        let asks = || own.table.relinquish().load(Ordering::Relaxed) != 0;
        // One half of each chunk stays in use.
        let mut held: Vec<CbufMut> = Vec::new();
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
        assert_eq!((own.bytes_present(), asks()), (2 * CHUNK, false));
        drop([(); 4].map(|()| half()));
    }

    /// Who always takes again at once what he has freed keeps nothing by it that is to go.
    #[test]
    fn a_pool_that_is_to_shrink_does_so_under_a_thread_that_frees_and_allocates() {
        let domain = Domain::embedded().expect("a domain");
        let options = PoolOptions::new(8 * CHUNK).chunk_bytes(CHUNK);
        let pool = domain.create_pool(options).expect("a pool");
        let own = pool.own_arc();
        let len = usize::try_from(CHUNK / 4).expect("small");
        let mut held: std::collections::VecDeque<CbufMut> =
            (0..32).map(|_| pool.alloc(len).expect("room")).collect();
        assert_eq!(own.bytes_present(), 8 * CHUNK);
        own.set_shrink_target(3 * CHUNK);
        own.tend();
        for _ in 0..32 {
            drop(held.pop_front());
            held.extend(pool.try_alloc(len).ok());
        }
        own.tend();
        assert_eq!((own.bytes_present(), held.len()), (3 * CHUNK, 12));
    }

    #[test]
    fn what_was_needed_in_one_of_the_last_periods_stays() {
        let domain = Domain::embedded().expect("a domain");
        let options = PoolOptions::new(4 * CHUNK).chunk_bytes(CHUNK);
        let pool = domain.create_pool(options).expect("a pool");
        let own = pool.own_arc();
        let all = usize::try_from(4 * CHUNK).expect("small");
        drop(pool.alloc(all).expect("room"));
        let mut resizing = crate::base::lock(&own.resizing);
        for _ in 0..crate::pool::resizing::PERIODS {
            own.settle(&mut resizing);
            assert_eq!(own.bytes_present(), 4 * CHUNK);
        }
        own.settle(&mut resizing);
        assert_eq!(own.bytes_present(), CHUNK);
    }
}
