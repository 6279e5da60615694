//! A run, real or simulated, and its figures at the times that matter.

use crate::plan::{BEGINS, ENDS, FALLS, OVER, PAGE, PEAK, PERIODS, Setting, WARM};
use crate::residency::Residency;
use crate::sim::{self, AppFigures, Run};

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

    /// The most that was granted at once, pages.
    pub fn most_granted(&self) -> f64 {
        let frames = self.run.frames.iter();
        let granted = frames.map(|f| f.pools.iter().map(|p| p.resident_bytes).sum());
        whole_pages(granted.max().unwrap_or(0))
    }

    /// The most that was in use at once, pages.
    pub fn most_used(&self) -> f64 {
        let frames = self.run.frames.iter();
        let used = frames.map(|f| f.pools.iter().map(|p| p.live_bytes).sum());
        whole_pages(used.max().unwrap_or(0))
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
