//! Sleeping without a flag: the writer of a broadcast cannot read a flag of each reader at every publish.
//!
//! The writer reads a clock after each publish. If more than [`X_NS`] passed since the reading before the previous
//! publish, the writer raises the word of each user whose readers may sleep, and wakes as many threads as that user has
//! readers. A reader sleeps long only if it has seen nothing new for [`T_NS`]. Such a reader saw the previous line at
//! least that long ago, and not this one. So the gap before this one is long, and its publish wakes.
//!
//! The rule assumes that a store becomes visible within `T_NS - X_NS`. A message out of a burst that meets a reader in
//! its first [`T_NS`] of waiting is seen after at most that time. A writer without a steady counter wakes at every
//! publish.

use crate::wait::{Futex, Point, ROUND};
use std::time::Duration;
use tranship_sync::atomic::{AtomicU32, Ordering};

/// A writer wakes after a gap longer than this, ns.
pub const X_NS: u64 = 20_000;
/// A reader sleeps long after it has seen nothing new for this time, ns.
pub const T_NS: u64 = 100_000;

/// The writer's half: tells which publishes wake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gaps {
    limit: u64,
    /// The readings after the previous publish and after the one before it.
    last: u64,
    before: u64,
}

impl Gaps {
    /// Makes the rule for a gap of `limit`, in the clock's unit.
    pub const fn new(limit: u64) -> Gaps {
        Gaps {
            limit,
            last: 0,
            before: 0,
        }
    }

    /// Says whether a publish wakes. `now` was read after the line was stored.
    #[inline(always)]
    pub fn wakes(&mut self, now: u64) -> bool {
        let gap = now.wrapping_sub(self.before);
        self.before = self.last;
        self.last = now;
        gap > self.limit
    }
}

/// A reader's half: tells how long a sleep may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quiet {
    limit: u64,
    since: u64,
}

impl Quiet {
    /// Makes the rule for a reader that begins at the time `now`, and sleeps long after `limit`.
    pub const fn new(limit: u64, now: u64) -> Quiet {
        Quiet { limit, since: now }
    }

    /// Notes the time after a message was taken.
    #[inline]
    pub fn saw(&mut self, now: u64) {
        self.since = now;
    }

    /// Says whether the reader may sleep long. `now` was read before the look that finds nothing, and the writer's word
    /// before that.
    #[inline]
    pub fn may_sleep(&self, now: u64) -> bool {
        now.wrapping_sub(self.since) >= self.limit
    }
}

/// Waits until `ready` gives a value, or until one wait is over, which takes at most `most`. `word` is the writer's, in
/// the page of the own user.
pub fn wait<F: Futex, T>(
    futex: &F,
    word: &AtomicU32,
    quiet: &Quiet,
    most: Duration,
    now_ns: impl FnOnce() -> u64,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<Option<T>, F::Error> {
    // Ordering: acquire; partner: the release store by which the writer raises the word. A reader that sees it raised
    // sees the line.
    let seen = word.load(Ordering::Acquire);
    let limit = match quiet.may_sleep(now_ns()) {
        true => ROUND,
        false => Duration::from_nanos(T_NS),
    };
    if let Some(value) = ready() {
        return Ok(Some(value));
    }
    futex.wait_any(&[Point::seen(word, seen)], limit.min(most))?;
    Ok(ready())
}

/// The writer's clock: a processor's counter, whose rate is found while it is used.
#[derive(Clone, Debug)]
pub struct Ticks {
    /// A reading of the counter, and the time then, ns. None: there is no steady counter.
    begun: Option<(u64, u64)>,
    gaps: Option<Gaps>,
}

/// Ticks between the two readings by which the rate is found: about a millisecond.
const ENOUGH: u64 = 1 << 22;

impl Ticks {
    /// Begins. `counter` is a reading of a counter that runs steadily, at the same rate on all processors; None if the
    /// machine has none.
    pub fn new(counter: Option<u64>, now_ns: u64) -> Ticks {
        Ticks {
            begun: counter.map(|counter| (counter, now_ns)),
            gaps: None,
        }
    }

    /// Says whether a publish wakes. Before the rate is known, every one does.
    #[inline(always)]
    pub fn wakes(&mut self, counter: impl FnOnce() -> u64, now_ns: impl FnOnce() -> u64) -> bool {
        match &mut self.gaps {
            Some(gaps) => gaps.wakes(counter()),
            None => self.calibrate(counter, now_ns),
        }
    }

    #[cold]
    fn calibrate(&mut self, counter: impl FnOnce() -> u64, now_ns: impl FnOnce() -> u64) -> bool {
        if let Some((begun, begun_ns)) = self.begun {
            let ticks = counter().wrapping_sub(begun);
            if ticks >= ENOUGH {
                let ns = now_ns().saturating_sub(begun_ns).max(1);
                let limit = u128::from(ticks) * u128::from(X_NS) / u128::from(ns);
                self.gaps = Some(Gaps::new(u64::try_from(limit).unwrap_or(0)));
            }
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_that_since_the_reading_before_the_previous_publish() {
        let mut gaps = Gaps::new(10);
        assert!(gaps.wakes(100), "the first");
        assert!(
            gaps.wakes(101),
            "the second: nothing is known of the first gap"
        );
        assert!(!gaps.wakes(105));
        // 14 since 101 is long; 14 since 105 is, too.
        assert!(gaps.wakes(112));
        assert!(gaps.wakes(119), "14 since 105");
        assert!(!gaps.wakes(120), "8 since 112");
    }

    #[test]
    fn a_reader_sleeps_long_only_after_a_quiet_time() {
        let mut quiet = Quiet::new(100, 50);
        assert!(!quiet.may_sleep(149));
        assert!(quiet.may_sleep(150));
        quiet.saw(150);
        assert!(!quiet.may_sleep(249));
    }

    #[test]
    fn the_rate_is_found_in_use() {
        let mut ticks = Ticks::new(Some(0), 0);
        // 3 ticks a ns.
        let mut at = |counter: u64| ticks.wakes(|| counter, || counter / 3);
        assert!(at(10) && at(20), "not known yet");
        assert!(at(ENOUGH), "now it is");
        assert!(
            at(ENOUGH + 1) && at(ENOUGH + 2),
            "nothing is known of earlier ones"
        );
        assert!(!at(ENOUGH + 3));
        assert!(!at(ENOUGH + 3 * X_NS));
        assert!(at(ENOUGH + 9 * X_NS));
    }

    #[test]
    fn without_a_counter_every_publish_wakes() {
        let mut ticks = Ticks::new(None, 0);
        assert!((0..100).all(|_| ticks.wakes(|| panic!("there is none"), || 0)));
    }
}
