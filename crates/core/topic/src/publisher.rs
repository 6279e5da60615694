//! The writing end: room, lines, memory.

use crate::bells::Bells;
use crate::line;
use crate::options::{TopicOptions, WhenBehind};
use crate::payload::{Parts, Publish, not_sent};
use crate::seats::{Joins, Seats, SubscriberSeen};
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Named};
use tranship_core::{
    Buffer, BufferMut, Domain, Error, ErrorKind, Listener, Outcome, Pool, SendError, Sender,
};
use tranship_ledger::rounds::{self, Pace, Published, Reliable, Rounds};
use tranship_ring::broadcast::{LinesRw, Message, Ticks};
use tranship_sys::crash;
use tranship_sys::time::{counter, has_steady_counter, monotonic_ns};

/// Ticks of the processor's counter between two looks at who comes and goes: below a millisecond.
const TEND_TICKS: u64 = 1 << 20;
/// Publishes between two such looks where there is no such counter.
const TEND_PUBLISHES: u64 = 16;
/// A publisher that waits looks again after this time.
const PAUSE: Duration = Duration::from_micros(200);
/// Buffers of ended lines that wait for a round, at most, beside those of the lines themselves.
const SPARE: usize = 64;
/// The bytes that these may take together: large buffers are looked for sooner.
const SPARE_BYTES: usize = 8 << 20;
/// The fewest that a round is begun for.
const LEAST_SPARE: usize = 8;

/// Publishes a topic's messages. Subscribers come and go by themselves.
///
/// One thread at a time publishes. A publish writes one line, whatever the number of subscribers: no locked instruction,
/// and no system call within a burst. After a pause of 20 µs or more it makes one for each user that has subscribers. Now and then it takes new subscribers in; a publisher that is idle calls
/// [`tend`](Publisher::tend) for that.
///
/// Crash-safe: when the publisher's process dies, subscribers take what the ring still has, and are told. A publisher of
/// the same name that comes later is found by subscribers that wait.
pub struct Publisher {
    domain: Domain,
    name: String,
    listener: Listener<Sender>,
    pool: Pool,
    ring: LinesRw,
    options: TopicOptions,
    rounds: Rounds,
    published: Published,
    reliable: Reliable,
    seats: Seats,
    bells: Bells,
    held: Held,
    ticks: Ticks,
    /// When it was looked at who comes and goes, in ticks or publishes.
    tended: u64,
    is_steady: bool,
    dropped: u64,
    /// The oldest line when reliable subscribers kept its memory last, and since when they did.
    stuck: Option<(u64, Instant)>,
}

/// Handles of the buffers that a line names or a reader may have, by slots.
struct Held {
    buffers: Vec<Option<Buffer>>,
    count: usize,
    /// Of ended lines, before a round begins.
    spare: usize,
}

/// What a round finds.
struct Found<'a> {
    held: &'a mut Held,
    pool: &'a Pool,
    reliable: &'a mut Reliable,
    tail: u64,
    exceeded: &'a mut Vec<usize>,
}

impl rounds::Outcome for Found<'_> {
    #[inline]
    fn free(&mut self, slot: u32) {
        if let Some(buffer) = self
            .held
            .buffers
            .get_mut(slot as usize)
            .and_then(Option::take)
        {
            self.held.count -= 1;
            topics::let_go(self.pool, buffer);
        }
    }
    #[inline(always)]
    fn seen(&mut self, desk: usize, low: u64) {
        self.reliable.seen(desk, low, self.tail);
    }
    fn exceeded(&mut self, desk: usize) {
        self.exceeded.push(desk);
    }
}

/// What a publisher has done, and for whom.
#[derive(Clone, Debug, Default)]
pub struct PublisherStatus {
    /// Messages that were published.
    pub published: u64,
    /// Messages that were dropped because a reliable subscriber was behind.
    pub dropped: u64,
    /// Subscribers that were reliable and were behind for too long.
    pub demoted: u64,
    /// Subscribers that held more than was agreed.
    pub expelled: u64,
    /// Buffers that lines name or subscribers may hold.
    pub buffers: usize,
    /// The subscribers.
    pub subscribers: Vec<SubscriberSeen>,
}

