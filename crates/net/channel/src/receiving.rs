//! A channel by which the program receives: bytes out of the connection, into memory of its own.

use crate::bytes::Room;
use crate::driver::Side;
use crate::meet;
use crate::wire::Wire;
use crate::word::{CONTROLS, Hello, Word};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tranship_core::carrier::Inlet;
use tranship_core::{
    AggregateMut, Body, BufferMut, Error, ErrorKind, Inline, MAX_PIECES, Message, Pool,
};
use tranship_transport::FrameBytes;

/// Time between two checks, whatever happens.
const ROUND: Duration = Duration::from_secs(1);
/// Longest time that an end that is over may take to say so.
const LINGER: Duration = Duration::from_secs(5);
/// Pause of an end that is over before it checks again.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time that a message that has begun may bring no more bytes: twice the time that a lost connection has to
/// come back.
const STALLED: Duration = Duration::from_secs(20);
/// Longest wait of an aggregate for memory that only the aggregate itself holds.
const IN_VAIN: Duration = Duration::from_secs(2);

pub(crate) struct Receiving {
    inlet: Inlet,
    wire: Wire,
    pool: Pool,
    /// Room that the sender was told of: messages, and their bytes.
    messages: u64,
    bytes: u64,
    /// The number of messages that came, and the lengths of those that the program has not taken, with their sum.
    came: u64,
    lengths: VecDeque<u64>,
    untaken_bytes: u64,
    /// The number of messages that the program has taken, the number that the sender was told of, and the bytes of the
    /// others.
    taken: u64,
    told: u64,
    untold_bytes: u64,
    arriving: Option<Arriving>,
    /// Buffer that is announced, for which there is no memory yet; and the result of the thread's wait for it.
    wanted: Option<Wanted>,
    supplied: Option<Result<BufferMut, Error>>,
    list: Option<List>,
    /// Messages that the program has sent back, and those of them for which the sender's end has room again.
    said: u64,
    heard: u64,
    /// Frames that came. Then the state of a message that has begun at its last progress, and the time of that.
    frames: u64,
    progress: Option<((u64, usize), Instant)>,
}

/// A buffer whose bytes come.
struct Arriving {
    buffer: BufferMut,
    what: What,
}

struct Wanted {
    bytes: u64,
    len: usize,
    what: What,
    since: Instant,
}

#[derive(Clone, Copy)]
enum What {
    Message { moved: bool, word: u64 },
    Piece,
}

/// An aggregate whose pieces come.
struct List {
    word: u64,
    pieces: u32,
    bytes: u64,
    /// No other thread has the pieces: those of a shared aggregate are frozen at its end.
    aggregate: AggregateMut,
    moved: bool,
}

/// Reason for the end.
pub(crate) enum ReceivingEnd {
    /// The sender has closed the channel, and all its messages are here.
    Closed,
    /// The program has closed its end.
    Unwanted,
    Lost(Error),
}

impl From<Error> for ReceivingEnd {
    fn from(error: Error) -> ReceivingEnd {
        ReceivingEnd::Lost(error)
    }
}

impl Receiving {
    pub(crate) fn new(inlet: Inlet, wire: Wire, pool: Pool, ours: Hello) -> Receiving {
        Receiving {
            inlet,
            wire,
            pool,
            messages: ours.messages.into(),
            bytes: ours.bytes,
            came: 0,
            lengths: VecDeque::new(),
            untaken_bytes: 0,
            taken: 0,
            told: 0,
            untold_bytes: 0,
            arriving: None,
            wanted: None,
            supplied: None,
            list: None,
            said: 0,
            heard: 0,
            frames: 0,
            progress: None,
        }
    }

    /// Ends a message that was only announced: others may wait for the memory that is kept for it.
    fn look_at_progress(&mut self) -> Result<(), ReceivingEnd> {
        let begun = self.arriving.is_some() || self.list.is_some();
        if !begun || self.wanted.is_some() {
            self.progress = None;
            return Ok(());
        }
        let now = (self.frames, self.wire.came());
        let (then, since) = *self.progress.get_or_insert((now, Instant::now()));
        if then != now {
            self.progress = Some((now, Instant::now()));
        } else if since.elapsed() >= STALLED {
            let (place, limit) = (&self.wire.place, STALLED.as_secs());
            let text =
                format!("{place} has begun a message, and sent nothing more of it for {limit} s");
            return Err(Error::new(ErrorKind::Limit, text).into());
        }
        Ok(())
    }

