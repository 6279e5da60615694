//! The subscribers as the publisher sees them.

use crate::bells::Bells;
use crate::options::{TopicOptions, WhenBehind};
use std::fmt;
use std::time::{Duration, Instant};
use tranship_core::DomainId;
use tranship_core::topics::{AwaitedReaders, Peer};
use tranship_ledger::rounds::{Published, Reliable};
use tranship_readers::{Go, Host, Joins, Names, Seat, Seats, View, Word};
use tranship_ring::Behind;
use tranship_ring::broadcast::{UNBEGUN, Win, ahead};
use tranship_sys::time::monotonic_ns;

/// A subscriber, as its publisher sees it. Its text form says what holds the publisher back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberSeen {
    /// The subscriber's domain.
    pub domain: DomainId,
    /// The number of its process.
    pub pid: u32,
    /// The user of its process.
    pub uid: u32,
    /// Whether the publisher waits for this subscriber.
    pub reliable: bool,
    /// Messages that the subscriber has not yet taken, at most the depth of the ring.
    pub behind: u64,
    /// Buffers that the subscriber keeps, by its desk.
    pub kept: u32,
    /// Whether the subscriber's table lists more buffers.
    pub more: bool,
    /// Whether the subscription has ended while some of its buffers are still held.
    pub left: bool,
    /// For how long the subscriber has been behind without taking a message, as of the last look.
    pub behind_for: Duration,
    /// For how long the subscriber has kept at least one buffer all the time, as of the last look. The helper thread
    /// looks every 100 ms.
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

/// The publisher's record of a subscriber.
pub(crate) struct Subscription {
    reliable: bool,
    /// Where it has begun.
    position: u64,
    /// Messages that it had passed when last looked at, and since when it has taken none of those that were left, ns.
    stands: (u64, u64),
    /// Since when it has kept something.
    keeps: Option<Instant>,
}

/// Where a subscriber is.
struct Stand {
    /// Messages that it has passed.
    passed: u64,
    /// Messages that it has still to take, as far as the ring has them.
    left: u64,
}

impl Subscription {
    /// Returns where the subscriber is in a ring of `depth` lines, by its desk. A liar's desk shows any position.
    fn stand(&self, view: &View, tail: u64, depth: u32) -> Stand {
        let passed = match view.get().win() {
            UNBEGUN => 0,
            word => ahead(self.position, Win::unpack(word).low)
                .max(0)
                .unsigned_abs(),
        };
        let left = ahead(self.position.wrapping_add(passed), tail).max(0);
        Stand {
            passed,
            left: left.unsigned_abs().min(depth.into()),
        }
    }
}

