//! The state of a publisher: room, lines, memory. The publisher's thread uses it; the domain's helper thread does so while
//! the publisher does nothing.

use crate::bells::Bells;
use crate::options::{TopicOptions, WhenBehind};
use crate::seats::{Lobby, Subscribers};
use crate::status::PublisherStatus;
use std::time::{Duration, Instant};
use tranship_core::error::Limit;
use tranship_core::topics::{self, AwaitedReaders, Readers};
use tranship_core::{BufferMut, Domain, Error, ErrorKind, Outcome, Pool};
use tranship_ledger::rounds::{self, Pace, Published, Reliable, Rounds};
use tranship_readers::{Joins, Kept, Room, Waits, Writes, pieces, waiting};
use tranship_ring::broadcast::{Limits, LinesRw, Message, Ticks};
use tranship_sys::crash;
use tranship_sys::time::{counter, has_steady_counter, monotonic_ns};

/// Ticks of the processor's counter between two looks at who comes and goes: below a millisecond.
const TEND_TICKS: u64 = 1 << 20;
/// Publishes between two such looks, on a processor without such a counter.
const TEND_PUBLISHES: u64 = 16;
/// The time for which a publisher looks at a subscriber that is behind, before it sleeps. A running subscriber takes a
/// message in less time.
const BRIEF: Duration = Duration::from_micros(20);
/// The shortest time between two rounds for a publisher that does nothing.
const ROUND: Duration = Duration::from_millis(100);
/// Pauses between two looks. Looks without a pause slow the subscriber, which writes its desk's cache line all the
/// time.
const SPINS: u32 = 32;
/// Size of a buffer from which on memory that was used is looked for before the pool grows: new memory takes the kernel
/// longer than a look at all desks takes.
const LARGE: usize = 64 << 10;
/// Buffers that a pool is to have for each subscriber, beside those of the lines.
const SPARE_EACH: u64 = 4;

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
    kept: Kept,
    ticks: Ticks,
    /// The time of the last look at who comes and goes, in ticks or publishes.
    tended: u64,
    is_steady: bool,
    dropped: u64,
    /// The position for which there was no room last, and since when there was none.
    full: Option<(u64, Instant)>,
    /// When a message was found to have no room last.
    asked: Instant,
    /// The oldest line when reliable subscribers kept its memory last, and since when they did.
    stuck: Option<(u64, Instant)>,
    /// The time since which the manager owes an answer about more memory.
    late: Option<Instant>,
    /// The position that was next at the helper thread's last visit.
    visited: u64,
    /// The time from which such a visit does the next round.
    collects_at: Instant,
}

/// The parts of a publisher that change by what a round finds.
struct Found<'a> {
    kept: &'a mut Kept,
    pool: &'a Pool,
    reliable: &'a mut Reliable,
    tail: u64,
    exceeded: &'a mut Vec<usize>,
}

impl rounds::Outcome for Found<'_> {
    #[inline]
    fn free(&mut self, slot: u32) {
        self.kept.free(self.pool, slot);
    }
    #[inline(always)]
    fn seen(&mut self, desk: usize, low: u64) {
        self.reliable.seen(desk, low, self.tail);
    }
    fn exceeded(&mut self, desk: usize) {
        self.exceeded.push(desk);
    }
}

/// The time for which a publisher waits for the manager's answer about more memory. After it the publisher withdraws
/// messages instead, so that a manager that hangs does not stop publishers.
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
        let mut rounds = Rounds::new(slots, Pace::PRODUCTION);
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
            kept: Kept::new(slots),
            ticks: Ticks::new(is_steady.then(counter), monotonic_ns()),
            tended: 0,
            is_steady,
            dropped: 0,
            full: None,
            asked: Instant::now(),
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

    /// Takes new subscribers in, and removes those that are gone.
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
            buffers: self.kept.count(),
            subscribers: self.seats.seen(tail, self.options.depth),
        }
    }

    /// Ends the topic in order: subscribers take the messages that the ring still has.
    pub(crate) fn end(&mut self) {
        self.ring();
        self.kept.end(&mut self.seats.all, &self.pool);
        self.bells.ring();
    }
}

