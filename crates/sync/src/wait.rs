//! Sleeping and waking across two domains (`docs/format.md`, links; the futex word lies in the waker's page,
//! the flag that says "I sleep" in the sleeper's).
//!
//! | sleeper | waker |
//! |---|---|
//! | reads the word | publishes |
//! | sets its `asleep` | fences |
//! | fences | if the peer's `asleep` is set: |
//! | looks again | increments its word |
//! | waits on the word, if it is still what was read | wakes all who wait on it |
//!
//! The two fences make it impossible that the sleeper does not see what was published *and* the waker does
//! not see the flag. The word, read before the look again, makes a wake-up count that comes before the wait.
//! A peer that lies can only make its partner sleep a [`ROUND`] too long, or spin: every wait is bounded.

use std::time::{Duration, Instant};

use crate::atomic::{AtomicU32, Ordering, fence};

/// The most words of one system call.
pub const MAX_WORDS: usize = 127;
/// The longest single wait; then the condition is looked at again, whatever the peer does.
pub const ROUND: Duration = Duration::from_millis(100);
/// The longest first wait when a waker does not fence (see [`Waker::Lazy`]), and the longest wait on one of
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
    /// Wakes everybody who waits on the word.
    fn wake_all(&self, word: &AtomicU32);
}

impl<F: Futex + ?Sized> Futex for &F {
    type Error = F::Error;
    fn wait_any(&self, points: &[Point<'_>], limit: Duration) -> Result<Waited, F::Error> {
        (**self).wait_any(points, limit)
    }
    fn wake_all(&self, word: &AtomicU32) {
        (**self).wake_all(word);
    }
}

/// One thing to be woken by.
#[derive(Debug, Clone, Copy)]
pub struct Point<'a> {
    /// The futex word in the waker's page.
    pub wake: &'a AtomicU32,
    /// Our flag, in our page, that this waker looks at; `None` if it wakes always (the manager's board). One
    /// thread at a time sleeps with a flag: whoever wakes up first clears it for all.
    pub asleep: Option<&'a AtomicU32>,
    /// The word's value when we looked; set by [`arm`].
    pub seen: u32,
}

impl<'a> Point<'a> {
    /// A peer that wakes us if our flag says so.
    pub fn peer(wake: &'a AtomicU32, asleep: &'a AtomicU32) -> Self {
        Self {
            wake,
            asleep: Some(asleep),
            seen: 0,
        }
    }

    /// Somebody who always wakes.
    pub fn always(wake: &'a AtomicU32) -> Self {
        Self {
            wake,
            asleep: None,
            seen: 0,
        }
    }
}

/// How a domain sleeps: the values of the shared flag `asleep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Asleep {
    /// It is awake.
    Awake = 0,
    /// On the futex word.
    Futex = 1,
    /// On its descriptor.
    Descriptor = 2,
}

impl Asleep {
    /// What a peer's flag means; whatever the format does not name gets a futex wake-up.
    #[inline]
    pub fn from_flag(flag: u32) -> Self {
        match flag {
            0 => Self::Awake,
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
    /// instructions): the first wait is at most [`SETTLE`], many times what a store takes to become visible,
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

/// The sleeper's first three steps. After it the caller **looks again**, and then either [`disarm`]s or goes
/// to wait (on the points, or, for [`Asleep::Descriptor`], in its poll loop until it is readable).
pub fn arm(points: &mut [Point<'_>], how: Asleep) {
    for point in &mut *points {
        // Ordering: acquire; partner: wake_now's release increment. If the word is already incremented, the look
        // again sees what was published before. (With a waker that fences, the two fences give the same; a lazy
        // one needs it.)
        point.seen = point.wake.load(Ordering::Acquire);
    }
    for point in &*points {
        if let Some(asleep) = point.asleep {
            // Ordering: relaxed; the fence below orders it before the look again.
            asleep.store(how as u32, Ordering::Relaxed);
        }
    }
    // Ordering: partner: the waker's fence (or SeqCst publish) before it loads `asleep`.
    fence(Ordering::SeqCst);
}

/// Says that we are awake.
// Crash: a sleeper that dies armed leaves its flag set; its peer makes useless wake-ups until it learns of the
// death.
pub fn disarm(points: &[Point<'_>]) {
    for asleep in points.iter().filter_map(|point| point.asleep) {
        // Ordering: relaxed; a late clear costs the peer a needless wake-up.
        asleep.store(Asleep::Awake as u32, Ordering::Relaxed);
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
        arm(points, Asleep::Futex);
        if let Some(value) = ready() {
            break Ok(Slept::Ready(value));
        }
        let mut limit = if groups > 1 || (waker == Waker::Lazy && round == 0) {
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

/// The waker's second half, after a publish that fenced ([`Publish::SeqCst`](crate::Publish::SeqCst)): looks
/// whether the peer sleeps, and if so increments our word and calls `wake`, which wakes all on the word
/// (`Asleep::Futex`) or writes to the peer's descriptor (`Asleep::Descriptor`).
///
/// `wake` is never told `Asleep::Awake`. Called without a fence before it, the sleeper must know
/// ([`Waker::Lazy`]).
#[inline]
pub fn notify(peer_asleep: &AtomicU32, my_wake: &AtomicU32, wake: impl FnOnce(Asleep)) {
    // Ordering: SeqCst, after the SeqCst publish in the single total order; partner: the fence in arm.
    let flag = peer_asleep.load(Ordering::SeqCst);
    if flag != Asleep::Awake as u32 {
        wake_now(Asleep::from_flag(flag), my_wake, wake);
    }
}

/// As [`notify`], after any number of release publishes: one fence for all of them.
#[inline]
pub fn fence_then_notify(peer_asleep: &AtomicU32, my_wake: &AtomicU32, wake: impl FnOnce(Asleep)) {
    // Ordering: partner: the fence in arm.
    fence(Ordering::SeqCst);
    notify(peer_asleep, my_wake, wake);
}

#[cold]
fn wake_now(how: Asleep, my_wake: &AtomicU32, wake: impl FnOnce(Asleep)) {
    // Crash: a waker that dies before the wake leaves its peer asleep for the rest of a round; then the peer
    // looks again, and what was published is there.
    // Ordering: release; partner: arm's acquire load of the word. The kernel compares it under its own lock.
    my_wake.fetch_add(1, Ordering::Release);
    wake(how);
}
