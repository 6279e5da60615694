//! Sleeping and waking across two domains (`docs/format.md`, links; the futex word lies in the waker's page, the flag
//! that says "I sleep" in the sleeper's).
//!
//! | sleeper | waker |
//! |---|---|
//! | reads the word | publishes |
//! | sets its `asleep` | fences |
//! | fences | if the peer's `asleep` is set: |
//! | looks again | increments its word, once a sleep |
//! | waits on the word, if it is still what was read | wakes the waiters of its word |
//!
//! With the two fences, at least one side sees the other: the sleeper sees the publication, or the waker sees the flag.
//! The sleeper reads the word before it looks again, so that a wake-up before the wait counts. The flag contains the
//! word. A sleeper that was woken but did not run yet is therefore not woken again. A peer that lies can only make its
//! partner sleep a [`ROUND`] too long, or spin, because every wait is bounded.

use std::time::{Duration, Instant};

use crate::everybody::fence_everybody;
use tranship_sync::atomic::{AtomicU32, Ordering, fence};

/// Most words of one system call.
pub const MAX_WORDS: usize = 127;
/// The longest single wait. After it the sleeper checks its condition again, whatever the peer does.
pub const ROUND: Duration = Duration::from_millis(100);
/// The longest first wait of a sleep when a waker does not fence (see [`Waker::Lazy`]), and the longest wait on one of
/// several groups of [`MAX_WORDS`].
pub const SETTLE: Duration = Duration::from_millis(1);

/// The reason why [`Futex::wait_any`] returned. The caller must not rely on it, and looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The sleeper was woken or interrupted, or one of the words had changed already.
    Woken,
    /// The time is over.
    TimedOut,
}

/// Waiting on shared words, as the kernel (or a model of it) does.
pub trait Futex {
    /// The error of a failed wait.
    type Error;
    /// Waits at most `limit` until woken on one of 1 to [`MAX_WORDS`] points, unless a point's word is not `seen`. An
    /// interruption by a signal counts as woken.
    fn wait_any(&self, points: &[Point<'_>], limit: Duration) -> Result<Waited, Self::Error>;
}

/// A word by which a sleeper is woken.
#[derive(Debug, Clone, Copy)]
pub struct Point<'a> {
    /// The futex word in the waker's page.
    pub wake: &'a AtomicU32,
    /// The word's value when the sleeper read it.
    pub seen: u32,
    /// Our flag, in our page, that this waker reads. `None` if the waker always wakes (the manager's control page, a
    /// domain that releases a buffer). One thread at a time sleeps with a flag: the first to wake up clears it for all.
    asleep: Option<&'a AtomicU32>,
}

impl<'a> Point<'a> {
    /// Makes a point for a peer that wakes this end if its flag says so.
    pub(crate) fn peer(wake: &'a AtomicU32, asleep: &'a AtomicU32) -> Self {
        Self {
            asleep: Some(asleep),
            ..Self::always(wake)
        }
    }

    /// Makes a point for a waker that always wakes.
    pub fn always(wake: &'a AtomicU32) -> Self {
        Self::seen(wake, 0)
    }

    /// Makes a point for a waker that always wakes, with the value that the caller has already read.
    pub fn seen(wake: &'a AtomicU32, seen: u32) -> Self {
        Self {
            wake,
            seen,
            asleep: None,
        }
    }
}

/// How a domain sleeps: the two lowest bits of its flag `asleep`. The other bits hold the waker's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Asleep {
    /// Sleeps on the futex word.
    Futex = 1,
    /// Sleeps on its descriptor.
    Descriptor = 2,
}

/// The flag of an end that is awake.
pub(crate) const AWAKE: u32 = 0;
/// The flag of an end that checks its ring repeatedly without sleeping. A publisher then needs no fence to find out
/// whether it sleeps.
pub(crate) const SPINNING: u32 = 3;
const HOW: u32 = 3;

/// Says whether an end with this flag waits to be woken.
#[inline(always)]
pub fn is_asleep(flag: u32) -> bool {
    flag != AWAKE && flag != SPINNING
}

impl Asleep {
    /// Makes the flag of an end that sleeps since the waker's word was `seen`.
    fn flag(self, seen: u32) -> u32 {
        (seen << HOW.count_ones()) | self as u32
    }

    /// Decodes a flag that is not [`AWAKE`]. A value that the format does not name gets a futex wake-up.
    pub(crate) fn from_flag(flag: u32) -> Self {
        match flag & HOW {
            2 => Self::Descriptor,
            _ => Self::Futex,
        }
    }
}

/// The wakers' promise about fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waker {
    /// Every waker fences between publishing and reading the sleeper's flag.
    Fences,
    /// Some wakers do not fence: a consumer that gives lines back with plain stores keeps locked instructions off its
    /// path. The first wait of a sleep is then at most [`SETTLE`], many times the time that a store takes to become
    /// visible. The flag stays set, and the next publisher sees it.
    Lazy,
}

/// The result of a [`sleep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slept<T> {
    /// The condition gave this.
    Ready(T),
    /// The deadline passed, and the condition, checked after it, gave no value.
    TimedOut,
}

