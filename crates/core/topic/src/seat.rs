//! The connection of a subscriber: the ring, the desk, and what it holds.

use crate::line::{self, Said, Wish, Word};
use std::convert::Infallible;
use tranship_core::topics::{Gone, Named};
use tranship_core::{Body, DomainId, Error, ErrorKind, Inline, Message, PoolId, Receiver};
use tranship_ring::Lines;
use tranship_ring::broadcast::{
    BellRo, Desk, DeskRw, Hold, KEPT, Limits, LinesRo, Reader, ReaderMemory, Reading, Received,
    SEQUENCES, ahead, sequence,
};
use tranship_sys::crash;

/// A subscriber's memory: as it is mapped, but that the table counts by the buffers' own handles.
#[derive(Clone, Copy)]
struct Mapped<'a>(Reading<'a>);

impl ReaderMemory for Mapped<'_> {
    type Stop = Infallible;

    #[inline(always)]
    fn first(&self, position: u64) -> Result<u64, Infallible> {
        self.0.first(position)
    }
    #[inline(always)]
    fn word(&self, position: u64, index: usize) -> Result<u64, Infallible> {
        self.0.word(position, index)
    }
    #[inline(always)]
    fn last(&self, position: u64) -> Result<u64, Infallible> {
        self.0.last(position)
    }
    #[inline(always)]
    fn set_win(&self, word: u64) -> Result<(), Infallible> {
        self.0.set_win(word)
    }
    #[inline(always)]
    fn kept(&self, entry: u8) -> Result<u32, Infallible> {
        self.0.kept(entry)
    }
    #[inline(always)]
    fn set_kept(&self, entry: u8, word: u32) -> Result<(), Infallible> {
        self.0.set_kept(entry, word)
    }
    #[inline(always)]
    fn set_more(&self, word: u32) -> Result<(), Infallible> {
        self.0.set_more(word)
    }
    /// The table is this domain's references of the pool, in which the buffer's handle is counted before it is held.
    #[inline(always)]
    fn count(&self, _: u32, _: bool) -> Result<(), Infallible> {
        Ok(())
    }
    #[inline(always)]
    fn fence_acquire(&self) -> Result<(), Infallible> {
        self.0.fence_acquire()
    }
    #[inline(always)]
    fn fence_full(&self) -> Result<(), Infallible> {
        self.0.fence_full()
    }
}

/// A connection to a publisher, before and after it has said where to begin.
pub(crate) struct Seat {
    receiver: Receiver,
    ring: LinesRo,
    bell: BellRo,
    desk: DeskRw,
    /// Since the publisher has said where to begin.
    reading: Option<Place>,
    /// What the publisher has said, while the manager has still to say that its pool can be received from.
    early: Option<Word>,
    /// Looks at what a publisher that is gone has left, since that was seen.
    after_end: Option<u64>,
}

/// Words that one call takes.
const WORDS: u32 = 16;
/// Looks at the ring of a publisher that is gone, beside two for each line.
const LAST_LOOKS: u64 = 16;

/// Where a subscriber is in the ring, and what it holds.
struct Place {
    reader: Reader,
    pool: PoolId,
    keep: u32,
    reliable: bool,
    /// The slot in each entry of `kept` that is in use.
    kept: [Option<u32>; KEPT as usize],
    /// The slots that are held by the table.
    table: Vec<u32>,
    /// A message that was taken out of the ring and could not be held.
    pending: Option<tranship_ring::broadcast::Message>,
}

/// What a look gave.
pub(crate) enum Looked {
    Nothing,
    /// So many messages were missed, as so many looks at lines found.
    Missed {
        count: u64,
        looks: u64,
    },
    /// The memory of a message is not here. The manager was asked for it.
    Lost,
    Message(Message),
}

impl Seat {
    /// Takes what the publisher has shown, and says what this end wishes.
    pub(crate) fn new(mut receiver: Receiver, desk: DeskRw, wish: Wish) -> Result<Seat, Error> {
        let (lines, count, bell) = receiver.topic_ring().ok_or_else(not_shown)?;
        let (ring, bell) = (LinesRo::open(lines, count)?, BellRo::open(bell)?);
        let said = receiver.send_back(&wish.bytes());
        said.map_err(|failed| failed.error)?;
        crash::point("topic.connected");
        Ok(Seat {
            receiver,
            ring,
            bell,
            desk,
            reading: None,
            early: None,
            after_end: None,
        })
    }

    pub(crate) fn bell(&self) -> &BellRo {
        &self.bell
    }

    /// Says whether the publisher has said where to begin.
    pub(crate) fn has_begun(&self) -> bool {
        self.reading.is_some()
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.reading.as_ref().is_some_and(|place| place.reliable)
    }

    pub(crate) fn publisher(&self) -> (DomainId, u32) {
        let peer = self.receiver.topic_peer();
        (peer.domain, peer.pid)
    }

