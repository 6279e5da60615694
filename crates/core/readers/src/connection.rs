//! A reader's connection to one writer: the ring, the writer's words beside it, and the buffers that the reader holds.

use crate::line::Said;
use crate::pieces;
use crate::words::Word;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Gone, Holds, Named, Peer, Taken};
use tranship_core::{Aggregate, Body, Buffer, Error, ErrorKind, Inline, Message, Receiver};
use tranship_ring::broadcast::{DeskRw, LinesRo, Reader, Reading};
use tranship_sys::crash;

/// The most words that one call takes.
pub const WORDS: u32 = 16;
/// The most looks at the ring of a writer that is gone, in addition to two for each line.
const LAST_LOOKS: u64 = 16;
/// The shortest and the longest time between two looks for a writer's first word.
const PAUSE: Duration = Duration::from_micros(200);
const LONG_PAUSE: Duration = Duration::from_millis(20);

/// The names of the two ends.
#[derive(Debug)]
pub struct Names {
    /// The end that sends.
    pub writer: &'static str,
    /// The end that receives.
    pub reader: &'static str,
}

/// A connection to a writer, before and after it has said where to begin.
#[derive(Debug)]
pub struct Connection {
    /// The channel.
    pub receiver: Receiver,
    /// The writer's lines.
    pub ring: Arc<LinesRo>,
    names: &'static Names,
    peer: Peer,
    /// When the connection was made.
    since: Instant,
    /// The writer's first word, until the manager opens the writer's pool.
    early: Option<Word>,
    /// The number of looks at the ring since this end saw that the writer is gone.
    after_end: Option<u64>,
}

impl Connection {
    /// Opens the memory that the writer has shown, and tells the writer this end's wish, if it has one. Returns also
    /// the writer's bell or its claims, and the number of its lines.
    ///
    /// # Errors
    /// `PeerViolation` if the writer has shown something else; `PeerGone`; `System`.
    pub fn new(
        mut receiver: Receiver,
        names: &'static Names,
        wish: Option<u64>,
    ) -> Result<(Connection, OwnedFd, u32), Error> {
        let shown = receiver.topic_ring();
        let (lines, count, bell) = shown.ok_or_else(|| names.broken("it has shown no ring"))?;
        let ring = Arc::new(LinesRo::open(lines, count)?);
        if let Some(wish) = wish {
            let said = receiver.send_back((&[], wish));
            said.map_err(|failed| failed.error)?;
        }
        crash::point("readers.connected");
        let connection = Connection {
            peer: receiver.topic_peer(),
            receiver,
            ring,
            names,
            since: Instant::now(),
            early: None,
            after_end: None,
        };
        Ok((connection, bell, count))
    }

    /// Returns the writer.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns how long to wait for the writer's first word before the next look. The pauses grow with the wait.
    pub fn word_pause(&self) -> Duration {
        (self.since.elapsed() / 8).clamp(PAUSE, LONG_PAUSE)
    }

    /// Returns whether the writer has ended or died.
    pub fn gone(&self) -> Gone {
        self.receiver.topic_gone()
    }

    /// Looks whether the writer lives.
    pub fn look_for_death(&self) {
        self.receiver.topic_look();
    }

    /// Returns how many looks one call may spend on lines that hold nothing. An honest ring at rest needs one for each
    /// line. A writer that lies can make any line show any sequence number.
    pub fn most_looks(&self) -> u64 {
        2 * u64::from(self.ring.lines().count())
    }

    /// Counts looks that found nothing, if the writer is gone.
    pub fn looked_in_vain(&mut self, looks: u64) {
        if let Some(after) = &mut self.after_end {
            *after = after.saturating_add(looks);
        }
    }

    /// Says whether one more look at the ring of a writer that is gone is allowed. An honest ring has at most a message
    /// in each line.
    pub fn may_look_on(&mut self) -> bool {
        let most = self.most_looks() + LAST_LOOKS;
        let after = self.after_end.get_or_insert(0);
        *after = after.saturating_add(1);
        *after <= most
    }

    /// Says whether the writer has let this end begin, and the manager has still to open its pool. A writer that is gone
    /// may have published until its end.
    pub fn awaits_pool(&self) -> bool {
        self.early.is_some()
    }

    /// Says whether a word of the writer, beside the ring, can be taken now.
    #[inline]
    pub fn has_word(&self) -> bool {
        // No later word is taken as long as the first one waits for the pool.
        self.early.is_none() && self.receiver.is_ready()
    }

    /// Takes the writer's next word beside the ring. The first one is [`Word::Go`], and no later one may be.
    ///
    /// # Errors
    /// `PeerViolation`; `PeerGone` if the writer has ended the connection; those of the channel.
    pub fn hear(&mut self, has_begun: bool) -> Result<Option<Word>, Error> {
        let word = match self.early.take() {
            Some(word) => Some(word),
            None if !self.receiver.is_ready() => return Ok(None),
            None => match self.receiver.try_recv()? {
                None => return Ok(None),
                Some(Message {
                    word,
                    body: Body::Inline(bytes),
                }) => Word::parse(&bytes, word),
                Some(_) => None,
            },
        };
        match (word, has_begun) {
            (Some(Word::Go(go)), false) => {
                // If the manager will not open the pool any more, then its memory went with the writer.
                match self.receiver.topic_awaits(go.pool) {
                    true => {
                        self.early = word;
                        Ok(None)
                    }
                    false => Ok(word),
                }
            }
            (Some(Word::Other(_)), true) => Ok(word),
            (Some(Word::Expelled), true) => Err(self.expelled()),
            _ => Err(self.broken("a word that does not belong here")),
        }
    }