    /// Sends the messages that the program sent back before it released its end.
    fn leave(&mut self) {
        let since = Instant::now();
        while since.elapsed() < LINGER {
            self.carry_what_was_said();
            if self.wire.flush() && self.may_say() {
                return; // all of it
            }
            // While the bytes of a frame are not taken, no further frame can be read.
            let heard = match self.arriving.is_some() || self.wanted.is_some() {
                true => Ok(None),
                false => self.wire.next(),
            };
            match heard {
                Ok(None) => self.wire.wait(LOOK),
                Ok(Some((Word::Told(controls), 0))) if self.note_heard(controls).is_ok() => {}
                _ => return,
            }
        }
    }

    fn hear(&mut self, word: Word, brings: u64) -> Result<(), ReceivingEnd> {
        let carried = match &word {
            Word::Buffer { bytes, .. } | Word::Piece(bytes) => *bytes,
            _ => 0,
        };
        let in_list = matches!(word, Word::Piece(_)) == self.list.is_some();
        if carried != brings || !(in_list || matches!(word, Word::Told(_) | Word::Over { .. })) {
            let text = format!("{word:?} with {brings} bytes, which no sender says now");
            return Err(self.wire.violation(text).into());
        }
        match word {
            Word::Inline(word, bytes) => {
                self.count(bytes.len() as u64)?;
                let Ok(inline) = Inline::try_from(&bytes[..]) else {
                    return Err(self.wire.violation("too long".into()).into());
                };
                self.deliver(word, Body::Inline(inline))?;
            }
            Word::Buffer { moved, word, bytes } => {
                self.count(bytes)?;
                self.expect(bytes, What::Message { moved, word });
            }
            Word::Aggregate {
                moved,
                word,
                pieces,
                bytes,
            } => self.begin_list(word, pieces, bytes, moved)?,
            Word::Piece(bytes) => self.expect_piece(bytes)?,
            Word::End => return Err(ReceivingEnd::Closed),
            Word::Told(controls) => self.note_heard(controls)?,
            Word::Over { kind, why } => {
                return Err(self.wire.told(kind, &why, ErrorKind::PeerDied).into());
            }
            word => {
                let text = format!("{word:?}, which no sender says");
                return Err(self.wire.violation(text).into());
            }
        }
        Ok(())
    }

    /// Counts a message that comes, for which there must be room.
    fn count(&mut self, bytes: u64) -> Result<(), Error> {
        self.note_taken();
        let untaken = self.came - self.told;
        let most = self.bytes;
        // The room that the sender could know of.
        let known = self.untaken_bytes + self.untold_bytes;
        let fits = known.saturating_add(bytes) <= most || untaken == 0;
        if untaken >= self.messages || !fits || bytes > most {
            let text = format!(
                "a message of {bytes} bytes over its credit: it has {untaken} of {} messages and {known} of {most} bytes out",
                self.messages
            );
            return Err(self.wire.violation(text));
        }
        self.came += 1;
        self.lengths.push_back(bytes);
        self.untaken_bytes += bytes;
        Ok(())
    }

    fn begin_list(&mut self, word: u64, pieces: u32, bytes: u64, moved: bool) -> Result<(), Error> {
        if pieces as usize > MAX_PIECES {
            let text = format!("an aggregate of {pieces} pieces, the limit is {MAX_PIECES}");
            return Err(self.wire.violation(text));
        }
        self.count(bytes)?;
        self.list = Some(List {
            word,
            pieces,
            bytes,
            aggregate: AggregateMut::new(),
            moved,
        });
        self.end_list()
    }

    fn expect_piece(&mut self, bytes: u64) -> Result<(), ReceivingEnd> {
        let left = self.list.as_ref().map_or(0, |list| list.bytes);
        if bytes > left {
            let text = format!("a piece of {bytes} bytes in an aggregate that has {left} left");
            return Err(self.wire.violation(text).into());
        }
        self.expect(bytes, What::Piece);
        Ok(())
    }

    fn end_list(&mut self) -> Result<(), Error> {
        let Some(list) = self.list.take_if(|list| list.pieces == 0) else {
            return Ok(());
        };
        if list.bytes > 0 {
            let text = format!("an aggregate whose pieces lack {} bytes", list.bytes);
            return Err(self.wire.violation(text));
        }
        let body = match list.moved {
            true => Body::AggregateMut(list.aggregate),
            false => Body::Aggregate(list.aggregate.freeze()),
        };
        self.deliver(list.word, body)
    }

