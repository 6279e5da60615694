//! How much each size may cache: as little as a silent program should keep, and more for sizes whose blocks are really
//! allocated and freed often.
//!
//! A size whose caches run empty and full again many times within a period gets larger ones. The sum of all grants, to
//! all threads, stays within the budget: 8 MiB, or an eighth of the heap. A size loses again, step by step, what it
//! then does not need for a second.

use crate::classes::{BYTES, COUNT, LARGEST_CUT};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A thread's two buckets of one size hold twice that much at first. For sizes with larger items they hold one item
/// each.
const FIRST_BUCKET_BYTES: u64 = 32 << 10;
const FIRST_BUCKET_ITEMS: u64 = 64;
/// The largest bucket.
const LAST_BUCKET_BYTES: u64 = 512 << 10;
const LAST_BUCKET_ITEMS: u64 = 254;

/// Bytes of the depot, with which threads exchange blocks: at first and at most.
const FIRST_DEPOT_BYTES: u64 = 128 << 10;
const FIRST_LARGE_DEPOT_BYTES: u64 = 256 << 10;
const LAST_DEPOT_BYTES: u64 = 4 << 20;

/// Each step doubles.
const STEPS: u32 = 6;
/// Slow allocations and slow frees in a period before caches grow.
const BUSY: u32 = 256;
/// Periods without any before they shrink.
const QUIET_PERIODS: u32 = 4;
const LEAST_BUDGET: u64 = 8 << 20;

/// The sizes of a class's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) bucket_items: u32,
    pub(crate) depot_items: u32,
}

impl Sizes {
    pub(crate) fn first(class: usize) -> Sizes {
        Sizes::at(class, 0)
    }

    fn at(class: usize, step: u32) -> Sizes {
        let bytes = u64::from(BYTES[class]);
        let large = bytes > LARGEST_CUT as u64;
        let (bucket, depot) = match large {
            false => (
                (FIRST_BUCKET_BYTES / bytes).clamp(2, FIRST_BUCKET_ITEMS),
                FIRST_DEPOT_BYTES / bytes,
            ),
            true => (1, (FIRST_LARGE_DEPOT_BYTES / bytes).max(1)),
        };
        let grown = |items: u64, most: u64| {
            let items = (items << step).min(most.max(items));
            u32::try_from(items).unwrap_or(u32::MAX)
        };
        Sizes {
            bucket_items: grown(bucket, (LAST_BUCKET_BYTES / bytes).min(LAST_BUCKET_ITEMS)),
            depot_items: grown(depot, LAST_DEPOT_BYTES / bytes),
        }
    }

    /// Returns the bytes that the caches of `threads` threads and the depot can hold.
    fn bytes(self, class: usize, threads: u32) -> u64 {
        let items = u64::from(self.bucket_items) * 2 * u64::from(threads.max(1))
            + u64::from(self.depot_items);
        items * u64::from(BYTES[class])
    }
}

/// The grants beyond the first sizes.
#[derive(Debug)]
pub(crate) struct Budget {
    classes: [Class; COUNT],
    granted: AtomicU64,
}

/// One size's state. All of it is a hint: of two threads that count at once, one count may be lost.
#[derive(Debug, Default)]
struct Class {
    allocs: AtomicU32,
    frees: AtomicU32,
    step: AtomicU32,
    quiet: AtomicU32,
    granted: AtomicU64,
}

fn add_one(count: &AtomicU32) {
    count.store(
        count.load(Ordering::Relaxed).saturating_add(1),
        Ordering::Relaxed,
    );
}

impl Budget {
    pub(crate) fn new() -> Budget {
        Budget {
            classes: std::array::from_fn(|_| Class::default()),
            granted: AtomicU64::new(0),
        }
    }

    /// Records that a thread's bucket of this class ran empty.
    pub(crate) fn ran_empty(&self, class: usize) {
        add_one(&self.classes[class].allocs);
    }

    /// Records that a cache ran full. Returns whether the class's caches deserve to grow.
    pub(crate) fn ran_full(&self, class: usize) -> bool {
        let class = &self.classes[class];
        add_one(&class.frees);
        class.frees.load(Ordering::Relaxed) >= BUSY && class.allocs.load(Ordering::Relaxed) >= BUSY
    }

