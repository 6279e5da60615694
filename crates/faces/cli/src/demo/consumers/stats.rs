//! Frequency of each byte, and the information in that.

use super::work::{Outcome, Work};
use anyhow::Result;

pub(super) struct Statistics {
    /// Four histograms, so that runs of one byte do not wait for their own counter.
    counts: [[u32; 256]; 4],
    totals: [u64; 256],
}

impl Statistics {
    pub(super) fn new() -> Self {
        Self {
            counts: [[0; 256]; 4],
            totals: [0; 256],
        }
    }

    #[allow(clippy::cast_precision_loss)] // an entropy in four digits
    fn entropy(&self) -> f64 {
        let all: u64 = self.totals.iter().sum();
        let share = |count: u64| count as f64 / all as f64;
        let bits = |count: u64| -share(count) * share(count).log2();
        self.totals
            .iter()
            .filter(|count| **count > 0)
            .map(|count| bits(*count))
            .sum::<f64>()
            .abs()
    }
}

impl Work for Statistics {
    fn frame(&mut self, _offset: u64, bytes: &[u8]) -> Result<()> {
        // Pieces small enough that 32 bits hold every count.
        for piece in bytes.chunks(1 << 30) {
            let (fours, rest) = piece.as_chunks::<4>();
            let [a, b, c, d] = &mut self.counts;
            for four in fours {
                a[usize::from(four[0])] += 1;
                b[usize::from(four[1])] += 1;
                c[usize::from(four[2])] += 1;
                d[usize::from(four[3])] += 1;
            }
            for byte in rest {
                a[usize::from(*byte)] += 1;
            }
            for counts in &mut self.counts {
                for (total, count) in self.totals.iter_mut().zip(counts) {
                    *total += u64::from(std::mem::take(count));
                }
            }
        }
        Ok(())
    }

    fn outcome(&mut self) -> Result<Outcome> {
        let most = (0u8..=255)
            .max_by_key(|byte| self.totals[usize::from(*byte)])
            .unwrap_or(0);
        Ok(Outcome::Statistics {
            bytes: self.totals.iter().sum(),
            entropy_bits: self.entropy(),
            most_frequent: most,
            distinct: self.totals.iter().map(|count| u32::from(*count > 0)).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> (u64, f64, u8, u32) {
        let mut work = Statistics::new();
        work.frame(0, bytes).expect("a frame");
        match work.outcome().expect("an outcome") {
            Outcome::Statistics {
                bytes,
                entropy_bits,
                most_frequent,
                distinct,
            } => (bytes, entropy_bits, most_frequent, distinct),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn known_entropies() {
        assert_eq!(of(&[7; 1001]), (1001, 0.0, 7, 1));
        let all: Vec<u8> = (0..=255).collect();
        let (bytes, entropy, _, distinct) = of(&all);
        assert_eq!((bytes, distinct), (256, 256));
        assert!((entropy - 8.0).abs() < 1e-9, "{entropy}");
        assert!((of(b"aabb").1 - 1.0).abs() < 1e-9);
        assert_eq!(of(b"aabbb").2, b'b');
    }
}