/// Does the sleeper's first three steps. After it the caller **looks again**, and then either [`disarm`]s or waits (on
/// the points, or, for [`Asleep::Descriptor`], in its poll loop until the descriptor is readable).
///
/// Returns whether a word has changed since the last time. In that case a sleep was ended, and goes on as a new one.
pub(crate) fn arm(points: &mut [Point<'_>], how: Asleep) -> bool {
    let mut new = false;
    for point in &mut *points {
        // Ordering: acquire; partner: the release increment in `end_sleep`. If the word is already incremented, the
        // second look sees what was published before. (With a waker that fences, the two fences guarantee this too; a
        // lazy waker needs this acquire.)
        let seen = point.wake.load(Ordering::Acquire);
        new |= seen != point.seen;
        point.seen = seen;
    }
    let mut spun = false;
    for point in &*points {
        if let Some(asleep) = point.asleep {
            // Relaxed: this end's own word.
            spun |= asleep.load(Ordering::Relaxed) == SPINNING;
            // Ordering: relaxed; the fence below orders it before the look again.
            asleep.store(how.flag(point.seen), Ordering::Relaxed);
        }
    }
    // Ordering: partner: the waker's fence (or SeqCst publish) before it loads `asleep`.
    fence(Ordering::SeqCst);
    if spun {
        // Ordering: partner: a waker that found this end spinning, and has not fenced between its publish and its load
        // of `asleep`. This makes it fence now.
        fence_everybody();
    }
    new
}

/// Clears the flag if it says that this end sleeps. An end that spins keeps its flag: publishers leave out their fence
/// for it, so it would miss that fence between spinning and awake.
// Crash: a sleeper that dies armed leaves its flag set; its peer makes useless wake-ups until it learns of the
// death.
pub(crate) fn disarm(points: &[Point<'_>]) {
    for asleep in points.iter().filter_map(|point| point.asleep) {
        // Ordering: relaxed, both; this end's own word, and a late clear costs the peer a needless wake-up.
        if asleep.load(Ordering::Relaxed) != SPINNING {
            asleep.store(AWAKE, Ordering::Relaxed);
        }
    }
}

/// Sleeps until `ready` returns a value or the deadline passes. `ready` is called at least once, and once more per
/// wait. It must be cheap, and acquire what it reads.
///
/// Without points there is nothing to wait on: the call times out after the first look.
pub fn sleep<F: Futex, T>(
    futex: &F,
    points: &mut [Point<'_>],
    waker: Waker,
    deadline: Option<Instant>,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<Slept<T>, F::Error> {
    let groups = points.len().div_ceil(MAX_WORDS);
    let mut round = 0usize;
    let result = loop {
        let new = arm(points, Asleep::Futex) || round == 0;
        if let Some(value) = ready() {
            break Ok(Slept::Ready(value));
        }
        let mut limit = if groups > 1 || (waker == Waker::Lazy && new) {
            SETTLE
        } else {
            ROUND
        };
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Ok(Slept::TimedOut);
            }
            limit = limit.min(left);
        }
        let Some(group) = points.chunks(MAX_WORDS).nth(round % groups.max(1)) else {
            break Ok(Slept::TimedOut);
        };
        if let Err(error) = futex.wait_any(group, limit) {
            break Err(error);
        }
        round = round.wrapping_add(1);
    };
    disarm(points);
    result
}

/// Waits once, for a bounded time, without reading the clock. It serves callers whose waits are short, because two
/// clock readings would cost a tenth of the wait. Returns `None` if nothing is ready yet, for any reason; continue with
/// [`sleep`].
///
/// Every waker must fence ([`Waker::Fences`]).
pub fn sleep_once<F: Futex, T>(
    futex: &F,
    points: &mut [Point<'_>],
    limit: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<Option<T>, F::Error> {
    arm(points, Asleep::Futex);
    let mut result = Ok(ready());
    if let Ok(None) = result {
        result = futex.wait_any(points, limit).map(|_| ready());
    }
    disarm(points);
    result
}

/// Does the waker's second half, after it found the peer's flag set: ends the peer's sleep, once. `wake` wakes by the
/// word or by the peer's descriptor. If `wake` returns false, the next publisher tries again.
#[cold]
pub(crate) fn end_sleep(
    flag: u32,
    ended: &AtomicU32,
    my_wake: &AtomicU32,
    wake: impl FnOnce(Asleep) -> bool,
) {
    // Ordering: relaxed; a thread that ends a sleep has published before, so a single end is enough for all. A peer
    // that sleeps again has seen another word, and after that looked at the lines that the others published.
    if ended.swap(flag, Ordering::Relaxed) == flag {
        return;
    }
    // Crash: a waker that dies before the wake leaves its peer asleep for the rest of a round. Then the peer looks
    // again and finds the published line.
    // Ordering: release; partner: arm's acquire load of the word. The kernel compares it under its own lock.
    my_wake.fetch_add(1, Ordering::Release);
    if !wake(Asleep::from_flag(flag)) {
        // Ordering: relaxed; this end's own word.
        ended.store(AWAKE, Ordering::Relaxed);
    }
}
