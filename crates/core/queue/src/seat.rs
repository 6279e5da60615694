//! The connection to one producer: its ring, its claims, and what is held and open.

use crate::item::{Entry, Item, Shown};
use crate::seats::NAMES;
use std::sync::Arc;
use tranship_core::topics::{Gone, Holds, Peer, Taken};
use tranship_core::{DomainId, Error, ErrorKind, Message, Receiver};
use tranship_readers::{Connection, WORDS, Word, is_put_off, line, reading};
use tranship_ring::Point;
use tranship_ring::broadcast::{
    Claim, Claims, ClaimsRw, DeskRw, Limits, Open, Reader, ReaderMemory, Reading, Received,
    SEQUENCES, WITHDRAWN, ahead, open, sequence,
};
use tranship_sys::{crash, futex};

/// The bit of a line's first word for an item that was delivered before.
pub(crate) const REDELIVERED: u64 = 1 << 62;
/// The most lines that one look passes over, in addition to two for each line of the ring.
const LOOKS: u32 = 16;
/// A connection to a producer, before and after it has said where to begin.
pub(crate) struct Seat {
    connection: Connection,
    claims: ClaimsRw,
    shown: Arc<Shown>,
    /// The place in the ring, once the producer has said where to begin.
    place: Option<Place>,
    /// The most items that may be open.
    most: usize,
}

/// Where a consumer is in the ring, and what it holds.
struct Place {
    reader: Reader,
    /// The number that names this consumer in claims.
    number: u16,
    /// The first position whose item may wait.
    position: u64,
    holds: Holds,
}

/// The result of a look at the ring.
pub(crate) enum Looked {
    Nothing,
    /// The item's memory is not in this process. The item goes back to the queue.
    Lost,
    Item(Item),
}

/// How a consumer takes.
#[derive(Clone, Copy)]
pub(crate) struct Takes {
    pub(crate) acknowledges: bool,
}

impl Seat {
    /// Opens the memory that the producer has shown.
    pub(crate) fn new(receiver: Receiver, desk: DeskRw, most: usize) -> Result<Seat, Error> {
        let (connection, claims, count) = Connection::new(receiver, &NAMES, None)?;
        Ok(Seat {
            claims: ClaimsRw::open(claims, count)?,
            shown: Arc::new(Shown {
                desk,
                ring: Arc::clone(&connection.ring),
            }),
            connection,
            place: None,
            most,
        })
    }