    fn expect(&mut self, bytes: u64, what: What) {
        self.wanted = Some(Wanted {
            bytes,
            len: usize::try_from(bytes).unwrap_or(usize::MAX),
            what,
            since: Instant::now(),
        });
    }

    /// Makes room for the bytes of a buffer that is announced. False if there is none, perhaps because the program
    /// holds all of its pool.
    fn find_memory(&mut self) -> Result<bool, ReceivingEnd> {
        let Some(Wanted {
            bytes,
            len,
            what,
            since,
        }) = self.wanted
        else {
            self.supplied = None;
            return Ok(true);
        };
        let supplied = self.supplied.take().filter(|memory| match memory {
            Ok(buffer) => buffer.len() == len,
            Err(_) => true,
        });
        let error = match supplied.unwrap_or_else(|| self.pool.try_alloc(len)) {
            Ok(buffer) => {
                self.wanted = None;
                self.arriving = Some(Arriving { buffer, what });
                return Ok(true);
            }
            Err(error) => error,
        };
        if !waits(error.kind()) {
            let text = format!("a message of {bytes} bytes came, for which there is no memory");
            let kind = error.kind();
            let why = Error::because(kind, text, error);
            meet::refuse(&mut self.wire, kind, &why.to_string());
            return Err(why.into());
        }
        if self.wire.is_over() {
            let over = self.wire.over(ErrorKind::PeerGone.into());
            return Err(self.gone(over).into());
        }
        if since.elapsed() >= IN_VAIN && self.has_only_the_list() {
            return Err(self.too_large(error));
        }
        Ok(false)
    }

    /// Returns whether only the arriving aggregate has memory of the pool: then nothing will become free. A quota may
    /// still be raised.
    fn has_only_the_list(&self) -> bool {
        let stats = self.pool.stats();
        if stats.quota_bytes < self.pool.max_bytes() {
            return false;
        }
        let Some(list) = &self.list else {
            return false;
        };
        stats.allocs.saturating_sub(stats.frees) == list.aggregate.pieces().len() as u64
    }

    fn too_large(&mut self, error: Error) -> ReceivingEnd {
        let (come, left) = self
            .list
            .as_ref()
            .map_or((0, 0), |list| (list.aggregate.pieces().len(), list.pieces));
        let text = format!(
            "an aggregate of {} pieces does not fit the pool of {} bytes: it is full with {come} of them",
            come as u64 + u64::from(left),
            self.pool.max_bytes()
        );
        let why = Error::because(ErrorKind::TooLarge, text, error);
        meet::refuse(&mut self.wire, ErrorKind::TooLarge, &why.to_string());
        why.into()
    }

    /// Takes the bytes of a buffer that have come; false: not all have.
    fn finish_buffer(&mut self) -> Result<bool, ReceivingEnd> {
        let Some(arriving) = &mut self.arriving else {
            return Ok(true);
        };
        if !arriving.buffer.is_empty() {
            let filled = self.wire.fill(&mut Room(&mut arriving.buffer));
            if !filled.map_err(|error| self.gone(error))? {
                return Ok(false);
            }
        }
        let Some(Arriving { buffer, what }) = self.arriving.take() else {
            return Ok(true);
        };
        match what {
            What::Message { moved: false, word } => {
                self.deliver(word, Body::Buffer(buffer.freeze()))?;
            }
            What::Message { moved: true, word } => self.deliver(word, Body::BufferMut(buffer))?,
            What::Piece => {
                if let Some(list) = &mut self.list {
                    list.pieces -= 1;
                    list.bytes -= buffer.len() as u64;
                    // The list has room for the largest number of pieces.
                    let _ = list.aggregate.push_back(buffer);
                }
                self.end_list()?;
            }
        }
        Ok(true)
    }

    fn deliver(&mut self, word: u64, body: Body) -> Result<(), Error> {
        match self.inlet.try_send(Message { word, body }) {
            Ok(()) => Ok(()),
            // The next check finds that the program is gone.
            Err(failed) if failed.kind() == ErrorKind::PeerGone => Ok(()),
            Err(failed) => Err(failed.error),
        }
    }

