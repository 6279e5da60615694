//! The paper's first predictor: least time spent waiting and collecting.
//!
//! Its four cases, by how cost (callers that wait on average, plus the share of time spent collecting) changed since
//! the last period:
//!
//! 1. it fell, and the pool had more memory: the same amount again;
//! 2. it fell, and there were fewer requests: as much as before;
//! 3. it rose, and the pool had less memory: back to what it had;
//! 4. it rose, and there were more requests: more memory, in proportion to them.
//!
//! Two cases are additions to the paper:
//!
//! 5. Callers wait and no other case fits: as much more as the waiting callers would use (Little's law). If that was
//!    given and did not help, twice as much as last time.
//! 6. No caller waits: no more than was in use at any time of the last [`PERIODS`].
//!
//! A need is always relative to the memory that the pool *has*, so a pool whose wish is not met does not wish for more
//! and more. Memory that was given back too early (case 3) is kept for longer each time.

use crate::config::Config;
use crate::num::{bytes, real};
use crate::round::Activity;

/// Memory that was not in use for this number of periods is given back.
pub(super) const PERIODS: usize = 4;
/// The number of periods for which memory that was missed at once is kept: the first time, and at most.
const KEPT: (u32, u32) = (20, 640);
/// Changes of cost and of requests below this share are none.
const SAME: f64 = 0.1;
/// Less than this share of the need is not worth giving back.
const SLACK: f64 = 0.15;

/// The memory that a pool should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// The need: with less memory callers would wait.
    pub bytes: u64,
    /// The need plus some room for growth.
    pub roomy_bytes: u64,
}

/// The predictor for one pool.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    last: Option<Last>,
    need: u64,
    /// No caller waited.
    calm: bool,
    step: u64,
    peaks: [u64; PERIODS],
    /// Memory that was missed after it had been given back, and the periods for which the next such amount is kept.
    kept: Kept,
    keep_next: u32,
    /// The number of requests at which more memory did not make collecting cheaper.
    futile: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    cost: f64,
    allocs: u64,
    quota: u64,
    roomy: u64,
}

/// A lower bound for a number of further periods, as long as there are as many requests.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    bytes: u64,
    periods: u32,
    allocs: u64,
}

impl Cost {
    /// Returns the need for the next period.
    pub fn predict(&mut self, a: &Activity<'_>, config: &Config) -> Need {
        self.peaks.rotate_right(1);
        self.peaks[0] = a.peak_bytes();
        self.kept.periods = self.kept.periods.saturating_sub(1);
        if above(real(self.kept.allocs), real(a.allocs)) {
            self.kept = Kept::default();
        }
        let callers = f64::from(a.state.rule.callers.max(1));
        self.calm = false;
        self.need = match self.last {
            None => self.peak(),
            Some(last) if a.blocked > config.calm * callers => self.blocked(a, last),
            Some(last) if a.collecting > config.calm_collecting => self.collecting(a, last),
            Some(_) => self.at_rest(),
        };
        let room = bytes(real(self.need) * config.headroom).max(a.state.grain_bytes);
        let roomy = self.need.saturating_add(room);
        self.need = self.need.clamp(a.least_bytes, a.most_bytes);
        let roomy = roomy.max(self.need);
        self.last = Some(Last {
            cost: a.blocked + a.collecting,
            allocs: a.allocs,
            quota: a.state.quota_bytes,
            roomy,
        });
        // When memory is short, no pool is to lack memory that is only slack here.
        let bytes = match self.calm {
            true => self.low().clamp(a.least_bytes, self.need),
            false => self.need,
        };
        Need {
            bytes,
            roomy_bytes: roomy,
        }
    }

    fn peak(&self) -> u64 {
        self.peaks.iter().copied().max().unwrap_or(0)
    }

