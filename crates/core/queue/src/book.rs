//! A producer's record of its items: in lines, with consumers, given back, lost.
//!
//! | an item is | known by |
//! |---|---|
//! | waiting | its line, and a claim that is older |
//! | taken | its line, and a claim that names a consumer |
//! | open | its line has ended; the consumer's desk has an entry for it |
//! | given back | it is to be published anew |
//! | done | no entry names it |
//!
//! Lines end in the order of positions, each when its item is taken and read. Rounds then find out when the buffer is
//! free. `Book` keeps the handles of buffers whose items may have to be published again.

use crate::options::WhenLost;
use crate::seat::REDELIVERED;
use crate::seats::{Consumers, Leaving, Shows, position};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Named, Peer};
use tranship_core::{Body, DomainId, Inline, Message, Pool};
use tranship_ledger::rounds::{Published, Rounds};
use tranship_readers::line::{self, Said};
use tranship_readers::{Kept, pieces};
use tranship_ring::Lines;
use tranship_ring::broadcast::{self, Claim, Claims, Open};

/// A line that is read for longer than this ends while it is read: its consumer may be stopped.
const LONGEST_READ: Duration = Duration::from_millis(1);
/// The most lost items that are kept for `take_lost`. Beyond it the oldest one is dropped.
const MOST_LOST: usize = 1024;

/// Why no consumer gets an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The consumer ended without acknowledging the item.
    Ended,
    /// The consumer rejected the item.
    Rejected,
}

/// An item that no consumer gets ([`Producer::take_lost`](crate::Producer::take_lost)).
#[derive(Debug)]
pub struct Lost {
    /// The message that was sent.
    pub message: Message,
    /// Why no consumer gets the item.
    pub cause: Cause,
    /// The domain that had taken the item, and the number of its process, if they are known.
    pub consumer: Option<(DomainId, u32)>,
}

impl Lost {
    fn has_buffer(&self) -> bool {
        matches!(self.message.body, Body::Buffer(_) | Body::Aggregate(_))
    }
}

/// An item that a consumer has taken, and whose line has ended.
struct Out {
    position: u64,
    consumer: u16,
    message: broadcast::Message,
    since: Instant,
}

/// The parts of a producer that the book reads and moves.
pub(crate) struct Parts<'a> {
    pub(crate) lines: Lines<'a>,
    pub(crate) claims: Claims<'a>,
    pub(crate) pool: &'a Pool,
    pub(crate) rounds: &'a mut Rounds,
    pub(crate) published: &'a mut Published,
}

/// A producer's record of its items.
pub(crate) struct Book {
    when_lost: WhenLost,
    /// For each line whether its item is decided already, as given back or as lost.
    decided: Box<[bool]>,
    out: Vec<Out>,
    /// The oldest line if a consumer was reading it at the last look, and the time of the first look that found this.
    read: Option<(u64, Instant)>,
    /// Items to publish again, oldest first.
    back: VecDeque<broadcast::Message>,
    lost: VecDeque<Lost>,
    /// Beside the buffers of lines and readers, those that are to be published again.
    pub(crate) kept: Kept,
    /// For each slot, how many items of `out` and `back` name it.
    open: Vec<u32>,
    pub(crate) redelivered: u64,
    pub(crate) lost_count: u64,
    pub(crate) rejected: u64,
    /// The number of claims that no consumer can have written.
    pub(crate) disputed: u64,
}

impl Book {
    pub(crate) fn new(lines: u32, slots: u32, when_lost: WhenLost) -> Book {
        Book {
            when_lost,
            decided: vec![false; lines as usize].into(),
            out: Vec::new(),
            read: None,
            back: VecDeque::new(),
            lost: VecDeque::new(),
            kept: Kept::new(slots),
            open: vec![0; slots as usize],
            redelivered: 0,
            lost_count: 0,
            rejected: 0,
            disputed: 0,
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "below the number of lines")]
    fn index(&self, position: u64) -> usize {
        (position & (self.decided.len() as u64 - 1)) as usize
    }

    /// Returns how many items, among those whose lines have ended, are with consumers or wait to be published again.
    pub(crate) fn open_count(&self) -> usize {
        self.out.len() + self.back.len()
    }

    /// Returns since when a consumer has had its oldest item.
    pub(crate) fn oldest_of(&self, domain: DomainId, seats: &Consumers) -> Option<Instant> {
        let mut its = self.out.iter().filter(|out| {
            seats
                .peer(out.consumer)
                .is_some_and(|peer| peer.domain == domain)
        });
        its.next().map(|out| out.since)
    }

    /// Notes that a line was published.
    #[inline]
    pub(crate) fn begins(&mut self, position: u64) {
        let index = self.index(position);
        self.decided[index] = false;
    }

    /// Drops the handle of a buffer that no line names and no reader has, unless its item may have to be published
    /// again.
    #[inline]
    pub(crate) fn free(&mut self, pool: &Pool, slot: u32) {
        if self.open.get(slot as usize) == Some(&0) {
            self.kept.free(pool, slot);
        }
    }

