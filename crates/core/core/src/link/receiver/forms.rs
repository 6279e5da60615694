//! The forms of `send_back`: the time that it waits for the sender.

use super::Receiver;
use crate::base::millis;
use crate::domain::POLL_INTERVAL;
use crate::error::{Error, ErrorKind, RingFull, SendError};
use crate::link::back::PayloadBack;
use std::time::{Duration, Instant};

impl Receiver {
    /// Sends a payload back to the sender, which gets it from [`recv_back`](crate::Sender::recv_back).
    ///
    /// The payload's type decides what happens to it: see [`PayloadBack`]. A failed call gives the payload back.
    ///
    /// - A [`BufferMut`](crate::BufferMut) or [`Buffer`](crate::Buffer) that was given to this receiver is handed back to its pool's writer. The sender finds
    ///   there what was written, as long as the buffer says that it is ([`BufferMut::truncate`](crate::BufferMut::truncate)). Until the sender takes the
    ///   buffer it is in use. A buffer that is dropped is its pool's at once, and the sender does not hear of it.
    /// - [`Released`](crate::Released) lets go of a buffer, an aggregate, bytes or a [`Body`](crate::Body), as dropping it does, and the sender gets
    ///   [`Body::Released`](crate::Body::Released): a completion. If other handles of the buffer exist, the buffer stays in use.
    ///
    /// `send_back` does not wait. If it did, a sender and a receiver could wait for each other.
    ///
    /// # Errors
    /// `Full`: the sender does not take earlier replies. `PeerGone`: the sender is gone. `TooLarge`: the bytes do not
    /// go into a line. `BufferNotOwned`: the buffer was shared, is a clone, is of a pool of this domain, as a copy is,
    /// or another domain's of this process. `PoolNotAssigned`: the buffer did not come by this channel, or the pool's
    /// writer is not this channel's sender. `PoolPending`: that pool was assigned a moment ago. `Forked`.
    #[inline(always)]
    pub fn send_back<P: PayloadBack>(&mut self, payload: P) -> Result<(), SendError<P::Unsent>> {
        payload
            .go_back(self, 0)
            .map_err(|failed| failed.map(P::unsent_back))
    }

    /// Sends a payload back, waiting for room for at most `timeout`; `None` waits for ever. No sender tells of room: the receiver looks every 20 ms.
    ///
    /// # Errors
    /// As [`send_back`](Receiver::send_back): `Full` or `PoolPending` when the time is over.
    pub fn send_back_timeout<P: PayloadBack>(
        &mut self,
        payload: P,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), SendError<P::Unsent>> {
        let started = Instant::now();
        let deadline = timeout
            .into()
            .and_then(|timeout| started.checked_add(timeout));
        let mut kept = payload;
        loop {
            let failed = match kept.go_back(self, 0) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            let now = Instant::now();
            if !goes_later(failed.kind()) || deadline.is_some_and(|deadline| now >= deadline) {
                let SendError { error, unsent } = failed;
                return Err(SendError::new(waited(error, started), unsent.unsent_back()));
            }
            kept = failed.unsent;
            let next = now + POLL_INTERVAL;
            self.idle(deadline.map_or(next, |deadline| deadline.min(next)));
        }
    }

    fn idle(&self, until: Instant) {
        let link = &self.link;
        match &self.driver {
            // A carrier wakes only for its own news: it has room when its other end says so.
            Some(driver) => link.drive(&**driver, self.wait, Some(until), &|| {
                link.domain.has_news() || link.their_closed()
            }),
            None => link.domain.wait_news(link.domain.wake(), Some(until)),
        }
        link.look_for_death();
        link.domain.turn_quietly();
    }
}

/// Whether the payload may go later, after an action of the sender.
pub(in crate::link) fn goes_later(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Full | ErrorKind::PoolPending)
}

/// Adds the time that was waited to the error.
fn waited(error: Error, started: Instant) -> Error {
    match error.find() {
        Some(&RingFull { lines, .. }) => {
            let waited_ms = millis(started.elapsed());
            RingFull { lines, waited_ms }.into()
        }
        None => error,
    }
}
