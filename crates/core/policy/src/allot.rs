//! Divides the limit: minimums first, then wishes by rank, and within a rank all pools up to one common level.
//!
//! That is max-min fairness by weight. The paper cuts all wishes in proportion instead. A pool that has more then
//! wishes for more, and two pools that want everything drift, or swing.

use crate::num::{bytes, down, real};
use crate::policy::Wish;
use crate::round::Activity;

/// Returns bytes for each pool, in multiples of its grain, the sum within `limit`.
pub(crate) fn allot(pools: &[Activity<'_>], wishes: &[Wish], limit: u64) -> Vec<u64> {
    let mut has: Vec<u64> = pools.iter().map(|a| a.least_bytes).collect();
    let mut ranks: Vec<u32> = wishes.iter().map(|w| w.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank in ranks {
        let mut goal = has.clone();
        for wish in wishes.iter().filter(|w| w.rank == rank) {
            if let (Some(a), Some(goal)) = (pools.get(wish.pool), goal.get_mut(wish.pool)) {
                let grain = a.state.grain_bytes;
                let up = crate::num::up(wish.up_to_bytes, grain);
                *goal = (*goal).max(up.min(a.most_bytes));
            }
        }
        raise(pools, &mut has, &goal, limit);
    }
    has
}

/// Raises every pool towards its goal, as far as the limit allows.
fn raise(pools: &[Activity<'_>], has: &mut [u64], goal: &[u64], limit: u64) {
    let sum = |of: &[u64]| of.iter().fold(0u64, |sum, b| sum.saturating_add(*b));
    if sum(goal) <= limit {
        has.copy_from_slice(goal);
        return;
    }
    let at = |level: f64| {
        let one = |((a, has), goal): ((&Activity<'_>, &u64), &u64)| {
            let part = bytes(level * f64::from(a.state.rule.weight.max(1)));
            down(part, a.state.grain_bytes).clamp(*has, *goal)
        };
        let all = pools.iter().zip(&*has).zip(goal);
        all.map(one).collect::<Vec<u64>>()
    };
    let (mut low, mut high) = (0.0, real(limit) + 1.0);
    // The bisection ends when its bounds are less than a byte apart, for any size.
    for _ in 0..64 {
        let level = (low + high) / 2.0;
        match sum(&at(level)) <= limit {
            true => low = level,
            false => high = level,
        }
    }
    let mut next = at(low);
    // The rest is less than one grain for each pool that still wants: one each, in order, as far as it goes.
    let mut left = limit.saturating_sub(sum(&next));
    for ((a, next), goal) in pools.iter().zip(&mut next).zip(goal) {
        let grain = a.state.grain_bytes.max(1);
        if *next < *goal && left >= grain {
            let more = grain.min(*goal - *next);
            *next += more;
            left -= more;
        }
    }
    has.copy_from_slice(&next);
}
