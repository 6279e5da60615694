//! Figures that the manager is told of a pool, by which a policy divides memory. Each part says its own, from slow
//! paths only: an allocation from a cache touches none of them.

use super::gc::Collector;
use super::memory::Memory;
use super::resizing::PERIODS;
use crate::base::lock;
use std::sync::atomic::Ordering;
use tranship_region::layout::table::Figures;

/// Buffers of all sizes.
pub(super) struct Counts {
    pub(super) allocs: u64,
    pub(super) frees: u64,
    pub(super) cached: u64,
}

impl Memory {
    /// Returns the counts of buffers: handed out so far, come back so far, and in this process's caches.
    pub(super) fn counts(&self) -> Counts {
        let (mut allocs, mut frees, mut cached) = (0, 0, 0);
        for zone in self.zones.iter().map(|zone| zone.stats()) {
            allocs += zone.allocs;
            frees += zone.frees;
            cached += zone.cached();
        }
        let store = lock(&self.store);
        Counts {
            allocs: allocs + store.huge_allocs,
            frees: frees + store.huge_allocs - store.huge_live(),
            cached,
        }
    }

    /// Reports the memory in use.
    pub(super) fn say_use(&self, words: &Figures) {
        let busy = self.chunks.bytes_of(lock(&self.store).runs.busy());
        // Ordering: Relaxed, here and below; statistics, each for itself.
        words.live_bytes.store(busy, Ordering::Relaxed);
        words.peak_bytes.fetch_max(busy, Ordering::Relaxed);
    }

    /// Reports the most chunks that were in use in each of the last periods (`peaks`), and the memory at hand. That is
    /// cached memory, and for each class the dead buffers that no caller has asked for (`ready`).
    pub(super) fn say(&self, words: &Figures, peaks: &[u32; PERIODS], ready: &[u64]) {
        let peak = self.chunks.bytes_of(peaks[0]);
        words.peak_bytes.store(peak, Ordering::Relaxed);
        self.say_use(words);
        let of = self.counts();
        let store = lock(&self.store);
        let cached = self.zones.iter().zip(&store.kegs).zip(ready);
        let cached_bytes = cached
            .map(|((zone, keg), ready)| (zone.stats().cached() + ready) * keg.shape().item_bytes);
        let cached_bytes = cached_bytes.sum();
        drop(store);
        words.allocs.store(of.allocs, Ordering::Relaxed);
        words.cached.store(of.cached, Ordering::Relaxed);
        words.cached_bytes.store(cached_bytes, Ordering::Relaxed);
        let padding = self.slots.padding_bytes();
        words.padding_bytes.store(padding, Ordering::Relaxed);
        let live = of.allocs.saturating_sub(of.frees);
        words.live_buffers.store(live, Ordering::Relaxed);
    }
}

impl Collector {
    /// Returns the number of dead buffers that no caller has asked for yet, by class.
    pub(super) fn ready(&self) -> Vec<u64> {
        lock(&self.gc).ready()
    }

    /// Reports the time and the number of collections, and the garbage that the last look found.
    pub(super) fn say(&self, words: &Figures) {
        let collecting = self.counters.collect_ns.load(Ordering::Relaxed);
        words.collect_ns.store(collecting, Ordering::Relaxed);
        let collections = self.counters.collections.load(Ordering::Relaxed);
        words.collections.store(collections, Ordering::Relaxed);
        let garbage = self.counters.garbage_bytes.load(Ordering::Relaxed);
        words.garbage_bytes.store(garbage, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Domain, PoolOptions, Trust};
    use std::sync::atomic::{AtomicU64, Ordering};

    const CHUNK: u64 = 64 << 10;

    #[test]
    fn who_waits_and_what_is_in_use_is_said() {
        let _dog = tranship_testkit::Watchdog::new();
        let domain = Domain::embedded().expect("a domain");
        let options = PoolOptions::new(2 * CHUNK).chunk_bytes(CHUNK);
        let pool = domain.create_pool(options).expect("a pool");
        let own = pool.own_arc();
        let words = own.memory.slots.shared.figures();
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let chunk = usize::try_from(CHUNK).expect("small");
        let held = [(); 2].map(|()| pool.alloc(chunk).expect("room"));
        assert_eq!(
            (of(&words.live_bytes), of(&words.peak_bytes)),
            (2 * CHUNK, 2 * CHUNK)
        );
        std::thread::scope(|s| {
            let waits = [(); 2].map(|()| s.spawn(|| drop(pool.alloc(chunk).expect("room"))));
            // Callers that still wait count, too.
            while of(&words.waiters) < 2 || of(&words.blocked_ns) == 0 {
                std::thread::yield_now();
            }
            drop(held);
            for w in waits {
                w.join().expect("no panic");
            }
        });
        assert_eq!(of(&words.waiters), 0);
        own.say_figures(&[1, 2, 2, 2]);
        assert_eq!((of(&words.allocs), of(&words.live_buffers)), (4, 0));
        assert!(of(&words.peak_bytes) >= CHUNK);
    }

    #[test]
    fn at_level_half_bytes_of_pages_beyond_what_was_asked_for_are_counted() {
        let _dog = tranship_testkit::Watchdog::new();
        let domain = Domain::embedded().expect("a domain");
        let pool = |trust| {
            let options = PoolOptions::new(16 * CHUNK).chunk_bytes(CHUNK);
            let pool = domain.create_pool(options.trust(trust));
            pool.expect("a pool")
        };
        let half = pool(Trust::Half);
        let own = half.own_arc();
        let padding = || own.memory.slots.padding_bytes();
        let one = half.alloc(5000).expect("room");
        assert_eq!(padding(), 8192 - 5000);
        let two = half.alloc(1).expect("room");
        assert_eq!(padding(), 8192 - 5000 + 4095);
        // A free buffer counts as it was last.
        drop(one);
        let one = half.alloc(8000).expect("room");
        assert_eq!(padding(), 8192 - 8000 + 4095);
        let chunk = usize::try_from(CHUNK).expect("small");
        let long = half.alloc(chunk + 10).expect("room");
        assert_eq!(padding(), 8192 - 8000 + 4095 + 4086);
        own.say_figures(&Default::default());
        let said = own
            .memory
            .slots
            .shared
            .figures()
            .padding_bytes
            .load(Ordering::Relaxed);
        assert_eq!(said, padding());
        drop((one, two, long));
        let _ = own.collector.reclaim(&own.memory);
        assert_eq!(padding(), 0);

        let shared = pool(Trust::Producer);
        let own = shared.own_arc();
        let _one = shared.alloc(5000).expect("room");
        assert_eq!(own.memory.slots.padding_bytes(), 0);
    }
}
