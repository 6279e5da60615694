//! How much more two threads do than one: an allocator's, and in the same process and the same milliseconds that of `raw`, a
//! stack in each thread, which shares nothing.
//!
//! The two processors of a virtual machine may be those of one core now and of two a moment later, and then no allocator can
//! double. So short slices alternate: raw alone, ours alone, raw on both, ours on both. Each round yields both ratios, and ours
//! over that of raw: what is lost by sharing rather than by the machine.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::party;
use crate::stats::{Measured, Samples, median};
use crate::systems::heaps::Heap;

const BATCH: u32 = 64;
const SLICE: Duration = Duration::from_micros(500);

/// What a process says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Said {
    /// Of both threads together.
    pub measured: Measured,
    /// Two threads' rate over one's, of the allocator and of raw, and the first over the second: medians over the rounds.
    pub times_one_thread: f64,
    pub raw_times_one_thread: f64,
    pub of_raw: f64,
}

/// Where threads wait for each other without sleeping.
#[repr(align(128))]
struct Start(AtomicU64);

/// Runs `rounds` rounds on two threads.
pub fn measure(heap: &dyn Heap, raw: &dyn Heap, cores: [usize; 2], rounds: u64) -> Result<Said> {
    let (barrier, start) = (&Barrier::new(2), &Start(AtomicU64::new(0)));
    // Each thread's rates in all slices: of rounds of four, of which the other thread sleeps through two.
    let work = |first: bool, core: usize| -> Result<Vec<Option<Measured>>> {
        party::pin(core)?;
        let mut rates = Vec::new();
        let mut meetings = 0;
        for heap in [raw, heap] {
            heap.pairs(1 << 12, 1);
        }
        for _ in 0..rounds {
            for (heap, both) in [(raw, false), (heap, false), (raw, true), (heap, true)] {
                // Whoever has nothing to do sleeps here, and leaves the core's other half to the one that has.
                barrier.wait();
                if both {
                    meetings += 1;
                    // Ordering: only a meeting; nothing is handed over.
                    start.0.fetch_add(1, Ordering::Relaxed);
                    while start.0.load(Ordering::Relaxed) < 2 * meetings {
                        std::hint::spin_loop();
                    }
                }
                rates.push(match both || first {
                    true => Some(slice(heap)?),
                    false => None,
                });
            }
        }
        Ok(rates)
    };
    let [a, b] = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(false, cores[1]));
        // In a thread of its own, so that what it pins is not the program's.
        let one = scope.spawn(|| work(true, cores[0]));
        [one, other].map(|thread| thread.join())
    })
    .map(|ended| ended.map_err(|_| anyhow::anyhow!("a thread panicked")));
    let (a, b) = (a??, b??);
    let rate = |one: &Option<Measured>| one.as_ref().map_or(0.0, |m| 1e9 / m.median_ns);
    let mut ratios = Vec::new();
    for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4)) {
        let both = |at: usize| rate(&a[at]) + rate(&b[at]);
        let (raw, own) = (both(2) / rate(&a[0]), both(3) / rate(&a[1]));
        ratios.push([own, raw, own / raw, both(3)]);
    }
    let over = |at: usize| median(ratios.iter().map(|round| round[at]));
    let ns = 1e9 / over(3);
    Ok(Said {
        measured: Measured {
            op: String::new(),
            median_ns: ns,
            p99_ns: 0.0,
            per_second: over(3),
            facts: Default::default(),
            sampled: None,
        },
        times_one_thread: over(0),
        raw_times_one_thread: over(1),
        of_raw: over(2),
    })
}

/// Pairs for as long as a slice lasts.
fn slice(heap: &dyn Heap) -> Result<Measured> {
    let end = clock::ticks() + clock::in_ticks(SLICE);
    let mut samples = Samples::new(1 << 12, BATCH);
    loop {
        let before = clock::ticks();
        heap.pairs(BATCH as usize, 1);
        let now = clock::ticks();
        if !samples.push(now - before) || now >= end {
            return samples.finish("").context("no samples");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::heaps;

    #[test]
    fn every_round_has_its_ratio() {
        clock::calibrate();
        let raw = heaps::raw(256);
        let said = measure(&*raw, &*raw, [0, 0], 3).unwrap();
        assert!(said.times_one_thread > 0.0 && said.raw_times_one_thread > 0.0);
        assert!(said.of_raw.is_finite() && said.measured.median_ns > 0.0);
    }
}
