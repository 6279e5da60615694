//! A run, real or simulated, and its figures at the times that matter.

use crate::plan::{BEGINS, ENDS, FALLS, OVER, PAGE, PEAK, PERIODS, Setting, WARM};
use crate::residency::Residency;
use crate::sim::{self, AppFigures, Frame, Run};

#[derive(Debug)]
pub(crate) struct Played {
    pub setting: Setting,
    pub run: Run,
    /// Memory of a run with real processes.
    pub memory: Option<Residency>,
}

/// The server's and the interferer's places in a run.
pub(crate) const SERVER: usize = 0;
pub(crate) const INTERFERER: usize = 1;

/// A time of the paper's schedule, milliseconds.
pub(crate) type Span = (u64, u64);

impl Played {
    pub fn new(setting: &Setting, mut run: Run, memory: Option<Residency>) -> Played {
        run.policy.clone_from(&setting.name);
        Played {
            setting: setting.clone(),
            run,
            memory,
        }
    }

    /// How long quotas take to follow. At a small scale a period is a long time of the schedule: then half of the peak.
    fn settled(&self) -> u64 {
        (PERIODS * self.run.period_ms).min((FALLS - PEAK) / 2)
    }

    /// Before the interferer comes.
    pub fn before(&self) -> Span {
        (WARM, BEGINS)
    }

    /// When it wants most, and quotas have followed.
    pub fn peak(&self) -> Span {
        (PEAK + self.settled(), FALLS)
    }

    /// When it has gone, and they have followed that.
    pub fn after(&self) -> Span {
        (ENDS + self.settled(), OVER)
    }

    pub fn app(&self, app: usize, (from, to): Span) -> AppFigures {
        sim::figures(&self.run, from, to).0.swap_remove(app)
    }

    /// Quotas in pages, on average: of the server's components together, of the interferer.
    pub fn quotas(&self, (from, to): Span) -> [f64; 2] {
        let pools = sim::figures(&self.run, from, to).1;
        let all: Vec<f64> = pools.iter().map(|p| pages(p.quota_bytes)).collect();
        // The interferer's is the last one.
        let (other, own) = all
            .split_last()
            .map_or((0.0, &[][..]), |(last, own)| (*last, own));
        [own.iter().sum(), other]
    }

    /// Pages in use at the peak, the median of all looks. For some moments the server has many more.
    pub fn used(&self) -> f64 {
        let (from, to) = self.peak();
        let frames = self.run.frames.iter();
        let frames = frames.filter(|frame| (from..to).contains(&frame.at_ms));
        let used = |frame: &Frame| frame.pools.iter().map(|p| p.live_bytes).sum();
        let mut used: Vec<u64> = frames.map(used).collect();
        used.sort_unstable();
        whole_pages(used.get(used.len() / 2).copied().unwrap_or(0))
    }
}

fn pages(bytes: f64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // a small power of two
    let page = PAGE as f64;
    bytes / page
}

pub(crate) fn whole_pages(bytes: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // for people
    let bytes = bytes as f64;
    pages(bytes)
}