    /// Returns how many buffers the desk and the table say are held.
    pub(crate) fn held(&self) -> usize {
        let kept = |place: &Place| place.kept.iter().flatten().count() + place.table.len();
        self.reading.as_ref().map_or(0, kept)
    }

    /// What has become of the publisher.
    pub(crate) fn gone(&self) -> Gone {
        self.receiver.topic_gone()
    }

    /// Looks whether the publisher lives.
    pub(crate) fn look_for_death(&self) {
        self.receiver.topic_look();
    }

    /// Returns how many looks one call may spend on lines that are missed. An honest ring at rest needs one for each
    /// line. A publisher that lies can have any line show any sequence number.
    pub(crate) fn most_looks(&self) -> u64 {
        2 * u64::from(self.ring.lines().count())
    }

    /// Counts looks that found no message, if the publisher is gone.
    pub(crate) fn looked_in_vain(&mut self, looks: u64) {
        if let Some(after) = &mut self.after_end {
            *after = after.saturating_add(looks);
        }
    }

    /// Says whether the ring of a publisher that is gone may be looked at once more. An honest ring has at most a message
    /// in each line.
    pub(crate) fn may_look_on(&mut self) -> bool {
        let most = self.most_looks() + LAST_LOOKS;
        let after = self.after_end.get_or_insert(0);
        *after = after.saturating_add(1);
        *after <= most
    }

    /// Takes what the publisher has said beside the ring, at most [`WORDS`] words.
    pub(crate) fn hear(&mut self) -> Result<(), Error> {
        for _ in 0..WORDS {
            let word = match self.early.take() {
                Some(word) => Some(word),
                None if !self.receiver.is_ready() => return Ok(()),
                None => match self.receiver.try_recv()? {
                    None => return Ok(()),
                    Some(Message {
                        word,
                        body: Body::Inline(bytes),
                    }) => Word::parse(&bytes, word),
                    Some(_) => None,
                },
            };
            match (word, &mut self.reading) {
                (
                    Some(Word::Go {
                        position,
                        pool,
                        keep,
                        reliable,
                    }),
                    None,
                ) => {
                    if !self.receiver.topic_has(pool) {
                        self.early = word;
                        return Ok(());
                    }
                    self.receiver.topic_await_all(pool);
                    self.reading = Some(Place {
                        reader: Reader::new(position, Limits::new(keep)),
                        pool,
                        keep,
                        reliable,
                        kept: [None; KEPT as usize],
                        table: Vec::new(),
                        pending: None,
                    });
                }
                (Some(Word::Demoted), Some(place)) => place.reliable = false,
                (Some(Word::Expelled), Some(_)) => return Err(expelled()),
                _ => return Err(broken("a word that no publisher says")),
            }
        }
        Ok(())
    }

    /// Waits a short time for the publisher to say where to begin.
    pub(crate) fn await_word(&mut self, most: std::time::Duration) {
        // A word that is there is taken by `hear`.
        if !self.is_ready() {
            std::thread::sleep(most);
        }
    }

    /// Says whether the next line is there, or the publisher has said something beside the ring.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        let Some(place) = &self.reading else {
            // As long as the first word waits for the pool, no later one is taken.
            return self.early.is_none() && self.receiver.is_ready();
        };
        let position = place.reader.cursor();
        let lines: Lines<'_> = self.ring.lines();
        let memory = reading(lines, self.desk.desk());
        let Ok(first) = memory.first(position);
        place.pending.is_some()
            || first != 0 && ahead(sequence(position), first & SEQUENCES) >= 0
            || self.receiver.is_ready()
    }

    /// Looks at the next line. With `latest`, at the newest one that is there.
    #[inline]
    pub(crate) fn look(&mut self, latest: bool) -> Result<Looked, Error> {
        let Seat {
            receiver,
            ring,
            desk,
            reading: Some(place),
            ..
        } = self
        else {
            return Ok(Looked::Nothing);
        };
        let memory = reading(ring.lines(), desk.desk());
        place.tidy(receiver, &memory);
        if let Some(message) = place.pending.take() {
            return place.take(receiver, &memory, message);
        }
        let Ok(received) = place.reader.receive(&memory);
        let mut message = match received {
            Received::Nothing => return Ok(Looked::Nothing),
            Received::Missed(count) => return Ok(Looked::Missed { count, looks: 1 }),
            Received::Message(message) => message,
            // Every message is finished before the next one is looked for.
            Received::Unfinished => return Ok(Looked::Nothing),
        };
        crash::point("topic.claimed");
        let mut skipped = 0;
        // The newest one: those before it are finished as they are skipped.
        while latest && skipped < u64::from(ring.lines().count()) {
            let Ok(next) = place.reader.receive(&memory);
            match next {
                Received::Message(newer) => {
                    let Ok(()) = place.reader.finish(&memory);
                    message = newer;
                    skipped += 1;
                }
                // What was taken first is finished, and the ring looked at again.
                Received::Unfinished => {
                    let Ok(()) = place.reader.finish(&memory);
                    return Ok(missed(skipped + 1));
                }
                Received::Nothing | Received::Missed(_) => break,
            }
        }
        if skipped > 0 {
            place.pending = Some(message);
            return Ok(missed(skipped));
        }
        place.take(receiver, &memory, message)
    }

    /// Claims nothing, before a sleep.
    pub(crate) fn rest(&mut self) {
        if let Some(place) = &mut self.reading {
            let memory = reading(self.ring.lines(), self.desk.desk());
            place.tidy(&mut self.receiver, &memory);
            let Ok(()) = place.reader.rest(&memory);
        }
    }

    /// Leaves in order. What is held stays held, by the table.
    pub(crate) fn leave(mut self) {
        if let Some(place) = &mut self.reading {
            let memory = reading(self.ring.lines(), self.desk.desk());
            let Ok(()) = place.reader.leave(&memory);
            crash::point("topic.left");
        }
    }
}

