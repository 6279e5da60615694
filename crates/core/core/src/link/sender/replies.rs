//! What the receiver says and hands back.
//!
//! A buffer that it passes back was counted by nobody on its way: the receiver has taken its receipt back, so the buffer counts as one that we sent and
//! that was not taken yet, until we hold it and take the sending back too (`tranship_ledger::order::PASS_BACK`).

use super::{Out, Sender};
use crate::base::{lock, millis};
use crate::buffer::Buffer;
use crate::error::{Awaited, Error, TimedOut, Violation};
use crate::link::descriptor::{self, Carries, Descriptor, Reference};
use crate::link::message::{Body, Message};
use crate::link::shared::{Assigned, Assignment, Gone, LinkShared, Replies, Reply};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
use tranship_ledger::ReturnStep;
use tranship_proto::BufferId;
use tranship_ring::Waker;
use tranship_sys::crash;

impl Sender {
    /// Receives what the receiver has sent back ([`Receiver::send_back`](crate::Receiver::send_back)), if something is there, in the order in which it was
    /// sent. It can still be had when the receiver is gone; then, too, there is `None` when all is taken ([`status`](Sender::status) tells the two apart).
    /// [`recv_back`](Sender::recv_back) waits for it, and [`PollItem::control`](crate::PollItem::control) for it and other things.
    ///
    /// A buffer that is handed back was sent, so it can be read and shared and never written: it arrives as [`Body::Buffer`](crate::Body::Buffer). Where the
    /// handle itself goes over, as over `local:`, it arrives as it was handed back. `try_recv_back` does not block.
    ///
    /// # Errors
    /// [`ErrorKind::PeerViolation`](crate::ErrorKind::PeerViolation) for what the receiver may not send back.
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

    /// What the receiver sends back next, as [`try_recv_back`](Sender::try_recv_back), waiting for it as the channel's
    /// [`Wait`](crate::Wait) says, for ever.
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
                let (awaited, waited_ms) = (Awaited::Message, millis(started.elapsed()));
                return Err(TimedOut { awaited, waited_ms }.into());
            }
            let may_have_reply = || self.link.may_have_reply();
            self.pause(&mut polls, Waker::Fences, deadline, &may_have_reply);
        }
    }

    /// What comes next, if it is there; an error when nothing will be any more.
    pub(in crate::link) fn look_for_control(&mut self) -> Result<Option<Message>, Error> {
        self.link.domain.check_fork()?;
        self.link.domain.catch_up();
        // Asked first: what it said before it went is there.
        let over = self.link.gone() != Gone::No;
        match self.try_recv_back()? {
            None if over => Err(self.peer_gone()),
            found => Ok(found),
        }
    }

    /// A buffer of the pool that was sent from last, if that is what comes next. `None` leaves the line for the long way, which believes nothing
    /// of what was seen here.
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

    /// Not boxed, as what is received is: words come this way in a steady state, too, which takes nothing from the heap.
    #[inline(never)]
    fn try_recv_back_slow(&mut self) -> Result<Option<Message>, Error> {
        if self.link.domain.fork.is_child() {
            return Ok(None);
        }
        if self.store.is_some() {
            return self.take_reply_inside();
        }
        let mut replies = lock(&self.link.replies);
        let reply = match replies.early.pop_front() {
            Some(early) => early.map(Some),
            None => {
                self.link.no_early_reply();
                self.link.take_reply(&mut replies, Some(&self.outs))
            }
        };
        let message = |(word, reply)| {
            let body = match reply {
                Reply::Inline(inline) => Body::Inline(inline),
                Reply::Returned(buf) => Body::Buffer(buf),
                Reply::Released(id) => Body::Released(id),
            };
            Message { word, body }
        };
        Ok(reply?.map(message))
    }

    /// Nobody asks any more: what was passed back is the pool's.
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

impl LinkShared {
    /// A queue is about to leave the reader set, and with it what keeps the buffers that its sink has passed back: they are taken first. The sink
    /// passes nothing any more.
    pub(crate) fn save_replies(&self) {
        let mut replies = lock(&self.replies);
        if replies.over {
            return;
        }
        // Ordering: release, partner `has_reply`; before lines are given back, so that a look that finds none of them
        // sees this.
        self.early_replies.store(true, Ordering::Release);
        // Limit: as many as the ring holds, whatever a liar goes on writing.
        for _ in 0..self.their_lines().count() {
            // The sending need not be taken back, nor may it: the counter is the Sender's to write.
            match self.take_reply(&mut replies, None) {
                Ok(None) => break,
                Ok(Some(reply)) => replies.early.push_back(Ok(reply)),
                Err(error) => replies.early.push_back(Err(error)),
            }
        }
    }