    /// Ends the lines whose items were taken and read, in order, and finds the open items that are done.
    pub(crate) fn settle(&mut self, seats: &mut Consumers, parts: &mut Parts<'_>) {
        self.hear(seats, parts);
        let tail = parts.published.tail();
        while parts.published.first() != tail {
            let position = parts.published.first();
            let Some(consumer) = taker(parts.claims, position) else {
                break;
            };
            let decided = self.decided[self.index(position)];
            match seats.shows(consumer, position) {
                _ if decided => {}
                Shows::Reading if !self.is_read_long(position) => break,
                // The window covers the buffer. A consumer that finds the line ended gives its item back.
                Shows::Reading | Shows::Open(_) => self.keep_open(position, consumer, parts),
                Shows::Done => {}
                Shows::Nobody => {
                    parts.claims.repair(position);
                    self.disputed += 1;
                    let message = broadcast::published(parts.lines, position);
                    self.give_back_or_lose(message, seats.peer(consumer), parts);
                }
            }
            // Crash: a producer that dies here leaves an item that is taken; its consumer has it.
            let Ok(_) = parts.published.withdraw(&parts.lines, parts.rounds, tail);
        }
        self.sweep(seats, parts);
    }

    /// Says whether a consumer has been reading the oldest line for longer than reading takes.
    fn is_read_long(&mut self, position: u64) -> bool {
        match self.read {
            Some((read, since)) if read == position => since.elapsed() >= LONGEST_READ,
            _ => {
                self.read = Some((position, Instant::now()));
                false
            }
        }
    }

    /// Keeps an open item whose line ends.
    fn keep_open(&mut self, position: u64, consumer: u16, parts: &Parts<'_>) {
        let message = broadcast::published(parts.lines, position);
        self.hold(&message);
        self.out.push(Out {
            position,
            consumer,
            message,
            since: Instant::now(),
        });
    }

    /// Notes that an item's buffer may have to be published again.
    fn hold(&mut self, message: &broadcast::Message) {
        for slot in self.slots_of(message) {
            self.open[slot as usize] += 1;
        }
    }

    /// Notes that this entry will not publish an item's buffer again.
    fn release(&mut self, message: &broadcast::Message, parts: &Parts<'_>) {
        for slot in self.slots_of(message) {
            self.open[slot as usize] -= 1;
            if !parts.rounds.is_named(slot) {
                self.free(parts.pool, slot);
            }
        }
    }

    /// Finds the open items that are done.
    fn sweep(&mut self, seats: &Consumers, parts: &Parts<'_>) {
        // The items of a consumer that has ended were decided when it ended.
        let mut has = seats.have();
        let done = |out: &mut Out| !has.has(out.consumer, out.position);
        let done: Vec<Out> = self.out.extract_if(.., done).collect();
        for out in done {
            self.release(&out.message, parts);
        }
    }

    /// Reads from the desks which items were handed back.
    fn hear(&mut self, seats: &mut Consumers, parts: &mut Parts<'_>) {
        let mut answers = Vec::new();
        seats.answers(|consumer, number, what| answers.push((consumer, number, what)));
        for (consumer, number, what) in answers {
            let position = position(parts.published.first(), number);
            if let Some(message) = self.find(position, consumer, parts) {
                self.decide(message, what, seats.peer(consumer), parts);
            }
        }
    }

    /// Finds an item that a consumer has, and takes it off the record. Its buffer is still kept.
    fn find(
        &mut self,
        position: u64,
        consumer: u16,
        parts: &Parts<'_>,
    ) -> Option<broadcast::Message> {
        let is_it = |out: &Out| (out.position, out.consumer) == (position, consumer);
        if let Some(at) = self.out.iter().position(is_it) {
            return Some(self.out.remove(at).message);
        }
        let published = &parts.published;
        let into = position.wrapping_sub(published.first());
        let is_there = into < published.tail().wrapping_sub(published.first());
        let index = self.index(position);
        if !is_there || self.decided[index] || taker(parts.claims, position) != Some(consumer) {
            return None;
        }
        self.decided[index] = true;
        let message = broadcast::published(parts.lines, position);
        self.hold(&message);
        Some(message)
    }

    /// Does what a consumer has asked for an item.
    fn decide(
        &mut self,
        message: broadcast::Message,
        what: Open,
        peer: Option<Peer>,
        parts: &Parts<'_>,
    ) {
        match what {
            Open::Rejected => {
                self.rejected += 1;
                self.report(&message, Cause::Rejected, peer);
                self.release(&message, parts);
            }
            Open::Back | Open::Held => self.back.push_back(message),
        }
    }

    /// Gives back or reports an item whose consumer ended, as the options say.
    fn give_back_or_lose(
        &mut self,
        message: broadcast::Message,
        peer: Option<Peer>,
        parts: &Parts<'_>,
    ) {
        self.hold(&message);
        match self.when_lost {
            WhenLost::GiveBack => self.back.push_back(message),
            WhenLost::Report => {
                self.lost_count += 1;
                self.report(&message, Cause::Ended, peer);
                self.release(&message, parts);
            }
        }
    }

