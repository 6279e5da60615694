//! Figures of a run.

use super::num::real;
use super::run::Run;
use serde::Serialize;

/// A program, over some time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AppFigures {
    /// The program's name.
    pub name: String,
    /// Requests, or pages, per second.
    pub per_second: f64,
    /// The share of its callers' time spent waiting and collecting.
    pub share: f64,
}

/// A pool, over some time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PoolFigures {
    /// The pool's name.
    pub name: String,
    /// The pool's quota, on average, bytes.
    pub quota_bytes: f64,
    /// The pool's memory, on average, bytes.
    pub resident_bytes: f64,
    /// Callers that waited, on average.
    pub blocked: f64,
    /// The largest change of its quota from one period to the next, as a share of the limit.
    pub largest_step: f64,
}

fn within(run: &Run, from_ms: u64, to_ms: u64) -> impl Iterator<Item = &super::Frame> {
    let frames = run.frames.iter();
    frames.filter(move |f| f.at_ms > from_ms && f.at_ms <= to_ms)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), v| (sum + v, n + 1));
    sum / f64::from(n.max(1))
}

/// Programs while they wanted anything, and pools.
pub fn figures(run: &Run, from_ms: u64, to_ms: u64) -> (Vec<AppFigures>, Vec<PoolFigures>) {
    let apps = run.apps.iter().enumerate().map(|(i, name)| {
        let active = || {
            within(run, from_ms, to_ms)
                .map(move |f| f.apps[i])
                .filter(|a| a.active)
        };
        AppFigures {
            name: name.clone(),
            per_second: mean(active().map(|a| a.per_second)),
            share: mean(active().map(|a| a.share)),
        }
    });
    let pools = run.pools.iter().enumerate().map(|(i, name)| {
        let all = || within(run, from_ms, to_ms).map(move |f| f.pools[i]);
        let quotas: Vec<u64> = all().map(|p| p.quota_bytes).collect();
        let steps = quotas.windows(2).map(|w| w[0].abs_diff(w[1]));
        PoolFigures {
            name: name.clone(),
            quota_bytes: mean(quotas.iter().map(|q| real(*q))),
            resident_bytes: mean(all().map(|p| real(p.resident_bytes))),
            blocked: mean(all().map(|p| p.blocked)),
            largest_step: real(steps.max().unwrap_or(0)) / real(run.limit_bytes.max(1)),
        }
    });
    (apps.collect(), pools.collect())
}
