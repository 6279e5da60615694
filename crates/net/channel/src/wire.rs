//! A connection as a carrier uses it: frames out in order as there is room, frames in, and news of both.

use crate::word::Word;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;
use tranship_core::carrier::REASONS;
use tranship_core::{Error, ErrorKind};
use tranship_sys::epoll::{Epoll, Interest, wait_readable};
use tranship_transport::{Frame, Payload, Place, RecvError, Transport};

/// Time between two checks where nothing tells of news.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Words of another end's: nothing of them moves a cursor or begins a line.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\'' | '"' => write!(f, "{c}")?,
                c => write!(f, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Wire {
    transport: Box<dyn Transport>,
    /// Frames for which there was no room yet.
    out: VecDeque<Frame>,
    /// Frames that the connection has; how many of them the other end has taken, from the first on, and which of the
    /// later ones.
    sent: u64,
    done: u64,
    early: BTreeSet<u64>,
    numbers: Vec<u64>,
    /// The connection is watched for room, too.
    wants_room: bool,
    pub(crate) place: String,
}

impl Wire {
    pub(crate) fn new(transport: Box<dyn Transport>) -> Wire {
        let place = transport.peer_place();
        Wire {
            place: place.unwrap_or_else(|| "this machine".to_owned()),
            transport,
            out: VecDeque::new(),
            sent: 0,
            done: 0,
            early: BTreeSet::new(),
            numbers: Vec::new(),
            wants_room: false,
        }
    }

    pub(crate) fn push(&mut self, word: &Word, payload: Option<Payload>) {
        self.out.push_back(Frame {
            bytes: word.encode(),
            payload: payload.filter(|payload| !payload.is_empty()),
        });
    }

    /// Returns whether all pushed frames are on their way. If the other end is gone, that shows when frames are read.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(frame) = self.out.front() {
            if self.transport.send(frame).is_err() {
                return false;
            }
            self.sent += 1;
            self.out.pop_front();
        }
        true
    }

    /// Returns the number of frames that were pushed.
    pub(crate) fn pushed(&self) -> u64 {
        self.sent + self.out.len() as u64
    }

    /// Returns the number of pushed frames that the other end has, from the first on.
    pub(crate) fn done(&mut self) -> u64 {
        self.transport.done(&mut self.numbers);
        for number in self.numbers.drain(..) {
            // A backend reports frames in any order.
            match number == self.done {
                true => self.done += 1,
                false => _ = self.early.insert(number),
            }
            while self.early.remove(&self.done) {
                self.done += 1;
            }
        }
        self.done
    }

    /// Returns the next frame, if one is there, and how many bytes of a buffer belong to it.
    ///
    /// # Errors
    /// `PeerGone`, `PeerViolation`, with words.
    pub(crate) fn next(&mut self) -> Result<Option<(Word, u64)>, Error> {
        let frame = match self.transport.recv() {
            Ok(Some(frame)) => frame,
            Ok(None) | Err(RecvError::NotNow(_)) => return Ok(None),
            Err(RecvError::Over(error)) => return Err(self.over(error)),
        };
        let word = Word::decode(&frame.bytes);
        let word = word.map_err(|malformed| self.violation(malformed.to_string()))?;
        Ok(Some((word, self.transport.brings() as u64)))
    }

    /// Takes bytes of the last frame's buffer to their place; returns whether all are there.
    ///
    /// # Errors
    /// As [`Wire::next`].
    pub(crate) fn fill(&mut self, place: &Place) -> Result<bool, Error> {
        match self.transport.fill(place) {
            Ok(all) => Ok(all),
            Err(RecvError::NotNow(_)) => Ok(false),
            Err(RecvError::Over(error)) => Err(self.over(error)),
        }
    }

    pub(crate) fn over(&self, error: Error) -> Error {
        match self.transport.why() {
            Some(why) => Error::because(error.kind(), why, error),
            None => error.context(format!("the connection to {} is over", self.place)),
        }
    }

    /// Returns the error for the reason that the other end gave for ending. The other end does not choose the meaning
    /// here: a kind that is not one of the [reasons](REASONS) becomes `otherwise`. So does an orderly end when the
    /// caller waits for more.
    pub(crate) fn told(&self, kind: u16, why: &str, otherwise: ErrorKind) -> Error {
        let shown = Shown(why);
        let known = ErrorKind::from_u16(kind);
        let may = |kind: &ErrorKind| REASONS.contains(kind) && *kind != ErrorKind::PeerGone;
        match known.filter(may) {
            Some(kind) => Error::new(kind, format!("{}: {shown}", self.place)),
            None => {
                let name = known.map_or_else(|| format!("kind {kind}"), |k| k.name().to_owned());
                Error::new(otherwise, format!("{}: {shown} ({name} there)", self.place))
            }
        }
    }

    /// Returns whether nothing waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns the number of frames that the connection has taken.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of bytes of the last frame's buffer that have come.
    pub(crate) fn came(&self) -> usize {
        self.transport.came()
    }

    /// Returns the owner of the other end in words; empty: the owner is not known.
    pub(crate) fn owner(&self) -> String {
        self.transport.peer_owner()
    }

    /// Returns whether the connection is known to be over, also while a buffer's bytes have still to be taken.
    pub(crate) fn is_over(&self) -> bool {
        self.transport.why().is_some()
    }

    /// Returns the error for an other end that broke the protocol.
    pub(crate) fn violation(&self, what: String) -> Error {
        let text = format!("{} broke the protocol of channels: {what}", self.place);
        Error::new(ErrorKind::PeerViolation, text)
    }

    /// Waits for something new from the other end, at most that long.
    pub(crate) fn wait(&mut self, limit: Duration) {
        let waiter = self.transport.waiter();
        if !waiter.arm() {
            return;
        }
        match waiter.descriptor() {
            // Whatever the kernel returns, the caller checks again.
            Some(fd) => _ = wait_readable(fd, Some(limit)),
            None => waiter.wait(limit.min(POLL_INTERVAL)),
        }
    }

    /// Makes an epoll instance report news under the number 0 to one of its waiting threads. False: the connection has
    /// no descriptor to wait for, and the caller checks it now and then.
    pub(crate) fn watch(&mut self, epoll: &Epoll) -> Result<bool, Error> {
        let Some((fd, wants_room)) = self.transport.watched() else {
            return Ok(false);
        };
        self.wants_room = wants_room;
        let watched = epoll.add(fd, 0, interest(wants_room));
        watched.map_err(Error::system("epoll_ctl"))?;
        Ok(true)
    }

    /// Returns whether all news is handled. Later news is reported, if the last was (`was_told`), or if the set of
    /// reported news has changed. `tells`: the other end learns first which buffers have come.
    pub(crate) fn arm(&mut self, epoll: &Epoll, was_told: bool, tells: bool) -> bool {
        if !self.transport.arm(tells) {
            return false;
        }
        if let Some((fd, wants_room)) = self.transport.watched()
            && (was_told || wants_room != self.wants_room)
        {
            self.wants_room = wants_room;
            // This fails for no descriptor that is watched.
            let _ = epoll.modify(fd, 0, interest(wants_room));
        }
        true
    }
}

fn interest(wants_room: bool) -> Interest {
    match wants_room {
        true => Interest::ReadWriteOnce,
        false => Interest::ReadOnce,
    }
}
