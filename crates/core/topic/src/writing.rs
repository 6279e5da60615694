//! The state of a publisher: room, lines, memory. The publisher's thread uses it; the domain's helper thread does so while
//! the publisher does nothing.

use crate::bells::Bells;
use crate::options::{TopicOptions, WhenBehind};
use crate::seats::{Lobby, Subscribers};
use crate::status::PublisherStatus;
use std::time::{Duration, Instant};
use tranship_core::error::Limit;
use tranship_core::topics::{self, Named, Readers};
use tranship_core::{
    Aggregate, Buffer, BufferMut, Domain, Error, ErrorKind, Outcome, Pool, SendError,
};
use tranship_ledger::rounds::{self, Pace, Published, Reliable, Rounds};
use tranship_readers::{Joins, PAUSE, Room, Waits, Writes, line, pieces, waiting};
use tranship_ring::broadcast::{Limits, LinesRw, Message, Ticks};
use tranship_sys::crash;
use tranship_sys::time::{counter, has_steady_counter, monotonic_ns};

/// Ticks of the processor's counter between two looks at who comes and goes: below a millisecond.
const TEND_TICKS: u64 = 1 << 20;
/// Publishes between two such looks where there is no such counter.
const TEND_PUBLISHES: u64 = 16;
/// A publisher looks for so long at a subscriber that is behind before it sleeps. A running subscriber takes a message in
/// less.
const BRIEF: Duration = Duration::from_micros(20);
/// The shortest time between two rounds for a publisher that does nothing.
const ROUND: Duration = Duration::from_millis(100);
/// Looks without a pause slow the subscriber, which writes its desk's line all the time.
const SPINS: u32 = 32;
/// Buffers of ended lines that wait for a round, at most, beside those of the lines themselves.
const SPARE: usize = 64;
/// The bytes that these may take together: large buffers are looked for sooner.
const SPARE_BYTES: usize = 8 << 20;
/// The fewest that a round is begun for.
const LEAST_SPARE: usize = 8;
/// Steps of a round that `Rounds` counts in before a round is due.
const ROUND_LEAD: usize = 12;

/// A publisher's state.
pub(crate) struct Writing {
    domain: Domain,
    name: String,
    readers: Readers,
    pool: Pool,
    ring: LinesRw,
    options: TopicOptions,
    rounds: Rounds,
    published: Published,
    reliable: Reliable,
    seats: Subscribers,
    bells: Bells,
    held: Held,
    ticks: Ticks,
    /// When it was looked at who comes and goes, in ticks or publishes.
    tended: u64,
    is_steady: bool,
    dropped: u64,
    /// The oldest line when reliable subscribers kept its memory last, and since when they did.
    stuck: Option<(u64, Instant)>,
    /// Since when the manager has owed an answer about more memory.
    late: Option<Instant>,
    /// The position that was next at the helper thread's last visit.
    visited: u64,
    /// The time of the next round at such a visit.
    collects_at: Instant,
}