impl Publisher {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        options: TopicOptions,
    ) -> Result<Publisher, Error> {
        options.check()?;
        topics::check_fork(domain)?;
        let pool = topics::pool(domain, options.pool_options(name))?;
        let (fd, ring) = LinesRw::create(options.depth)?;
        let bells = Bells::default();
        let makes = bells.clone();
        let shown = (fd, options.depth);
        let listener = topics::publish(domain, name, shown, move |uid| makes.of(uid))?;
        let slots = topics::slots(&pool);
        let mut rounds = Rounds::new(
            slots,
            Pace {
                small: 0,
                ..Pace::PRODUCTION
            },
        );
        let published = Published::new(options.depth, 0, rounds.add_ring(options.depth));
        let is_steady = has_steady_counter();
        Ok(Publisher {
            domain: domain.clone(),
            name: name.into(),
            listener,
            pool,
            ring,
            rounds,
            published,
            reliable: Reliable::new(options.depth),
            options,
            seats: Seats::default(),
            bells,
            held: Held {
                buffers: (0..slots).map(|_| None).collect(),
                count: 0,
                spare: LEAST_SPARE,
            },
            ticks: Ticks::new(is_steady.then(counter), monotonic_ns()),
            tended: 0,
            is_steady,
            dropped: 0,
            stuck: None,
        })
    }

    /// Returns the topic's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many subscribers have joined and not left.
    pub fn subscribers(&self) -> usize {
        self.seats.count()
    }

    /// Allocates a buffer of `len` bytes from the topic's own pool, which its subscribers alone can read. Where nothing is free it withdraws the
    /// oldest messages, which subscribers then miss; it waits for those that subscribers hold, and for those that reliable ones have still to
    /// take.
    ///
    /// With [`WhenBehind::Wait`] reliable subscribers that keep memory for longer than that time are no longer reliable.
    /// With [`WhenBehind::DropNew`] the wait for them has no bound: see [`try_alloc`](Publisher::try_alloc).
    ///
    /// # Errors
    /// As [`Pool::alloc`].
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<BufferMut, Error> {
        self.alloc_by(len, None)
    }

    /// Allocates a buffer of `len` bytes from the topic's own pool, as [`alloc`](Publisher::alloc) does, without waiting for subscribers.
    ///
    /// # Errors
    /// As [`Pool::alloc`], and `OutOfMemory`, which says how many buffers subscribers hold.
    pub fn try_alloc(&mut self, len: usize) -> Result<BufferMut, Error> {
        self.alloc_by(len, Some(Instant::now()))
    }

    /// Allocates a buffer of `len` bytes from the topic's own pool, as [`alloc`](Publisher::alloc) does, or fails with `OutOfMemory` after `timeout`.
    ///
    /// # Errors
    /// As [`try_alloc`](Publisher::try_alloc).
    pub fn alloc_timeout(&mut self, len: usize, timeout: Duration) -> Result<BufferMut, Error> {
        self.alloc_by(len, Instant::now().checked_add(timeout))
    }

    #[inline]
    fn alloc_by(&mut self, len: usize, deadline: Option<Instant>) -> Result<BufferMut, Error> {
        match self.pool.try_alloc(len) {
            Err(error) if error == ErrorKind::OutOfMemory => self.make_room(len, deadline),
            allocated => allocated,
        }
    }

    /// Finds memory: what rounds find, then what the oldest lines have, then what subscribers let go of.
    #[cold]
    fn make_room(&mut self, len: usize, deadline: Option<Instant>) -> Result<BufferMut, Error> {
        let (mut lines, mut stuck) = (1u32, None);
        loop {
            self.tend()?;
            self.collect();
            let error = match self.pool.try_alloc(len) {
                Err(error) if error == ErrorKind::OutOfMemory => error,
                allocated => return allocated,
            };
            let floor = self.reliable.floor(self.published.tail());
            let mut withdrawn = false;
            for _ in 0..lines {
                let Ok(one) = self
                    .published
                    .withdraw(&self.ring.lines(), &mut self.rounds, floor);
                if !one {
                    break;
                }
                withdrawn = true;
            }
            if withdrawn {
                lines = lines.saturating_mul(2);
                continue;
            }
            let first = self.published.first();
            if first != self.published.tail()
                && let WhenBehind::Wait(limit) = self.options.when_behind
            {
                // Only reliable subscribers keep a line from being withdrawn. All of them together get one limit.
                let known = self.stuck.filter(|(position, _)| *position == first);
                let (_, since) = *self.stuck.insert(known.unwrap_or((first, Instant::now())));
                if stuck.get_or_insert(since).elapsed() >= limit {
                    self.demote_behind(first.wrapping_add(self.options.depth.into()));
                    continue;
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.no_room(error));
            }
            // Sleepers put away what was dropped meanwhile.
            self.bells.ring(self.published.tail());
            std::thread::sleep(PAUSE);
        }
    }

    fn no_room(&self, error: Error) -> Error {
        let (name, held) = (&self.name, self.held.count);
        let mut text = format!(
            "topic {name} has no memory left: its messages and subscribers have {held} buffers"
        );
        for seen in self.seats.seen(self.published.tail(), self.options.depth) {
            let SubscriberSeen {
                domain,
                pid,
                kept,
                more,
                behind,
                ..
            } = seen;
            let more = if more { " and more" } else { "" };
            text += &format!(
                "; domain {domain} (process {pid}) keeps {kept}{more}, {behind} messages behind"
            );
        }
        Error::because(ErrorKind::OutOfMemory, text, error)
    }

    /// Publishes a message: a buffer of the topic's own pool, or a few bytes; each alone or with a word.
    ///
    /// It waits only for reliable subscribers, as [`WhenBehind`] says. `Dropped`: one of them was behind, and the message was not published.
    ///
    /// # Errors
    /// `BufferInvalid` for a buffer of another pool; `TooLarge` for more bytes than a line holds; `Forked`. The error gives the buffer back.
    #[inline]
    pub fn send<P: Publish>(&mut self, payload: P) -> Result<Outcome, SendError<P::Unsent>> {
        let (parts, word) = payload.into_parts();
        let ready = self.ready(&parts);
        let ready = ready.and_then(|named| Ok((named, self.has_room()?)));
        let named = match ready {
            Ok((named, true)) => named,
            Ok((_, false)) => {
                self.dropped += 1;
                return Ok(Outcome::Dropped);
            }
            Err(error) => return Err(not_sent::<P>(error, parts, word)),
        };
        match (parts, named) {
            (Parts::Buffer(buffer), Some(named)) => {
                self.put(line::buffer(named, word), Some(buffer))
            }
            (Parts::Buffer(_), None) => {}
            (Parts::Bytes(bytes), _) => self.put(line::inline(bytes.as_ref(), word), None),
        }
        Ok(Outcome::Sent)
    }

    #[inline]
    fn ready<B: AsRef<[u8]>>(&self, parts: &Parts<B>) -> Result<Option<Named>, Error> {
        topics::check_fork(&self.domain)?;
        parts.check()?;
        let Parts::Buffer(buffer) = parts else {
            return Ok(None);
        };
        let named = topics::named(&self.pool, buffer).ok_or_else(|| {
            let name = &self.name;
            let text = format!(
                "the buffer is not of topic {name}'s own pool: allocate it from its publisher"
            );
            Error::new(ErrorKind::BufferInvalid, text)
        })?;
        Ok(Some(named))
    }

    /// Waits for the reliable subscribers. False: the message is to be dropped.
    #[inline]
    fn has_room(&mut self) -> Result<bool, Error> {
        let Ok(behind) = self.reliable.room(&self.seats, self.published.tail());
        match behind {
            None => Ok(true),
            Some(_) => self.await_room(),
        }
    }

    #[cold]
    fn await_room(&mut self) -> Result<bool, Error> {
        let begun = Instant::now();
        loop {
            self.tend()?;
            let Ok(behind) = self.reliable.room(&self.seats, self.published.tail());
            if behind.is_none() {
                return Ok(true);
            }
            let limit = match self.options.when_behind {
                WhenBehind::Wait(limit) => limit,
                WhenBehind::DropNew => return Ok(false),
                WhenBehind::Overwrite => Duration::ZERO,
            };
            if begun.elapsed() >= limit {
                self.demote_behind(self.published.tail());
                return Ok(true);
            }
            self.bells.ring(self.published.tail());
            std::thread::sleep(PAUSE.min(limit));
        }
    }

    /// Takes the rank of all reliable subscribers that leave no room for a line at `tail`.
    #[cold]
    fn demote_behind(&mut self, tail: u64) {
        while let Ok(Some(desk)) = self.reliable.room(&self.seats, tail) {
            self.reliable.leave(desk);
            self.seats.demote(desk);
        }
    }

    /// Publishes a line, wakes those that sleep, and does a bounded piece of the work that is due.
    #[inline]
    fn put(&mut self, message: Message, buffer: Option<Buffer>) {
        let (lines, rounds) = (self.ring.lines(), &mut self.rounds);
        match buffer {
            Some(buffer) => {
                let slot = buffer.id().slot();
                let bytes = buffer.len();
                // Crash: a death from here on ends the ring; subscribers take the lines that are whole.
                let Ok(_) = self.published.publish(&lines, rounds, message, slot);
                let place = &mut self.held.buffers[slot as usize];
                // A second handle of one buffer goes.
                self.held.count += usize::from(place.replace(buffer).is_none());
                self.held.spare = (SPARE_BYTES / bytes.max(1)).clamp(LEAST_SPARE, SPARE);
            }
            None => {
                let Ok(_) = self.published.publish_many(&lines, rounds, message, &[]);
            }
        }
        crash::point("topic.published");
        let mut now = self.published.tail();
        let is_steady = self.is_steady;
        let clock = || {
            now = counter();
            now
        };
        if self.ticks.wakes(clock, monotonic_ns) && self.seats.count() > 0 {
            self.bells.ring(self.published.tail());
        }
        self.step();
        let pause = if is_steady {
            TEND_TICKS
        } else {
            TEND_PUBLISHES
        };
        if now.wrapping_sub(self.tended) >= pause {
            self.tended = now;
            self.tend_quietly();
        }
    }

    #[inline]
    fn step(&mut self) {
        let mut exceeded = Vec::new();
        // A round is due when the ended lines have as many buffers as may wait.
        let most = self.options.depth as usize + self.held.spare + ROUND_LEAD;
        let available = most.saturating_sub(self.held.count);
        let mut found = Found {
            held: &mut self.held,
            pool: &self.pool,
            reliable: &mut self.reliable,
            tail: self.published.tail(),
            exceeded: &mut exceeded,
        };
        let Ok(()) = self.rounds.step(&self.seats, available, &mut found);
        if !exceeded.is_empty() {
            self.expel(&exceeded);
        }
    }

    /// Does a whole round.
    fn collect(&mut self) {
        let mut exceeded = Vec::new();
        let mut found = Found {
            held: &mut self.held,
            pool: &self.pool,
            reliable: &mut self.reliable,
            tail: self.published.tail(),
            exceeded: &mut exceeded,
        };
        let Ok(_) = self.rounds.collect(&self.seats, &mut found);
        self.expel(&exceeded);
    }

    #[cold]
    fn expel(&mut self, desks: &[usize]) {
        for desk in desks {
            let keep = self.options.keep;
            self.seats
                .exceeded(*desk, keep, &mut self.reliable, &self.bells);
        }
    }

    /// Takes new subscribers in, and takes leave of those that are gone. A publish does this now and then; a publisher
    /// that is idle calls it, for example when the [`Domain`]'s descriptor is readable. It does not block.
    ///
    /// # Errors
    /// `Forked`. That the manager is away is none: the subscribers that have joined go on.
    pub fn tend(&mut self) -> Result<(), Error> {
        topics::check_fork(&self.domain)?;
        self.tend_quietly();
        Ok(())
    }

    #[cold]
    fn tend_quietly(&mut self) {
        topics::catch_up(&self.domain);
        self.seats.tend(Joins {
            listener: &self.listener,
            pool: &self.pool,
            rounds: &mut self.rounds,
            published: &self.published,
            reliable: &mut self.reliable,
            bells: &self.bells,
            options: &self.options,
            ring: 0,
        });
    }

    /// Waits until so many subscribers have joined, at most `timeout`. `None`: for ever.
    ///
    /// # Errors
    /// `TimedOut`; `Forked`.
    pub fn wait_for(
        &mut self,
        subscribers: usize,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), Error> {
        let (begun, timeout) = (Instant::now(), timeout.into());
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        loop {
            self.tend()?;
            let have = self.subscribers();
            if have >= subscribers {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let name = &self.name;
                let text = format!(
                    "topic {name} has {have} subscribers, not {subscribers}, after {:?}",
                    begun.elapsed()
                );
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            topics::idle(&self.domain, deadline);
        }
    }

    /// Returns what was published, and what the desks of the subscribers show now. Reads every desk.
    pub fn status(&self) -> PublisherStatus {
        PublisherStatus {
            published: self.published.tail(),
            dropped: self.dropped,
            demoted: self.seats.demoted,
            expelled: self.seats.expelled,
            buffers: self.held.count,
            subscribers: self.seats.seen(self.published.tail(), self.options.depth),
        }
    }
}

/// Steps of a round that `Rounds` counts in before a round is due.
const ROUND_LEAD: usize = 12;

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("name", &self.name)
            .field("published", &self.published.tail())
            .field("subscribers", &self.seats.count())
            .finish_non_exhaustive()
    }
}

impl Drop for Publisher {
    /// Ends the topic in order: subscribers take what the ring still has.
    fn drop(&mut self) {
        if topics::check_fork(&self.domain).is_err() {
            // The pool, the channels and the buffers are the parent's.
            std::mem::take(&mut self.held.buffers)
                .into_iter()
                .for_each(std::mem::forget);
            return;
        }
        self.seats.end();
        self.bells.ring(self.published.tail());
        for buffer in std::mem::take(&mut self.held.buffers).into_iter().flatten() {
            topics::leave_behind(&self.pool, buffer);
        }
    }
}