    /// Grows the caches of this class, if the budget allows it; returns their new sizes.
    pub(crate) fn grow(&self, class: usize, threads: u32, heap_bytes: u64) -> Option<Sizes> {
        let this = &self.classes[class];
        this.allocs.store(0, Ordering::Relaxed);
        this.frees.store(0, Ordering::Relaxed);
        this.quiet.store(0, Ordering::Relaxed);
        let step = this.step.load(Ordering::Relaxed);
        let (now, next) = (Sizes::at(class, step), Sizes::at(class, step + 1));
        let more = next.bytes(class, threads) - now.bytes(class, threads);
        if step >= STEPS || more == 0 {
            return None;
        }
        let budget = LEAST_BUDGET.max(heap_bytes / 8);
        if self.granted.load(Ordering::Relaxed) + more > budget {
            return None;
        }
        // Only one of the threads that meet here succeeds.
        this.step
            .compare_exchange(step, step + 1, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        self.granted.fetch_add(more, Ordering::Relaxed);
        this.granted.fetch_add(more, Ordering::Relaxed);
        Some(next)
    }

    /// Ends a period: shrinks the caches of this class if they were quiet for long, or if too much is granted for a
    /// heap that got small. Returns their new sizes.
    pub(crate) fn period(&self, class: usize, heap_bytes: u64) -> Option<Sizes> {
        let this = &self.classes[class];
        let step = this.step.load(Ordering::Relaxed);
        let busy = this.allocs.swap(0, Ordering::Relaxed) + this.frees.swap(0, Ordering::Relaxed);
        if step == 0 {
            return None;
        }
        let quiet = match busy {
            0 => this.quiet.load(Ordering::Relaxed) + 1,
            _ => 0,
        };
        this.quiet.store(quiet, Ordering::Relaxed);
        let too_much = self.granted.load(Ordering::Relaxed) > LEAST_BUDGET.max(heap_bytes / 8);
        if quiet < QUIET_PERIODS && !too_much {
            return None;
        }
        this.quiet.store(0, Ordering::Relaxed);
        this.step
            .compare_exchange(step, step - 1, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        let granted = this.granted.load(Ordering::Relaxed);
        // The part of the grant that this step took; the number of threads may have changed since then.
        let less = if step == 1 { granted } else { granted / 2 };
        this.granted.fetch_sub(less, Ordering::Relaxed);
        self.granted.fetch_sub(less, Ordering::Relaxed);
        Some(Sizes::at(class, step - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::class_of;

    #[test]
    fn first_sizes_are_small() {
        for (class, bytes) in BYTES.map(u64::from).into_iter().enumerate() {
            let first = Sizes::first(class);
            assert!((1..=64).contains(&first.bucket_items), "{bytes}");
            let large = bytes > LARGEST_CUT as u64;
            let most = if large {
                4 * bytes.max(512 << 10)
            } else {
                256 << 10
            };
            assert!(first.bytes(class, 1) <= most, "{bytes}: {first:?}");
            assert!(Sizes::at(class, STEPS).bucket_items <= 254);
        }
    }

    /// docs/malloc.md states this size.
    #[test]
    fn all_first_sizes_of_one_thread_hold_28_mib() {
        let all: u64 = (0..COUNT)
            .map(|class| Sizes::first(class).bytes(class, 1))
            .sum();
        assert!((27 << 20..=28 << 20).contains(&all), "{all}");
    }

    #[test]
    fn only_what_goes_to_and_fro_grows_within_the_budget() {
        let budget = Budget::new();
        let class = class_of(4096);
        assert!(!(0..1000).any(|_| budget.ran_full(class)), "none allocated");
        (0..BUSY).for_each(|_| budget.ran_empty(class));
        assert!(budget.ran_full(class));
        let grown = budget.grow(class, 1, 0).expect("within the budget");
        assert_eq!(grown.bucket_items, 2 * Sizes::first(class).bucket_items);
        while budget.grow(class, 1, 0).is_some() {}
        assert!(budget.granted.load(Ordering::Relaxed) <= LEAST_BUDGET);
        // Other classes find the rest, and with a larger heap more.
        let others = |heap| (0..COUNT).filter_map(|c| budget.grow(c, 4, heap)).count();
        while others(0) > 0 {}
        assert!(budget.granted.load(Ordering::Relaxed) <= LEAST_BUDGET);
        assert!(others(1 << 30) > 0);
    }

    #[test]
    fn what_is_quiet_shrinks_to_what_it_was_and_all_is_returned() {
        let budget = Budget::new();
        let class = class_of(4096);
        while budget.grow(class, 3, 0).is_some() {}
        let mut last = Sizes::at(class, STEPS);
        for period in 0..100 {
            if period == 2 {
                budget.ran_empty(class); // not quiet after all
            }
            if let Some(sizes) = budget.period(class, 0) {
                assert!(period >= 2 + QUIET_PERIODS, "{period}");
                assert!(sizes.bucket_items <= last.bucket_items);
                last = sizes;
            }
        }
        assert_eq!(last, Sizes::first(class));
        assert_eq!(budget.granted.load(Ordering::Relaxed), 0);
    }
}