    pub(crate) fn producer(&self) -> Peer {
        self.connection.peer()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Says whether the producer has said where to begin.
    pub(crate) fn has_begun(&self) -> bool {
        self.place.is_some()
    }

    /// Returns how many buffers are held, and how many items are open.
    pub(crate) fn has(&self) -> (usize, usize) {
        let opens = self.shown.desk.opens();
        let entries = (0..opens.used()).filter(|entry| opens.word(*entry) != 0);
        let held = self.place.as_ref().map_or(0, |place| place.holds.count());
        (held, entries.count())
    }

    /// Looks, after a sleep in which nothing came, whether the producer lives. Looks also for items that a consumer
    /// that lies has made this one pass over.
    pub(crate) fn look_again(&mut self) {
        self.connection.look_for_death();
        if let Some(place) = &mut self.place {
            let around = u64::from(self.connection.ring.lines().count());
            place.position = place.position.saturating_sub(around);
        }
    }

    /// Receives the producer's words from the channel beside the ring, at most [`WORDS`] of them.
    pub(crate) fn hear(&mut self) -> Result<(), Error> {
        for _ in 0..WORDS {
            match self.connection.hear(self.has_begun())? {
                None => return Ok(()),
                Some(Word::Go(go)) if go.mark != 0 => {
                    let limits = Limits {
                        window: 1,
                        ..Limits::new(go.keep)
                    };
                    self.place = Some(Place {
                        reader: Reader::new(go.position, limits),
                        number: go.mark,
                        position: go.position,
                        holds: Holds::new(go.pool, go.keep),
                    });
                }
                Some(Word::Other(entry)) => self.heard(entry)?,
                Some(_) => return Err(self.broken("a word that no producer says")),
            }
        }
        Ok(())
    }

    fn broken(&self, what: &str) -> Error {
        self.connection.broken(what)
    }

    /// Frees an entry by which an item was handed back.
    fn heard(&mut self, entry: u64) -> Result<(), Error> {
        let opens = self.shown.desk.opens();
        let entry = usize::try_from(entry).unwrap_or(usize::MAX);
        if entry >= opens.used() {
            return Err(self.broken("it names an entry that there is not"));
        }
        match open(opens.word(entry)) {
            Some((_, Open::Back | Open::Rejected)) => opens.clear(entry),
            _ => return Err(self.broken("it has heard what was not said")),
        }
        Ok(())
    }

    /// Says whether an item waits, or the producer has sent news beside the ring.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        let Some(place) = &self.place else {
            return self.connection.has_word();
        };
        self.connection.has_word() || self.waits(place)
    }

    /// Says whether an item waits that can be taken: an entry is free. Says so too if all entries name open items, as
    /// `look` then returns an error.
    #[inline]
    fn waits(&self, place: &Place) -> bool {
        let position = &mut place.position.clone();
        self.next_waiting(position).is_some() && !self.awaits_entries()
    }

    /// Says whether all entries are in use, some of them by items that were handed back and that the producer has not
    /// yet read.
    #[inline]
    pub(crate) fn awaits_entries(&self) -> bool {
        let opens = self.shown.desk.opens();
        let mut entries = (0..self.most).map(|entry| open(opens.word(entry)));
        opens.used() >= self.most && {
            let all = entries.clone().all(|entry| entry.is_some());
            all && entries.any(|entry| !matches!(entry, Some((_, Open::Held))))
        }
    }

    /// Says whether an item waits.
    pub(crate) fn has_item(&self) -> bool {
        let place = self.place.as_ref();
        place.is_some_and(|place| self.next_waiting(&mut place.position.clone()).is_some())
    }

    /// Goes on from a position to the first one whose item waits, and returns its claim's word. `None`: no such
    /// position was found.
    #[inline]
    fn next_waiting(&self, position: &mut u64) -> Option<u64> {
        let (lines, claims) = (self.connection.ring.lines(), self.claims());
        let count = u64::from(lines.count());
        let memory = self.memory();
        for _ in 0..2 * lines.count() + LOOKS {
            let Ok(first) = memory.first(*position);
            let by = match ahead(sequence(*position), first & SEQUENCES) {
                0 if first & WITHDRAWN != 0 => 1,
                0 => match claims.of(*position) {
                    Claim::Free(seen) => return Some(seen),
                    // A reader can write any claim, so a claim is believed for one line only.
                    Claim::Taken(_) | Claim::Gone(_) => 1,
                },
                // The place has a later line already, and the places of all earlier positions have too.
                more @ 1.. => more.unsigned_abs().saturating_sub(count - 1).max(1),
                _ => return None,
            };
            *position = position.wrapping_add(by);
        }
        None
    }

    #[inline(always)]
    fn memory(&self) -> Reading<'_> {
        reading(&self.connection.ring, &self.shown.desk)
    }

    /// Takes the next item that waits.
    #[inline]
    pub(crate) fn look(&mut self, takes: Takes) -> Result<Looked, Error> {
        let Some(place) = &self.place else {
            return Ok(Looked::Nothing);
        };
        let mut position = place.position;
        let mut found = self.next_waiting(&mut position);
        for _ in 0..self.connection.ring.lines().count() {
            let Some(place) = &mut self.place else { break };
            place.position = position;
            let Some(seen) = found else {
                self.rest();
                return Ok(Looked::Nothing);
            };
            if let Some(entry) = self.claim(seen)? {
                return self.take(entry, takes);
            }
            if self.awaits_entries() {
                return Ok(Looked::Nothing);
            }
            // Another consumer was first.
            found = self.next_waiting(&mut position);
        }
        Ok(Looked::Nothing)
    }

    /// Claims the line at the present position, if no other consumer has. Returns the entry that names it.
    // Crash: an entry that names a position that another consumer has taken means nothing.
    #[inline]
    fn claim(&mut self, seen: u64) -> Result<Option<Entry>, Error> {
        let memory = reading(&self.connection.ring, &self.shown.desk);
        let Some(place) = &mut self.place else {
            return Ok(None);
        };
        place
            .holds
            .tidy(&mut self.connection.receiver, &mut place.reader, &memory);
        self.connection.check_room(&place.holds)?;
        let (position, consumer) = (place.position, place.number);
        let (opens, claims) = (self.shown.desk.opens(), self.claims.claims());
        let Some(entry) = opens.enter(position, self.most) else {
            return self.are_open();
        };
        let Ok(()) = place.reader.claim_one(&memory, position);
        crash::point("queue.announced");
        if !claims.take(position, seen, consumer) {
            let Ok(()) = place.reader.rest(&memory);
            opens.clear(entry);
            return Ok(None);
        }
        crash::point("queue.taken");
        Ok(Some(Entry {
            shown: Arc::clone(&self.shown),
            number: entry,
            position,
            consumer,
        }))
    }

    /// Fails with `Limit` if open items use all entries. Otherwise some entries are of items that were handed back, and
    /// the producer has not yet read them.
    #[cold]
    fn are_open(&mut self) -> Result<Option<Entry>, Error> {
        self.hear()?;
        let opens = self.shown.desk.opens();
        let mut entries = (0..self.most).map(|entry| open(opens.word(entry)));
        match entries.all(|entry| matches!(entry, Some((_, Open::Held)))) {
            true => Err(open_enough(self.most)),
            false => Ok(None),
        }
    }

    /// Reads the line that was claimed.
    // Crash: the entry names the item. The producer gives it to another consumer, or reports it.
    #[inline]
    fn take(&mut self, entry: Entry, takes: Takes) -> Result<Looked, Error> {
        let memory = reading(&self.connection.ring, &self.shown.desk);
        let Some(place) = &mut self.place else {
            return Ok(Looked::Nothing);
        };
        let Ok(received) = place.reader.receive(&memory);
        place.position = entry.position.wrapping_add(1);
        let Received::Message(line) = received else {
            // The producer has ended the line: this consumer was stopped for too long, or another one lied.
            let Ok(()) = place.reader.rest(&memory);
            entry.hand_back(Open::Back);
            return Ok(Looked::Lost);
        };
        let Some((word, said)) = line::parse(&line) else {
            return Err(self.broken("a line that no producer writes"));
        };
        let (holds, reader) = (&mut place.holds, &mut place.reader);
        let (connection, desk) = (&mut self.connection, &self.shown.desk);
        let mut body = connection.body(said, holds, reader, desk);
        if let Ok(Taken::Later(due)) = &body
            && connection.receiver.topic_await(due)
        {
            let memory = reading(&connection.ring, desk);
            holds.tidy(&mut connection.receiver, reader, &memory);
            body = connection.body(said, holds, reader, desk);
            connection.receiver.topic_has_done();
        }
        if body.as_ref().is_err_and(|error| !is_put_off(error)) {
            return body.map(|_| Looked::Nothing);
        }
        let memory = reading(&connection.ring, desk);
        let Ok(()) = reader.finish(&memory);
        crash::point("queue.kept");
        self.claims().took(entry.position, |word| {
            let _ = futex::wake(word, 1);
        });
        let body = match body {
            Ok(Taken::Here(body)) => body,
            // The manager has not shown the item's memory, or the memory is gone with its writer.
            Ok(Taken::Later(_) | Taken::Lost) => {
                entry.hand_back(Open::Back);
                return Ok(Looked::Lost);
            }
            // The item has more pieces than this consumer may hold now, or no manager can show its memory.
            Err(error) => {
                entry.hand_back(Open::Back);
                return Err(error);
            }
        };
        let message = Message { word, body };
        let redelivered = line.kind & REDELIVERED != 0;
        let open = match takes.acknowledges {
            true => Some(entry),
            false => {
                entry.clear();
                None
            }
        };
        let item = Item::new(message, redelivered, self.domain(), open);
        Ok(Looked::Item(item))
    }

    /// Says that this consumer is about to sleep, and on which word. The caller then makes a full fence, and looks
    /// again.
    pub(crate) fn arm(&self) -> Point<'_> {
        let claims = self.claims();
        let seen = claims.arm();
        Point::seen(claims.bell(), seen)
    }

    fn claims(&self) -> Claims<'_> {
        self.claims.claims()
    }

    /// Wakes one consumer that sleeps, for an item that this consumer leaves.
    #[cold]
    pub(crate) fn wake_another(&self) {
        self.claims()
            .wake_one(|word| futex::wake(word, 1).unwrap_or(0));
    }

    /// Gives dropped buffers and entries back, before a sleep.
    pub(crate) fn rest(&mut self) {
        let memory = reading(&self.connection.ring, &self.shown.desk);
        if let Some(place) = &mut self.place {
            place
                .holds
                .tidy(&mut self.connection.receiver, &mut place.reader, &memory);
        }
    }

    /// Leaves in order. The table keeps the buffers that this consumer holds. Open items go back to the queue.
    pub(crate) fn leave(mut self) {
        // A producer that is gone gives no item to another consumer.
        if self.connection.gone() == Gone::No {
            self.shown.desk.opens().leave();
        }
        let memory = reading(&self.connection.ring, &self.shown.desk);
        if let Some(place) = &mut self.place {
            let Ok(()) = place.reader.leave(&memory);
            crash::point("queue.left");
        }
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.producer().domain
    }
}

#[cold]
fn open_enough(open: usize) -> Error {
    let text = format!(
        "this consumer has {open} items of one producer that are not acknowledged, as many as it may (ConsumerOptions::unacknowledged): acknowledge some, and receive again"
    );
    Error::new(ErrorKind::Limit, text)
}
