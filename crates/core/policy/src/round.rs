//! The events between two snapshots.

use crate::num::real;
use crate::snapshot::{PoolState, Snapshot};
use std::collections::BTreeMap;

/// One period, as policies see it.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// The length of the period, ns.
    pub elapsed_ns: u64,
    /// The most for all quotas together, bytes.
    pub limit_bytes: u64,
    /// Each pool once, as in the snapshot.
    pub pools: Vec<Activity<'a>>,
}

/// One pool's activity in the round.
#[derive(Clone, Debug)]
pub struct Activity<'a> {
    /// The pool's state at the end.
    pub state: &'a PoolState,
    /// The pool was not there before, so nothing is known of the period.
    pub fresh: bool,
    /// The number of callers that waited, on average.
    pub blocked: f64,
    /// Share of the time that was spent collecting.
    pub collecting: f64,
    /// Collections.
    pub collections: u64,
    /// Buffers handed out.
    pub allocs: u64,
    /// The pool's least and most memory, bytes: its rule in multiples of its grain, within the limit.
    pub least_bytes: u64,
    /// See `least_bytes`.
    pub most_bytes: u64,
}

impl Activity<'_> {
    /// Returns the most bytes in use in the period.
    pub fn peak_bytes(&self) -> u64 {
        self.state.peak_bytes.max(self.state.live_bytes)
    }

    /// Returns the memory that the waiting callers would have used on average: each as much as a buffer in use has
    /// (Little's law).
    pub fn missing_bytes(&self) -> f64 {
        let s = self.state;
        let each = match s.live_buffers {
            0 => real(s.grain_bytes),
            n => real(s.live_bytes) / real(n),
        };
        self.blocked * each.max(1.0)
    }
}

impl<'a> Round<'a> {
    /// Compares a snapshot with the one before it. Without an earlier one every pool is fresh. A policy is given its
    /// rounds, so only a governor and the simulator call this.
    #[doc(hidden)]
    pub fn since(earlier: Option<&Snapshot>, snapshot: &'a Snapshot) -> Round<'a> {
        let elapsed_ns = snapshot
            .at_ns
            .saturating_sub(earlier.map_or(0, |e| e.at_ns));
        let time = real(elapsed_ns.max(1));
        let before: BTreeMap<u32, &PoolState> = (earlier.iter())
            .flat_map(|e| &e.pools)
            .map(|p| (p.id, p))
            .collect();
        let bounds = bounds(snapshot);
        let activity = |(state, (least_bytes, most_bytes)): (&'a PoolState, (u64, u64))| {
            let since = |b: &&PoolState| {
                Some([
                    state.blocked_ns.checked_sub(b.blocked_ns)?,
                    state.collect_ns.checked_sub(b.collect_ns)?,
                    state.collections.checked_sub(b.collections)?,
                    state.allocs.checked_sub(b.allocs)?,
                ])
            };
            let change = before.get(&state.id).and_then(since);
            let [blocked, collecting, collections, allocs] = change.unwrap_or_default();
            Activity {
                state,
                fresh: change.is_none(),
                blocked: real(blocked) / time,
                collecting: real(collecting) / time,
                collections,
                allocs,
                least_bytes,
                most_bytes,
            }
        };
        Round {
            elapsed_ns,
            limit_bytes: snapshot.limit_bytes,
            pools: snapshot.pools.iter().zip(bounds).map(activity).collect(),
        }
    }
}

/// Returns the least and the most of each pool. Minimums that do not fit are cut in proportion.
fn bounds(snapshot: &Snapshot) -> Vec<(u64, u64)> {
    use crate::num::{bytes, down, up};
    let limit = snapshot.limit_bytes;
    let least = |p: &PoolState| {
        let grain = p.grain_bytes.max(1);
        let most = down(p.rule.max_bytes, grain);
        up(p.rule.min_bytes, grain).max(grain).min(most)
    };
    let sum = (snapshot.pools.iter()).fold(0u64, |sum, p| sum.saturating_add(least(p)));
    let fits = |p: &PoolState, bytes_: u64| match sum > limit {
        true => down(
            bytes(real(bytes_) * (real(limit) / real(sum))).min(limit),
            p.grain_bytes,
        ),
        false => bytes_,
    };
    (snapshot.pools.iter())
        .map(|p| {
            let least = fits(p, least(p));
            let most = down(p.rule.max_bytes.min(limit), p.grain_bytes);
            (least, most.max(least))
        })
        .collect()
}
