//! The receiving end of a channel.

mod ahead;
mod direct;
mod forms;
mod guess;
mod inside;
mod missing;
mod over;
mod pass;
mod pending;
mod pools;
mod release;
mod snapshot;
mod take;
mod topic;

use self::ahead::{Ahead, Resync};
pub(super) use self::forms::goes_later;
use self::guess::Guess;
pub(super) use self::pools::arrivals;
use self::pools::{AtHand, In};
use super::descriptor;
use super::driver::Driver;
use super::message::{Body, Message};
use super::shared::{Gone, LinkShared};
use super::sleep::sleep_on;
use super::store::Store;
use crate::base::millis;
use crate::domain::DomainCore;
use crate::error::{Awaited, Error, TimedOut};
use crate::options::{ChannelOptions, Wait};
use crate::pool::Pool;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_proto::Role;
use tranship_ring::{Consumer, Ending, Line, Lines, Producer, Publish, Waker};
use tranship_sys::ForkGuard;

/// Receives messages from one sender.
///
/// Crash-safe: a sender's death loses nothing that it had sent. Whether it had sent all that it wanted to is another matter:
/// only [`ErrorKind::PeerGone`](crate::ErrorKind::PeerGone) says that it closed the channel, by dropping its end; a death is [`ErrorKind::PeerDied`](crate::ErrorKind::PeerDied).
///
/// ```
/// # use tranship_core::{Domain, ErrorKind, PoolOptions, Receiver, Sender};
/// # let domain = Domain::embedded()?;
/// # let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// # let listener = domain.listen::<Receiver>("local:video")?;
/// # let mut sender = domain.open::<Sender>("local:video")?;
/// # let mut receiver = listener.accept()?;
/// sender.send((pool.copy(b"a frame")?.freeze(), 60))?;
/// let message = receiver.recv()?; // `try_recv`, `recv_timeout` and `recv_async` are its other forms
/// assert_eq!((message.word, message.to_vec()), (60, b"a frame".to_vec()));
/// drop(message); // the writer has its memory again
/// drop(sender);
/// assert_eq!(receiver.recv().unwrap_err().kind(), ErrorKind::PeerGone); // the end, in order
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Receiver {
    pub(crate) link: Arc<LinkShared>,
    lines: Lines<'static>,
    control_lines: Lines<'static>,
    pub(super) consumer: Consumer,
    control: Producer,
    ins: Vec<In>,
    /// The first of `ins`, if it is another domain's pool.
    at_hand: Option<AtHand>,
    guess: Guess,
    fork: ForkGuard,
    version: u32,
    ahead: Ahead,
    resync: Option<Resync>,
    pub(super) wait: Wait,
    trusted: bool,
    pub(in crate::link) skipped: u64,
    /// Where buffers of level `none` are copied to.
    snapshots: Option<Pool>,
    /// What comes over from a sender of this process.
    store: Option<Arc<Store>>,
    /// Who brings it, if that is a carrier.
    pub(super) driver: Option<Arc<dyn Driver>>,
}

/// Looks at a line between two looks at anything else.
const SPIN_LOOK: u32 = 256;

/// How long a receive may take, from when it was asked for.
#[derive(Clone, Copy)]
struct Limit {
    started: Instant,
    timeout: Duration,
}

impl Limit {
    /// None: so far away that there is no such instant.
    fn deadline(self) -> Option<Instant> {
        self.started.checked_add(self.timeout)
    }
}

impl Receiver {
    pub(super) fn new(link: Arc<LinkShared>, options: &ChannelOptions) -> Result<Receiver, Error> {
        let snapshots = pools::arrivals(&link.domain, options, None)?;
        let receiver = Receiver::with(link, options, snapshots);
        receiver.say_spinning();
        Ok(receiver)
    }

