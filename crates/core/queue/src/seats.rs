//! The consumers as the producer sees them.

use crate::options::QueueOptions;
use tranship_core::topics::Peer;
use tranship_core::{DomainId, PoolId};
use tranship_ledger::rounds::Published;
use tranship_readers::{Go, Host, Names, Seat, Seats, View, Word, pieces};
use tranship_ring::broadcast::{
    Dismissed, Limits, OPEN, Open, READERS, SEQUENCES, Win, ahead, open, sequence,
};
use tranship_sync::full_fence;

/// The most consumers of all users together. One generation of a consumer's number has this many numbers.
const MOST: usize = READERS;
const _: () = assert!(OPEN <= u64::BITS as usize, "a bit for each entry");
const PLACE: u32 = READERS.ilog2();
/// The number of generations of a place's numbers. The first one is 1.
const GENERATIONS: u16 = (1 << (u16::BITS - PLACE)) - 1;

/// A consumer, as its producer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerSeen {
    /// The consumer's domain.
    pub domain: DomainId,
    /// The number of its process.
    pub pid: u32,
    /// The user of its process.
    pub uid: u32,
    /// Items that the consumer has taken and not acknowledged.
    pub open: usize,
    /// Buffers that the consumer keeps, by its desk.
    pub kept: u32,
    /// Whether the consumer's table lists more buffers.
    pub more: bool,
    /// Whether the connection has ended while some of its buffers are still held.
    pub left: bool,
}

/// The state, by a consumer's desk, of a position that a claim gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// The consumer reads the line.
    Reading,
    /// The consumer has the item.
    Open(Open),
    /// The consumer has acknowledged the item.
    Done,
    /// There is no such consumer.
    Nobody,
}

/// The desk of a consumer, as it was when its connection ended.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) consumer: u16,
    pub(crate) peer: Peer,
    /// Sequence numbers of the items that the consumer had.
    open: Vec<(u64, Open)>,
}

impl Leaving {
    /// Returns the desk's state of an item that a claim gave to the consumer. `None`: the item is done.
    pub(crate) fn open(&self, position: u64) -> Option<Open> {
        let number = sequence(position);
        let mut named = self.open.iter().filter(|open| open.0 == number);
        named.next().map(|open| open.1)
    }

    /// Returns the sequence numbers of the items that the consumer had.
    #[cfg(test)]
    pub(crate) fn open_items(&self) -> Vec<u64> {
        self.open.iter().map(|open| open.0).collect()
    }
}

/// Returns the desk's state of a position.
#[inline(always)]
fn shows(view: &View, position: u64) -> Shows {
    // The window is read first: a line that has left the window has an entry, or its item is done.
    let win = Win::unpack(view.get().win());
    let into = ahead(win.low, position & SEQUENCES);
    if (0..i64::from(win.len.min(1))).contains(&into) {
        return Shows::Reading;
    }
    let open = view.desk().opens().of(position);
    open.map_or(Shows::Done, Shows::Open)
}

/// Returns the sequence numbers of all items that the desk shows, sorted.
fn shown(view: &View) -> Vec<u64> {
    // The window is read first, as in `shows`.
    let win = Win::unpack(view.get().win());
    let mut shown: Vec<u64> = opens(view).into_iter().map(|open| open.0).collect();
    shown.extend((win.len != 0).then(|| sequence(win.low)));
    shown.sort_unstable();
    shown
}

/// Returns the sequence numbers of the items that are with the consumer.
fn opens(view: &View) -> Vec<(u64, Open)> {
    let opens = view.desk().opens();
    let words = (0..opens.used()).map(|entry| opens.word(entry));
    words.filter_map(open).collect()
}

/// The producer's record of a consumer.
pub(crate) struct Taking {
    /// The number that names the consumer in claims.
    number: u16,
    /// The words of the entries by which items were handed back, as far as the producer has read them.
    heard: Box<[u64; OPEN]>,
    /// A bit for each such entry of which the consumer was not yet told.
    tell: u64,
}

/// Tells the consumer which entries are free again, as far as the channel has room.
fn tell(seat: &mut Seat<Taking>) {
    while seat.of.tell != 0 {
        let entry = seat.of.tell.trailing_zeros();
        let (bytes, word) = Word::Other(entry.into()).pack();
        if seat.sender.try_send((&bytes, word)).is_err() {
            return;
        }
        seat.of.tell &= seat.of.tell - 1;
    }
}

/// The names of a queue's ends, for texts of errors.
pub(crate) static NAMES: Names = Lobby::NAMES;

/// The parts of a producer that a consumer joins.
pub(crate) struct Lobby<'a> {
    pub(crate) dismissed: &'a Dismissed,
    pub(crate) published: &'a Published,
    pub(crate) options: &'a QueueOptions,
    pub(crate) pool: PoolId,
    /// The generation of the last number of each place.
    pub(crate) generations: &'a mut Vec<u16>,
    /// The consumers that have gone.
    pub(crate) ended: Vec<Leaving>,
}

