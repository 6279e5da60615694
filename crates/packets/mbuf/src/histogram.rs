//! The sizes of packets.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Upper bounds of the classes of sizes, bytes; one more class is above them.
pub const SIZE_CLASSES: [usize; 12] = [
    64, 128, 160, 208, 256, 512, 576, 1024, 1518, 2048, 4096, 9216,
];

/// Counts packets by size.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) on: AtomicBool,
    counts: [AtomicU64; SIZE_CLASSES.len() + 1],
}

impl Sizes {
    #[inline]
    pub(crate) fn count(&self, bytes: usize) {
        if self.on.load(Ordering::Relaxed) {
            let class = SIZE_CLASSES.partition_point(|bound| *bound < bytes);
            self.counts[class].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn histogram(&self) -> Histogram {
        Histogram(std::array::from_fn(|class| {
            self.counts[class].load(Ordering::Relaxed)
        }))
    }
}

/// The number of packets of each size (the paper's figure 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram(pub [u64; SIZE_CLASSES.len() + 1]);

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.0.iter().sum();
        for (class, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let share = *count as f64 * 100.0 / total as f64;
            match SIZE_CLASSES.get(class) {
                Some(bound) => writeln!(f, "{count} packets up to {bound} bytes ({share:.1} %)")?,
                None => writeln!(f, "{count} larger packets ({share:.1} %)")?,
            }
        }
        Ok(())
    }
}
