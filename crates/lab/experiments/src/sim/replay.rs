//! A recorded trace as a scenario.
//!
//! A trace records what pools did under their quotas. Under other quotas they would have done something else. Each pool
//! therefore becomes a program that wants as much as the recorded pool used and missed: the memory in use, plus the
//! memory that the waiting callers would have used (Little's law).

use super::app::App;
use super::curve::Curve;
use super::num::real;
use super::scenario::{PAGE, PoolSpec, Scenario};
use std::collections::BTreeMap;
use tranship_policy::{Round, Snapshot};

/// The most pages of a replayed limit: a page stands for as much as that takes.
const MOST_PAGES: u64 = 1 << 14;

/// Errors in a trace that cannot become a scenario.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// Too short.
    #[error("a trace of {snapshots} snapshots; at least 2 are needed to see any change")]
    Short {
        /// The number of snapshots.
        snapshots: usize,
    },
    /// The snapshot's time is not after the one before.
    #[error(
        "snapshot {number} is of {at_ns} ns, not after the one before, which is of {before_ns} ns"
    )]
    Backwards {
        /// The snapshot's number, from 1.
        number: usize,
        /// The snapshot's time.
        at_ns: u64,
        /// The time before.
        before_ns: u64,
    },
    /// No snapshot has a pool.
    #[error("no snapshot of the trace has a pool")]
    Empty,
}

/// Makes a scenario of a trace.
///
/// # Errors
/// The part of the trace that is not possible.
pub fn from_trace(name: &str, trace: &[Snapshot]) -> Result<Scenario, TraceError> {
    let (Some(first), Some(last)) = (trace.first(), trace.last().filter(|_| trace.len() > 1))
    else {
        let snapshots = trace.len();
        return Err(TraceError::Short { snapshots });
    };
    for (number, w) in (2..).zip(trace.windows(2)) {
        if w[1].at_ns <= w[0].at_ns {
            return Err(TraceError::Backwards {
                number,
                at_ns: w[1].at_ns,
                before_ns: w[0].at_ns,
            });
        }
    }
    let limit = trace.iter().map(|s| s.limit_bytes).max().unwrap_or(0);
    let unit = limit.div_ceil(MOST_PAGES).max(PAGE).next_multiple_of(PAGE);
    let pages = |bytes: f64| (bytes / real(unit)).ceil();
    let mut specs: BTreeMap<u32, (PoolSpec, Vec<(u64, f64)>)> = BTreeMap::new();
    let mut before = None;
    for snapshot in trace {
        let ms = (snapshot.at_ns - first.at_ns) / 1_000_000;
        let round = Round::since(before, snapshot);
        for a in &round.pools {
            let (_, points) = specs.entry(a.state.id).or_insert_with(|| {
                let mut spec = PoolSpec::new(&a.state.name);
                spec.rule = a.state.rule.clone();
                spec.first_pages = Some(a.state.quota_bytes / unit);
                (spec, Vec::new())
            });
            points.push((ms, pages(real(a.peak_bytes()) + a.missing_bytes())));
        }
        // A pool that is not in the round wants nothing.
        for (id, (_, points)) in &mut specs {
            if round.pools.iter().all(|a| a.state.id != *id) {
                points.push((ms, 0.0));
            }
        }
        before = Some(snapshot);
    }
    if specs.is_empty() {
        return Err(TraceError::Empty);
    }
    let span_ms = (last.at_ns - first.at_ns) / 1_000_000;
    let period_ms = (span_ms / (trace.len() as u64 - 1)).max(1);
    let (mut pools, mut apps) = (Vec::new(), Vec::new());
    for (place, (spec, points)) in specs.into_values().enumerate() {
        apps.push(App {
            name: spec.name.clone(),
            stages: vec![place],
            hold_ms: 10.0,
            demand: Curve(points),
            processor: 0.0,
        });
        pools.push(spec);
    }
    let scenario = Scenario {
        name: name.to_owned(),
        about: format!("recorded, {} snapshots", trace.len()),
        page_bytes: unit,
        limit_pages: limit / unit,
        period_ms,
        end_ms: span_ms + period_ms,
        pools,
        apps,
        seed: 1,
    };
    Ok(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_policy::{Config, PoolState};

    fn trace(pages: &[(u64, u64)]) -> Vec<Snapshot> {
        let one = |(number, (used, waiting)): (u64, &(u64, u64))| Snapshot {
            at_ns: number * 250_000_000,
            limit_bytes: 100 * PAGE,
            pools: vec![PoolState {
                id: 7,
                name: "video".to_owned(),
                // This number of callers has waited for the whole period.
                blocked_ns: waiting * 250_000_000 * number,
                live_bytes: used * PAGE,
                live_buffers: *used,
                quota_bytes: 10 * PAGE,
                grain_bytes: PAGE,
                ..PoolState::default()
            }],
        };
        (1..).zip(pages).map(one).collect()
    }

    #[test]
    fn what_was_used_and_missed_is_what_is_wanted() {
        let recorded = trace(&[(10, 5), (10, 5), (10, 5)]);
        let scenario = from_trace("t", &recorded).expect("a scenario");
        assert_eq!(
            (
                scenario.page_bytes,
                scenario.limit_pages,
                scenario.period_ms
            ),
            (PAGE, 100, 250)
        );
        assert_eq!(scenario.pools[0].first_pages, Some(10));
        let demand = &scenario.apps[0].demand;
        assert!((demand.at(500) - 15.0).abs() < 1e-9, "{demand:?}");
        let run = super::super::run(&scenario, &Config::of("throughput")).expect("a policy");
        let last = run.frames.last().expect("frames");
        assert!(
            last.pools[0].blocked < 0.1 && run.pools == ["video"],
            "{last:?}"
        );
    }

    #[test]
    fn what_is_no_trace() {
        let error = |trace: &[Snapshot]| from_trace("t", trace).expect_err("no trace").to_string();
        assert!(error(&trace(&[(1, 0)])).starts_with("a trace of 1 snapshots"));
        let mut back = trace(&[(1, 0), (1, 0)]);
        back[1].at_ns = back[0].at_ns;
        assert!(error(&back).starts_with("snapshot 2 is of 250000000 ns"));
        back[1].at_ns += 1;
        back.iter_mut().for_each(|s| s.pools.clear());
        assert_eq!(error(&back), "no snapshot of the trace has a pool");
    }
}
