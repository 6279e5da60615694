//! The state of a producer: room, lines, memory. The producer's thread uses it; the domain's helper thread does so while
//! the producer does nothing.

use crate::book::{Book, Lost, Parts};
use crate::options::QueueOptions;
use crate::seats::{ConsumerSeen, Consumers, Leaving, Lobby, limits};
use crate::status::ProducerStatus;
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Kind, Readers};
use tranship_core::{BufferMut, Domain, Error, ErrorKind, Pool};
use tranship_ledger::rounds::{self, Pace, Published, Rounds};
use tranship_readers::{Joins, Kept, Room, Waits, Writes, waiting};
use tranship_ring::broadcast::{Claim, ClaimsRw, LinesRw, Message};
use tranship_ring::{Futex, Point, SETTLE, TIMED};
use tranship_sync::full_fence;
use tranship_sys::time::{counter, has_steady_counter};
use tranship_sys::{crash, futex};

/// Ticks of the processor's counter between two looks at who comes and goes: below a millisecond.
const TEND_TICKS: u64 = 1 << 20;
/// Sends between two such looks, on a processor without such a counter.
const TEND_SENDS: u64 = 16;
/// The longest sleep between two looks for room.
const ROUND: Duration = Duration::from_millis(100);

/// A producer's state.
pub(crate) struct Writing {
    domain: Domain,
    name: String,
    readers: Readers,
    pool: Pool,
    ring: LinesRw,
    pub(crate) claims: ClaimsRw,
    options: QueueOptions,
    pub(crate) rounds: Rounds,
    pub(crate) published: Published,
    pub(crate) seats: Consumers,
    book: Book,
    /// The position at which lines are settled next.
    settles: u64,
    /// The time of the last look at who comes and goes, in ticks or sends.
    tended: u64,
    is_steady: bool,
    sent: u64,
    /// The time of the last look whether the consumers' processes live.
    looked: Instant,
    /// The position that was next at the helper thread's last visit.
    visited: u64,
    /// The time from which such a visit does the next round.
    collects_at: Instant,
}

/// The parts of a producer that change by what a round finds.
struct Found<'a> {
    book: &'a mut Book,
    pool: &'a Pool,
    exceeded: &'a mut Vec<usize>,
}

impl rounds::Outcome for Found<'_> {
    #[inline]
    fn free(&mut self, slot: u32) {
        self.book.free(self.pool, slot);
    }
    fn exceeded(&mut self, desk: usize) {
        self.exceeded.push(desk);
    }
}

/// Makes the parts of a producer that a consumer joins. Its other fields stay free.
macro_rules! lobby {
    ($producer:ident) => {
        Lobby {
            dismissed: $producer.ring.dismissed(),
            published: &$producer.published,
            options: &$producer.options,
            pool: $producer.pool.id(),
            generations: &mut $producer.seats.generations,
            ended: Vec::new(),
        }
    };
}