/// Memory.
impl Writing {
    /// Withdraws the lines that all subscribers have taken. A topic with history, or with a subscriber that may miss lines, keeps
    /// its lines.
    fn withdraw_taken(&mut self) {
        let tail = self.published.tail();
        let behind = self.seats.behind(tail, self.options.depth);
        if let (0, Some(behind)) = (self.options.history, behind) {
            let (lines, floor) = (self.ring.lines(), tail.wrapping_sub(behind));
            while let Ok(true) = self.published.withdraw(&lines, &mut self.rounds, floor) {}
        }
    }

    /// Withdraws the oldest lines, each time twice as many. Returns false if reliable subscribers have still to take
    /// all of them.
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

    /// Says whether the manager has not yet answered a request for more memory, and is not late by [`LATE`].
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

    /// Makes reliable subscribers ordinary ones if they have kept the oldest lines for too long. Returns false if there
    /// are none. The time limit counts for all of them together.
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

/// Messages, and the steps of waits.
impl Writes for Writing {
    type Sent = Outcome;
    type Shortage = Shortage;

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn domain(&self) -> &Domain {
        &self.domain
    }

    fn of(&self) -> (&str, &str) {
        ("topic", &self.name)
    }

    fn most_pieces(&self) -> u32 {
        self.options.pieces
    }

    #[inline(always)]
    fn kept(&mut self) -> &mut Kept {
        &mut self.kept
    }

    /// Waits for the reliable subscribers.
    #[inline(always)]
    fn await_room(&mut self, waits: Waits) -> Result<Option<Outcome>, Error> {
        match self.has_room(self.published.tail()) {
            true => Ok(None),
            false => self.await_readers(waits),
        }
    }

