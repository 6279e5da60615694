//! How soon what was disturbed is as fast as before.

use super::Gauge;
use std::time::{Duration, Instant};

/// Those that take longer are counted. It is reported only: a machine that is busy with others is no fault.
const SOON: Duration = Duration::from_secs(2);

/// A rate is looked at over so long.
const WINDOW: Duration = Duration::from_millis(100);

/// A counter's speed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    number: usize,
    count: u64,
    at: Instant,
}

impl Rate {
    pub fn begin(gauge: &Gauge, number: usize) -> Self {
        let (count, at) = (gauge.read(number), Instant::now());
        Self { number, count, at }
    }

    /// A second since the beginning, once that is long enough ago.
    pub fn look(&self, gauge: &Gauge) -> Option<f64> {
        let time = self.at.elapsed();
        (time >= WINDOW).then(|| (gauge.read(self.number) - self.count) as f64 / time.as_secs_f64())
    }
}

/// Times until flows were back.
#[derive(Debug, Default)]
pub(super) struct Recoveries(Vec<(String, Duration)>);

impl Recoveries {
    pub fn add(&mut self, what: String, took: Duration) {
        self.0.push((what, took));
    }

    /// Says how long it took.
    pub fn report(&mut self) {
        self.0.sort_by_key(|(_, took)| *took);
        let at = |permille: usize| self.0.get((self.0.len().max(1) - 1) * permille / 1000);
        if let (Some(median), Some(longest)) = (at(500), at(1000)) {
            let n = self.0.len();
            let late = self.0.iter().filter(|(_, took)| *took > SOON).count();
            eprintln!(
                "{n} recoveries: median {:?}, {late} longer than {SOON:?}, longest {:?} ({})",
                median.1, longest.1, longest.0
            );
        }
    }
}