/// Making, looking after, and ending a producer's part.
impl Writing {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        options: QueueOptions,
    ) -> Result<Writing, Error> {
        options.check()?;
        topics::check_fork(domain)?;
        let pool = topics::pool(domain, options.pool_options(name))?;
        let (fd, ring) = LinesRw::create(options.depth)?;
        let (shared, claims) = ClaimsRw::create(options.depth)?;
        let shared = std::sync::Arc::new(shared);
        let held = (Kind::Queue, options.shared);
        let shown = (fd, options.depth);
        let claims_of = move |_| Ok(std::sync::Arc::clone(&shared));
        let message_type = options.message_type.as_deref();
        let readers = topics::publish_typed(domain, name, shown, held, message_type, claims_of)?;
        let slots = topics::slots(&pool);
        let mut rounds = Rounds::new(slots, Pace::PRODUCTION);
        let published = Published::new(options.depth, 0, rounds.add_ring(options.depth));
        Ok(Writing {
            domain: domain.clone(),
            name: name.into(),
            readers,
            pool,
            ring,
            claims,
            rounds,
            published,
            seats: Consumers::default(),
            book: Book::new(options.depth, slots, options.when_lost),
            options,
            settles: 0,
            tended: 0,
            is_steady: has_steady_counter(),
            sent: 0,
            looked: Instant::now(),
            visited: 0,
            collects_at: Instant::now(),
        })
    }

    /// Says whether the name is still this domain's.
    pub(crate) fn check_name(&self) -> Result<(), Error> {
        self.seats.all.check_name()
    }

    pub(crate) fn consumers(&self) -> usize {
        self.seats.all.count()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) fn take_lost(&mut self) -> Option<Lost> {
        self.book.take_lost()
    }

    /// Takes new consumers in, removes those that are gone, and gives their items back.
    #[cold]
    pub(crate) fn tend(&mut self) {
        topics::catch_up(&self.domain);
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) >= ROUND {
            self.looked = now;
            self.seats.all.look_for_deaths();
        }
        let mut lobby = lobby!(self);
        self.seats.all.tend(Joins {
            readers: &self.readers,
            pool: &self.pool,
            rounds: &mut self.rounds,
            limits: limits(&self.options),
            now,
            host: &mut lobby,
        });
        let ended = lobby.ended;
        self.decide_about(&ended);
        self.settle();
    }

    /// Decides what happens to a consumer's items, as if the consumer had left.
    #[cfg(test)]
    pub(crate) fn dismiss(&mut self, desk: usize) -> Vec<Leaving> {
        let mut lobby = lobby!(self);
        let (seat, view) = (self.seats.all.seat(desk), self.seats.all.view(desk));
        if let (Some(seat), Some(view)) = (seat, view) {
            tranship_readers::Host::leaves(&mut lobby, desk, seat, view);
        }
        lobby.ended
    }

    /// Wakes a consumer if an item waits. Another consumer may have been woken for the item, and not have taken it.
    fn remind(&self) {
        let first = self.published.first();
        let waits = (first..self.published.tail())
            .any(|position| matches!(self.claims.claims().of(position), Claim::Free(_)));
        if waits {
            self.ring();
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.published.first() == self.published.tail() && self.book.open_count() == 0
    }

    /// Returns a text about the items that are not done yet.
    pub(crate) fn undone(&self) -> String {
        let (waiting, taken) = self.book.in_lines(self.claims.claims(), &self.published);
        let (open, holders) = (self.book.open_count() + taken, self.holders());
        format!("has {waiting} items that wait and {open} that are taken{holders}")
    }

    pub(crate) fn status(&self) -> ProducerStatus {
        let (waiting, taken) = self.book.in_lines(self.claims.claims(), &self.published);
        ProducerStatus {
            sent: self.sent,
            waiting,
            open: taken + self.book.open_count(),
            redelivered: self.book.redelivered,
            lost: self.book.lost_count,
            rejected: self.book.rejected,
            disputed: self.book.disputed,
            unfetched: self.book.lost_kept(),
            expelled: self.seats.all.expelled,
            buffers: self.book.kept.count(),
            consumers: self.seats.seen(),
        }
    }
}

