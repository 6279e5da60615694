//! Recovery: the time until a disturbed flow is as fast as before.

use super::{Gauge, Harm, Step};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The median is no longer.
const SOON: Duration = Duration::from_secs(2);

/// A rate is looked at over so long.
const WINDOW: Duration = Duration::from_millis(100);

/// Largest part of the processors that other programs may have where recoveries are judged: one part in so many.
const ODDS: f64 = 8.0;

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

    /// Returns the rate, once a second has passed since the beginning.
    pub fn look(&self, gauge: &Gauge) -> Option<f64> {
        let time = self.at.elapsed();
        (time >= WINDOW).then(|| (gauge.read(self.number) - self.count) as f64 / time.as_secs_f64())
    }
}

/// One return, from the moment at which everybody was up again.
#[derive(Debug, Clone)]
pub(super) struct Recovery {
    /// The harm and the party that was struck, if it was a single blow.
    blow: Option<(Harm, String)>,
    step: String,
    /// Time when all parties were started, had found each other, and some messages had flowed.
    pub flowing: Duration,
    /// Time when it was as fast as before.
    pub fast: Duration,
}

impl Recovery {
    pub fn of(step: &Step, names: &[&str], flowing: Duration, fast: Duration) -> Self {
        let only = match step.blows.as_slice() {
            [blow] => Some((blow.harm, names[blow.victim].to_owned())),
            _ => None,
        };
        Self {
            blow: only,
            step: step.to_string(),
            flowing,
            fast,
        }
    }
}

/// Times until flows were back.
#[derive(Debug, Default)]
pub(super) struct Recoveries(Vec<Recovery>);

fn median(of: impl Iterator<Item = Duration>) -> Duration {
    let mut all: Vec<_> = of.collect();
    all.sort();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

impl Recoveries {
    pub fn add(&mut self, recovery: Recovery) {
        self.0.push(recovery);
    }

    /// Prints how long it took, and after which blow.
    pub fn report(&self) {
        let mut by_blow: BTreeMap<String, Vec<&Recovery>> = BTreeMap::new();
        for recovery in &self.0 {
            let blow = recovery.blow.as_ref();
            let blow = blow.map_or("several".into(), |(harm, who)| format!("{harm:?} {who}"));
            by_blow.entry(blow).or_default().push(recovery);
        }
        for (blow, all) in by_blow {
            eprintln!(
                "{blow}: {} recoveries, medians: flowing after {:?}, as fast as before after {:?}",
                all.len(),
                median(all.iter().map(|r| r.flowing)),
                median(all.iter().map(|r| r.fast))
            );
        }
        if let Some(longest) = self.0.iter().max_by_key(|r| r.fast) {
            let late = self.0.iter().filter(|r| r.fast > SOON).count();
            eprintln!(
                "{} recoveries: median {:?}, {late} longer than {SOON:?}, longest {:?} ({})",
                self.0.len(),
                median(self.0.iter().map(|r| r.fast)),
                longest.fast,
                longest.step
            );
        }
    }

    /// Returns whether the median is short enough, where other programs had so much of the processors; `None` where
    /// they had too much for that to be judged.
    pub fn are_soon(&self, others: f64, processors: usize) -> Option<bool> {
        let judged = others < processors as f64 / ODDS;
        judged.then(|| median(self.0.iter().map(|r| r.fast)) <= SOON)
    }

    /// # Panics
    /// When they took too long.
    pub fn judge(&self, others: f64, processors: usize) {
        match self.are_soon(others, processors) {
            None => eprintln!(
                "recoveries are not judged: other programs had {others:.2} of {processors} processors"
            ),
            Some(soon) => assert!(
                soon,
                "half of the {} recoveries took longer than {SOON:?}, although other programs had only {others:.2} of {processors} processors",
                self.0.len()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recoveries(seconds: &[u64]) -> Recoveries {
        let took = |seconds: &u64| Recovery {
            blow: None,
            step: String::new(),
            flowing: Duration::ZERO,
            fast: Duration::from_secs(*seconds),
        };
        Recoveries(seconds.iter().map(took).collect())
    }

    #[test]
    fn the_median_counts_and_only_where_others_leave_the_machine_alone() {
        assert_eq!(recoveries(&[9, 1, 2]).are_soon(0.2, 2), Some(true));
        assert_eq!(recoveries(&[9, 1, 3]).are_soon(0.2, 2), Some(false));
        assert_eq!(recoveries(&[9, 1, 3]).are_soon(0.3, 2), None);
        assert_eq!(recoveries(&[]).are_soon(0.0, 2), Some(true));
    }

    #[test]
    #[should_panic(expected = "half of the 1 recoveries took longer than 2s")]
    fn slow_ones_fail() {
        recoveries(&[3]).judge(0.0, 1);
    }
}