    fn blocked(&mut self, a: &Activity<'_>, last: Last) -> u64 {
        let quota = a.state.quota_bytes;
        let cost = a.blocked + a.collecting;
        let (rose, fell) = (above(cost, last.cost), above(last.cost, cost));
        let (busier, idler) = (
            above(real(a.allocs), real(last.allocs)),
            above(real(last.allocs), real(a.allocs)),
        );
        let missing = bytes(a.missing_bytes());
        let with_missing = quota.saturating_add(missing);
        if fell && quota > last.quota {
            return with_missing.max(quota + (quota - last.quota)); // 1
        }
        if fell && idler {
            return self.need.max(quota); // 2
        }
        if rose && quota < last.quota {
            self.keep(a, last);
            return last.quota.max(with_missing); // 3
        }
        if rose && busier && last.allocs > 0 {
            let part = (real(a.allocs) / real(last.allocs)).min(2.0);
            return bytes(real(quota) * part).max(with_missing); // 4
        }
        // Case 5: the step is doubled only if the last wish was met, and did not help.
        let least = (quota / 8).max(a.state.grain_bytes);
        self.step = match self.step {
            0 => least,
            step if quota >= self.need => step.saturating_mul(2),
            step => step,
        };
        quota.saturating_add(self.step.max(missing))
    }

    fn collecting(&mut self, a: &Activity<'_>, last: Last) -> u64 {
        let quota = a.state.quota_bytes;
        let cost = a.blocked + a.collecting;
        self.step = 0;
        if let Some(allocs) = self.futile
            && (above(real(a.allocs), real(allocs)) || above(real(allocs), real(a.allocs)))
        {
            self.futile = None;
        }
        if above(cost, last.cost) && quota < last.quota {
            self.keep(a, last);
            return last.quota; // 3
        }
        if quota > last.quota {
            if above(last.cost, cost) {
                return quota + (quota - last.quota); // 1
            }
            self.futile = Some(a.allocs);
        }
        match self.futile {
            Some(_) => self.need.max(self.peak()),
            None => quota.saturating_add((quota / 8).max(a.state.grain_bytes)), // 5
        }
    }

    fn at_rest(&mut self) -> u64 {
        self.calm = true;
        self.step = 0;
        let (peak, low) = (self.peak(), self.low());
        if peak > self.need {
            return peak;
        }
        match real(low) < real(self.need) * (1.0 - SLACK) {
            true => low, // 6
            false => self.need,
        }
    }

    /// Returns the memory that was in use lately, or is kept.
    fn low(&self) -> u64 {
        match self.kept.periods {
            0 => self.peak(),
            _ => self.peak().max(self.kept.bytes),
        }
    }

    /// Keeps memory that the pool misses after it was given back. If that was this policy's own wish, the wish was
    /// wrong.
    fn keep(&mut self, a: &Activity<'_>, last: Last) {
        if last.roomy < last.quota {
            let periods = self.keep_next.clamp(KEPT.0, KEPT.1);
            self.keep_next = periods.saturating_mul(2);
            self.kept = Kept {
                bytes: last.quota,
                periods,
                allocs: a.allocs,
            };
        }
    }
}

