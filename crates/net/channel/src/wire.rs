//! A connection as a carrier uses it: frames out in order as there is room, frames in, and news of both.

use crate::word::Word;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tranship_core::carrier::REASONS;
use tranship_core::{Error, ErrorKind, error};
use tranship_sys::epoll::{Epoll, Interest};
use tranship_transport::{FrameBytes, Source, Target, Transport};

/// Text from another end, printed so that no character moves a cursor or begins a line.
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
    out: VecDeque<(FrameBytes, Option<Arc<dyn Source>>)>,
    /// Frames that the connection has.
    sent: u64,
    /// The connection is watched for room, too.
    wants_room: bool,
    pub(crate) place: String,
}

impl Wire {
    pub(crate) fn new(transport: Box<dyn Transport>) -> Wire {
        Wire {
            place: transport.peer_place(),
            transport,
            out: VecDeque::new(),
            sent: 0,
            wants_room: false,
        }
    }

    pub(crate) fn push(&mut self, word: &Word) {
        self.out.push_back((word.encode(), None));
    }

    pub(crate) fn push_with(&mut self, word: &Word, buffer: impl Source + 'static) {
        let buffer = (!buffer.view().is_empty()).then(|| Arc::new(buffer) as Arc<dyn Source>);
        self.out.push_back((word.encode(), buffer));
    }

    /// Returns whether all pushed frames are on their way. If the other end is gone, that shows when frames are read.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some((frame, buffer)) = self.out.front() {
            if self.transport.send(frame, buffer.as_ref()).is_err() {
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
        self.transport.done()
    }

    /// Returns the next frame, if one is there, and how many bytes of a buffer belong to it.
    ///
    /// # Errors
    /// `PeerGone`, `PeerViolation`, with words.
    pub(crate) fn next(&mut self) -> Result<Option<(Word, u64)>, Error> {
        let heard = self.transport.recv().map_err(|error| self.over(error))?;
        let Some((bytes, follows)) = heard else {
            return Ok(None);
        };
        let word = Word::decode(&bytes);
        let word = word.map_err(|malformed| self.violation(malformed.to_string()))?;
        Ok(Some((word, follows as u64)))
    }

    /// Takes bytes of the last frame's buffer to their place; returns whether all are there.
    ///
    /// # Errors
    /// As [`Wire::next`].
    pub(crate) fn fill(&mut self, place: &mut dyn Target) -> Result<bool, Error> {
        self.transport.fill(place).map_err(|error| self.over(error))
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
        let known = ErrorKind::ALL
            .iter()
            .copied()
            .find(|known| known.number() == kind);
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
        // The number is asked for again where it counts. A report that nobody takes stays news, and ends each wait.
        self.transport.done();
        self.transport.wait(limit);
    }

    /// Makes an epoll instance report news under the number 0 to one of its waiting threads.
    pub(crate) fn watch(&mut self, epoll: &Epoll) -> Result<(), Error> {
        let (fd, wants_room) = self.transport.watched();
        self.wants_room = wants_room;
        let watched = epoll.add(fd, 0, interest(wants_room));
        watched.map_err(error::system("epoll_ctl"))
    }

    /// Returns whether all news is handled. Later news is reported, if the last was (`was_told`), or if the set of
    /// reported news has changed. `tells`: the other end learns first which buffers have come.
    pub(crate) fn arm(&mut self, epoll: &Epoll, was_told: bool, tells: bool) -> bool {
        if !self.transport.arm(tells) {
            return false;
        }
        let (fd, wants_room) = self.transport.watched();
        if was_told || wants_room != self.wants_room {
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
