//! A channel by which the program sends: its bytes into the connection.

use crate::bytes::Outgoing;
use crate::driver::Side;
use crate::meet;
use crate::wire::Wire;
use crate::word::{CONTROLS, Hello, Word};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tranship_core::carrier::Outlet;
use tranship_core::{Body, Buffer, Error, ErrorKind, Inline, Message};
use tranship_transport::{FrameBytes, Source};

/// Time between two checks, whatever happens.
const ROUND: Duration = Duration::from_secs(1);
/// Pause while the program has not taken the messages that came back.
const RETRY: Duration = Duration::from_millis(20);
/// Time without any progress after which a closed channel is given up, and the slowest rate of its bytes a second.
const PATIENCE: Duration = Duration::from_secs(600);
const SLOWEST: u64 = 64 << 10;
/// Most messages on their way, whatever the receiver says: as many as a ring has lines.
const MOST: u32 = 1 << 16;
/// Most frames that are read between two looks at anything else.
const HEARD: usize = 256;

pub(crate) struct Sending {
    outlet: Outlet,
    wire: Wire,
    /// Room that the receiver has: messages, and their bytes.
    messages: u64,
    bytes: u64,
    /// Messages that were sent, and those that have arrived.
    sent: u64,
    arrived: u64,
    /// Last frames of the messages that have not arrived.
    under_way: VecDeque<u64>,
    /// Lengths, and their sum, of the messages that the receiver's program has not taken.
    taken: u64,
    lengths: VecDeque<u64>,
    untaken_bytes: u64,
    /// Next message, for which the receiver has no room.
    next: Option<Message>,
    /// Messages of the receiver's program for which there is no room yet.
    said: VecDeque<Message>,
    told: u64,
    /// Number of those messages that the receiver knows to have arrived.
    told_of: u64,
    /// The program has closed its end, or died.
    closing: Option<Word>,
    /// Messages that were sent when the thread checked last.
    seen: u64,
    /// Progress counts at the last progress after the program closed its end, and the time of that.
    progress: Option<([u64; 3], Instant)>,
}

/// Reason for the end: the receiver lacks messages, and never gets them. None: it has everything.
type SendingEnd = Option<Error>;

impl Sending {
    pub(crate) fn new(outlet: Outlet, wire: Wire, theirs: Hello) -> Sending {
        Sending {
            outlet,
            wire,
            messages: theirs.messages.min(MOST).into(),
            bytes: theirs.bytes,
            sent: 0,
            arrived: 0,
            under_way: VecDeque::new(),
            taken: 0,
            lengths: VecDeque::new(),
            untaken_bytes: 0,
            next: None,
            said: VecDeque::new(),
            told: 0,
            told_of: 0,
            closing: None,
            seen: 0,
            progress: None,
        }
    }

    /// Sends the messages of the program, as far as there is room.
    fn take(&mut self) {
        while self.wire.flush() && self.closing.is_none() {
            let Some(message) = self.next_message() else {
                break;
            };
            if !self.has_room(message.len() as u64) {
                self.next = Some(message);
                break;
            }
            self.send(message);
        }
    }

    /// Gives up when the receiver makes no progress: it must not keep the messages that a program has left behind.
    fn look_at_progress(&mut self) -> Result<(), SendingEnd> {
        if self.closing.is_none() && !self.outlet.is_closed() {
            return Ok(());
        }
        let now = [self.wire.sent(), self.arrived, self.taken];
        let (then, since) = *self.progress.get_or_insert((now, Instant::now()));
        if then != now {
            self.progress = Some((now, Instant::now()));
            return Ok(());
        }
        let last = self.lengths.iter().rev().take(self.under_way.len());
        let limit = PATIENCE + Duration::from_secs(last.sum::<u64>() / SLOWEST);
        if since.elapsed() < limit {
            return Ok(());
        }
        let text = format!(
            "{} has taken nothing for {} s after the sender had closed the channel; {} of {} messages were taken",
            self.wire.place,
            limit.as_secs(),
            self.taken,
            self.sent
        );
        tracing::warn!("{text}");
        Err(Error::new(ErrorKind::PeerGone, text).into())
    }

