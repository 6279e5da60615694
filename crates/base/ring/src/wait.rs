//! Sleeping and waking across two domains (`docs/format.md`, links; the futex word lies in the waker's page,
//! the flag that says "I sleep" in the sleeper's).
//!
//! | sleeper | waker |
//! |---|---|
//! | reads the word | publishes |
//! | sets its `asleep` | fences |
//! | fences | if the peer's `asleep` is set: |
//! | looks again | increments its word, once a sleep |
//! | waits on the word, if it is still what was read | wakes who waits on it |
//!
//! The two fences make it impossible that the sleeper does not see what was published *and* the waker does
//! not see the flag. The word, read before the look again, makes a wake-up count that comes before the wait. The flag
//! has the word in it, so that who was woken and did not run yet is not woken again.
//! A peer that lies can only make its partner sleep a [`ROUND`] too long, or spin: every wait is bounded.

use std::time::{Duration, Instant};

use crate::everybody::fence_everybody;
use tranship_sync::atomic::{AtomicU32, Ordering, fence};

/// The most words of one system call.
pub const MAX_WORDS: usize = 127;
/// The longest single wait; then the condition is looked at again, whatever the peer does.
pub const ROUND: Duration = Duration::from_millis(100);
/// The longest first wait of a sleep when a waker does not fence (see [`Waker::Lazy`]), and the longest wait on one of
/// several groups of [`MAX_WORDS`].
pub const SETTLE: Duration = Duration::from_millis(1);

/// Why [`Futex::wait_any`] came back. Nobody may believe either: the caller looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// Woken, interrupted, or one of the words was already another.
    Woken,
    /// The time is over.
    TimedOut,
}

/// Waiting on shared words, as the kernel does it (or a model of it).
pub trait Futex {
    /// What the kernel may say.
    type Error;
    /// Waits until woken on one of 1 to [`MAX_WORDS`] points, unless one's word is not `seen`; at most `limit`.
    /// An interruption by a signal counts as woken.
    fn wait_any(&self, points: &[Point<'_>], limit: Duration) -> Result<Waited, Self::Error>;
}

/// One thing to be woken by.
#[derive(Debug, Clone, Copy)]
pub struct Point<'a> {
    /// The futex word in the waker's page.
    pub wake: &'a AtomicU32,
    /// The word's value when we looked.
    pub seen: u32,
    /// Our flag, in our page, that this waker looks at; `None` if it wakes always (the manager's control page, who releases a
    /// buffer). One thread at a time sleeps with a flag: whoever wakes up first clears it for all.
    asleep: Option<&'a AtomicU32>,
}

impl<'a> Point<'a> {
    /// A peer that wakes us if our flag says so.
    pub(crate) fn peer(wake: &'a AtomicU32, asleep: &'a AtomicU32) -> Self {
        Self {
            asleep: Some(asleep),
            ..Self::always(wake)
        }
    }

    /// Somebody who always wakes.
    pub fn always(wake: &'a AtomicU32) -> Self {
        Self::seen(wake, 0)
    }

    /// The same, for who has looked at the word already.
    pub fn seen(wake: &'a AtomicU32, seen: u32) -> Self {
        Self {
            wake,
            seen,
            asleep: None,
        }
    }
}

/// How a domain sleeps: the two lowest bits of its flag `asleep`. The others say what the waker's word was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Asleep {
    /// On the futex word.
    Futex = 1,
    /// On its descriptor.
    Descriptor = 2,
}

/// The flag of who is awake.
pub(crate) const AWAKE: u32 = 0;
/// The flag of who looks again and again by itself: whoever publishes need not fence to find out that it sleeps.
pub(crate) const SPINNING: u32 = 3;
const HOW: u32 = 3;

/// Whether somebody with this flag waits to be woken.
#[inline(always)]
pub fn is_asleep(flag: u32) -> bool {
    flag != AWAKE && flag != SPINNING
}

impl Asleep {
    /// The flag of who sleeps since the waker's word was that.
    fn flag(self, seen: u32) -> u32 {
        (seen << HOW.count_ones()) | self as u32
    }

    /// What a flag means that does not say [`AWAKE`]; whatever the format does not name gets a futex wake-up.
    pub(crate) fn from_flag(flag: u32) -> Self {
        match flag & HOW {
            2 => Self::Descriptor,
            _ => Self::Futex,
        }
    }
}

