//! How far quotas move towards the allotted ones in one period.

use crate::num::{bytes, down, real, up};
use crate::round::Activity;

/// If all changes are below this share, moving memory is not worthwhile.
const STILL: f64 = 0.01;

/// Returns the next quotas: no quota moves by more than `step`, and the sum stays within `limit`. If both are
/// impossible, the limit holds.
///
/// `wanted` is within the limit, in multiples of the grains, and no quota in it is below its pool's least.
pub(crate) fn pace(pools: &[Activity<'_>], wanted: &[u64], limit: u64, step: u64) -> Vec<u64> {
    let now: Vec<u64> = pools.iter().map(|a| a.state.quota_bytes).collect();
    let all = || pools.iter().zip(wanted).zip(&now);
    let sum = |of: &[u64]| of.iter().fold(0u64, |sum, b| sum.saturating_add(*b));
    let fits = |now: u64, a: &Activity<'_>| {
        (a.least_bytes..=a.most_bytes).contains(&now)
            && now.is_multiple_of(a.state.grain_bytes.max(1))
    };
    let small = |((a, wanted), now): ((&Activity<'_>, &u64), &u64)| {
        fits(*now, a) && real(wanted.abs_diff(*now)) <= STILL * real(*now)
    };
    if sum(&now) <= limit && all().all(small) {
        return now;
    }
    // Quotas go down first: the bounded step determines how much they keep beyond their goals.
    let mut next: Vec<u64> = all()
        .map(|((a, wanted), now)| match wanted < now {
            true => {
                let grain = a.state.grain_bytes;
                let kept = up(now.saturating_sub(step.max(grain)), grain);
                kept.max(*wanted).min(a.most_bytes)
            }
            false => down(*now, a.state.grain_bytes).max(a.least_bytes),
        })
        .collect();
    let over = sum(&next).saturating_sub(limit);
    if over > 0 {
        give_up(pools, &mut next, wanted, over);
        return next;
    }
    // Then quotas go up, by the memory that is free now.
    let raise: Vec<u64> = (pools.iter().zip(wanted).zip(&next))
        .map(|((a, wanted), next)| {
            let most = down(step, a.state.grain_bytes).max(a.state.grain_bytes);
            wanted.saturating_sub(*next).min(most)
        })
        .collect();
    let (room, asked) = (limit - sum(&next), sum(&raise));
    let part = (real(room) / real(asked.max(1))).min(1.0);
    for ((a, next), raise) in pools.iter().zip(&mut next).zip(&raise) {
        let more = match asked <= room {
            true => *raise,
            false => down(bytes(real(*raise) * part), a.state.grain_bytes),
        };
        *next += more;
    }
    // The rest from rounding down, in order.
    let mut left = limit.saturating_sub(sum(&next));
    for (((a, next), wanted), before) in pools.iter().zip(&mut next).zip(wanted).zip(&now) {
        let grain = a.state.grain_bytes.max(1);
        let bounded = next.saturating_sub(*before) + grain <= step.max(grain);
        if *next + grain <= *wanted && left >= grain && bounded {
            *next += grain;
            left -= grain;
        }
    }
    next
}

/// Takes the excess from pools that keep more than their goals; together they keep enough.
fn give_up(pools: &[Activity<'_>], next: &mut [u64], wanted: &[u64], over: u64) {
    let spare = |next: &[u64]| {
        let all = next.iter().zip(wanted);
        all.fold(0u64, |sum, (n, w)| sum.saturating_add(n.saturating_sub(*w)))
    };
    let part = (real(over) / real(spare(next).max(1))).min(1.0);
    let mut left = over;
    for ((a, next), wanted) in pools.iter().zip(&mut *next).zip(wanted) {
        let most = next.saturating_sub(*wanted);
        let less = up(bytes(real(most) * part), a.state.grain_bytes).min(most);
        let less = less.min(up(left, a.state.grain_bytes));
        *next -= less;
        left = left.saturating_sub(less);
    }
    // Rounding may have left some.
    for (next, wanted) in next.iter_mut().zip(wanted) {
        let less = next.saturating_sub(*wanted).min(left);
        if less > 0 {
            left = left.saturating_sub(*next - *wanted);
            *next = *wanted;
        }
    }
}