impl Host for Lobby<'_> {
    type Of = Taking;
    const NAMES: Names = Names {
        writer: "producer",
        reader: "consumer",
    };
    const MOST: usize = MOST;
    const WISHES: bool = false;

    fn welcome(&mut self, desk: usize, _: Peer, _: u64) -> (Taking, Go) {
        if self.generations.len() <= desk {
            self.generations.resize(desk + 1, 0);
        }
        let generation = self.generations[desk] % GENERATIONS + 1;
        self.generations[desk] = generation;
        let number = generation << PLACE | u16::try_from(desk).unwrap_or(u16::MAX);
        self.dismissed.set(number, false);
        let go = Go {
            position: self.published.first(),
            pool: self.pool,
            keep: self.options.keep,
            mark: number,
        };
        let of = Taking {
            number,
            heard: Box::new([0; OPEN]),
            tell: 0,
        };
        (of, go)
    }

    fn leaves(&mut self, _: usize, seat: &Seat<Taking>, view: &View) {
        self.dismissed.set(seat.of.number, true);
        // Ordering: partner: the fence of `Opens::acknowledge`. An acknowledgement that finds itself in time is seen.
        full_fence();
        self.ended.push(Leaving {
            consumer: seat.of.number,
            peer: seat.peer,
            open: opens(view),
        });
    }

    fn visit(&mut self, seat: &mut Seat<Taking>) {
        tell(seat);
    }
}

/// The consumers.
#[derive(Default)]
pub(crate) struct Consumers {
    pub(crate) all: Seats<Taking>,
    /// The generation of the last number of each place.
    pub(crate) generations: Vec<u16>,
}

/// The items that the consumers have, with one look at each desk.
pub(crate) struct Have<'a> {
    seats: &'a Consumers,
    /// By places, the sequence numbers that a desk shows, sorted. `None`: the desk was not read yet.
    read: Vec<Option<Vec<u64>>>,
}

impl Have<'_> {
    /// Says whether a consumer's desk shows an item, or the number names no consumer.
    pub(crate) fn has(&mut self, number: u16, position: u64) -> bool {
        let at = place(number);
        let (Some(_), Some(view)) = (self.seats.seat(number), self.seats.all.view(at)) else {
            return true;
        };
        let shown = self.read[at].get_or_insert_with(|| shown(view));
        shown.binary_search(&sequence(position)).is_ok()
    }
}

/// Returns the place that a consumer's number names.
fn place(number: u16) -> usize {
    usize::from(number) % MOST
}

impl Consumers {
    fn named(&self, number: u16) -> Option<&Seat<Taking>> {
        let seat = self.all.seat(place(number))?;
        (seat.of.number == number).then_some(seat)
    }

    fn seat(&self, number: u16) -> Option<&Seat<Taking>> {
        self.named(number).filter(|seat| !seat.left)
    }

    /// Returns the domain and process of a consumer.
    pub(crate) fn peer(&self, number: u16) -> Option<Peer> {
        self.named(number).map(|seat| seat.peer)
    }

    /// Returns the state, by its desk, of a position that a claim gives to the consumer of this number.
    #[inline]
    pub(crate) fn shows(&self, number: u16, position: u64) -> Shows {
        match (self.seat(number), self.all.view(place(number))) {
            (Some(_), Some(view)) => shows(view, position),
            _ => Shows::Nobody,
        }
    }

    /// Returns a view of the consumers' items. It reads each desk at the first question about it.
    pub(crate) fn have(&self) -> Have<'_> {
        Have {
            seats: self,
            read: vec![None; self.all.desks()],
        }
    }

    /// Calls `decide` for each item that was handed back since the last time, with its consumer's number and its sequence number.
    pub(crate) fn answers(&mut self, mut decide: impl FnMut(u16, u64, Open)) {
        for (seat, view) in self.all.iter_mut().filter(|(seat, _)| !seat.left) {
            let (opens, of) = (view.desk().opens(), &mut seat.of);
            for entry in 0..opens.used() {
                let word = opens.word(entry);
                match open(word) {
                    Some((number, what)) if what != Open::Held => {
                        if of.heard[entry] != word {
                            of.heard[entry] = word;
                            decide(of.number, number, what);
                            of.tell |= 1 << entry;
                        }
                    }
                    _ => of.heard[entry] = 0,
                }
            }
            tell(seat);
        }
    }

    /// Wakes a consumer that sleeps on its descriptor. Returns false if there is none. The caller has made a fence
    /// after the publish.
    #[cold]
    pub(crate) fn wake_one(&self) -> bool {
        self.all
            .iter()
            .any(|(seat, _)| !seat.left && seat.sender.topic_wake())
    }

    /// Returns the state of the consumers, by their desks.
    pub(crate) fn seen(&self) -> Vec<ConsumerSeen> {
        let seen = self.all.iter().map(|(seat, view)| {
            let (kept, more) = view.kept();
            ConsumerSeen {
                domain: seat.peer.domain,
                pid: seat.peer.pid,
                uid: seat.peer.uid,
                open: if seat.left { 0 } else { opens(view).len() },
                kept,
                more,
                left: seat.left,
            }
        });
        seen.collect()
    }

    /// Returns how many entries' notes wait to be sent.
    #[cfg(test)]
    pub(crate) fn untold(&self) -> usize {
        let seats = self.all.iter();
        seats
            .map(|(seat, _)| seat.of.tell.count_ones() as usize)
            .sum()
    }
}

/// Returns the limits of a consumer.
pub(crate) fn limits(options: &QueueOptions) -> Limits {
    Limits {
        window: 1,
        ..pieces::limits(options.keep, options.pieces)
    }
}

/// Returns the position nearest to `near` that has a sequence number.
pub(crate) fn position(near: u64, number: u64) -> u64 {
    near.wrapping_add_signed(ahead(sequence(near), number))
}
