//! Receiving: the short way first, then the long one, then a wait.

use super::Receiver;
use super::ahead::{Ahead, Pending};
use crate::base::millis;
use crate::error::{Awaited, Error, ErrorKind, TimedOut};
use crate::link::descriptor;
use crate::link::driver::Driver;
use crate::link::message::{Body, Message};
use crate::link::shared::Gone;
use crate::link::sleep::{sleep_briefly, sleep_on};
use crate::options::Wait;
use std::ptr;
use std::time::{Duration, Instant};
use tranship_ring::{Ending, Line, Waker};

/// Number of looks at a line between two looks at anything else.
const SPIN_LOOK: u32 = 256;

/// Limit of a receive, counted from its call.
#[derive(Clone, Copy)]
struct Limit {
    started: Instant,
    timeout: Duration,
}

impl Limit {
    /// Returns the instant. `None`: it is too far away to be one.
    fn deadline(self) -> Option<Instant> {
        self.started.checked_add(self.timeout)
    }
}

impl Receiver {
    /// Receives the next message, if one is there. Never blocks. `None` also while the next message cannot be taken
    /// yet: the manager has still to confirm its pool, or to show its memory, and may be away; or a copy has no room
    /// yet. It stays the next one.
    ///
    /// Cost of a direct receipt: the line's cache miss, no system call; no locked instruction as long as one thread of the domain alone receives out of the pool,
    /// afterwards one.
    ///
    /// # Errors
    /// After the last message: `PeerGone`, the sender has closed in order; `PeerDied`, it died or gave up
    /// ([`Sender::abandon`](crate::Sender::abandon)). Before that `Lost`, if messages went with the memory that they
    /// were in; `ChunkPending`, if no manager can be reached that could show it; `PeerViolation`, which ends the
    /// channel; `TooLarge` where a copy can never have room; `Forked`; `System`.
    #[inline(always)]
    pub fn try_recv(&mut self) -> Result<Option<Message>, Error> {
        if self.looks_at_lines()
            && let Some(line) = self.consumer.peek(self.lines)
            && let Some(message) = self.take_short::<true>(line)
        {
            return Ok(Some(message));
        }
        self.try_recv_slow().map(|message| message.map(|m| *m))
    }

    /// Takes the message of a line that was peeked at, if it goes the short way. `EACH`: the line is given back to the
    /// sender at once.
    #[inline(always)]
    fn take_short<const EACH: bool>(&mut self, line: (u64, &Line)) -> Option<Message> {
        if let Some(taken) = self.take_direct(line) {
            if EACH {
                self.give_back_line();
            }
            // SAFETY: `take_direct` counted a reference for exactly one handle.
            let body = Body::Buffer(unsafe { taken.into_buffer() });
            let word = taken.word;
            return Some(Message { word, body });
        }
        if let Some((word, inline)) = self.take_inline(line) {
            if EACH {
                self.give_back_line();
            }
            let body = Body::Inline(inline);
            return Some(Message { word, body });
        }
        let taken = self.take_moved_direct(line)?;
        if EACH {
            self.give_back_line();
        }
        // SAFETY: `take_moved_direct` counted a reference for exactly one handle.
        let body = unsafe { taken.into_moved() };
        let word = taken.word;
        Some(Message { word, body })
    }

    /// Boxed, so that the fast path's results stay in registers where the two meet.
    #[inline(never)]
    fn try_recv_slow(&mut self) -> Result<Option<Box<Message>>, Error> {
        if !self.looks_at_lines() {
            return Ok(self.take_ahead()?.map(Box::new));
        }
        match self.consumer.try_pop(self.lines) {
            Some(words) => Ok(self.take_newest(words)?.map(Box::new)),
            None => Ok(self.nothing()?.map(Box::new)),
        }
    }

    /// Takes the message of a line; or, as long as the sender lets it be skipped, of a later line that waits.
    fn take_newest(&mut self, mut words: [u64; 8]) -> Result<Option<Message>, Error> {
        // A sender that goes on sending cannot keep this loop from its end.
        for _ in 0..self.lines.count() {
            let may_skip = descriptor::take_skippable(&mut words);
            let taken = self.take(words)?;
            if !may_skip || taken.is_none() {
                return Ok(taken);
            }
            match self.consumer.try_pop(self.lines) {
                Some(next) => words = next,
                None => return Ok(taken),
            }
            self.skipped += 1;
        }
        descriptor::take_skippable(&mut words);
        self.take(words)
    }

