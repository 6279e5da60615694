//! Sleeping without a flag: the writer of a broadcast cannot read a flag of each reader at every publish.
//!
//! The writer reads a clock after each publish. If more than [`X_NS`] passed since the reading before the last publish
//! but one, the writer raises the word of each user whose readers may sleep, and wakes as many threads as that user has
//! readers. A reader sleeps long only if it has seen at most one new line for [`T_NS`]. Such a reader saw the last line
//! but one at least that long ago, and not this one. So more than [`X_NS`] passed, and the publish of this one wakes.
//!
//! A reader that is sent a line now and then therefore sleeps once for each: it need not look again after [`T_NS`].
//!
//! The rule assumes that a store becomes visible within `T_NS - X_NS`. A message out of a burst that meets a reader
//! which saw two lines within [`T_NS`] is seen after at most that time. A writer without a steady counter wakes at every
//! publish.

use crate::wait::{Futex, MAX_WORDS, Point, ROUND, SETTLE};
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
    /// The readings after the last three publishes, the last one first.
    readings: [u64; 3],
}

impl Gaps {
    /// Makes the rule for a gap of `limit`, in the clock's unit.
    pub const fn new(limit: u64) -> Gaps {
        Gaps {
            limit,
            readings: [0; 3],
        }
    }

    /// Says whether a publish wakes. `now` was read after the line was stored.
    #[inline(always)]
    pub fn wakes(&mut self, now: u64) -> bool {
        let [last, before, first] = self.readings;
        self.readings = [now, last, before];
        now.wrapping_sub(first) > self.limit
    }
}

/// A reader's half: tells how long a sleep may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quiet {
    limit: u64,
    /// When the last line but one was seen, and the last one.
    before: u64,
    last: u64,
}

impl Quiet {
    /// Makes the rule for a reader that begins at the time `now`, and sleeps long after `limit`.
    pub const fn new(limit: u64, now: u64) -> Quiet {
        Quiet {
            limit,
            before: now,
            last: now,
        }
    }

    /// Notes the time after a message was taken, the only one since the last note.
    #[inline]
    pub fn saw(&mut self, now: u64) {
        self.before = self.last;
        self.last = now;
    }

    /// Notes the time after several messages were taken, or an unknown number.
    #[inline]
    pub fn saw_many(&mut self, now: u64) {
        self.before = now;
        self.last = now;
    }

    /// Says whether the reader may sleep long. `now` was read before the look that finds nothing, and the writer's word
    /// before that.
    #[inline]
    pub fn may_sleep(&self, now: u64) -> bool {
        now.wrapping_sub(self.before) >= self.limit
    }
}

/// A writer's word, in the page of the own user, and what its reader knows of the time since its last message.
#[derive(Clone, Copy, Debug)]
pub struct BellAt<'a> {
    /// The word.
    pub word: &'a AtomicU32,
    /// The time.
    pub quiet: &'a Quiet,
}

/// Waits until `ready` gives a value, or until one wait is over, which takes at most `most`. `word` is the writer's, in
/// the page of the own user.
pub fn wait<F: Futex, T>(
    futex: &F,
    word: &AtomicU32,
    quiet: &Quiet,
    most: Duration,
    now_ns: impl FnOnce() -> u64,
    ready: impl FnMut() -> Option<T>,
) -> Result<Option<T>, F::Error> {
    wait_any(futex, &[BellAt { word, quiet }], None, most, now_ns, ready)
}

/// Waits as [`wait`] does, for several writers, and for a word that its writer raises and wakes by each time. Of more
/// writers than one system call takes ([`MAX_WORDS`]), those beyond are looked at each millisecond.
pub fn wait_any<F: Futex, T>(
    futex: &F,
    bells: &[BellAt<'_>],
    also: Option<&AtomicU32>,
    most: Duration,
    now_ns: impl FnOnce() -> u64,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<Option<T>, F::Error> {
    let words = also.into_iter().chain(bells.iter().map(|bell| bell.word));
    // Ordering: acquire; partner: the release store by which the writer raises the word. A reader that sees it raised
    // sees the line.
    let points = words.map(|word| Point::seen(word, word.load(Ordering::Acquire)));
    let points: Vec<Point<'_>> = points.take(MAX_WORDS).collect();
    let now = now_ns();
    let limit = match bells.iter().all(|bell| bell.quiet.may_sleep(now)) {
        true if bells.len() < MAX_WORDS => ROUND,
        true => SETTLE,
        false => Duration::from_nanos(T_NS),
    };
    if let Some(value) = ready() {
        return Ok(Some(value));
    }
    futex.wait_any(&points, limit.min(most))?;
    Ok(ready())
}

/// Raises a bell's word, and wakes its readers by `wake`. The line, or the end of the ring, is stored before. Only the
/// bell's writer calls it, one thread at a time.
///
/// Each call gives the word another value. A reader that looked before the store therefore does not go to sleep after it.
// Crash: a writer that dies before the wake-up leaves readers asleep for at most a round.
pub fn ring_bell(word: &AtomicU32, wake: impl FnOnce(&AtomicU32)) {
    // Ordering: relaxed; the writer's own word.
    let next = word.load(Ordering::Relaxed).wrapping_add(1);
    // Ordering: release; partner: the acquire in `wait_any`.
    word.store(next, Ordering::Release);
    wake(word);
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
    fn the_gap_is_that_since_the_reading_before_the_last_publish_but_one() {
        let mut gaps = Gaps::new(10);
        let first = [100, 101, 102].map(|now| gaps.wakes(now));
        assert_eq!(first, [true; 3], "nothing is known of earlier ones");
        assert!(!gaps.wakes(105));
        assert!(gaps.wakes(112), "11 since 101");
        assert!(gaps.wakes(113), "11 since 102");
        assert!(!gaps.wakes(114), "9 since 105");
    }

    #[test]
    fn a_reader_sleeps_long_only_after_a_quiet_time() {
        let mut quiet = Quiet::new(100, 50);
        assert!(!quiet.may_sleep(149));
        assert!(quiet.may_sleep(150));
        quiet.saw(150);
        assert!(quiet.may_sleep(151), "one in so long a time");
        quiet.saw(160);
        assert!(!quiet.may_sleep(249), "two");
        assert!(quiet.may_sleep(250));
        quiet.saw_many(300);
        assert!(!quiet.may_sleep(399));
        assert!(quiet.may_sleep(400));
    }

    #[test]
    fn the_rate_is_found_in_use() {
        let mut ticks = Ticks::new(Some(0), 0);
        // 3 ticks a ns.
        let mut at = |counter: u64| ticks.wakes(|| counter, || counter / 3);
        assert!(at(10) && at(20), "not known yet");
        assert!(at(ENOUGH), "now it is");
        let first = [1, 2, 3].map(|more| at(ENOUGH + more));
        assert_eq!(first, [true; 3], "nothing is known of earlier ones");
        assert!(!at(ENOUGH + 4));
        assert!(!at(ENOUGH + 3 * X_NS));
        assert!(at(ENOUGH + 9 * X_NS));
    }

    #[test]
    fn without_a_counter_every_publish_wakes() {
        let mut ticks = Ticks::new(None, 0);
        assert!((0..100).all(|_| ticks.wakes(|| panic!("there is none"), || 0)));
    }
}