    /// Takes the content of a line. Does not wait.
    ///
    /// # Errors
    /// `Limit` if this reader holds as many buffers as it may; `ChunkPending` if no manager can be reached that could
    /// show the memory; `PeerViolation` for a line that no honest writer writes.
    // Crash: the window covers the buffers until the message is finished; a death removes the desk and the references.
    #[inline(always)]
    pub fn body(
        &mut self,
        said: Said,
        holds: &mut Holds,
        reader: &mut Reader,
        desk: &DeskRw,
    ) -> Result<Taken<Body>, Error> {
        Ok(match said {
            Said::Inline(bytes, len) => {
                let bytes = Inline::try_from(&bytes[..len]);
                let too_long = |_| self.broken("a line of more bytes than it holds");
                Taken::Here(Body::Inline(bytes.map_err(too_long)?))
            }
            Said::Buffer(named) => self.hold(named, holds, reader, desk)?.map(Body::Buffer),
            Said::List(named) => self
                .hold_all(named, holds, reader, desk)?
                .map(Body::Aggregate),
        })
    }

    #[inline(always)]
    fn hold(
        &mut self,
        named: Named,
        holds: &mut Holds,
        reader: &mut Reader,
        desk: &DeskRw,
    ) -> Result<Taken<Buffer>, Error> {
        if named.id.pool() != holds.pool() {
            return Err(self.broken("a line names a buffer of another pool"));
        }
        self.check_room(holds)?;
        let memory = reading(&self.ring, desk);
        holds.hold(&mut self.receiver, reader, &memory, named)
    }

    /// Takes an aggregate: its list, which is copied once, then each piece. The list is not kept.
    #[cold]
    fn hold_all(
        &mut self,
        named: Named,
        holds: &mut Holds,
        reader: &mut Reader,
        desk: &DeskRw,
    ) -> Result<Taken<Aggregate>, Error> {
        if named.id.pool() != holds.pool() {
            return Err(self.broken("a line names a buffer of another pool"));
        }
        let list = match self.receiver.topic_take(named)? {
            Taken::Here(list) => list,
            Taken::Later(due) => return Ok(Taken::Later(due)),
            Taken::Lost => return Ok(Taken::Lost),
        };
        let pieces = topics::read_list(&list, pieces::MOST as usize)
            .ok_or_else(|| self.broken("a list of pieces that no writer writes"))?;
        let (count, most) = (pieces.len(), holds.most());
        if count > most {
            // The aggregate could never be held, whatever the program drops.
            return Err(self.broken(&format!(
                "a message of {count} pieces, of which a reader may hold {most}"
            )));
        }
        let mut held = Vec::with_capacity(count);
        for piece in pieces {
            match self.hold(piece, holds, reader, desk)? {
                Taken::Here(buffer) => held.push(buffer),
                Taken::Later(due) => return Ok(Taken::Later(due)),
                Taken::Lost => return Ok(Taken::Lost),
            }
        }
        Ok(Taken::Here(topics::aggregate(held)))
    }

    /// Checks whether this reader may hold one buffer more.
    ///
    /// # Errors
    /// `Limit`.
    #[inline]
    pub fn check_room(&self, holds: &Holds) -> Result<(), Error> {
        match holds.count() < holds.most() {
            true => Ok(()),
            false => Err(self.holds_enough(holds.count())),
        }
    }

    #[cold]
    fn holds_enough(&self, held: usize) -> Error {
        let Names { writer, reader } = self.names;
        let text = format!(
            "this {reader} holds {held} buffers of one {writer}, as many as it may (`keep` of the {writer}'s options): drop some, and receive again"
        );
        Error::new(ErrorKind::Limit, text)
    }

    #[cold]
    fn expelled(&self) -> Error {
        let writer = self.names.writer;
        let text = format!(
            "the {writer} has ended this connection: this domain holds more of its buffers than was agreed (`keep` of the {writer}'s options)"
        );
        Error::new(ErrorKind::PeerGone, text)
    }

    /// Makes the error of a writer that broke a rule.
    #[cold]
    pub fn broken(&self, what: &str) -> Error {
        self.names.broken(what)
    }
}

/// Says whether, after this error, the same message or item is still the next one.
pub fn is_put_off(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Limit | ErrorKind::ChunkPending)
}

/// Returns the memory that a reader reads and writes.
#[inline(always)]
pub fn reading<'a>(ring: &'a LinesRo, desk: &'a DeskRw) -> Reading<'a> {
    Reading {
        lines: ring.lines(),
        desk: desk.desk(),
        table: &[],
    }
}

impl Names {
    fn broken(&self, what: &str) -> Error {
        let writer = self.writer;
        let text = format!("the {writer} broke a rule: {what}");
        Error::new(ErrorKind::PeerViolation, text)
    }
}