    #[inline(always)]
    fn write(&mut self, message: Message, slots: &[u32]) -> Outcome {
        let (lines, rounds) = (self.ring.lines(), &mut self.rounds);
        // Crash: a death from here on ends the ring; subscribers take the lines that are whole.
        let Ok(_) = match slots {
            [slot] => self.published.publish(&lines, rounds, message, *slot),
            _ => self.published.publish_many(&lines, rounds, message, slots),
        };
        self.published_one();
        Outcome::Sent
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<Room<Outcome>, Error> {
        self.look(true)
    }

    fn await_memory(&mut self, len: usize, until: Option<Instant>) -> Result<BufferMut, Error> {
        waiting::alloc(self, len, until)
    }

    /// Before the pool grows for a large buffer.
    fn reuse(&mut self, len: usize) -> Option<BufferMut> {
        if len < LARGE {
            return None;
        }
        self.withdraw_taken();
        if self.rounds.waiting() == 0 {
            return None;
        }
        self.collect();
        topics::alloc_now(&self.pool, len)
    }

    fn look_for_memory(&mut self) {
        self.tend();
        self.collect();
    }

    /// Frees the buffers of the oldest lines.
    fn free_more(&mut self, error: &Error, shortage: &mut Shortage) -> bool {
        !self.is_coming(error) && (self.withdraw(shortage) || self.demote_for_memory(shortage))
    }

    fn no_memory(&self, error: Error) -> Error {
        let (name, held) = (&self.name, self.kept.count());
        let kept = topics::kept_here(&self.pool, held);
        let mut text = format!(
            "topic {name} has no memory left: its messages and subscribers have {held} buffers{kept}"
        );
        for seen in self.seats.seen(self.published.tail(), self.options.depth) {
            text += &format!("; {seen}");
        }
        text += &self.enough(&error);
        Error::because(ErrorKind::OutOfMemory, text, error)
    }

    /// Wakes all subscribers that sleep, on their users' words or on descriptors.
    #[cold]
    fn ring(&self) {
        self.bells.ring();
        self.seats.all.wake();
    }

    fn awaited(&self) -> AwaitedReaders {
        self.seats.awaited()
    }

    /// Does a visit's work while the publisher does nothing. Returns true if more is due soon.
    fn tend_idle(&mut self, now: Instant) -> bool {
        self.tend_at(now);
        let tail = self.published.tail();
        self.seats.note_all(tail, self.options.depth);
        if now.saturating_duration_since(self.asked) >= ROUND {
            // A future that waited was dropped.
            self.seats.awaits(None);
        }
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
    /// Says whether every reliable subscriber leaves room for the line at `tail`.
    #[inline(always)]
    fn has_room(&mut self, tail: u64) -> bool {
        let Ok(behind) = self.reliable.room(&self.seats.all, tail);
        behind.is_none()
    }

    /// Looks for room once. The time that reliable subscribers have is that of the position, whichever call waits for it.
    /// `may_drop`: the message is dropped if the options say so.
    #[cold]
    fn look(&mut self, may_drop: bool) -> Result<Room<Outcome>, Error> {
        topics::check_fork(&self.domain)?;
        let tail = self.published.tail();
        if !self.has_room(tail) {
            self.tend();
        }
        let Ok(behind) = self.reliable.room(&self.seats.all, tail);
        let left = behind.and_then(|_| self.time_left(tail));
        let room = match behind {
            None => Room::There,
            Some(_) if left.is_some_and(|left| left.is_zero()) => {
                self.demote_behind(tail);
                Room::There
            }
            Some(_) if left.is_none() && may_drop => {
                self.dropped += 1;
                Room::Never(Outcome::Dropped)
            }
            Some(_) => Room::Later,
        };
        let waits = room == Room::Later;
        self.seats.awaits(behind.filter(|_| waits));
        if waits {
            self.asked = Instant::now();
            self.ring();
        }
        Ok(room)
    }

    /// Returns how long reliable subscribers may still take for the line at `tail`. `None`: a message that has no room is
    /// dropped.
    fn time_left(&mut self, tail: u64) -> Option<Duration> {
        match self.options.when_behind {
            WhenBehind::Overwrite => Some(Duration::ZERO),
            WhenBehind::Wait(limit) => Some(limit.saturating_sub(self.full_for(tail))),
            WhenBehind::DropNew => None,
        }
    }

    /// Returns how long there has been no room for the line at `tail`.
    fn full_for(&mut self, tail: u64) -> Duration {
        let known = self.full.filter(|(position, _)| *position == tail);
        let (_, since) = *self.full.insert(known.unwrap_or((tail, Instant::now())));
        since.elapsed()
    }

    #[cold]
    fn await_readers(&mut self, waits: Waits) -> Result<Option<Outcome>, Error> {
        let begun = Instant::now();
        let (may_drop, deadline) = match waits {
            Waits::Until(None) => (true, None),
            waits => (false, waits.deadline()),
        };
        let drops = may_drop && self.options.when_behind == WhenBehind::DropNew;
        if !drops && deadline.is_none_or(|at| at > begun) && self.spin_for_room() {
            return Ok(None);
        }
        loop {
            match self.look(may_drop)? {
                Room::There => return Ok(None),
                Room::Never(answer) => return Ok(Some(answer)),
                Room::Later => {}
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.seats.awaits(None);
                return Err(self.no_room(waits, begun));
            }
            let (readers, tail) = (self.awaited(), self.published.tail());
            let most = [left, self.time_left(tail)].into_iter().flatten().min();
            let look = || self.has_room(tail).then_some(());
            waiting::sleep(&readers, most.unwrap_or(Duration::MAX), look);
        }
    }

    /// Names the subscriber for which there is no room.
    #[cold]
    fn no_room(&self, waits: Waits, begun: Instant) -> Error {
        let (kind, after) = match waits {
            Waits::Not => (ErrorKind::Full, String::new()),
            Waits::Until(_) => (ErrorKind::TimedOut, format!(" after {:?}", begun.elapsed())),
        };
        let (name, depth) = (&self.name, self.options.depth);
        let status = self.status();
        let by = status
            .slowest()
            .map_or(String::new(), |seen| format!(": {seen}"));
        let text = format!("topic {name} has no room in its {depth} lines{after}{by}");
        Error::new(kind, text)
    }

    /// Looks for room for a short time, for a subscriber that runs.
    fn spin_for_room(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < BRIEF {
            (0..SPINS).for_each(|_| std::hint::spin_loop());
            if self.has_room(self.published.tail()) {
                return true;
            }
        }
        false
    }

    /// Makes ordinary all reliable subscribers that leave no room for a line at `tail`.
    #[cold]
    fn demote_behind(&mut self, tail: u64) {
        while let Ok(Some(desk)) = self.reliable.room(&self.seats.all, tail) {
            self.reliable.leave(desk);
            self.seats.demote(desk);
        }
    }

    /// Wakes the subscribers that sleep, and does a bounded part of the work that is due.
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
        let available = self.kept.left(&self.rounds);
        let mut found = Found {
            kept: &mut self.kept,
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

    /// Says how large a pool would leave a few buffers for each subscriber, if this one is smaller.
    fn enough(&self, error: &Error) -> String {
        let (depth, count) = (u64::from(self.options.depth), self.subscribers() as u64);
        let buffers = depth + SPARE_EACH * count;
        let (slots, bytes) = (topics::slots(&self.pool), self.pool.max_bytes());
        let shortage = error.find::<tranship_core::error::Shortage>();
        let needs = buffers.saturating_mul(shortage.map_or(0, |shortage| shortage.need_bytes));
        let spare =
            format!("{SPARE_EACH} spare for each of {count} subscribers (TopicOptions::pool)");
        if u64::from(slots) < buffers {
            format!("; its pool has {slots} buffers, of which {buffers} leave {spare}")
        } else if bytes < needs {
            format!("; its pool has {bytes} bytes, of which {needs} leave {spare}")
        } else {
            String::new()
        }
    }

    /// Does a whole round.
    fn collect(&mut self) {
        let mut exceeded = Vec::new();
        let mut found = Found {
            kept: &mut self.kept,
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

impl Drop for Writing {
    fn drop(&mut self) {
        if topics::check_fork(&self.domain).is_err() {
            // The pool, the channels and the buffers are the parent's.
            return self.kept.forget();
        }
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Subscriber, SubscriberOptions, Topics};
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
    /// Makes a topic of four lines, all of which reliable subscribers that stand still have to take.
    fn held_back(here: &Domain, limit: Duration) -> (Writing, Vec<Subscriber>) {
        const STOPPED: usize = 6;
        let options = TopicOptions::new()
            .depth(4)
            .when_behind(WhenBehind::Wait(limit));
        let mut writing = Writing::new(here, "camera", options).expect("publish");
        let socket = here.socket_path().expect("a socket");
        let stopped = (0..STOPPED).map(|_| {
            let there = Domain::builder().socket(&socket).connect().expect("join");
            let reliable = SubscriberOptions::new().reliable();
            let mut one = there.subscribe_with("camera", reliable).expect("subscribe");
            while !one.status().joined {
                assert!(one.try_recv().expect("nothing").is_none());
                writing.tend();
            }
            one
        });
        let stopped: Vec<_> = stopped.collect();
        for _ in 0..4 {
            let sent = writing.send_bytes(b"x", 0, Waits::Not).expect("sent");
            assert_eq!(sent, Outcome::Sent);
        }
        (writing, stopped)
    }

    /// None gets a limit of its own: the first look after the time finds room.
    #[test]
    fn stopped_reliable_subscribers_have_one_limit_together() {
        let _dog = tranship_testkit::Watchdog::new();
        let limit = Duration::from_secs(1000);
        let past = Instant::now().checked_sub(limit).expect("a time");
        let here = Domain::embedded().expect("a domain");
        let (mut writing, stopped) = held_back(&here, limit);
        let look = |writing: &mut Writing| writing.look_for_room().expect("a look");
        assert_eq!(look(&mut writing), Room::Later);
        let (position, _) = writing.full.expect("it waits");
        writing.full = Some((position, past));
        assert_eq!(look(&mut writing), Room::There);
        assert_eq!(writing.status().demoted, stopped.len() as u64);
        drop((writing, stopped));

        // Subscribers that keep memory lose the rank in one call, too.
        let (mut writing, stopped) = held_back(&here, limit);
        let mut shortage = Shortage::default();
        assert!(!writing.demote_for_memory(&mut shortage));
        shortage.stuck = Some(past);
        assert!(writing.demote_for_memory(&mut shortage));
        assert_eq!(writing.status().demoted, stopped.len() as u64);
    }
}