    fn next_message(&mut self) -> Option<Message> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        let why = match self.outlet.try_take() {
            Ok(message) => return message,
            Err(why) => why,
        };
        let word = match why.kind() {
            ErrorKind::PeerGone => Word::End,
            kind => Word::Over {
                kind: kind.number(),
                why: "the sender died or gave up before it closed the channel".to_owned(),
            },
        };
        self.wire.push(&word);
        self.wire.flush();
        self.closing = Some(word);
        None
    }

    fn has_room(&self, bytes: u64) -> bool {
        let messages = self.sent - self.taken;
        let fits = self.untaken_bytes.saturating_add(bytes) <= self.bytes;
        messages < self.messages && (fits || messages == 0)
    }

    fn send(&mut self, message: Message) {
        let (word, bytes) = (message.word, message.len() as u64);
        match message.body {
            Body::Inline(inline) => self.send_inline(word, &inline),
            Body::Buffer(buffer) => self.send_buffer(word, Outgoing::Shared(buffer)),
            Body::BufferMut(buffer) => self.send_buffer(word, Outgoing::Moved(buffer)),
            Body::Aggregate(aggregate) => {
                let pieces = aggregate.pieces().iter();
                let pieces = pieces.map(|piece| Outgoing::Shared(Buffer::clone(piece)));
                self.send_pieces(false, word, bytes, pieces);
            }
            Body::AggregateMut(aggregate) => {
                let pieces = aggregate.into_pieces().into_iter().map(Outgoing::Moved);
                self.send_pieces(true, word, bytes, pieces);
            }
            // No sender sends a release.
            Body::Released(_) => self.send_inline(word, &[]),
        }
        self.sent += 1;
        self.under_way.push_back(self.wire.pushed());
        self.lengths.push_back(bytes);
        self.untaken_bytes += bytes;
    }

    fn send_inline(&mut self, word: u64, inline: &[u8]) {
        let bytes = FrameBytes::from_slice(inline);
        self.wire.push(&Word::Inline(word, bytes));
    }

    fn send_buffer(&mut self, word: u64, buffer: Outgoing) {
        let word = Word::Buffer {
            moved: matches!(buffer, Outgoing::Moved(_)),
            word,
            bytes: buffer.view().len() as u64,
        };
        self.wire.push_with(&word, buffer);
    }

    fn send_pieces(
        &mut self,
        moved: bool,
        word: u64,
        bytes: u64,
        pieces: impl ExactSizeIterator<Item = Outgoing>,
    ) {
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        self.wire.push(&Word::Aggregate {
            moved,
            word,
            pieces: count,
            bytes,
        });
        for piece in pieces {
            let bytes = piece.view().len() as u64;
            self.wire.push_with(&Word::Piece(bytes), piece);
        }
    }

    /// Returns to the program the memory that the other end has released.
    fn note_arrivals(&mut self) {
        let done = self.wire.done();
        let before = self.arrived;
        // A message that the program there has taken has arrived.
        while self.under_way.front().is_some_and(|last| *last <= done) || self.arrived < self.taken
        {
            self.under_way.pop_front();
            self.arrived += 1;
        }
        if self.arrived > before {
            self.outlet.acknowledge(self.arrived);
        }
    }

    /// Hears some of what the receiver says; false: more may be there, of which no later news tells.
    fn hear(&mut self) -> Result<bool, SendingEnd> {
        for _ in 0..HEARD {
            let heard = self.wire.next().map_err(|error| self.gone(error))?;
            match heard {
                None => return Ok(true),
                Some((Word::Taken(messages), 0)) => self.note_taken(messages)?,
                Some((Word::Control(word, bytes), 0)) => {
                    let Ok(inline) = Inline::try_from(&bytes[..]) else {
                        return Err(self.wire.violation("too long".into()).into());
                    };
                    self.note_said(word, Body::Inline(inline))?;
                }
                Some((Word::Released(word), 0)) => self.note_said(word, Body::Released(None))?,
                Some((Word::Ended, 0)) if self.closing == Some(Word::End) => {
                    return Err(None);
                }
                Some((Word::Over { kind, why }, 0)) => {
                    return Err(self.wire.told(kind, &why, ErrorKind::PeerGone).into());
                }
                Some((word, bytes)) => {
                    let text = format!("{word:?} with {bytes} bytes, which no receiver says now");
                    return Err(self.wire.violation(text).into());
                }
            }
        }
        Ok(false)
    }

    /// Returns the error for a connection that is over, or that the receiver has closed.
    fn gone(&self, error: Error) -> Error {
        let missing = self.sent - self.arrived;
        let text = format!(
            "the receiver is gone; {missing} of {} messages may not have reached it",
            self.sent
        );
        match error.kind() {
            ErrorKind::PeerViolation => error,
            _ => Error::because(ErrorKind::PeerGone, text, error),
        }
    }

    fn note_taken(&mut self, messages: u64) -> Result<(), Error> {
        if messages <= self.taken || messages > self.sent {
            let text = format!(
                "it says that {messages} messages were taken, where {} to {} can be",
                self.taken + 1,
                self.sent
            );
            return Err(self.wire.violation(text));
        }
        while self.taken < messages {
            self.taken += 1;
            self.untaken_bytes -= self.lengths.pop_front().unwrap_or(0);
        }
        Ok(())
    }

    fn note_said(&mut self, word: u64, body: Body) -> Result<(), Error> {
        if self.said.len() as u64 >= CONTROLS {
            let text = format!("more than {CONTROLS} words that the program has not taken");
            return Err(self.wire.violation(text));
        }
        self.said.push_back(Message { word, body });
        self.hand_over_what_was_said();
        Ok(())
    }

    fn hand_over_what_was_said(&mut self) {
        while let Some(said) = self.said.front() {
            let is_told = match &said.body {
                Body::Inline(bytes) => self.outlet.send_back(bytes, said.word).is_ok(),
                _ => self.outlet.tell_released(said.word).is_ok(),
            };
            if !is_told {
                break;
            }
            self.said.pop_front();
            self.told += 1;
        }
        // The last report covers all: one at a time waits to be sent.
        if self.told > self.told_of && self.wire.is_idle() {
            let controls = self.told;
            self.told_of = controls;
            self.wire.push(&Word::Told(controls));
        }
    }
}

