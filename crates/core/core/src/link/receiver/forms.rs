//! The forms of what goes back that wait for the sender: by themselves `pass`, `release_with` and `send_control` never do, so that a receiver need not
//! wait for who waits for it.

use super::Receiver;
use crate::base::millis;
use crate::buffer::BufferMut;
use crate::domain::POLL_INTERVAL;
use crate::error::{Error, ErrorKind, RingFull, SendError};
use crate::link::message::Body;
use std::time::{Duration, Instant};

impl Receiver {
    /// Passes a buffer back, as [`pass_with`](Receiver::pass_with), waiting until there is room for it, at most that long.
    /// `None`: for ever. That the sender takes something is looked for every 20 ms: nobody tells of it.
    ///
    /// # Errors
    /// As [`pass`](Receiver::pass): `Full`, and `PoolPending`, when the time is over. The buffer comes back.
    pub fn pass_timeout(
        &mut self,
        buf: BufferMut,
        word: u64,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), SendError<BufferMut>> {
        let pass = |from: &mut Receiver, buf| from.pass_with(buf, word);
        self.until_room(timeout.into(), buf, pass)
    }

    /// Lets go of something and has the sender hear of it, as [`release_with`](Receiver::release_with), waiting as
    /// [`pass_timeout`](Receiver::pass_timeout) does. It is let go of when the sender can be told.
    ///
    /// # Errors
    /// As [`release_with`](Receiver::release_with): `Full`, and `PoolPending`, when the time is over. What was to be released comes back.
    pub fn release_timeout(
        &mut self,
        what: impl Into<Body>,
        word: u64,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), SendError<Body>> {
        let release = |from: &mut Receiver, body: Body| from.release_with(body, word);
        self.until_room(timeout.into(), what.into(), release)
    }

    /// Sends a few bytes back, as [`send_control`](Receiver::send_control), waiting as [`pass_timeout`](Receiver::pass_timeout) does.
    ///
    /// # Errors
    /// As [`send_control`](Receiver::send_control): `Full` when the time is over.
    pub fn send_control_timeout(
        &mut self,
        bytes: &[u8],
        word: u64,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), SendError<()>> {
        let send = |from: &mut Receiver, ()| from.send_control(bytes, word);
        self.until_room(timeout.into(), (), send)
    }

    /// Does it again and again until it goes, or fails for another reason than that the sender is behind.
    fn until_room<T>(
        &mut self,
        timeout: Option<Duration>,
        mut what: T,
        go: impl Fn(&mut Receiver, T) -> Result<(), SendError<T>>,
    ) -> Result<(), SendError<T>> {
        let started = Instant::now();
        let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
        loop {
            let failed = match go(self, what) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            let now = Instant::now();
            if !goes_later(failed.kind()) || deadline.is_some_and(|deadline| now >= deadline) {
                let SendError { error, unsent } = failed;
                return Err(SendError::new(waited(error, started), unsent));
            }
            what = failed.unsent;
            let next = now + POLL_INTERVAL;
            self.idle(deadline.map_or(next, |deadline| deadline.min(next)));
        }
    }

    fn idle(&self, until: Instant) {
        let link = &self.link;
        match &self.driver {
            // It takes no other signs than its own: the carrier, too, has room when its other end says so.
            Some(driver) => link.drive(&**driver, self.wait, Some(until), &|| {
                link.domain.has_news() || link.their_closed()
            }),
            None => link.domain.wait_news(link.domain.wake(), Some(until)),
        }
        link.look_for_death();
        link.domain.turn_quietly();
    }
}

/// Whether it may go when the sender has done something.
pub(in crate::link) fn goes_later(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Full | ErrorKind::PoolPending)
}

/// Says how long that was.
fn waited(error: Error, started: Instant) -> Error {
    match error.find() {
        Some(&RingFull { lines, .. }) => {
            let waited_ms = millis(started.elapsed());
            RingFull { lines, waited_ms }.into()
        }
        None => error,
    }
}
