//! Size classes: four steps per doubling, every item aligned to at least a cache line.
//!
//! Up to 4 KiB a class is a multiple of 64 bytes, above it a multiple of 4 KiB. An item's alignment is therefore the
//! largest power of two that divides its class's size, at most a page. The largest class is one chunk. A larger item is
//! "huge": a run of its own, in no class and in no cache.

use crate::runs::PAGE;

const LINE: u64 = 64;
/// Classes up to and including 4096 bytes.
const SMALL: usize = 20;

/// The classes of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    max_bytes: u64,
    count: usize,
}

/// Returns the number of the step that holds `units` (at least 1): 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 ...
/// units.
#[inline]
const fn step_of(units: u64) -> usize {
    let last = units - 1;
    let doubling = (last | 4).ilog2() - 2;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "last >> doubling is below 8"
    )]
    let step = (last >> doubling) as usize;
    4 * doubling as usize + step
}

/// Returns the inverse of `step_of`: units of step `step`.
#[inline]
fn units_of(step: usize) -> u64 {
    let doubling = (step / 4).saturating_sub(1);
    (step as u64 - 4 * doubling as u64 + 1) << doubling
}

#[inline(always)]
fn index(bytes: u64) -> usize {
    if bytes <= PAGE {
        small(bytes)
    } else {
        large(bytes)
    }
}

#[inline(always)]
fn small(bytes: u64) -> usize {
    #[allow(clippy::cast_possible_truncation, reason = "at most 64")]
    let lines = bytes.div_ceil(LINE) as usize;
    // SAFETY: up to a page, so as many lines as there are entries.
    usize::from(unsafe { *CLASS_OF_LINES.get_unchecked(lines) })
}

#[inline(always)]
fn large(bytes: u64) -> usize {
    SMALL - 1 + step_of(bytes.div_ceil(PAGE))
}

/// The class of items of up to a page, by their length in lines: a load costs less than the steps.
static CLASS_OF_LINES: [u8; (PAGE / LINE) as usize + 1] = {
    let mut classes = [0; (PAGE / LINE) as usize + 1];
    let mut lines = 1;
    while lines < classes.len() {
        classes[lines] = step_of(lines as u64).to_le_bytes()[0];
        lines += 1;
    }
    classes
};

impl Classes {
    /// Makes the classes of a pool with chunks of `chunk_bytes`.
    ///
    /// # Panics
    /// If `chunk_bytes` is not a power of two of at least one page.
    #[must_use]
    pub fn new(chunk_bytes: u64) -> Self {
        Self::up_to(chunk_bytes, chunk_bytes)
    }

    /// Makes classes in which everything above `max_bytes` counts as huge.
    ///
    /// # Panics
    /// Like [`new`](Classes::new).
    #[must_use]
    pub fn up_to(chunk_bytes: u64, max_bytes: u64) -> Self {
        assert!(
            chunk_bytes.is_power_of_two() && chunk_bytes >= PAGE,
            "chunk of {chunk_bytes} bytes"
        );
        // The smallest items are always there: `class_of` does not look further for a page.
        let max_bytes = max_bytes.clamp(PAGE, chunk_bytes);
        Self {
            max_bytes,
            count: index(max_bytes) + 1,
        }
    }

    /// Returns the number of classes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the most bytes for which there is a class; above it, items are huge.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Returns the smallest class that holds `bytes`; `None` for huge items.
    #[inline]
    #[must_use]
    pub fn class_of(&self, bytes: u64) -> Option<usize> {
        // A chunk is at least a page, so the smallest need one comparison only.
        if bytes <= PAGE {
            Some(small(bytes))
        } else if bytes <= self.max_bytes {
            Some(large(bytes))
        } else {
            None
        }
    }

    /// Returns the bytes of an item of a class.
    #[inline]
    #[must_use]
    pub fn bytes_of(&self, class: usize) -> u64 {
        if class < SMALL {
            units_of(class) * LINE
        } else {
            units_of(class - (SMALL - 1)) * PAGE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_classes_are_as_documented() {
        let classes = Classes::new(1 << 20);
        let sizes: Vec<u64> = (0..26).map(|class| classes.bytes_of(class)).collect();
        let small = [
            64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048,
            2560, 3072,
        ];
        assert_eq!(sizes[..18], small);
        assert_eq!(
            sizes[18..],
            [3584, 4096, 8192, 12288, 16384, 20480, 24576, 28672]
        );
    }

    #[test]
    fn what_is_above_the_limit_is_huge() {
        for (limit, most) in [
            (0, PAGE),
            (5000, 5000),
            (1 << 20, 1 << 20),
            (u64::MAX, 1 << 20),
        ] {
            let classes = Classes::up_to(1 << 20, limit);
            assert_eq!(
                (classes.max_bytes(), classes.class_of(most + 1)),
                (most, None)
            );
            let last = classes.class_of(most).expect("a class");
            assert_eq!(last + 1, classes.count());
            assert!((most..=1 << 20).contains(&classes.bytes_of(last)));
        }
    }

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for chunk in [64 << 10, 1 << 20, 64 << 20] {
            let classes = Classes::new(chunk);
            assert_eq!(classes.bytes_of(classes.count() - 1), chunk);
            assert_eq!(classes.class_of(chunk + 1), None);
            assert_eq!(classes.class_of(0), Some(0));
            for class in 0..classes.count() {
                let bytes = classes.bytes_of(class);
                let below = if class == 0 {
                    0
                } else {
                    classes.bytes_of(class - 1)
                };
                assert!(below < bytes);
                assert_eq!(classes.class_of(below + 1), Some(class), "{below} + 1");
                assert_eq!(classes.class_of(bytes), Some(class), "{bytes}");
                assert_eq!(bytes % if bytes < PAGE { LINE } else { PAGE }, 0);
                assert!(
                    bytes <= 8 * PAGE || bytes <= below + below / 4,
                    "{below} to {bytes}"
                );
            }
        }
    }
}