    /// One that copies to there.
    fn with(link: Arc<LinkShared>, options: &ChannelOptions, snapshots: Option<Pool>) -> Receiver {
        let lines = link.their_lines();
        let control_lines = link.own_lines();
        Receiver {
            lines,
            control_lines,
            consumer: Consumer::new(),
            control: Producer::new(),
            ins: Vec::new(),
            at_hand: None,
            guess: Guess::default(),
            fork: link.domain.fork,
            version: 0,
            ahead: Ahead::Nothing,
            resync: None,
            wait: options.wait,
            trusted: false,
            skipped: 0,
            snapshots,
            store: None,
            driver: None,
            link,
        }
    }

    /// The sender is told if this end does not sleep. That it sleeps after all is told by the sleep.
    fn say_spinning(&self) {
        if self.wait == Wait::Spin && self.link.inside.is_none() && !self.fork.is_child() {
            self.link.ring.spin();
        }
    }

    /// Whether the pool is there that the options of who listens name: not only when somebody connects.
    pub(crate) fn check(
        domain: &DomainCore,
        role: Role,
        options: &ChannelOptions,
    ) -> Result<(), Error> {
        match role {
            Role::Sink => pools::snapshots(domain, options).map(drop),
            Role::Source => Ok(()),
        }
    }

    /// Lets buffers received from now on be read as plain slices.
    ///
    /// # Safety
    /// Who can write a pool that is assigned to this channel must not change a buffer after it was sent: its writer, and at the
    /// levels `half` and `full` every domain that has the pool. Nobody may have, or get, a buffer that was moved here. Isolation does not
    /// enforce that against them: as with a memory-mapped file, who does it makes a slice change under the reader's feet.
    pub unsafe fn trust_writer(&mut self) {
        self.trusted = true;
    }

    /// The next message, if one is there. Never blocks. `None` also while the message that is next cannot be had yet: the manager has
    /// still to confirm its pool, or to show us its memory, and may be away; or a copy of it has no room yet. It stays the next one.
    ///
    /// Cost of a direct receipt: the line's cache miss, no system call; no locked instruction as long as one thread of the domain alone receives out of the pool,
    /// afterwards one.
    ///
    /// # Errors
    /// When nothing comes any more, and everything was taken: `PeerGone`, the sender has closed in order; `PeerDied`, it died or gave up ([`Sender::abandon`](crate::Sender::abandon)). Before that `Lost`,
    /// if messages went with the memory that they were in; `ChunkPending`, if no manager can be reached that could show it; `PeerViolation`, which ends the channel; `TooLarge` where a copy
    /// can never have room; `Forked`; `System`.
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

    /// The message of a line that was peeked at, if it goes the short way. `EACH`: the line is the sender's again at once.
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

    /// The message of a line; or, as long as the sender lets it be skipped, that of a later one that waits.
    fn take_newest(&mut self, mut words: [u64; 8]) -> Result<Option<Message>, Error> {
        // A sender that goes on sending holds nobody here.
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

    /// The next message, waiting as the channel's [`Wait`] says, for ever: also for a manager that is away, if the message's memory was
    /// not shown to us before.
    ///
    /// # Errors
    /// As [`try_recv`](Receiver::try_recv).
    #[inline(always)]
    pub fn recv(&mut self) -> Result<Message, Error> {
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
            if let Some(message) = self.recv_slow(None)? {
                return Ok(*message);
            }
        }
    }