impl Side for Sending {
    type Over = SendingEnd;

    fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    fn turn(&mut self) -> Result<(), SendingEnd> {
        loop {
            self.wire.flush();
            let has_heard_all = self.hear()?;
            self.hand_over_what_was_said();
            self.note_arrivals();
            self.take();
            self.look_at_progress()?;
            if has_heard_all {
                return Ok(());
            }
        }
    }

    fn stir(&mut self) -> Result<(), SendingEnd> {
        self.take();
        Ok(())
    }

    fn pause(&self) -> Duration {
        match self.said.is_empty() {
            true => ROUND,
            false => RETRY,
        }
    }

    fn is_patient(&mut self) -> bool {
        let sends = std::mem::replace(&mut self.seen, self.sent) != self.sent;
        let is_idle = self.next.is_none() && self.closing.is_none() && self.said.is_empty();
        sends && is_idle && self.wire.is_idle() && !self.outlet.is_awaited()
    }

    fn finish(mut self, over: SendingEnd) {
        match over {
            None => self.outlet.acknowledge(self.sent),
            Some(error) => {
                self.outlet.say_last(self.said.drain(..));
                if error.kind() == ErrorKind::PeerViolation {
                    tracing::warn!(place = self.wire.place, %error, "the channel is closed");
                    meet::refuse(&mut self.wire, error.kind(), &error.to_string());
                }
                self.outlet.end(error);
            }
        }
    }
}