    fn report(&mut self, message: &broadcast::Message, cause: Cause, peer: Option<Peer>) {
        let Some((word, said)) = line::parse(message) else {
            return;
        };
        let handle = |named: Named| self.kept.get(named.id.slot()).cloned();
        let body = match said {
            Said::Inline(bytes, len) => Inline::try_from(&bytes[..len]).ok().map(Body::Inline),
            Said::Buffer(named) => handle(named).map(Body::Buffer),
            Said::List(named) => {
                let pieces = self.pieces(named).into_iter().map(handle);
                let pieces = pieces.collect::<Option<Vec<_>>>();
                pieces.map(|pieces| Body::Aggregate(topics::aggregate(pieces)))
            }
        };
        let Some(body) = body else { return };
        if self.lost.len() == MOST_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back(Lost {
            message: Message { word, body },
            cause,
            consumer: peer.map(|peer| (peer.domain, peer.pid)),
        });
    }

    /// Decides about all items of a consumer that has ended.
    pub(crate) fn ended(&mut self, leaving: &Leaving, parts: &Parts<'_>) {
        let (consumer, peer) = (leaving.consumer, Some(leaving.peer));
        let is_its = |out: &mut Out| out.consumer == consumer;
        let its: Vec<Out> = self.out.extract_if(.., is_its).collect();
        let its = its.into_iter().map(|out| (out.position, out.message));
        let mut found: Vec<_> = its.collect();
        let mut position = parts.published.first();
        while position != parts.published.tail() {
            if taker(parts.claims, position) == Some(consumer)
                && let Some(message) = self.find(position, consumer, parts)
            {
                found.push((position, message));
            }
            position = position.wrapping_add(1);
        }
        for (position, message) in found {
            match leaving.open(position) {
                // The consumer said so, and ended before the producer read it.
                Some(what @ (Open::Back | Open::Rejected)) => {
                    self.decide(message, what, peer, parts);
                }
                Some(Open::Held) => {
                    self.give_back_or_lose(message, peer, parts);
                    self.release(&message, parts);
                }
                None => self.release(&message, parts),
            }
        }
    }

    /// Takes the oldest item that is to be published again, with the slots of its buffers.
    pub(crate) fn take_back(&mut self) -> Option<(broadcast::Message, Vec<u32>)> {
        let mut message = self.back.pop_front()?;
        message.kind |= REDELIVERED;
        self.redelivered += 1;
        let slots = self.slots_of(&message);
        for slot in &slots {
            self.open[*slot as usize] -= 1;
        }
        Some((message, slots))
    }

    /// Returns the pieces of an aggregate whose list a line names.
    fn pieces(&self, list: Named) -> Vec<Named> {
        let list = self.kept.get(list.id.slot());
        let pieces = list.and_then(|list| topics::read_list(list, pieces::MOST as usize));
        pieces.unwrap_or_default()
    }

    /// Returns the slots that the producer's own line names. The book has their handles.
    fn slots_of(&self, message: &broadcast::Message) -> Vec<u32> {
        let mut slots = match line::parse(message) {
            Some((_, Said::Buffer(named))) => return vec![named.id.slot()],
            Some((_, Said::List(named))) => {
                let mut pieces = self.pieces(named);
                pieces.push(named);
                pieces
            }
            _ => Vec::new(),
        };
        slots.drain(..).map(|named| named.id.slot()).collect()
    }

    /// Returns how many lost items have a buffer.
    pub(crate) fn lost_buffers(&self) -> usize {
        self.lost.iter().filter(|lost| lost.has_buffer()).count()
    }

    /// Drops the oldest lost item that has a buffer. Returns false if there is none.
    pub(crate) fn drop_lost(&mut self) -> bool {
        let oldest = self.lost.iter().position(Lost::has_buffer);
        oldest.is_some_and(|at| self.lost.remove(at).is_some())
    }

    pub(crate) fn lost_kept(&self) -> usize {
        self.lost.len()
    }

    pub(crate) fn take_lost(&mut self) -> Option<Lost> {
        self.lost.pop_front()
    }

    /// Returns how many items wait, and how many were taken whose lines stand.
    pub(crate) fn in_lines(&self, claims: Claims<'_>, published: &Published) -> (usize, usize) {
        let (mut waiting, mut taken) = (0, 0);
        let mut position = published.first();
        while position != published.tail() {
            match taker(claims, position) {
                None => waiting += 1,
                Some(_) if self.decided[self.index(position)] => {}
                Some(_) => taken += 1,
            }
            position = position.wrapping_add(1);
        }
        (waiting, taken)
    }
}

/// Returns the consumer that has taken a position. A claim that names a later position is a lie: the position counts as
/// taken by number 0, which no consumer has.
#[inline]
fn taker(claims: Claims<'_>, position: u64) -> Option<u16> {
    match claims.of(position) {
        Claim::Free(_) => None,
        Claim::Taken(consumer) => Some(consumer),
        Claim::Gone(_) => Some(0),
    }
}
