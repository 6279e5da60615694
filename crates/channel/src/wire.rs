//! A connection as a carrier uses it: frames out in order as there is room, frames in, and waiting for both and for the program.

use crate::word::Word;
use std::collections::VecDeque;
use std::time::Duration;
use tranship_bulk::backend::{Frame, Payload, Place, RecvError, Transport};
use tranship_core::{Error, Kind, PollItem, poll};
use tranship_sys::epoll::wait_readable;

/// How long to wait where nothing tells of news.
const NAP: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Wire {
    transport: Box<dyn Transport>,
    /// What there was no room for yet.
    out: VecDeque<Frame>,
    /// Frames that the connection has; how many of them the other end has taken.
    sent: u64,
    done: u64,
    numbers: Vec<u64>,
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
            numbers: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, word: &Word, payload: Option<Payload>) {
        self.out.push_back(Frame {
            bytes: word.encode(),
            payload: payload.filter(|payload| !payload.is_empty()),
            ..Frame::default()
        });
    }

    /// Whether all that was pushed is on its way. That the other end is gone shows in what comes.
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

    /// How many frames were pushed.
    pub(crate) fn pushed(&self) -> u64 {
        self.sent + self.out.len() as u64
    }

    /// How many of them the other end has, from the first on.
    pub(crate) fn done(&mut self) -> u64 {
        self.transport.done(&mut self.numbers);
        self.done += self.numbers.drain(..).count() as u64;
        self.done
    }

    /// The next frame, if one is there, and how many bytes of a buffer belong to it.
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

    /// Takes bytes of the last frame's buffer to their place; whether all are there.
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

    fn over(&self, error: Error) -> Error {
        match self.transport.why() {
            Some(why) => Error::because(error.kind(), why, error),
            None => error.context(format!("the connection to {} is over", self.place)),
        }
    }

    /// The other end did what it must not.
    pub(crate) fn violation(&self, what: String) -> Error {
        let text = format!("{} broke the protocol of channels: {what}", self.place);
        Error::new(Kind::PeerViolation, text)
    }

    /// Waits for something new from the other end, or from the program, at most that long.
    pub(crate) fn wait(&mut self, program: Option<PollItem<'_>>, limit: Duration) {
        let waiter = self.transport.waiter();
        if !waiter.arm() {
            return;
        }
        // Whatever the kernel says, the caller looks again.
        match (waiter.descriptor(), program) {
            (Some(fd), Some(program)) => {
                if poll(&mut [program, PollItem::readable(&fd)], Some(limit)).is_err() {
                    std::thread::sleep(NAP);
                }
            }
            (Some(fd), None) => _ = wait_readable(fd, Some(limit)),
            (None, _) => waiter.wait(limit.min(NAP)),
        }
        waiter.disarm();
    }
}
