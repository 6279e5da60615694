//! Messages that the receiver has sent back.

use super::Sender;
use super::replies::Counted;
use crate::base::lock;
use crate::buffer::Buffer;
use crate::error::{Awaited, Error, TimedOut};
use crate::link::descriptor::{self, Carries};
use crate::link::message::{Body, Message};
use crate::link::shared::{Gone, Reply};
use std::time::{Duration, Instant};
use tranship_ring::Waker;

impl Sender {
    /// Receives the next payload that the receiver has sent back ([`Receiver::send_back`](crate::Receiver::send_back)),
    /// if one is there, in the order of the sends. Payloads of a receiver that is gone can still be taken. `None`:
    /// nothing waits; [`status`](Sender::status) tells whether the receiver is gone. [`recv_back`](Sender::recv_back)
    /// waits for it, and [`PollItem::control`](crate::PollItem::control) for it and other things.
    ///
    /// A buffer that is handed back was sent, so it can be read and shared and never written: it arrives as [`Body::Buffer`](crate::Body::Buffer). Where the
    /// handle itself goes over, as over `local:`, it arrives as it was handed back. `try_recv_back` does not block.
    ///
    /// # Errors
    /// [`ErrorKind::PeerViolation`](crate::ErrorKind::PeerViolation) if the receiver sends back anything that it may
    /// not.
    #[inline(always)]
    pub fn try_recv_back(&mut self) -> Result<Option<Message>, Error> {
        if !self.fork.is_child() && self.store.is_none() {
            // A caller that looks again and again takes no lock.
            if !self.link.has_reply() {
                return Ok(None);
            }
            if let Some((word, buf)) = self.take_returned() {
                let body = Body::Buffer(buf);
                return Ok(Some(Message { word, body }));
            }
        }
        std::hint::cold_path();
        self.try_recv_back_slow()
    }

    /// Waits for the receiver's next message, and returns it like [`try_recv_back`](Sender::try_recv_back), as the
    /// channel's [`Wait`](crate::Wait) says, for ever.
    ///
    /// # Errors
    /// `PeerGone` when the receiver is gone and everything was taken; `PeerViolation`; `Forked`.
    pub fn recv_back(&mut self) -> Result<Message, Error> {
        self.wait_for_control(None)
    }

    /// Receives what was sent back, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv_back`](Sender::recv_back), and `TimedOut`.
    pub fn recv_back_timeout(&mut self, timeout: Duration) -> Result<Message, Error> {
        self.wait_for_control(Some(timeout))
    }

    fn wait_for_control(&mut self, timeout: Option<Duration>) -> Result<Message, Error> {
        let started = Instant::now();
        let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
        let mut polls = 0u32;
        loop {
            if let Some(message) = self.look_for_control()? {
                return Ok(message);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(TimedOut::since(started, Awaited::Message).into());
            }
            let may_have_reply = || self.link.may_have_reply();
            self.pause(&mut polls, Waker::Fences, deadline, &may_have_reply);
        }
    }

    /// Takes the next message, if it is there. Fails when no more will come.
    pub(in crate::link) fn look_for_control(&mut self) -> Result<Option<Message>, Error> {
        self.link.domain.check_fork()?;
        self.link.domain.catch_up();
        self.give_back_assignments();
        // Read first: then the replies from before the receiver's end are there.
        let over = self.link.gone() != Gone::No;
        match self.try_recv_back()? {
            None if over => Err(self.peer_gone()),
            found => Ok(found),
        }
    }

    /// Takes a buffer of the pool that was sent from last, if it is the next reply. `None` leaves the line for the long
    /// way, which believes nothing that was seen here.
    #[inline]
    fn take_returned(&mut self) -> Option<(u64, Buffer)> {
        let mut replies = lock(&self.link.replies);
        if !replies.early.is_empty() {
            return None;
        }
        let out = self.outs.first()?;
        let (first, line) = replies.consumer.peek(self.link.their_lines())?;
        let (word, reference) = descriptor::named(Carries::Moved, first, line)?;
        if reference.id.pool() != out.assignment.pool {
            return None;
        }
        let buf = out.assignment.returned(reference, Counted::ByUs).ok()?;
        replies.consumer.advance();
        self.link.ring.give_back(replies.consumer.head());
        Some((word, buf))
    }

    /// Not boxed, unlike received messages: words come this way in a steady state, too, which takes nothing from the
    /// heap.
    #[inline(never)]
    fn try_recv_back_slow(&mut self) -> Result<Option<Message>, Error> {
        if self.link.domain.fork.is_child() {
            return Ok(None);
        }
        if self.store.is_some() {
            return self.take_reply_inside();
        }
        loop {
            let Some((word, reply)) = self.next_reply()? else {
                return Ok(None);
            };
            let body = match reply {
                Reply::Inline(inline) => Body::Inline(inline),
                Reply::Returned(buf) => Body::Buffer(buf),
                Reply::Released(id) => Body::Released(id),
                Reply::Removed(pool) => {
                    self.lose(pool);
                    continue;
                }
            };
            return Ok(Some(Message { word, body }));
        }
    }

    fn next_reply(&self) -> Result<Option<(u64, Reply)>, Error> {
        let mut replies = lock(&self.link.replies);
        match replies.early.pop_front() {
            Some(early) => early.map(Some),
            None => {
                self.link.no_early_reply();
                self.link.take_reply(&mut replies, Some(&self.outs))
            }
        }
    }

    /// Gives buffers that were passed back to their pool: no caller asks for them any more.
    pub(super) fn end_replies(&mut self) {
        let mut replies = lock(&self.link.replies);
        if self.store.is_some() {
            return;
        }
        replies.over = true;
        let early = std::mem::take(&mut replies.early);
        let mut rest = Vec::new();
        // Limit: as many as the ring holds.
        for _ in 0..self.link.their_lines().count() {
            match self.link.take_reply(&mut replies, Some(&self.outs)) {
                Ok(None) => break,
                taken => rest.push(taken),
            }
        }
        drop(replies);
        drop((early, rest));
    }
}
