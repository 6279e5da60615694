//! What one side times: a line of numbers for each message, folded into histograms when it is known how the cores lay meanwhile.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::placement::{self, Placement};
use crate::stats::median;

/// What is timed at each message.
pub const NAMES: [&str; 5] = ["alloc", "send", "receive", "release", TIMER];
/// An empty pair of time stamps.
pub const TIMER: &str = "timer";
/// The first messages after a look find cold caches, which is the look's doing: they do not count.
const COLD: usize = 32;
/// Most messages between two looks.
const MOST: usize = 1 << 14;

/// One operation at one placement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seen {
    pub op: String,
    pub placement: Option<Placement>,
    /// A cache line there and back meanwhile, the middle of all looks.
    pub line_ns: f64,
    /// In ticks.
    pub times: Histogram,
}

/// Ticks by what is timed.
pub type Times = [u64; NAMES.len()];

#[derive(Debug)]
pub struct Log {
    /// Since the last look.
    recent: Vec<Times>,
    cold: usize,
    places: Vec<(Option<Placement>, Vec<f64>, [Histogram; NAMES.len()])>,
}

impl Log {
    pub fn new() -> Log {
        let places = placement::ALL.map(Some).into_iter().chain([None]);
        let mut recent = vec![[1; NAMES.len()]; MOST]; // really there
        recent.clear();
        Log {
            recent,
            cold: COLD,
            places: places
                .map(|p| (p, Vec::new(), Default::default()))
                .collect(),
        }
    }

    /// `is_late`: it counts, cold or not, as there is no time for more. True when there is no room for more.
    #[inline(always)]
    pub fn add(&mut self, times: Times, is_late: bool) -> bool {
        if self.cold > 0 && !is_late {
            self.cold -= 1;
        } else if self.recent.len() < MOST {
            self.recent.push(times);
        }
        self.recent.len() >= MOST
    }

    /// Nothing since the last look counts.
    pub fn forget(&mut self) {
        self.recent.clear();
        self.cold = COLD;
    }

    /// All since the last look was timed at this placement.
    pub fn fold(&mut self, placement: Option<Placement>, line_ns: f64) {
        let place = self.places.iter_mut().find(|(p, ..)| *p == placement);
        if let (true, Some((_, lines, all))) = (!self.recent.is_empty(), place) {
            lines.push(line_ns);
            for times in &self.recent {
                all.iter_mut()
                    .zip(times)
                    .for_each(|(histogram, ticks)| histogram.add(*ticks));
            }
        }
        self.forget();
    }

    pub fn save(self, path: &Path) -> Result<()> {
        let mut all = Vec::new();
        for (placement, lines, histograms) in self.places {
            for (op, times) in NAMES.iter().zip(histograms) {
                if times.count() > 0 {
                    all.push(Seen {
                        op: (*op).to_owned(),
                        placement,
                        line_ns: median(lines.iter().copied()),
                        times,
                    });
                }
            }
        }
        Ok(std::fs::write(path, serde_json::to_vec(&all)?)?)
    }
}

/// Adds what is alike.
pub fn merge(all: &mut Vec<Seen>, more: &[Seen]) {
    for one in more {
        match all
            .iter_mut()
            .find(|a| a.op == one.op && a.placement == one.placement)
        {
            Some(there) => there.times.merge(&one.times),
            None => all.push(one.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cold_or_forgotten_does_not_count() {
        let mut log = Log::new();
        for i in 0..COLD as u64 + 10 {
            log.add([i; NAMES.len()], false);
        }
        log.fold(Some(Placement::Near), 80.0);
        for _ in 0..COLD + 10 {
            log.add([9; NAMES.len()], false);
        }
        log.forget();
        for _ in 0..COLD {
            log.add([9; NAMES.len()], false);
        }
        assert!(log.recent.is_empty());
        log.fold(None, 0.0);
        log.add([COLD as u64 + 9; NAMES.len()], true);
        log.fold(Some(Placement::Near), 80.0);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("log");
        log.save(&file).expect("written");
        let text = std::fs::read(file).expect("written");
        let mut seen: Vec<Seen> = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(seen.len(), NAMES.len());
        let again = seen.clone();
        merge(&mut seen, &again);
        for one in seen {
            assert_eq!((one.placement, one.line_ns), (Some(Placement::Near), 80.0));
            assert_eq!((one.times.count(), one.times.max()), (22, COLD as u64 + 9));
        }
    }
}