/// Room.
impl Writing {
    /// Returns a text that says which consumer has how many items and buffers.
    fn holders(&self) -> String {
        let mut text = String::new();
        for seen in self.seats.seen() {
            let ConsumerSeen {
                domain,
                pid,
                open,
                kept,
                ..
            } = seen;
            let more = if seen.more { " and more" } else { "" };
            text += &format!(
                "; domain {domain} (process {pid}) has {open} items open and keeps {kept}{more} buffers"
            );
            if let Some(since) = self.book.oldest_of(domain, &self.seats) {
                text += &format!(", the oldest item for {:?}", since.elapsed());
            }
        }
        match text.is_empty() {
            true => "; it has no consumer".into(),
            false => text,
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        let lines = self.published.tail().wrapping_sub(self.published.first());
        lines >= u64::from(self.options.depth)
    }

    #[cold]
    fn make_lines(&mut self, waits: Waits) -> Result<(), Error> {
        let begun = Instant::now();
        let mut asked = None;
        self.settle();
        while self.is_full() {
            let news = topics::news(&self.domain).seen;
            topics::check_fork(&self.domain)?;
            self.tend();
            if !self.is_full() {
                break;
            }
            match waits {
                Waits::Not => return Err(self.full(ErrorKind::Full, None)),
                Waits::Until(deadline) => {
                    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                    if left.is_some_and(|left| left.is_zero()) {
                        return Err(self.full(ErrorKind::TimedOut, Some(begun.elapsed())));
                    }
                    let at = self.wanted();
                    // A consumer makes no fence before it looks whether the producer waits. After a short wait its
                    // store is visible.
                    let longest = if asked == Some(at) { ROUND } else { SETTLE };
                    asked = Some(at);
                    self.sleep_for_room(at, news, left.map_or(longest, |left| left.min(longest)));
                }
            }
        }
        self.claims.claims().has_room();
        Ok(())
    }

    #[cold]
    fn full(&self, kind: ErrorKind, waited: Option<Duration>) -> Error {
        let (name, depth) = (&self.name, self.options.depth);
        let (waiting, taken) = self.book.in_lines(self.claims.claims(), &self.published);
        let waited = waited.map_or(String::new(), |waited| format!(" after {waited:?}"));
        let text = format!(
            "queue {name} is full{waited}: of the {depth} items of this producer {waiting} wait and {taken} are being taken{}",
            self.holders()
        );
        Error::new(kind, text)
    }

    /// Returns the position at which the producer wants to be woken when it is taken. It is the oldest one if a
    /// consumer reads it, otherwise the one about a quarter into the waiting items.
    pub(crate) fn wanted(&self) -> u64 {
        let (first, tail) = (self.published.first(), self.published.tail());
        let quarter = u64::from(self.options.depth / 4).max(1);
        match self.claims.claims().of(first) {
            Claim::Free(_) => first
                .wrapping_add(quarter.min(tail.wrapping_sub(first)))
                .wrapping_sub(1),
            _ => first,
        }
    }

    /// Sleeps until a position is taken, the manager has newer news, or this time is over.
    fn sleep_for_room(&mut self, at: u64, news: u32, most: Duration) {
        let seen = self.claims.claims().want_room(at);
        // Ordering: partner: the locked instruction by which a consumer takes.
        full_fence();
        self.settle();
        if self.is_full() {
            let points = [
                Point::seen(self.claims.claims().room(), seen),
                Point::seen(topics::news(&self.domain).wake, news),
            ];
            let _ = TIMED.wait_any(&points, most);
        }
    }

    /// Publishes a line that names these buffers, which the book has, and wakes a consumer that sleeps.
    #[inline]
    fn put(&mut self, message: Message, slots: &[u32]) {
        let (lines, rounds) = (self.ring.lines(), &mut self.rounds);
        // Crash: a death from here on ends the ring; consumers take the lines that are whole.
        let Ok(position) = match slots {
            [slot] => self.published.publish(&lines, rounds, message, *slot),
            _ => self.published.publish_many(&lines, rounds, message, slots),
        };
        self.book.begins(position);
        crash::point("queue.published");
        self.ring();
    }

    /// Does a bounded part of the work that is due.
    #[inline]
    fn after_send(&mut self) {
        self.step();
        let tail = self.published.tail();
        if tail.wrapping_sub(self.settles).cast_signed() >= 0 {
            self.settle();
            self.settles = tail.wrapping_add((self.options.depth / 4).max(1).into());
        }
        let (now, pause) = match self.is_steady {
            true => (counter(), TEND_TICKS),
            false => (self.sent, TEND_SENDS),
        };
        if now.wrapping_sub(self.tended) >= pause {
            self.tended = now;
            self.tend();
        }
    }

    #[inline]
    fn step(&mut self) {
        let mut exceeded = Vec::new();
        let available = self.book.kept.left(&self.rounds);
        let mut found = Found {
            book: &mut self.book,
            pool: &self.pool,
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
            book: &mut self.book,
            pool: &self.pool,
            exceeded: &mut exceeded,
        };
        let Ok(_) = self.rounds.collect(&self.seats.all, &mut found);
        self.expel(&exceeded);
    }

    #[cold]
    fn expel(&mut self, desks: &[usize]) {
        let mut lobby = lobby!(self);
        for desk in desks {
            let (seats, limits) = (&mut self.seats.all, limits(&self.options));
            seats.exceeded(*desk, limits, &mut lobby);
        }
        let ended = lobby.ended;
        self.decide_about(&ended);
    }

    /// Gives back, or reports, the items of consumers that have gone.
    fn decide_about(&mut self, ended: &[Leaving]) {
        let parts = Parts {
            lines: self.ring.lines(),
            claims: self.claims.claims(),
            pool: &self.pool,
            rounds: &mut self.rounds,
            published: &mut self.published,
        };
        for leaving in ended {
            self.book.ended(leaving, &parts);
        }
    }

    /// Ends lines whose items were taken, and publishes items that were given back.
    pub(crate) fn settle(&mut self) {
        let mut parts = Parts {
            lines: self.ring.lines(),
            claims: self.claims.claims(),
            pool: &self.pool,
            rounds: &mut self.rounds,
            published: &mut self.published,
        };
        self.book.settle(&mut self.seats, &mut parts);
        while !self.is_full()
            && let Some((message, slots)) = self.book.take_back()
        {
            self.put(message, &slots);
            crash::point("queue.given_back");
        }
    }
}

/// Items, and the steps of waits.
impl Writes for Writing {
    type Sent = ();
    /// The time since which there is no memory.
    type Shortage = Option<Instant>;

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn domain(&self) -> &Domain {
        &self.domain
    }