    /// Whether something may be there: false only if nothing is.
    #[inline]
    fn has_reply(&self) -> bool {
        self.ring.has_line() || self.has_early_reply()
    }

    /// The lines that another thread has given back are among the early ones.
    fn has_early_reply(&self) -> bool {
        // Ordering: acquire, after the load of our head in `has_line`: the thread that moved it has set this before.
        fence(Ordering::Acquire);
        self.early_replies.load(Ordering::Acquire)
    }

    /// There are none; under the lock of the replies.
    fn no_early_reply(&self) {
        // Ordering: relaxed; only the holder of the lock writes it.
        self.early_replies.store(false, Ordering::Relaxed);
    }

    /// The next one; `outs` is how the sender knows its pools, which alone counts.
    fn take_reply(
        &self,
        replies: &mut Replies,
        outs: Option<&[Out]>,
    ) -> Result<Option<(u64, Reply)>, Error> {
        let Some(words) = replies.consumer.try_pop(self.their_lines()) else {
            return Ok(None);
        };
        let reply = match descriptor::parse(&words) {
            Ok(Descriptor::Inline(inline)) => Ok(Reply::Inline(inline)),
            Ok(Descriptor::Reference(Carries::Moved, reference)) => {
                self.returned(reference, outs).map(Reply::Returned)
            }
            Ok(Descriptor::Reference(..)) => Err(Violation::Operation { op: 2 }),
            Ok(Descriptor::Released(id)) => self.released(id, outs).map(Reply::Released),
            Err(violation) => Err(violation),
        };
        // After the reference, as for data.
        self.ring.give_back(replies.consumer.head());
        Ok(Some((words[1], reply?)))
    }

    /// Whether something may be there that was sent back, or will never be again.
    pub(in crate::link) fn may_have_reply(&self) -> bool {
        self.has_reply() || self.gone() != Gone::No
    }

    /// What is said to be released is a buffer that we may have sent.
    fn released(
        &self,
        id: Option<BufferId>,
        outs: Option<&[Out]>,
    ) -> Result<Option<BufferId>, Violation> {
        let Some((id, pool)) = id.map(|id| (id, id.pool())) else {
            return Ok(None);
        };
        let known = outs.and_then(|outs| outs.iter().find(|out| out.assignment.pool == pool));
        let slots = match known {
            Some(out) => out.assignment.side.shape().1,
            None => {
                let found = self.find(pool).ok_or(Violation::NotAssigned { pool })?;
                found.side.shape().1
            }
        };
        match id.slot() < slots {
            true => Ok(Some(id)),
            false => Err(Violation::Slot {
                slot: id.slot(),
                slots,
            }),
        }
    }

    /// A buffer of ours that is passed back.
    fn returned(&self, reference: Reference, outs: Option<&[Out]>) -> Result<Buffer, Violation> {
        let pool = reference.id.pool();
        let known = outs.and_then(|outs| outs.iter().find(|out| out.assignment.pool == pool));
        let counted = match outs {
            Some(_) => Counted::ByUs,
            None => Counted::ByTheSender,
        };
        match known {
            Some(out) => out.assignment.returned(reference, counted),
            None => {
                let found = self.find(pool).ok_or(Violation::NotAssigned { pool })?;
                found.returned(reference, counted)
            }
        }
    }
}

/// Whose the counter of what was sent is to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    ByUs,
    ByTheSender,
}

impl Assignment {
    /// A buffer of its pool that is passed back. The send is taken back, too, if this end may do so.
    #[inline]
    fn returned(&self, reference: Reference, counted: Counted) -> Result<Buffer, Violation> {
        let Reference {
            id, offset, length, ..
        } = reference;
        let Assigned::Own(own) = &self.side else {
            return Err(Violation::NotAssigned { pool: id.pool() });
        };
        let (slot, slots) = (id.slot(), own.slot_count());
        let sent = self.counts.counts().get(slot as usize);
        let sent = sent.ok_or(Violation::Slot { slot, slots })?;
        let hold = || Buffer::taken_back(own, id, offset, length);
        match counted {
            Counted::ByUs => tranship_ledger::take_return(sent, hold, reached),
            Counted::ByTheSender => hold(),
        }
    }
}

fn reached(step: ReturnStep) {
    match step {
        ReturnStep::Hold => crash::point("return.after_hold"),
        ReturnStep::Uncount => crash::point("return.after_uncount"),
    }
}