    /// Receives the next message, waiting for ever, as the channel's [`Wait`] says. It waits also for an absent
    /// manager, if this domain was not shown the message's memory before.
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv).
    #[inline(always)]
    pub fn recv(&mut self) -> Result<Message, Error> {
        self.recv_within(|| None)
    }

    /// Receives the next message. The limit is made, and counts, from the end of a short spin without a line.
    #[inline(always)]
    fn recv_within(&mut self, mut limit: impl FnMut() -> Option<Limit>) -> Result<Message, Error> {
        loop {
            if self.looks_at_lines() {
                match self.consumer.peek(self.lines) {
                    Some(line) => {
                        if let Some(message) = self.take_short::<true>(line) {
                            return Ok(message);
                        }
                    }
                    None if self.spin_a_little() => continue,
                    None => {}
                }
            }
            std::hint::cold_path();
            if let Some(message) = self.recv_slow(limit())? {
                return Ok(*message);
            }
        }
    }

    /// Receives the next message, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv), and `TimedOut`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message, Error> {
        let mut limit = None;
        self.recv_within(|| {
            let begin = || Limit {
                started: Instant::now(),
                timeout,
            };
            Some(*limit.get_or_insert_with(begin))
        })
    }

    /// Receives all messages that are there, at most `most` of them, into `into`, and returns how many. Waits for the first as
    /// [`recv`](Receiver::recv) does. The sender gets the lines of plain messages back together, by one wake-up.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv), and only if no message was received.
    pub fn recv_many(&mut self, into: &mut Vec<Message>, most: usize) -> Result<usize, Error> {
        let taken = self.try_recv_many(into, most)?;
        if taken > 0 || most == 0 {
            return Ok(taken);
        }
        into.push(self.recv()?);
        // An error stays until the next call.
        Ok(1 + self.try_recv_many(into, most - 1).unwrap_or(0))
    }

    /// Receives all messages that are there, at most `most` of them, into `into`, and returns how many: 0 if there is none. Never blocks.
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv), and only if no message was received.
    pub fn try_recv_many(&mut self, into: &mut Vec<Message>, most: usize) -> Result<usize, Error> {
        let (mut taken, mut to_give_back) = (0, false);
        while taken < most {
            let short = match self.looks_at_lines() {
                true => self.consumer.peek(self.lines),
                false => None,
            };
            let message = match short.and_then(|line| self.take_short::<false>(line)) {
                Some(message) => {
                    to_give_back = true;
                    message
                }
                None => match self.try_recv() {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) if taken == 0 => return Err(error),
                    // It stays until the next call.
                    Err(_) => break,
                },
            };
            into.push(message);
            taken += 1;
        }
        if to_give_back {
            self.give_back_line();
        }
        Ok(taken)
    }

    /// Receives the next message the long way, or else waits, after which the short way may do.
    #[inline(never)]
    fn recv_slow(&mut self, limit: Option<Limit>) -> Result<Option<Box<Message>>, Error> {
        let message = self.try_recv_slow()?;
        if message.is_none() {
            self.wait_ready(limit)?;
        }
        Ok(message)
    }

    /// Spins for a moment, if the channel's wait spins: looks at nothing but the line. Returns whether the line is
    /// there.
    #[inline(always)]
    fn spin_a_little(&self) -> bool {
        let spins = self.wait != Wait::Sleep && self.driver.is_none();
        spins && self.spin()
    }

    /// Looks at the line [`SPIN_LOOK`] times. Returns whether it is there. Each look prefetches the buffer that is
    /// likely to come: its bytes come from as far as the line, and would otherwise come after it.
    #[inline(always)]
    fn spin(&self) -> bool {
        // Without a guess, prefetches memory that is here anyway.
        let bytes = self.awaited().unwrap_or(ptr::from_ref(self).cast());
        (0..SPIN_LOOK).any(|_| {
            std::hint::spin_loop();
            tranship_sync::prefetch_read(bytes);
            self.consumer.ready(self.lines)
        })
    }

    /// Returns the likely place of the next buffer's bytes. `None` for a buffer that may be moved here to be written:
    /// it is prefetched once, for writing.
    #[inline(always)]
    fn awaited(&self) -> Option<*const u8> {
        let is_read = self.at_hand.as_ref().is_some_and(|pool| !pool.written);
        (is_read && self.guess.is_any()).then(|| self.guess.next())
    }

    /// Waits until a line is there, or other news has to be looked at.
    #[inline(never)]
    fn wait_ready(&mut self, limit: Option<Limit>) -> Result<(), Error> {
        let deadline = limit.and_then(Limit::deadline);
        let mut polls = 0u32;
        let timed_out = |awaited| {
            let waited_ms = limit.map_or(0, |limit| millis(limit.started.elapsed()));
            Err(TimedOut { awaited, waited_ms }.into())
        };
        if let Ahead::Line(pending) = &self.ahead {
            return match self.wait_due(&pending.due, deadline) {
                true => Ok(()),
                false => timed_out(Awaited::Memory(pending.due.pool())),
            };
        }
        if let Some(driver) = &self.driver {
            return self.drive(&**driver, limit.map(|limit| limit.started), deadline);
        }
        loop {
            let spin = match self.wait {
                Wait::Spin => true,
                Wait::SpinThenSleep(spins) => polls < spins,
                Wait::Sleep => false,
            };
            if spin {
                if self.spin() {
                    return Ok(());
                }
                polls = polls.wrapping_add(SPIN_LOOK);
                if polls.is_multiple_of(1 << 22) {
                    self.link.look_for_death();
                    self.link.domain.turn_quietly();
                }
            } else {
                let (consumer, lines, link) = (&self.consumer, self.lines, &self.link);
                sleep_on(link, Waker::Fences, deadline, self.is_flowing(), || {
                    consumer.ready(lines) || link.their_closed() || link.gone() != Gone::No
                });
            }
            if self.may_have_news() || self.link.domain.has_news() {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return timed_out(Awaited::Message);
            }
        }
    }

    /// Waits for a message as [`recv`](Receiver::recv) does first, if messages have been coming: on this channel alone, and
    /// for a short time. Returns whether a message is there.
    pub(crate) fn wait_briefly(&self, deadline: Option<Instant>) -> bool {
        let flows = self.wait != Wait::Spin && self.driver.is_none() && self.is_flowing();
        let is_over = || self.may_have_news() || self.link.domain.has_news();
        if flows && !self.puts_aside() {
            sleep_briefly(&self.link, deadline, is_over);
        }
        self.is_ready()
    }

    /// Handles an empty ring: takes the manager's news, gives back the assignments of pools that are gone, and checks
    /// whether anything can still come.
    #[inline(never)]
    fn nothing(&mut self) -> Result<Option<Message>, Error> {
        self.link.domain.catch_up();
        self.give_back_assignments();
        // Ordering: Acquire: after `closed` (or the news of a death) everything sent before is visible, so one
        // more look at the ring decides.
        if !self.link.their_closed() && self.link.gone() == Gone::No {
            return Ok(None);
        }
        self.ending()
    }

    #[cold]
    fn ending(&mut self) -> Result<Option<Message>, Error> {
        match self.consumer.try_pop(self.lines) {
            Some(words) => self.take_newest(words),
            None => Err(self.all_taken()),
        }
    }

    /// Returns whether a message is here that the manager has still to make readable.
    pub(in crate::link) fn awaits_manager(&self) -> bool {
        matches!(self.ahead, Ahead::Line(_))
    }

    /// Returns whether a message that can be received waits.
    pub fn is_ready(&self) -> bool {
        !self.link.domain.fork.is_child()
            && match &self.ahead {
                Ahead::Nothing | Ahead::Held => {
                    // As `spin` does: a caller may look again and again.
                    if let Some(bytes) = self.awaited() {
                        tranship_sync::prefetch_read(bytes);
                    }
                    self.consumer.ready(self.lines)
                }
                Ahead::Line(pending) => self.is_due(&pending.due),
                Ahead::End(_) => false,
            }
    }

    /// Whether a message was put aside until its memory is here.
    pub(in crate::link) fn puts_aside(&self) -> bool {
        matches!(self.ahead, Ahead::Line(_))
    }

    /// Whether messages have been coming.
    pub(in crate::link) fn is_flowing(&self) -> bool {
        self.consumer.head() > 0
    }

    pub(in crate::link) fn may_have_news(&self) -> bool {
        // A forked child gets an error. The end comes after all messages.
        let over = || self.link.their_closed() || self.link.gone() != Gone::No;
        self.link.domain.fork.is_child()
            || self.is_ready()
            || (!matches!(self.ahead, Ahead::Line(_)) && over())
    }

    /// Takes the message that was put aside, or reports the end once more.
    #[cold]
    fn take_ahead(&mut self) -> Result<Option<Message>, Error> {
        if self.link.domain.fork.is_child() {
            return Err(ErrorKind::Forked.into());
        }
        match std::mem::replace(&mut self.ahead, Ahead::Nothing) {
            Ahead::Nothing => Ok(None),
            Ahead::Held => {
                self.ahead = Ahead::Held;
                self.take_held()
            }
            Ahead::Line(pending) => self.take_pending(&pending),
            Ahead::End(over) => Err(self.end(over)),
        }
    }

    fn take_pending(&mut self, pending: &Pending) -> Result<Option<Message>, Error> {
        let taken = self.take(pending.words);
        // An answer covers no message that was sent after the question.
        if !matches!(self.ahead, Ahead::Line(_)) {
            self.forget_resync();
        }
        taken
    }

    /// Waits for a message, or other news, inside the carrier's driver.
    fn drive(
        &self,
        driver: &dyn Driver,
        started: Option<Instant>,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let is_ready = || self.may_have_news() || self.link.domain.has_news();
        loop {
            self.link.drive(driver, self.wait, deadline, &is_ready);
            if is_ready() {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let waited_ms = started.map_or(0, |started| millis(started.elapsed()));
                let awaited = Awaited::Message;
                return Err(TimedOut { awaited, waited_ms }.into());
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if self.link.domain.fork.is_child() {
            return;
        }
        self.forget_resync();
        // For a source that waits while no manager is there to tell it.
        self.link.ring.end(Ending::Closed);
        if let Some(store) = &self.store {
            store.close();
            self.link.tell_other();
        }
        // Crash: the manager takes the queue off the reader sets at this request, or at our death.
        self.link.leave();
    }
}
