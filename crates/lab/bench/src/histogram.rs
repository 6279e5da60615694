//! Counts of times by their size: each power of two in 32 parts, as HDR histograms have it, so a quantile is at most one thirty-second
//! too high. The longest is kept as it is.

use serde::{Deserialize, Serialize};

const PARTS_LOG2: u32 = 5;
const PARTS: u64 = 1 << PARTS_LOG2;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Histogram {
    counts: Vec<u64>,
    max: u64,
    sum: u64,
}

/// Below 2 x 32 each value has a bucket; above, the five bits after the first one choose it.
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PARTS_LOG2 + 1);
    let low = value >> shift;
    // At most 64 x 59 + 63.
    usize::try_from(u64::from(shift) * PARTS + low).unwrap_or(usize::MAX)
}

/// The largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket {
        b if b < 2 * PARTS => b,
        b => {
            let shift = b / PARTS - 1;
            let low = b - shift * PARTS;
            low << shift | ((1 << shift) - 1)
        }
    }
}

impl Histogram {
    pub fn add(&mut self, value: u64) {
        let at = bucket(value);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.max = self.max.max(value);
        self.sum = self.sum.saturating_add(value);
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        let both = self.counts.iter_mut().zip(&other.counts);
        both.for_each(|(mine, theirs)| *mine += theirs);
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// So many of a million are no longer than this; 0 of none.
    pub fn quantile(&self, ppm: u64) -> u64 {
        let wanted = (self.count() * ppm).div_ceil(1_000_000).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return top(at).min(self.max);
            }
        }
        self.max
    }

    /// Those of a million that took longer, to the width of a bucket.
    pub fn ppm_above(&self, value: u64) -> f64 {
        let all = self.count().max(1);
        let above = self.counts.iter().skip(bucket(value) + 1).sum::<u64>();
        above as f64 * 1e6 / all as f64
    }

    /// Each bucket that has something: its largest value, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        all.map(|(at, n)| (top(at).min(self.max), *n))
    }
}

/// Shares, in percent, of pairs of nanoseconds and counts, by powers of two; as text, so that few are not none.
pub fn shares(pairs: &[(f64, u64)]) -> Vec<(f64, String)> {
    let all: u64 = pairs.iter().map(|(_, n)| n).sum();
    let mut out: Vec<(f64, u64)> = Vec::new();
    for (ns, n) in pairs {
        let upto = ns.max(1.0).log2().ceil().exp2();
        match out.last_mut() {
            Some((last, sum)) if *last == upto => *sum += n,
            _ => out.push((upto, *n)),
        }
    }
    let share = |n: u64| match n as f64 * 100.0 / all.max(1) as f64 {
        share if share >= 1.0 => format!("{share:.1}"),
        share => format!("{share:.4}"),
    };
    out.into_iter().map(|(ns, n)| (ns, share(n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_values_and_is_narrow() {
        let small = 0..5000u64;
        let large = (12..63).flat_map(|log2| [(1 << log2) - 1, 1 << log2, (1 << log2) + 12345]);
        for value in small.chain(large).chain([u64::MAX]) {
            let top = top(bucket(value));
            assert!(
                top >= value && top - value <= value / PARTS,
                "{value}: {top}"
            );
            assert!(value == 0 || bucket(value - 1) <= bucket(value), "{value}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut two = [Histogram::default(), Histogram::default()];
        for value in 1..=10_000u64 {
            two[usize::from(value % 3 == 0)].add(value);
        }
        let [mut all, other] = two;
        all.merge(&other);
        assert_eq!(
            (all.count(), all.max(), all.sum()),
            (10_000, 10_000, 50_005_000)
        );
        for (ppm, exact) in [
            (500_000, 5000),
            (990_000, 9900),
            (999_900, 9999),
            (1_000_000, 10_000),
        ] {
            let got = all.quantile(ppm);
            assert!(got >= exact && got <= exact + exact / PARTS, "{ppm}: {got}");
        }
        assert_eq!(all.ppm_above(u64::MAX), 0.0);
        assert!((all.ppm_above(5000) - 500_000.0).abs() < 20_000.0);
        assert_eq!(all.buckets().map(|(_, n)| n).sum::<u64>(), 10_000);
        assert_eq!(Histogram::default().quantile(500_000), 0);
    }

    #[test]
    fn shares_are_by_powers_of_two() {
        let pairs = [(20.0, 10), (30.0, 10), (60.0, 9_979), (900.0, 1)];
        let shares = shares(&pairs);
        let want = [(32.0, "0.2000"), (64.0, "99.8"), (1024.0, "0.0100")];
        assert_eq!(shares, want.map(|(ns, share)| (ns, share.to_owned())));
    }
}