/// Handles of the buffers that a line names or a reader may have, by slots.
struct Held {
    buffers: Vec<Option<Buffer>>,
    count: usize,
    /// The length of the last buffer, and how many buffers of ended lines may wait for a round.
    bytes: usize,
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

/// A publisher waits for so long for the manager's answer about more memory before it withdraws messages instead. One that hangs holds no publisher.
const LATE: Duration = Duration::from_secs(1);

/// A wait for memory, from one look to the next.
#[derive(Default)]
pub(crate) struct Shortage {
    /// Lines to withdraw at the next look, and since when reliable subscribers keep the oldest one.
    lines: u32,
    stuck: Option<Instant>,
}

/// Making, looking after, and ending a topic.
impl Writing {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        options: TopicOptions,
    ) -> Result<Writing, Error> {
        options.check()?;
        topics::check_fork(domain)?;
        let pool = topics::pool(domain, options.pool_options(name))?;
        let (fd, ring) = LinesRw::create(options.depth)?;
        let bells = Bells::default();
        let makes = bells.clone();
        let shown = (fd, options.depth);
        let held = (topics::Kind::Topic, options.shared);
        let readers = topics::publish_typed(
            domain,
            name,
            shown,
            held,
            options.message_type.as_deref(),
            move |uid| makes.of(uid),
        )?;
        let slots = topics::slots(&pool);
        let pace = Pace {
            small: 0,
            ..Pace::PRODUCTION
        };
        let mut rounds = Rounds::new(slots, pace);
        let published = Published::new(options.depth, 0, rounds.add_ring(options.depth));
        let is_steady = has_steady_counter();
        Ok(Writing {
            domain: domain.clone(),
            name: name.into(),
            readers,
            pool,
            ring,
            rounds,
            published,
            reliable: Reliable::new(options.depth),
            options,
            seats: Subscribers::default(),
            bells,
            held: Held {
                buffers: (0..slots).map(|_| None).collect(),
                count: 0,
                bytes: 0,
                spare: LEAST_SPARE,
            },
            ticks: Ticks::new(is_steady.then(counter), monotonic_ns()),
            tended: 0,
            is_steady,
            dropped: 0,
            stuck: None,
            late: None,
            visited: 0,
            collects_at: Instant::now(),
        })
    }

    /// Says whether the name is still this domain's.
    pub(crate) fn check_name(&self) -> Result<(), Error> {
        self.seats.all.check_name()
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.seats.all.count()
    }

    pub(crate) fn published(&self) -> u64 {
        self.published.tail()
    }

    /// Takes new subscribers in, and takes leave of those that are gone.
    #[cold]
    pub(crate) fn tend(&mut self) {
        self.tend_at(Instant::now());
    }

    fn limits(&self) -> Limits {
        pieces::limits(self.options.keep, self.options.pieces)
    }

    fn tend_at(&mut self, now: Instant) {
        topics::catch_up(&self.domain);
        let limits = self.limits();
        self.seats.tend(Joins {
            readers: &self.readers,
            pool: &self.pool,
            rounds: &mut self.rounds,
            limits,
            now,
            host: &mut Lobby {
                published: &self.published,
                reliable: &mut self.reliable,
                bells: &self.bells,
                options: &self.options,
                pool: self.pool.id(),
            },
        });
    }

    pub(crate) fn status(&self) -> PublisherStatus {
        let tail = self.published.tail();
        PublisherStatus {
            published: tail,
            dropped: self.dropped,
            demoted: self.seats.demoted,
            expelled: self.seats.all.expelled,
            buffers: self.held.count,
            subscribers: self.seats.seen(tail, self.options.depth),
        }
    }

    /// Ends the topic in order: subscribers take what the ring still has.
    pub(crate) fn end(&mut self) {
        self.ring();
        self.seats.all.end(&self.held.buffers);
        self.bells.ring();
        for buffer in std::mem::take(&mut self.held.buffers).into_iter().flatten() {
            topics::leave_behind(&self.pool, buffer);
        }
    }
}

/// Memory.
impl Writing {
    /// Withdraws the oldest lines, each time twice as many. False if there is none that no reliable subscriber has still
    /// to take.
    fn withdraw(&mut self, shortage: &mut Shortage) -> bool {
        let floor = self.reliable.floor(self.published.tail());
        let lines = shortage.lines.max(1);
        shortage.lines = lines.saturating_mul(2);
        (0..lines).fold(false, |any, _| {
            let Ok(one) = self
                .published
                .withdraw(&self.ring.lines(), &mut self.rounds, floor);
            any || one
        })
    }

    /// Says whether the manager has still to answer a request for more memory, and is not late for long.
    fn is_coming(&mut self, error: &Error) -> bool {
        let is_late = error
            .find::<tranship_core::error::Shortage>()
            .is_some_and(|shortage| shortage.limit == Limit::Late);
        if !is_late {
            self.late = None;
            return false;
        }
        self.late.get_or_insert_with(Instant::now).elapsed() < LATE
    }

