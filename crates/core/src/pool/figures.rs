//! What the manager is told of a pool, for a policy to divide memory by. From slow paths only: whoever allocates from caches touches none of it.

use super::own::OwnPool;
use super::resizing::PERIODS;
use crate::base::lock;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl OwnPool {
    /// The callers that wait, and what is in use: whenever that may have changed much.
    pub(super) fn say_use(&self) {
        let words = self.table.figures();
        let mut queue = self.waiters.lock_queue();
        let blocked = queue.waited_ns(Instant::now());
        // Ordering: Relaxed, here and below; statistics, each for itself. Under the queue's lock, so that time does not go back.
        words.blocked_ns.store(blocked, Ordering::Relaxed);
        words.waiters.store(queue.len() as u64, Ordering::Relaxed);
        drop(queue);
        let busy = u64::from(lock(&self.store).runs.busy()) << self.chunk_shift;
        words.live_bytes.store(busy, Ordering::Relaxed);
        words.peak_bytes.fetch_max(busy, Ordering::Relaxed);
    }

    /// All of it, once a period; the most chunks in use in each of the last.
    pub(super) fn say_figures(&self, peaks: &[u32; PERIODS]) {
        let words = self.table.figures();
        let peak = u64::from(peaks[0]) << self.chunk_shift;
        words.peak_bytes.store(peak, Ordering::Relaxed);
        self.say_use();
        let (mut allocs, mut frees, mut cached, mut cached_bytes) = (0, 0, 0, 0);
        // Dead, collected, and not yet asked for: at hand as well. Not under both locks: whoever collects takes them the other way round.
        let ready = lock(&self.gc).ready();
        let store = lock(&self.store);
        for ((zone, keg), ready) in self.zones.iter().zip(&store.kegs).zip(ready) {
            let stats = zone.stats();
            allocs += stats.allocs;
            frees += stats.frees;
            cached += stats.cached();
            cached_bytes += (stats.cached() + ready) * keg.shape().item_bytes;
        }
        allocs += store.huge_allocs;
        frees += store.huge_allocs - store.huge_live();
        drop(store);
        let collecting = self.counters.collect_ns.load(Ordering::Relaxed);
        words.collect_ns.store(collecting, Ordering::Relaxed);
        words.allocs.store(allocs, Ordering::Relaxed);
        words.cached.store(cached, Ordering::Relaxed);
        words.cached_bytes.store(cached_bytes, Ordering::Relaxed);
        let garbage = self.counters.garbage_bytes.load(Ordering::Relaxed);
        words.garbage_bytes.store(garbage, Ordering::Relaxed);
        let padding = self.counters.padding_bytes.load(Ordering::Relaxed);
        words.padding_bytes.store(padding, Ordering::Relaxed);
        let live = allocs.saturating_sub(frees);
        words.live_buffers.store(live, Ordering::Relaxed);
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
        let words = own.table.figures();
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let chunk = usize::try_from(CHUNK).expect("small");
        let held = [(); 2].map(|()| pool.alloc(chunk).expect("room"));
        assert_eq!(
            (of(&words.live_bytes), of(&words.peak_bytes)),
            (2 * CHUNK, 2 * CHUNK)
        );
        std::thread::scope(|s| {
            let waits = [(); 2].map(|()| s.spawn(|| drop(pool.alloc(chunk).expect("room"))));
            // Also of those who still wait.
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
        let padding = || own.counters.padding_bytes.load(Ordering::Relaxed);
        let one = half.alloc(5000).expect("room");
        assert_eq!(padding(), 8192 - 5000);
        let two = half.alloc(1).expect("room");
        assert_eq!(padding(), 8192 - 5000 + 4095);
        // A free one is as it was last.
        drop(one);
        let one = half.alloc(8000).expect("room");
        assert_eq!(padding(), 8192 - 8000 + 4095);
        let chunk = usize::try_from(CHUNK).expect("small");
        let long = half.alloc(chunk + 10).expect("room");
        assert_eq!(padding(), 8192 - 8000 + 4095 + 4086);
        own.say_figures(&Default::default());
        let said = own.table.figures().padding_bytes.load(Ordering::Relaxed);
        assert_eq!(said, padding());
        drop((one, two, long));
        let _ = own.reclaim();
        assert_eq!(padding(), 0);

        let shared = pool(Trust::Producer);
        let own = shared.own_arc();
        let _one = shared.alloc(5000).expect("room");
        assert_eq!(own.counters.padding_bytes.load(Ordering::Relaxed), 0);
    }
}