    /// Counts messages that the program has taken as room for new ones.
    fn note_taken(&mut self) {
        let taken = self.inlet.taken();
        while self.taken < taken {
            self.taken += 1;
            let bytes = self.lengths.pop_front().unwrap_or(0);
            self.untaken_bytes -= bytes;
            self.untold_bytes += bytes;
        }
        let untold = self.taken - self.told;
        let much = untold >= self.messages.div_ceil(4) || self.untold_bytes >= self.bytes / 4;
        // The last report covers all: one at a time waits to be sent.
        if untold > 0 && self.wire.is_idle() && (much || self.taken == self.came) {
            let messages = self.taken;
            (self.told, self.untold_bytes) = (messages, 0);
            self.wire.push(&Word::Taken(messages));
        }
    }

    /// Carries the program's messages to the sender's end, as far as that end has room.
    fn carry_what_was_said(&mut self) {
        while self.may_say() {
            let Ok(Some(message)) = self.inlet.try_control() else {
                return;
            };
            let word = message.word;
            let word = match message.body {
                Body::Inline(inline) => Word::Control(word, FrameBytes::from_slice(&inline)),
                Body::Released(_) => Word::Released(word),
                // Any other message is no message to carry, or a lie of our own process.
                _ => continue,
            };
            self.wire.push(&word);
            self.said += 1;
        }
    }

    /// Returns whether the sender's end has room for more of that.
    fn may_say(&self) -> bool {
        self.said - self.heard < CONTROLS
    }

    fn note_heard(&mut self, controls: u64) -> Result<(), Error> {
        if controls <= self.heard || controls > self.said {
            let text = format!(
                "it says that its program was told {controls} words, where {} to {} can be",
                self.heard + 1,
                self.said
            );
            return Err(self.wire.violation(text));
        }
        self.heard = controls;
        Ok(())
    }

    /// Returns the error for a connection that is over without an announced end.
    fn gone(&self, error: Error) -> Error {
        let text = "the sender died, or the connection to it did, before it closed the channel; what came may not be all";
        match error.kind() {
            ErrorKind::PeerViolation => error,
            _ => Error::because(ErrorKind::PeerDied, text, error),
        }
    }
}

impl Side for Receiving {
    type Over = ReceivingEnd;

    fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    fn turn(&mut self) -> Result<(), ReceivingEnd> {
        // The number means nothing here. A carrier whose report nobody takes has news for ever.
        self.wire.done();
        loop {
            self.stir()?;
            if !self.find_memory()? || !self.finish_buffer()? {
                return self.look_at_progress();
            }
            let heard = self.wire.next().map_err(|error| self.gone(error))?;
            match heard {
                Some((word, brings)) => {
                    self.frames += 1;
                    self.hear(word, brings)?;
                }
                None => return self.look_at_progress(),
            }
        }
    }

    fn stir(&mut self) -> Result<(), ReceivingEnd> {
        if self.inlet.is_gone() {
            return Err(ReceivingEnd::Unwanted);
        }
        self.wire.flush();
        self.note_taken();
        self.carry_what_was_said();
        self.wire.flush();
        Ok(())
    }

    fn pause(&self) -> Duration {
        ROUND
    }

    fn lacks(&self) -> Option<(Pool, usize)> {
        let wanted = self.wanted.as_ref()?;
        Some((self.pool.clone(), wanted.len))
    }

    fn supply(&mut self, memory: Result<BufferMut, Error>) {
        self.supplied = Some(memory);
    }

    fn finish(mut self, over: ReceivingEnd) {
        match over {
            ReceivingEnd::Unwanted => self.leave(),
            ReceivingEnd::Closed => {
                self.wire.push(&Word::Ended);
                let since = Instant::now();
                // Messages that come meanwhile do not matter; the end of the sender does.
                while !self.wire.flush() && self.wire.next().is_ok() && since.elapsed() < LINGER {
                    self.wire.wait(LOOK);
                }
                self.inlet.close();
            }
            ReceivingEnd::Lost(error) => {
                if matches!(error.kind(), ErrorKind::PeerViolation | ErrorKind::Limit) {
                    tracing::warn!(place = self.wire.place, %error, "the channel is closed");
                    meet::refuse(&mut self.wire, error.kind(), &error.to_string());
                }
                self.inlet.end(error);
            }
        }
    }
}

/// Returns whether there may be memory later.
fn waits(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::OutOfMemory | ErrorKind::TimedOut | ErrorKind::ManagerAway | ErrorKind::Quota
    )
}