    /// Takes the rank of reliable subscribers that have kept the oldest lines for longer than they may. False if there are
    /// none. All of them together get one limit.
    fn demote_for_memory(&mut self, shortage: &mut Shortage) -> bool {
        let first = self.published.first();
        let WhenBehind::Wait(limit) = self.options.when_behind else {
            return false;
        };
        if first == self.published.tail() {
            return false;
        }
        let known = self.stuck.filter(|(position, _)| *position == first);
        let (_, since) = *self.stuck.insert(known.unwrap_or((first, Instant::now())));
        let is_over = shortage.stuck.get_or_insert(since).elapsed() >= limit;
        if is_over {
            self.demote_behind(first.wrapping_add(self.options.depth.into()));
        }
        is_over
    }
}

/// Messages, and what waits need.
impl Writes for Writing {
    type Sent = Outcome;
    type Shortage = Shortage;

    fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline(always)]
    fn send_buffer(
        &mut self,
        buffer: Buffer,
        word: u64,
        _: Waits,
    ) -> Result<Outcome, SendError<Buffer>> {
        let named = match pieces::named(&self.pool, &buffer, ("topic", &self.name)) {
            Ok(named) => named,
            Err(error) => return Err(SendError::new(error, buffer)),
        };
        match self.await_room() {
            Ok(true) => {}
            Ok(false) => return Ok(Outcome::Dropped),
            Err(error) => return Err(SendError::new(error, buffer)),
        }
        let slot = named.id.slot();
        let (lines, rounds) = (self.ring.lines(), &mut self.rounds);
        // Crash: a death from here on ends the ring; subscribers take the lines that are whole.
        let Ok(_) = self
            .published
            .publish(&lines, rounds, line::buffer(named, word), slot);
        self.held.keep(slot, buffer);
        self.published_one();
        Ok(Outcome::Sent)
    }

    #[inline]
    fn send_bytes(&mut self, bytes: &[u8], word: u64, _: Waits) -> Result<Outcome, Error> {
        if !self.await_room()? {
            return Ok(Outcome::Dropped);
        }
        self.put_many(line::inline(bytes, word), &[]);
        Ok(Outcome::Sent)
    }

    #[cold]
    fn send_all(
        &mut self,
        all: Aggregate,
        word: u64,
        waits: Waits,
    ) -> Result<Outcome, SendError<Aggregate>> {
        let list = self.list(&all, waits.deadline());
        let ready = list.and_then(|list| Ok((list, self.await_room()?)));
        let (named, list) = match ready {
            Ok((list, true)) => list,
            Ok((_, false)) => return Ok(Outcome::Dropped),
            Err(error) => return Err(SendError::new(error, all)),
        };
        let buffers = all.pieces().iter().chain([&list]);
        let slots: Vec<u32> = buffers.map(|buffer| buffer.id().slot()).collect();
        for piece in all.pieces() {
            self.held.keep(piece.id().slot(), piece.clone());
        }
        self.held.keep(list.id().slot(), list);
        self.put_many(line::list(named, word), &slots);
        Ok(Outcome::Sent)
    }

    /// Looks for room once. `since` is when this message was first found to have none.
    #[cold]
    fn look_for_room(&mut self, since: &mut Option<Instant>) -> Result<Room<Outcome>, Error> {
        topics::check_fork(&self.domain)?;
        let Ok(behind) = self.reliable.room(&self.seats.all, self.published.tail());
        if behind.is_none() {
            return Ok(Room::There);
        }
        self.tend();
        let Ok(behind) = self.reliable.room(&self.seats.all, self.published.tail());
        if behind.is_none() {
            return Ok(Room::There);
        }
        let limit = match self.options.when_behind {
            WhenBehind::Wait(limit) => limit,
            WhenBehind::DropNew => {
                self.dropped += 1;
                return Ok(Room::Never(Outcome::Dropped));
            }
            WhenBehind::Overwrite => Duration::ZERO,
        };
        if since.get_or_insert_with(Instant::now).elapsed() >= limit {
            self.demote_behind(self.published.tail());
            return Ok(Room::There);
        }
        self.ring();
        Ok(Room::Later)
    }

    /// Finds memory: what rounds find, then what the oldest lines have. The inner error: there is none before subscribers
    /// let go of some.
    #[cold]
    fn make_memory(
        &mut self,
        len: usize,
        shortage: &mut Shortage,
    ) -> Result<Result<BufferMut, Error>, Error> {
        loop {
            topics::check_fork(&self.domain)?;
            self.tend();
            self.collect();
            let error = match self.pool.try_alloc(len) {
                Err(error) if error == ErrorKind::OutOfMemory => error,
                allocated => return allocated.map(Ok),
            };
            if self.is_coming(&error) {
                return Ok(Err(error));
            }
            if !self.withdraw(shortage) && !self.demote_for_memory(shortage) {
                return Ok(Err(error));
            }
        }
    }

    fn no_memory(&self, error: Error) -> Error {
        let (name, held) = (&self.name, self.held.count);
        let kept = topics::kept_here(&self.pool, held);
        let mut text = format!(
            "topic {name} has no memory left: its messages and subscribers have {held} buffers{kept}"
        );
        for seen in self.seats.seen(self.published.tail(), self.options.depth) {
            text += &format!("; {seen}");
        }
        Error::because(ErrorKind::OutOfMemory, text, error)
    }

    /// Wakes all that sleep: on their users' words, and on descriptors.
    #[cold]
    fn ring(&self) {
        self.bells.ring();
        self.seats.all.wake();
    }

    /// Does a visit's work while the publisher does nothing. Returns true if more is due soon.
    fn tend_idle(&mut self, now: Instant) -> bool {
        self.tend_at(now);
        self.seats.note_all();
        let tail = self.published.tail();
        let is_idle = std::mem::replace(&mut self.visited, tail) == tail;
        // A round reads all desks, under the lock for which a publish waits.
        if is_idle && self.rounds.waiting() > 0 && now >= self.collects_at {
            self.collects_at = now + ROUND;
            self.collect();
        }
        self.seats.all.are_joining(now)
    }
}