impl Place {
    /// Gives back entries of the desk whose buffers were dropped. Only this subscriber raises their references from 0
    /// by this desk, so an entry whose slot has none stays without.
    fn tidy(&mut self, receiver: &mut Receiver, memory: &Mapped<'_>) {
        for (entry, kept) in (0u8..).zip(&mut self.kept) {
            if let Some(slot) = *kept
                && !receiver.topic_holds(self.pool, slot)
            {
                let Ok(()) = memory.set_kept(entry, 0);
                *kept = None;
            }
        }
        if !self.table.is_empty() {
            let pool = self.pool;
            self.table.retain(|slot| receiver.topic_holds(pool, *slot));
            if self.table.is_empty() {
                let Ok(()) = self.reader.empty_table(memory, 0);
            }
        }
    }

    /// Makes a message of a line that was taken, and finishes it.
    #[inline]
    fn take(
        &mut self,
        receiver: &mut Receiver,
        memory: &Mapped<'_>,
        line: tranship_ring::broadcast::Message,
    ) -> Result<Looked, Error> {
        let Some((word, said)) = line::parse(&line) else {
            return Err(broken("a line that no publisher writes"));
        };
        let body = match said {
            Said::Inline(bytes, len) => Inline::try_from(&bytes[..len]).ok().map(Body::Inline),
            Said::Buffer(named) => match self.hold(receiver, memory, named) {
                Ok(body) => body,
                Err(error) => {
                    if error == ErrorKind::Limit {
                        self.pending = Some(line);
                    }
                    return Err(error);
                }
            },
        };
        let Ok(()) = self.reader.finish(memory);
        crash::point("topic.kept");
        Ok(match body {
            Some(body) => Looked::Message(Message { word, body }),
            // Its memory went with its writer.
            None => Looked::Lost,
        })
    }

    /// Takes a buffer: counts its handle, then says in the desk that it is held.
    // Crash: the window covers the buffer until `finish`; a death takes the desk and the references off.
    #[inline]
    fn hold(
        &mut self,
        receiver: &mut Receiver,
        memory: &Mapped<'_>,
        named: Named,
    ) -> Result<Option<Body>, Error> {
        if named.id.pool() != self.pool {
            return Err(broken("a line names a buffer of another pool"));
        }
        let Some(buffer) = receiver.topic_take(named)? else {
            return Ok(None);
        };
        crash::point("topic.held");
        let slot = named.id.slot();
        let in_table = u32::try_from(self.table.len()).unwrap_or(u32::MAX);
        let Ok(held) = self.reader.hold(memory, slot, in_table);
        match held {
            Ok(Hold::Entry(entry)) => self.kept[usize::from(entry)] = Some(slot),
            Ok(Hold::Table(slot)) => self.table.push(slot),
            Err(_) => {
                let (held, most) = (in_table + u32::from(KEPT), self.keep + u32::from(KEPT));
                let text = format!(
                    "this subscriber holds {held} buffers, and may hold {most} (TopicOptions::keep): drop some, and receive again"
                );
                return Err(Error::new(ErrorKind::Limit, text));
            }
        }
        Ok(Some(Body::Buffer(buffer)))
    }
}

#[inline(always)]
fn reading<'a>(lines: Lines<'a>, desk: &'a Desk) -> Mapped<'a> {
    Mapped(Reading {
        lines,
        desk,
        table: &[],
    })
}

/// As many looks as messages.
fn missed(count: u64) -> Looked {
    Looked::Missed {
        count,
        looks: count,
    }
}

#[cold]
fn expelled() -> Error {
    let text = "the publisher has ended this subscription: this domain holds more of its buffers than TopicOptions::keep allows";
    Error::new(ErrorKind::PeerGone, text)
}

fn not_shown() -> Error {
    broken("it has shown no ring")
}

fn broken(what: &str) -> Error {
    let text = format!("the publisher broke a rule: {what}");
    Error::new(ErrorKind::PeerViolation, text)
}