    /// The next message, waiting at most that long.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv), and `TimedOut`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message, Error> {
        let limit = Limit {
            started: Instant::now(),
            timeout,
        };
        loop {
            if let Some(message) = self.recv_slow(Some(limit))? {
                return Ok(*message);
            }
        }
    }

    /// Receives all messages that are there, at most `most` of them, into `into`: how many. Waits for the first as [`recv`](Receiver::recv) does. The
    /// sender gets the lines of plain messages back together, by one wake-up.
    ///
    /// # Errors
    /// As [`recv`](Receiver::recv), and only if no message was received.
    pub fn recv_many(&mut self, into: &mut Vec<Message>, most: usize) -> Result<usize, Error> {
        if most == 0 {
            return Ok(0);
        }
        into.push(self.recv()?);
        let (mut taken, mut to_give_back) = (1, false);
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
                // An error stays until the next call.
                None => match self.try_recv() {
                    Ok(Some(message)) => message,
                    Ok(None) | Err(_) => break,
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

    /// The next message the long way, or else a wait, after which the short way may do.
    #[inline(never)]
    fn recv_slow(&mut self, limit: Option<Limit>) -> Result<Option<Box<Message>>, Error> {
        let message = self.try_recv_slow()?;
        if message.is_none() {
            self.wait_ready(limit)?;
        }
        Ok(message)
    }

    /// A wait so short that nothing but the line is looked at, where that is to be done: whether the line is there.
    #[inline(always)]
    fn spin_a_little(&self) -> bool {
        let spins = self.wait != Wait::Sleep && self.driver.is_none();
        spins && self.spin()
    }

    /// Looks at the line [`SPIN_LOOK`] times: whether it is there. The buffer that is likely to come is asked for each time, as its bytes come from as far as
    /// the line does, and would come after it.
    #[inline(always)]
    fn spin(&self) -> bool {
        // Or for what is here anyway.
        let bytes = self.awaited().unwrap_or(ptr::from_ref(self).cast());
        (0..SPIN_LOOK).any(|_| {
            std::hint::spin_loop();
            tranship_sync::prefetch_read(bytes);
            self.consumer.ready(self.lines)
        })
    }

    /// Where the next buffer's bytes are likely to be. Not of one that may be moved here to be written: that is asked for once, and for writing.
    #[inline(always)]
    fn awaited(&self) -> Option<*const u8> {
        let is_read = self.at_hand.as_ref().is_some_and(|pool| !pool.written);
        (is_read && self.guess.is_any()).then(|| self.guess.next())
    }

    /// Waits until a line is there, or something else has to be looked at.
    #[inline(never)]
    fn wait_ready(&mut self, limit: Option<Limit>) -> Result<(), Error> {
        let deadline = limit.and_then(Limit::deadline);
        let mut polls = 0u32;
        let timed_out = |awaited| {
            let waited_ms = limit.map_or(0, |limit| millis(limit.started.elapsed()));
            Err(TimedOut { awaited, waited_ms }.into())
        };
        if let Ahead::Line(pending) = &self.ahead {
            return match self.wait_pending(pending, deadline) {
                true => Ok(()),
                false => timed_out(Awaited::Memory(pending.pool())),
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
                sleep_on(link, Waker::Fences, deadline, consumer.head() > 0, || {
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

    /// The ring is empty: take the manager's news, and see whether anything can still come.
    #[inline(never)]
    fn nothing(&mut self) -> Result<Option<Message>, Error> {
        self.link.domain.catch_up();
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

    /// Sends a few bytes back, which a line holds.
    pub(super) fn say(&mut self, bytes: &[u8], word: u64) -> Result<(), Error> {
        self.sender_is_there()?;
        self.control_room()?;
        let line = descriptor::inline_line(bytes, word);
        let _ = self.control.push(self.control_lines, Publish::SeqCst, line);
        self.link.notify();
        Ok(())
    }

    /// Whether a message waits that can be received.
    pub fn is_ready(&self) -> bool {
        !self.link.domain.fork.is_child()
            && match &self.ahead {
                Ahead::Nothing | Ahead::Held => self.consumer.ready(self.lines),
                Ahead::Line(pending) => self.is_due(pending),
                Ahead::End(_) => false,
            }
    }
    /// Whether a message was put aside until its memory is here.
    pub(super) fn puts_aside(&self) -> bool {
        matches!(self.ahead, Ahead::Line(_))
    }
    pub(super) fn may_have_news(&self) -> bool {
        // A forked child has an error to be told. The end comes after all messages.
        let over = || self.link.their_closed() || self.link.gone() != Gone::No;
        self.link.domain.fork.is_child()
            || self.is_ready()
            || (!matches!(self.ahead, Ahead::Line(_)) && over())
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

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("link", &self.link)
            .field("taken", &self.consumer.head())
            .finish_non_exhaustive()
    }
}