impl Writing {
    /// Stores the list of an aggregate's pieces in a buffer of the topic's pool.
    #[cold]
    fn list(
        &mut self,
        all: &Aggregate,
        deadline: Option<Instant>,
    ) -> Result<(Named, Buffer), Error> {
        let (pool, name, most) = (self.pool.clone(), self.name.clone(), self.options.pieces);
        let alloc = |len| waiting::alloc(self, len, deadline);
        pieces::list(&pool, all, most, ("topic", &name), alloc)
    }

    /// Waits for the reliable subscribers. False: the message is dropped.
    #[inline(always)]
    fn await_room(&mut self) -> Result<bool, Error> {
        let Ok(behind) = self.reliable.room(&self.seats.all, self.published.tail());
        match behind {
            None => Ok(true),
            Some(_) => self.await_readers(),
        }
    }

    #[cold]
    fn await_readers(&mut self) -> Result<bool, Error> {
        if self.options.when_behind != WhenBehind::DropNew && self.spin_for_room() {
            return Ok(true);
        }
        let mut since = None;
        loop {
            match self.look_for_room(&mut since)? {
                Room::There => return Ok(true),
                Room::Never(_) => return Ok(false),
                Room::Later => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Looks for room for a short time, for a subscriber that runs.
    fn spin_for_room(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < BRIEF {
            (0..SPINS).for_each(|_| std::hint::spin_loop());
            let Ok(behind) = self.reliable.room(&self.seats.all, self.published.tail());
            if behind.is_none() {
                return true;
            }
        }
        false
    }

    /// Takes the rank of all reliable subscribers that leave no room for a line at `tail`.
    #[cold]
    fn demote_behind(&mut self, tail: u64) {
        while let Ok(Some(desk)) = self.reliable.room(&self.seats.all, tail) {
            self.reliable.leave(desk);
            self.seats.demote(desk);
        }
    }

    /// Publishes a line that names several buffers, or none.
    fn put_many(&mut self, message: Message, slots: &[u32]) {
        let (lines, rounds) = (self.ring.lines(), &mut self.rounds);
        // Crash: as in `send_buffer`.
        let Ok(_) = self.published.publish_many(&lines, rounds, message, slots);
        self.published_one();
    }

    /// Wakes those that sleep, and does a bounded piece of the work that is due.
    #[inline(always)]
    fn published_one(&mut self) {
        crash::point("topic.published");
        let mut now = self.published.tail();
        let is_steady = self.is_steady;
        let clock = || {
            now = counter();
            now
        };
        if self.ticks.wakes(clock, monotonic_ns) && self.seats.all.count() > 0 {
            self.ring();
        }
        self.step();
        let pause = if is_steady {
            TEND_TICKS
        } else {
            TEND_PUBLISHES
        };
        if now.wrapping_sub(self.tended) >= pause {
            self.tended = now;
            self.tend();
        }
    }

    #[inline(always)]
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
        let Ok(()) = self.rounds.step(&self.seats.all, available, &mut found);
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
        let Ok(_) = self.rounds.collect(&self.seats.all, &mut found);
        self.expel(&exceeded);
    }

    #[cold]
    fn expel(&mut self, desks: &[usize]) {
        let limits = self.limits();
        let mut lobby = Lobby {
            published: &self.published,
            reliable: &mut self.reliable,
            bells: &self.bells,
            options: &self.options,
            pool: self.pool.id(),
        };
        for desk in desks {
            self.seats.all.exceeded(*desk, limits, &mut lobby);
        }
    }
}

impl Held {
    /// Keeps a handle of a buffer that a line names. A second handle of one buffer goes.
    #[inline(always)]
    fn keep(&mut self, slot: u32, buffer: Buffer) {
        let bytes = buffer.len();
        if bytes != self.bytes {
            self.bytes = bytes;
            self.spare = (SPARE_BYTES / bytes.max(1)).clamp(LEAST_SPARE, SPARE);
        }
        let place = &mut self.buffers[slot as usize];
        self.count += usize::from(place.replace(buffer).is_none());
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if topics::check_fork(&self.domain).is_err() {
            // The pool, the channels and the buffers are the parent's.
            let buffers = std::mem::take(&mut self.held.buffers);
            buffers.into_iter().for_each(std::mem::forget);
            return;
        }
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_core::topics::Gone;
    use tranship_readers::{BRISK, HALF_OPEN};
    use tranship_ring::broadcast::DeskRw;

    /// A subscriber that is stopped, or does this to cost time, is no reason to look each millisecond.
    #[test]
    fn a_subscriber_that_says_no_wish_is_not_awaited_for_long() {
        let here = Domain::embedded().expect("a domain");
        let mut writing = Writing::new(&here, "camera", TopicOptions::new()).expect("publish");
        let socket = here.socket_path().expect("a socket");
        let there = Domain::builder().socket(socket).connect().expect("join");
        let (fd, _desk) = DeskRw::create().expect("a desk");
        let mut opening = topics::subscribe(&there, "camera", fd).expect("subscribe");
        let now = Instant::now();
        let receiver = loop {
            writing.tend_idle(now);
            if let Some(receiver) = opening.try_open().expect("opened") {
                break receiver;
            }
        };
        while !writing.tend_idle(now) {}
        assert!(!writing.tend_idle(now + BRISK), "it need not be awaited");
        assert_eq!(receiver.topic_gone(), Gone::No);
        writing.tend_idle(now + HALF_OPEN);
        while receiver.topic_gone() == Gone::No {
            topics::catch_up(&there);
        }
    }
}
