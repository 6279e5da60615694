//! The desk: which thread of the home answers clients. One at a time does: a caller of the process that waits anyway, or the store's own thread.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tranship_core::Error;
use tranship_core::error::system;

/// How long the store's own thread leaves the desk to callers that come again at once.
const GRACE: Duration = Duration::from_micros(300);

/// The desk.
#[derive(Debug)]
pub(crate) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
    /// Ends the sleep of the thread at the desk.
    bell: Arc<OwnedFd>,
}

#[derive(Debug)]
struct State {
    taken: Option<By>,
    /// Callers of this process that wait.
    visitors: u32,
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
        use rustix::event::{EventfdFlags, eventfd};
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        Ok(Desk {
            state: Mutex::new(State {
                taken: None,
                visitors: 0,
                left: Instant::now(),
                wakes_soon: false,
                closed: false,
            }),
            changed: Condvar::new(),
            bell: Arc::new(bell.map_err(|errno| system("eventfd")(errno.into()))?),
        })
    }

    pub(crate) fn bell(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.bell)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn ring_bell(&self) {
        // It fails only when it has been rung 2^64 times.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Tells the callers that an answer is there, also the one that sleeps at the desk.
    pub(crate) fn ring(&self) {
        let state = self.lock();
        if state.taken == Some(By::Visitor) {
            self.ring_bell();
        }
        if state.visitors > 0 {
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
        self.ring_bell();
        self.changed.notify_all();
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
                    self.wait(state, grace)
                }
                (taken, _) => {
                    if taken.is_none() {
                        self.changed.notify_all();
                    }
                    let waited = self.changed.wait(state);
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
        drop(self.desk.wait(state, left));
        Seat::Waited
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.visitors -= 1;
        state.left = Instant::now();
        // Another caller takes the desk, or the store's own thread, which may have gone to sleep for long.
        if state.visitors > 0 || !state.wakes_soon {
            self.desk.changed.notify_all();
        }
    }
}