    fn of(&self) -> (&str, &str) {
        ("queue", &self.name)
    }

    fn most_pieces(&self) -> u32 {
        self.options.pieces
    }

    #[inline]
    fn kept(&mut self) -> &mut Kept {
        &mut self.book.kept
    }

    #[inline]
    fn await_room(&mut self, waits: Waits) -> Result<Option<()>, Error> {
        if self.is_full() {
            self.make_lines(waits)?;
        }
        Ok(None)
    }

    /// Publishes a new item.
    #[inline]
    fn write(&mut self, message: Message, slots: &[u32]) {
        self.sent += 1;
        self.put(message, slots);
        self.after_send();
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<Room<()>, Error> {
        if self.is_full() {
            self.tend();
        }
        Ok(if self.is_full() {
            Room::Later
        } else {
            Room::There
        })
    }

    fn await_memory(&mut self, len: usize, until: Option<Instant>) -> Result<BufferMut, Error> {
        waiting::alloc(self, len, until)
    }

    fn look_for_memory(&mut self) {
        self.tend();
        self.collect();
    }

    /// Drops lost items. The caller cannot fetch them while it waits here.
    fn free_more(&mut self, _: &Error, shortage: &mut Option<Instant>) -> bool {
        let begun = *shortage.get_or_insert_with(Instant::now);
        begun.elapsed() >= ROUND && self.book.drop_lost()
    }

    #[cold]
    fn no_memory(&self, error: Error) -> Error {
        let (name, buffers) = (&self.name, self.book.kept.count());
        let lost = match self.book.lost_buffers() {
            0 => String::new(),
            lost => format!(
                ", {lost} lost items that nobody has fetched (Producer::take_lost) have others"
            ),
        };
        let kept = topics::kept_here(&self.pool, buffers + self.book.lost_buffers());
        let text = format!(
            "queue {name} has no memory left: items and consumers have {buffers} buffers{lost}{kept}{}",
            self.holders()
        );
        Error::because(ErrorKind::OutOfMemory, text, error)
    }

    /// Wakes one consumer that sleeps: on the bell, or on its descriptor.
    #[inline]
    fn ring(&self) {
        // Ordering: partner: the fence of a consumer that is about to sleep.
        full_fence();
        self.claims
            .claims()
            .wake_one(|word| match futex::wake(word, 1) {
                Ok(woken @ 1..) => woken,
                _ => usize::from(self.seats.wake_one()),
            });
    }

    fn tend_idle(&mut self, now: Instant) -> bool {
        self.tend();
        let tail = self.published.tail();
        let is_idle = std::mem::replace(&mut self.visited, tail) == tail;
        if is_idle {
            self.remind();
        }
        // A round reads all desks, under the lock for which a send waits.
        if is_idle && self.rounds.waiting() > 0 && now >= self.collects_at {
            self.collects_at = now + ROUND;
            self.collect();
        }
        self.seats.all.are_joining(now)
    }
}

impl Drop for Writing {
    /// Ends the producer's part in order: consumers take the items that still wait.
    fn drop(&mut self) {
        if topics::check_fork(&self.domain).is_err() {
            // The pool, the channels and the buffers are the parent's.
            return self.book.kept.forget();
        }
        self.settle();
        self.book.kept.end(&mut self.seats.all, &self.pool);
    }
}