/// What the wakers of a sleep promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waker {
    /// Every waker fences between publishing and reading our flag.
    Fences,
    /// Some do not (a consumer that gives lines back with plain stores, to keep its path free of locked
    /// instructions): the first wait of a sleep is at most [`SETTLE`], many times what a store takes to become visible,
    /// after which the flag, which stays set, is seen by whoever publishes next.
    Lazy,
}

/// How a [`sleep`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slept<T> {
    /// The condition gave this.
    Ready(T),
    /// The deadline passed, and the condition, looked at after it, gave nothing.
    TimedOut,
}

/// The sleeper's first three steps. After it the caller **looks again**, and then either [`disarm`]s or goes to wait (on the
/// points, or, for [`Asleep::Descriptor`], in its poll loop until it is readable).
///
/// Says whether a word has changed since the last time: a sleep was ended, and goes on as a new one.
pub(crate) fn arm(points: &mut [Point<'_>], how: Asleep) -> bool {
    let mut new = false;
    for point in &mut *points {
        // Ordering: acquire; partner: the release increment in `end_sleep`. If the word is already incremented, the look
        // again sees what was published before. (With a waker that fences, the two fences give the same; a lazy
        // one needs it.)
        let seen = point.wake.load(Ordering::Acquire);
        new |= seen != point.seen;
        point.seen = seen;
    }
    let mut spun = false;
    for point in &*points {
        if let Some(asleep) = point.asleep {
            // Relaxed: our own word.
            spun |= asleep.load(Ordering::Relaxed) == SPINNING;
            // Ordering: relaxed; the fence below orders it before the look again.
            asleep.store(how.flag(point.seen), Ordering::Relaxed);
        }
    }
    // Ordering: partner: the waker's fence (or SeqCst publish) before it loads `asleep`.
    fence(Ordering::SeqCst);
    if spun {
        // Ordering: a waker that found us spinning has not fenced between its publish and its load of `asleep`: it does so now.
        fence_everybody();
    }
    new
}

/// Says that we are awake, if we said that we sleep. Who spins goes on saying so: from there to awake it would be without the fence that
/// publishers leave out for it.
// Crash: a sleeper that dies armed leaves its flag set; its peer makes useless wake-ups until it learns of the
// death.
pub(crate) fn disarm(points: &[Point<'_>]) {
    for asleep in points.iter().filter_map(|point| point.asleep) {
        // Ordering: relaxed, both; our own word, and a late clear costs the peer a needless wake-up.
        if asleep.load(Ordering::Relaxed) != SPINNING {
            asleep.store(AWAKE, Ordering::Relaxed);
        }
    }
}

/// Sleeps until `ready` gives something or the deadline passes. `ready` is called at least once, and once more
/// per wait; it must be cheap, and acquire what it looks at.
///
/// Without points there is nothing to wait on: that times out after the first look.
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

/// One wait, at most that long, and no look at the clock: for who has been kept waiting briefly so far, where two readings
/// of it would cost a tenth of the wait. `None`: nothing yet, for whatever reason; go on with [`sleep`].
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

/// The waker's second half, when it has found the peer's flag set: ends that sleep, once. `wake` wakes on the word, or
/// by the peer's descriptor; where it says that it could not, whoever publishes next tries again.
#[cold]
pub(crate) fn end_sleep(
    flag: u32,
    ended: &AtomicU32,
    my_wake: &AtomicU32,
    wake: impl FnOnce(Asleep) -> bool,
) {
    // Ordering: relaxed; whoever ends a sleep has published before, so one end of it is enough for all. Who then sleeps
    // again has seen another word, and after that looked at what the others published.
    if ended.swap(flag, Ordering::Relaxed) == flag {
        return;
    }
    // Crash: a waker that dies before the wake leaves its peer asleep for the rest of a round; then the peer
    // looks again, and what was published is there.
    // Ordering: release; partner: arm's acquire load of the word. The kernel compares it under its own lock.
    my_wake.fetch_add(1, Ordering::Release);
    if !wake(Asleep::from_flag(flag)) {
        // Ordering: relaxed; a word of our own.
        ended.store(AWAKE, Ordering::Relaxed);
    }
}
