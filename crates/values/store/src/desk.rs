//! The desk: which thread of the home answers clients. One at a time does: a caller of the process that waits anyway, or the store's own thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tranship_core::Error;
use tranship_core::topics::Bell;

/// How long the store's own thread leaves the desk to callers that come again at once.
const GRACE: Duration = Duration::from_micros(300);

/// The desk.
#[derive(Debug)]
pub(crate) struct Desk {
    state: Mutex<State>,
    /// For callers that wait beside the desk.
    changed: Condvar,
    /// For the store's own thread.
    own: Condvar,
    /// Ends the sleep of the thread at the desk.
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct State {
    taken: Option<By>,
    /// Callers of this process that wait, and those of them that wait beside the desk.
    visitors: u32,
    beside: u32,
    /// When a caller last left the desk.
    left: Instant,
    /// Whether the store's own thread wakes by itself soon.
    wakes_soon: bool,
    closed: bool,
}

/// The thread that is at the desk, and may sleep there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Own,
    Visitor,
}

/// Answer to a visitor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// The desk: it rises by [`Desk::rise`].
    Taken,
    /// A wait, until something changed.
    Waited,
}

impl Desk {
    pub(crate) fn new() -> Result<Desk, Error> {
        Ok(Desk {
            state: Mutex::new(State {
                taken: None,
                visitors: 0,
                beside: 0,
                left: Instant::now(),
                wakes_soon: false,
                closed: false,
            }),
            changed: Condvar::new(),
            own: Condvar::new(),
            bell: Arc::new(Bell::new()?),
        })
    }

    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the callers that an answer is there, also the one that sleeps at the desk.
    pub(crate) fn ring(&self) {
        let state = self.lock();
        if state.taken == Some(By::Visitor) {
            self.bell.ring();
        }
        self.tell(&state);
    }

    /// Wakes the callers that wait beside the desk.
    fn tell(&self, state: &State) {
        if state.beside > 0 {
            self.changed.notify_all();
        }
    }

    /// Gets up from the desk.
    pub(crate) fn rise(&self) {
        self.lock().taken = None;
    }

    /// Sends the store's own thread home.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.bell.ring();
        self.own.notify_all();
    }

    /// Waits until no caller is at the desk, and gives it to the store's own thread. `false`: the store is closed.
    pub(crate) fn sit(&self) -> bool {
        let mut state = self.lock();
        while !state.closed {
            let grace = (state.left + GRACE).saturating_duration_since(Instant::now());
            state = match (state.taken, state.visitors) {
                (None, 0) if grace.is_zero() => {
                    state.taken = Some(By::Own);
                    return true;
                }
                (None, 0) => {
                    state.wakes_soon = true;
                    wait(&self.own, state, grace)
                }
                (taken, _) => {
                    if taken.is_none() {
                        self.tell(&state);
                    }
                    let waited = self.own.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
            state.wakes_soon = false;
        }
        false
    }

    /// Begins a caller's wait.
    pub(crate) fn visit(&self) -> Visit<'_> {
        self.lock().visitors += 1;
        Visit { desk: self }
    }
}

/// A caller's wait. Its end leaves the desk to others.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    desk: &'a Desk,
}

impl Visit<'_> {
    /// Takes the desk if it is free, or waits for a change until then. `is_answered` is looked at before either.
    pub(crate) fn sit_or_wait(&mut self, until: Instant, is_answered: impl Fn() -> bool) -> Seat {
        let mut state = self.desk.lock();
        if is_answered() {
            return Seat::Waited;
        }
        if state.taken.is_none() {
            state.taken = Some(By::Visitor);
            return Seat::Taken;
        }
        let left = until.saturating_duration_since(Instant::now());
        state.beside += 1;
        state = wait(&self.desk.changed, state, left);
        state.beside -= 1;
        Seat::Waited
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.visitors -= 1;
        state.left = Instant::now();
        // Another caller takes the desk, or the store's own thread, which may have gone to sleep for long.
        self.desk.tell(&state);
        if state.visitors == 0 && !state.wakes_soon {
            self.desk.own.notify_one();
        }
    }
}

fn wait<'a>(
    changed: &Condvar,
    state: MutexGuard<'a, State>,
    time: Duration,
) -> MutexGuard<'a, State> {
    let waited = changed.wait_timeout(state, time);
    waited.unwrap_or_else(PoisonError::into_inner).0
}