fn above(value: f64, other: f64) -> bool {
    value > other * (1.0 + SAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::PoolState;

    const PAGE: u64 = 4096;

    /// One pool under its predictor, period by period.
    struct Pool {
        cost: Cost,
        config: Config,
    }

    impl Pool {
        fn new() -> Pool {
            Pool {
                cost: Cost::default(),
                config: Config::default(),
            }
        }

        /// Takes the pages of the quota and those in use, the callers that waited, the share spent collecting, and the
        /// requests. Returns the need, in pages.
        fn period(
            &mut self,
            quota: u64,
            used: u64,
            blocked: f64,
            collecting: f64,
            allocs: u64,
        ) -> u64 {
            let state = PoolState {
                quota_bytes: quota * PAGE,
                live_bytes: used * PAGE,
                live_buffers: used,
                grain_bytes: PAGE,
                ..PoolState::default()
            };
            let a = Activity {
                state: &state,
                fresh: false,
                blocked,
                collecting,
                collections: 0,
                allocs,
                least_bytes: PAGE,
                most_bytes: 1000 * PAGE,
            };
            self.cost.predict(&a, &self.config).bytes / PAGE
        }
    }

    #[test]
    fn case_1_what_helped_is_done_again() {
        let mut pool = Pool::new();
        pool.period(100, 100, 4.0, 0.0, 1000);
        pool.period(100, 100, 4.0, 0.0, 1000);
        assert_eq!(pool.period(120, 120, 2.0, 0.0, 1000), 140);
        // Time spent collecting counts without waiting, too, until more memory no longer helps.
        let mut pool = Pool::new();
        pool.period(100, 90, 0.0, 0.4, 1000);
        assert_eq!(pool.period(100, 90, 0.0, 0.4, 1000), 112);
        assert_eq!(pool.period(112, 90, 0.0, 0.3, 1000), 124);
        assert_eq!(pool.period(124, 90, 0.0, 0.29, 1000), 124);
        assert_eq!(pool.period(124, 90, 0.0, 0.29, 1000), 124);
    }

    #[test]
    fn case_2_fewer_requests_leave_it_as_it_is() {
        let mut pool = Pool::new();
        pool.period(100, 100, 4.0, 0.0, 1000);
        let need = pool.period(100, 100, 4.0, 0.0, 1000);
        assert_eq!(pool.period(100, 100, 2.0, 0.0, 500), need);
    }

    #[test]
    fn case_3_what_was_taken_and_missed_comes_back_and_stays() {
        let mut pool = Pool::new();
        for _ in 0..=PERIODS {
            pool.period(100, 50, 0.0, 0.0, 1000);
        }
        assert_eq!(pool.period(100, 50, 0.0, 0.0, 1000), 50, "given back");
        assert_eq!(pool.period(56, 56, 3.0, 0.0, 1000), 100, "missed");
        // This is not tried again for a while, however little is in use; but at once if there is less to do.
        for _ in 0..KEPT.0 - 1 {
            assert_eq!(pool.period(100, 50, 0.0, 0.0, 1000), 100);
        }
        assert_eq!(pool.period(100, 50, 0.0, 0.0, 1000), 50, "tried again");
        assert_eq!(pool.period(56, 56, 3.0, 0.0, 1000), 100, "missed again");
        for _ in 0..PERIODS {
            pool.period(100, 10, 0.0, 0.0, 100);
        }
        assert_eq!(pool.period(100, 10, 0.0, 0.0, 100), 10);
    }

    #[test]
    fn case_4_more_requests_get_more_in_proportion() {
        let mut pool = Pool::new();
        pool.period(100, 90, 0.0, 0.0, 1000);
        assert_eq!(pool.period(100, 100, 1.0, 0.0, 1500), 150);
        // The waiting callers' need is the minimum, and twice as much the maximum.
        let mut pool = Pool::new();
        pool.period(100, 90, 0.0, 0.0, 1000);
        assert_eq!(pool.period(100, 100, 80.0, 0.0, 1500), 180);
        let mut pool = Pool::new();
        pool.period(100, 90, 0.0, 0.0, 1000);
        assert_eq!(pool.period(100, 100, 1.0, 0.0, 9000), 200);
    }

    #[test]
    fn case_5_one_caller_that_collects_many_gets_twice_as_much_more_each_time() {
        let mut pool = Pool::new();
        pool.period(5, 5, 1.0, 0.0, 5);
        let mut quota = 5;
        let mut periods = 0;
        while quota < 64 {
            quota = pool.period(quota, quota, 1.0, 0.0, 5);
            periods += 1;
        }
        assert!(periods <= 6, "{periods} periods from 5 to {quota}");
        // A wish that is not met does not grow.
        let wish = pool.period(quota, quota, 1.0, 0.0, 5);
        for _ in 0..10 {
            assert_eq!(pool.period(quota, quota, 1.0, 0.0, 5), wish);
        }
    }

    #[test]
    fn case_6_what_nobody_used_for_some_periods_is_given_back() {
        let mut pool = Pool::new();
        pool.period(100, 90, 0.0, 0.0, 1000);
        for _ in 1..PERIODS {
            assert_eq!(pool.period(100, 20, 0.0, 0.0, 1000), 90);
        }
        assert_eq!(pool.period(100, 20, 0.0, 0.0, 1000), 20);
    }
}
