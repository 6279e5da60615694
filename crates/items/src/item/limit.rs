//! A limit on a zone's items, and the queue of threads that sleep at it.
//!
//! The limit counts items that the zone has taken from the keg, cached or in use. A thread that finds no item may
//! sleep. Sleepers are served in the order in which they came, each by a grant of one item. While there are sleepers,
//! no other thread is served.

use super::request::Wait;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use tranship_sys::futex;
use tranship_zone::lock::Lock;

const WAITING: u32 = 0;
const GRANTED: u32 = 1;
const REFUSED: u32 = 2;

/// The result of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// One item may be taken.
    Granted,
    /// The time is over.
    TimedOut,
    /// The zone is closed.
    Closed,
}

struct State {
    max: u64,
    count: u64,
    closed: bool,
    sleepers: VecDeque<Arc<AtomicU32>>,
}

/// The counter. All methods may be called by any thread.
pub(crate) struct Limit {
    state: Lock<State>,
    sleeps: AtomicU64,
}

impl Limit {
    pub(crate) fn new(max: u64) -> Self {
        Self {
            state: Lock::new(State {
                max,
                count: 0,
                closed: false,
                sleepers: VecDeque::new(),
            }),
            sleeps: AtomicU64::new(0),
        }
    }

    /// Returns the most items.
    pub(crate) fn max(&self) -> u64 {
        self.state.lock().max
    }

    /// Returns the number of items that are counted now.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Returns how many times a thread slept.
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Returns the number of sleepers.
    pub(crate) fn sleepers(&self) -> usize {
        self.state.lock().sleepers.len()
    }

    /// Says whether an allocation would find none left, or others asleep.
    pub(crate) fn is_met(&self) -> bool {
        let state = self.state.lock();
        !state.sleepers.is_empty() || state.count >= state.max
    }

    /// Says whether there are more items than the limit allows, because it was lowered.
    pub(crate) fn is_exceeded(&self) -> bool {
        let state = self.state.lock();
        state.count > state.max
    }

    /// Counts up to `want` items; fewer, or none, at the limit or when others sleep.
    pub(crate) fn take(&self, want: u64) -> u64 {
        let mut state = self.state.lock();
        if !state.sleepers.is_empty() {
            return 0;
        }
        let got = want.min(state.max.saturating_sub(state.count));
        state.count += got;
        got
    }

    /// Records that items are gone again.
    pub(crate) fn give(&self, items: u64) {
        let mut state = self.state.lock();
        state.count -= items;
        state.serve();
    }

    /// Changes the most items. If there are more already, no thread gets an item until enough of them are gone.
    pub(crate) fn set_max(&self, max: u64) {
        let mut state = self.state.lock();
        state.max = max;
        state.serve();
    }

    /// Refuses the sleepers, and lets no thread sleep any more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        for sleeper in state.sleepers.drain(..) {
            answer(&sleeper, REFUSED);
        }
    }

    /// Takes the lock before a fork.
    pub(crate) fn hold(&self) {
        self.state.hold();
    }

    /// Releases the lock. In a child no thread sleeps.
    ///
    /// # Safety
    /// The rules of [`Lock::release`] hold.
    pub(crate) unsafe fn release(&self, child: bool) {
        // SAFETY: passed on to the caller.
        unsafe {
            if child {
                // The sleepers' words stay with the threads that do not exist here.
                std::mem::forget(std::mem::take(&mut self.state.held().sleepers));
            }
            self.state.release();
        }
    }

    /// Waits for one item; a granted item is counted. `queued` is called once the caller is in the queue: from then on,
    /// items that other threads cached should come to the zone's limit.
    pub(crate) fn sleep(&self, wait: Wait, queued: impl FnOnce()) -> Outcome {
        let word = Arc::new(AtomicU32::new(WAITING));
        {
            let mut state = self.state.lock();
            if state.closed {
                return Outcome::Closed;
            }
            if state.sleepers.is_empty() && state.count < state.max {
                state.count += 1;
                return Outcome::Granted;
            }
            if wait == Wait::No {
                return Outcome::TimedOut;
            }
            state.sleepers.push_back(word.clone());
        }
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        queued();
        loop {
            // Ordering: Acquire pairs with the release in `answer`.
            match word.load(Ordering::Acquire) {
                GRANTED => return Outcome::Granted,
                REFUSED => return Outcome::Closed,
                _ => {}
            }
            let left = match wait {
                Wait::Until(end) => match end.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return self.give_up(&word),
                },
                _ => None,
            };
            // However the wait ends, the word says how to continue.
            let _ = futex::private::wait(Arc::as_ptr(&word), WAITING, left);
        }
    }

    /// Leaves the queue, unless an answer came meanwhile.
    fn give_up(&self, word: &Arc<AtomicU32>) -> Outcome {
        let mut state = self.state.lock();
        state.sleepers.retain(|other| !Arc::ptr_eq(other, word));
        // Answers are given under the lock.
        match word.load(Ordering::Relaxed) {
            GRANTED => Outcome::Granted,
            REFUSED => Outcome::Closed,
            _ => Outcome::TimedOut,
        }
    }
}

impl State {
    /// Grants free items to the sleepers that came first.
    fn serve(&mut self) {
        while self.count < self.max
            && let Some(sleeper) = self.sleepers.pop_front()
        {
            self.count += 1;
            answer(&sleeper, GRANTED);
        }
    }
}

fn answer(sleeper: &Arc<AtomicU32>, answer: u32) {
    // Ordering: Release pairs with the acquire in `sleep`.
    sleeper.store(answer, Ordering::Release);
    let _ = futex::private::wake(Arc::as_ptr(sleeper), 1);
}
