//! The subscribers as the publisher sees them.

use crate::bells::Bells;
use crate::options::{TopicOptions, WhenBehind};
use std::fmt;
use std::time::{Duration, Instant};
use tranship_core::DomainId;
use tranship_core::topics::Peer;
use tranship_ledger::rounds::{Published, Reliable};
use tranship_readers::{Go, Host, Joins, Names, Seat, Seats, View, Word};
use tranship_ring::broadcast::{UNBEGUN, Win, ahead};

/// A subscriber, as its publisher sees it. Its text form says what holds the publisher back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberSeen {
    /// The subscriber's domain.
    pub domain: DomainId,
    /// The number of its process.
    pub pid: u32,
    /// The user as whom its process runs.
    pub uid: u32,
    /// Whether the publisher waits for it.
    pub reliable: bool,
    /// Messages that it has still to take, at most the depth of the ring.
    pub behind: u64,
    /// Buffers that its desk says it keeps, and whether its table has more.
    pub kept: u32,
    /// Whether its table has holds, too.
    pub more: bool,
    /// Whether the subscription has ended, and buffers of it are still held.
    pub left: bool,
    /// For how long it has been behind without a step forward, as far as was looked.
    pub behind_for: Duration,
    /// For how long it has kept some buffer all the time, as far as was looked. The helper thread looks each 100 ms.
    pub keeps_for: Duration,
}

impl SubscriberSeen {
    /// Returns the kernel's name of the subscriber's process, if this process can see it.
    pub fn process_name(&self) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok()?;
        Some(name.trim_end().to_owned())
    }
}

impl fmt::Display for SubscriberSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.process_name();
        let name = name.map_or(String::new(), |name| format!(" {name}"));
        let (domain, pid, kept) = (self.domain, self.pid, self.kept);
        let more = if self.more { " and more" } else { "" };
        write!(
            f,
            "domain {domain} (process {pid}{name}) keeps {kept}{more} buffers"
        )?;
        if self.keeps_for > Duration::ZERO {
            write!(f, " since {} ms", self.keeps_for.as_millis())?;
        }
        write!(f, ", {} messages behind", self.behind)?;
        if self.behind > 0 {
            write!(f, " since {} ms", self.behind_for.as_millis())?;
        }
        Ok(())
    }
}

/// What the publisher keeps of a subscriber.
pub(crate) struct Subscription {
    reliable: bool,
    /// Where its window began when last looked at, and since when.
    stands: (u64, Instant),
    /// Since when it has kept something.
    keeps: Option<Instant>,
}

impl Subscription {
    /// Returns where its window begins, modulo 2^48; before it has claimed anything, where it was let begin.
    fn low(&self, view: &View) -> u64 {
        match view.get().win() {
            UNBEGUN => self.stands.0,
            word => Win::unpack(word).low,
        }
    }

    /// Notes what the desk shows now.
    fn note(&mut self, view: &View) {
        let low = self.low(view);
        if low != self.stands.0 {
            self.stands = (low, Instant::now());
        }
        self.keeps = match view.kept() {
            (0, false) => None,
            _ => self.keeps.or_else(|| Some(Instant::now())),
        };
    }
}

/// The parts of a publisher that a subscriber joins.
pub(crate) struct Lobby<'a> {
    pub(crate) published: &'a Published,
    pub(crate) reliable: &'a mut Reliable,
    pub(crate) bells: &'a Bells,
    pub(crate) options: &'a TopicOptions,
    pub(crate) pool: tranship_core::PoolId,
}

/// The bit of a wish, and of the word by which a subscriber begins: the subscriber is reliable.
pub(crate) const RELIABLE: u8 = 1;
/// A publisher's word: the subscriber is no longer reliable, for it was behind for too long.
pub(crate) const DEMOTED: Word = Word::Other(0);

/// What the ends of a topic are called.
pub(crate) const NAMES: Names = Names {
    writer: "publisher",
    reader: "subscriber",
};

impl Host for Lobby<'_> {
    type Of = Subscription;
    const NAMES: Names = NAMES;
    const MOST: usize = usize::MAX;
    const WISHES: bool = true;

    fn welcome(&mut self, desk: usize, peer: Peer, wish: u8) -> (Subscription, Go) {
        let (tail, first) = (self.published.tail(), self.published.first());
        let there = tail.wrapping_sub(first);
        let position = tail.wrapping_sub(there.min(self.options.history.into()));
        let takes_rank = self.options.when_behind != WhenBehind::Overwrite;
        let reliable = takes_rank && wish & RELIABLE != 0;
        if reliable {
            self.reliable.join(desk, position);
        }
        self.bells.admit(peer.uid, true);
        let of = Subscription {
            reliable,
            stands: (position, Instant::now()),
            keeps: None,
        };
        let go = Go {
            position,
            pool: self.pool,
            keep: self.options.keep,
            mark: u16::from(reliable),
        };
        (of, go)
    }

    fn leaves(&mut self, desk: usize, seat: &Seat<Subscription>, _: &View) {
        self.bells.admit(seat.peer.uid, false);
        self.reliable.leave(desk);
    }
}

/// The subscribers.
#[derive(Default)]
pub(crate) struct Subscribers {
    pub(crate) all: Seats<Subscription>,
    /// The desk that is noted next.
    noted: usize,
    pub(crate) demoted: u64,
}

impl Subscribers {
    /// Takes new subscribers in, and takes leave of those that are gone.
    pub(crate) fn tend(&mut self, joins: Joins<'_, Lobby<'_>>) {
        self.all.tend(joins);
        // What desks show is noted one at a call, in turn.
        let desk = self.noted % self.all.desks().max(1);
        self.noted = desk + 1;
        if let Some((seat, view)) = self.all.seat_mut(desk) {
            seat.of.note(view);
        }
    }

    /// Notes what all desks show.
    pub(crate) fn note_all(&mut self) {
        for (seat, view) in self.all.iter_mut() {
            seat.of.note(view);
        }
    }

    /// Takes the rank of a reliable subscriber, and tells it.
    #[cold]
    pub(crate) fn demote(&mut self, desk: usize) {
        let Some((seat, _)) = self.all.seat_mut(desk) else {
            return;
        };
        let Peer { domain, pid, .. } = seat.peer;
        tracing::warn!(%domain, pid, "a reliable subscriber was behind for too long: it may miss messages from now on");
        seat.of.reliable = false;
        self.demoted += 1;
        let (bytes, word) = DEMOTED.pack();
        // A subscriber that does not even read this word sees its rank end by what it misses.
        let _ = seat.sender.try_send((&bytes, word));
    }

    /// Returns what the desks show. `depth` is the ring's.
    pub(crate) fn seen(&self, tail: u64, depth: u32) -> Vec<SubscriberSeen> {
        let seen = self.all.iter().map(|(seat, view)| {
            let low = seat.of.low(view);
            let (kept, more) = view.kept();
            let behind = ahead(low, tail).max(0);
            let stands = &seat.of.stands;
            let stood = (low == stands.0).then(|| stands.1.elapsed());
            let keeps = seat.of.keeps.filter(|_| kept > 0 || more);
            SubscriberSeen {
                domain: seat.peer.domain,
                pid: seat.peer.pid,
                uid: seat.peer.uid,
                reliable: seat.of.reliable,
                // A liar's desk shows any position.
                behind: behind.unsigned_abs().min(depth.into()),
                kept,
                more,
                left: seat.left,
                behind_for: stood.filter(|_| behind > 0).unwrap_or_default(),
                keeps_for: keeps.map(|since| since.elapsed()).unwrap_or_default(),
            }
        });
        seen.collect()
    }
}