/// Notes what a desk shows now, and says it to observers.
fn note(seat: &mut Seat<Subscription>, view: &View, tail: u64, depth: u32) {
    let of = &mut seat.of;
    let Stand { passed, left } = of.stand(view, tail, depth);
    if passed != of.stands.0 || left == 0 {
        of.stands = (passed, monotonic_ns());
    }
    of.keeps = match view.kept() {
        (0, false) => None,
        _ => of.keeps.or_else(|| Some(Instant::now())),
    };
    seat.sender.topic_says(Behind {
        lines: depth.into(),
        passed,
        left,
        since_ns: if left == 0 { 0 } else { of.stands.1 },
    });
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
pub(crate) const RELIABLE: u64 = 1;
/// The first bit of the number of earlier messages that a subscriber wishes for.
pub(crate) const HISTORY: u32 = 32;
/// A publisher's word: the subscriber is no longer reliable, for it was behind for too long.
pub(crate) const DEMOTED: Word = Word::Other(0);

/// The names of a topic's ends, for texts of errors.
pub(crate) const NAMES: Names = Names {
    writer: "publisher",
    reader: "subscriber",
};

impl Host for Lobby<'_> {
    type Of = Subscription;
    const NAMES: Names = NAMES;
    const MOST: usize = usize::MAX;
    const WISHES: bool = true;

    fn welcome(&mut self, desk: usize, peer: Peer, wish: u64) -> (Subscription, Go) {
        let (tail, first) = (self.published.tail(), self.published.first());
        let there = tail.wrapping_sub(first);
        let history = there.min(self.options.history.into());
        let position = tail.wrapping_sub(history.min(wish >> HISTORY));
        let takes_rank = self.options.when_behind != WhenBehind::Overwrite;
        let reliable = takes_rank && wish & RELIABLE != 0;
        if reliable {
            self.reliable.join(desk, position);
        }
        self.bells.admit(peer.uid, true);
        let of = Subscription {
            reliable,
            position,
            stands: (0, monotonic_ns()),
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
    /// The reliable subscriber for which the publisher waits, and its desk.
    awaited: Option<(DomainId, usize)>,
}

impl Subscribers {
    /// Takes new subscribers in, and removes those that are gone.
    pub(crate) fn tend(&mut self, joins: Joins<'_, Lobby<'_>>) {
        let (tail, depth) = (joins.host.published.tail(), joins.host.options.depth);
        self.all.tend(joins);
        // Each call notes the contents of one desk, in turn.
        let desk = self.noted % self.all.desks().max(1);
        self.noted = desk + 1;
        if let Some((seat, view)) = self.all.seat_mut(desk) {
            note(seat, view, tail, depth);
        }
    }

    /// Returns the subscribers that may let go of what the publisher waits for.
    pub(crate) fn awaited(&self) -> AwaitedReaders {
        match self.awaited.and_then(|(_, desk)| self.all.seat(desk)) {
            Some(seat) => AwaitedReaders::of([&seat.sender].into_iter()),
            None => self
                .all
                .awaited(|seat, view| seat.of.reliable || !view.is_empty()),
        }
    }

    /// Notes what all desks show.
    pub(crate) fn note_all(&mut self, tail: u64, depth: u32) {
        for (seat, view) in self.all.iter_mut() {
            note(seat, view, tail, depth);
        }
    }

    /// Says to observers which reliable subscriber the publisher waits for.
    #[cold]
    pub(crate) fn awaits(&mut self, desk: Option<usize>) {
        let seat = desk.and_then(|desk| Some((self.all.seat(desk)?.peer.domain, desk)));
        if seat == self.awaited {
            return;
        }
        let before = std::mem::replace(&mut self.awaited, seat);
        for (of, waits) in [(before, false), (seat, true)] {
            if let Some((domain, desk)) = of
                && let Some(seat) = self.all.seat(desk)
                && seat.peer.domain == domain
            {
                seat.sender.topic_waits(waits);
            }
        }
    }

    /// Makes a reliable subscriber an ordinary one, and tells it so.
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
        // A subscriber that does not read this word learns of the change from the messages that it misses.
        let _ = seat.sender.try_send((&bytes, word));
    }

    /// Returns how many messages the furthest subscriber has still to take. `None`: there is no subscriber, or one that is not
    /// reliable.
    pub(crate) fn behind(&self, tail: u64, depth: u32) -> Option<u64> {
        let mut most = None;
        for (seat, view) in self.all.iter() {
            if !seat.of.reliable {
                return None;
            }
            most = most.max(Some(seat.of.stand(view, tail, depth).left));
        }
        most
    }

    /// Returns the state of the subscribers, by their desks. `depth` is the ring's depth.
    pub(crate) fn seen(&self, tail: u64, depth: u32) -> Vec<SubscriberSeen> {
        let seen = self.all.iter().map(|(seat, view)| {
            let (kept, more) = view.kept();
            let Stand { passed, left } = seat.of.stand(view, tail, depth);
            let (stood, since) = seat.of.stands;
            let stands = passed == stood && left > 0;
            let behind_ns = stands.then(|| monotonic_ns().saturating_sub(since));
            let keeps = seat.of.keeps.filter(|_| kept > 0 || more);
            SubscriberSeen {
                domain: seat.peer.domain,
                pid: seat.peer.pid,
                uid: seat.peer.uid,
                reliable: seat.of.reliable,
                behind: left,
                kept,
                more,
                left: seat.left,
                behind_for: Duration::from_nanos(behind_ns.unwrap_or_default()),
                keeps_for: keeps.map(|since| since.elapsed()).unwrap_or_default(),
            }
        });
        seen.collect()
    }
}
