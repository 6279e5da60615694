//! Samples of one run, and what is reported of several.

use std::borrow::Cow;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::placement::Placement;

/// Other figures of a run, by unit: `wasted_bytes_per_packet`, for example.
pub type Facts = std::collections::BTreeMap<Cow<'static, str>, f64>;

/// Result of one run of one system for one operation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// The operation, where a run measures several; else empty.
    pub op: String,
    pub median_ns: f64,
    pub p99_ns: f64,
    pub per_second: f64,
    pub facts: Facts,
    /// Of benches that take every sample by itself: how many there are, all taken with one placement of the cores. It is
    /// none if both sides were on one core, or nobody looked.
    pub samples: u64,
    pub placement: Option<Placement>,
    pub p999_ns: f64,
    /// A cache line there and back meanwhile; 0 if nobody looked.
    pub line_ns: f64,
}

impl Measured {
    /// Figures that are counted and not timed.
    pub fn facts(facts: Facts) -> Measured {
        Measured {
            facts,
            ..Measured::default()
        }
    }

    /// A rate that is measured as a whole: every operation takes the same time.
    pub fn rate(per_second: f64) -> Measured {
        Measured {
            median_ns: 1e9 / per_second,
            p99_ns: 1e9 / per_second,
            per_second,
            ..Measured::default()
        }
    }
}

/// Fewest samples of a run, however long they take: in some of them other programs have the processor.
const LEAST: usize = 16;

/// Preallocated time samples. Pushing never allocates and never faults a page in.
#[derive(Debug)]
pub struct Samples {
    ticks: Vec<u64>,
    used: usize,
    /// Operations that one sample covers.
    batch: u32,
}

impl Samples {
    pub fn new(capacity: usize, batch: u32) -> Self {
        // Non-zero, so that the pages are really there.
        Self {
            ticks: vec![1; capacity],
            used: 0,
            batch,
        }
    }

    /// False once it is full: end the run.
    #[inline(always)]
    pub fn push(&mut self, ticks: u64) -> bool {
        if let Some(cell) = self.ticks.get_mut(self.used) {
            *cell = ticks;
            self.used += 1;
        }
        self.used < self.ticks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether they are enough for a run whose time is over.
    pub fn are_enough(&self) -> bool {
        self.used >= LEAST
    }

    /// Median, 99th percentile, and the rate over the sum of all samples.
    pub fn finish(self, op: &str) -> Option<Measured> {
        Some(Measured {
            op: op.to_owned(),
            samples: 0,
            p999_ns: 0.0,
            ..self.placed(None, 0.0)?
        })
    }

    /// Other figures of the samples, and the placement of the cores meanwhile.
    pub fn placed(mut self, placement: Option<Placement>, line_ns: f64) -> Option<Measured> {
        let taken = &mut self.ticks[..self.used];
        if taken.is_empty() {
            return None;
        }
        taken.sort_unstable();
        let sum: u64 = taken.iter().sum();
        let batch = f64::from(self.batch);
        let at = |permille| clock::ns(taken[(taken.len() - 1) * permille / 1000]) / batch;
        Some(Measured {
            median_ns: clock::ns(1) * grouped_median(taken) / batch,
            p99_ns: at(990),
            per_second: 1e9 * batch * taken.len() as f64 / clock::ns(sum),
            samples: taken.len() as u64,
            placement,
            p999_ns: at(999),
            line_ns,
            ..Measured::default()
        })
    }
}

/// Takes samples of `batch` operations until the budget, in ticks, is spent. Each is the ticks that `once` returns.
#[inline(always)]
pub fn sample(budget: u64, batch: u32, mut once: impl FnMut() -> Result<u64>) -> Result<Samples> {
    let mut samples = Samples::new(1 << 17, batch);
    let end = clock::ticks() + budget;
    while samples.push(once()?) && (!samples.are_enough() || clock::ticks() < end) {}
    Ok(samples)
}

/// Times batches of `batch` operations for the budget, in ticks, after a quarter of it to warm up.
#[inline(always)]
pub fn hot(budget: u64, batch: u32, mut once: impl FnMut() -> Result<()>) -> Result<Measured> {
    let (begun, mut samples) = (clock::ticks(), Samples::new(1 << 18, batch));
    loop {
        let took = clock::spent(&mut once)?;
        let spent = clock::ticks() - begun;
        let is_full = spent >= budget / 4 && !samples.push(took);
        if is_full || spent > budget * 5 / 4 && samples.are_enough() {
            return samples.finish("").context("no samples");
        }
    }
}

/// The median of sorted counter values. Some counters move in steps (of 10 ns on some processors), so that
/// many values are equal. The result is the middle of such values, spread evenly over their step.
fn grouped_median(sorted: &[u64]) -> f64 {
    let middle = sorted[(sorted.len() - 1) / 2];
    let below = sorted.partition_point(|x| *x < middle);
    let upto = sorted.partition_point(|x| *x <= middle);
    let left = below.checked_sub(1).map(|i| middle - sorted[i]);
    let right = sorted.get(upto).map(|x| x - middle);
    let step = match (left, right) {
        (Some(l), Some(r)) => l.min(r),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return middle as f64,
    } as f64;
    let inside = (sorted.len() as f64 / 2.0 - below as f64) / (upto - below) as f64;
    middle as f64 + step * (inside - 0.5)
}

/// The middle value; the mean of the two middle ones of an even number.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut v: Vec<f64> = values.into_iter().collect();
    v.sort_unstable_by(f64::total_cmp);
    match v.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn grouped_median_sees_inside_a_step() {
        assert_eq!(grouped_median(&[7]), 7.0);
        assert_eq!(grouped_median(&[10, 20, 30]), 20.0);
        // Three quarters lie in the step around 20, the rest above it.
        assert_eq!(grouped_median(&[20, 20, 20, 30]), 15.0 + 10.0 * 2.0 / 3.0);
        assert_eq!(grouped_median(&[10, 20, 20, 20]), 15.0 + 10.0 / 3.0);
    }

    #[test]
    fn samples_stop_when_full_and_divide_by_the_batch() {
        clock::calibrate();
        let mut s = Samples::new(3, 2);
        assert!(s.push(20));
        assert!(s.push(10));
        assert!(!s.push(30));
        assert!(!s.push(1_000_000));
        let m = s.finish("op").unwrap();
        assert!((m.median_ns - clock::ns(20) / 2.0).abs() < 1e-9);
        assert!((m.per_second - 1e9 * 6.0 / clock::ns(60)).abs() < 1.0);
        assert!(Samples::new(3, 1).finish("").is_none());
    }
}
