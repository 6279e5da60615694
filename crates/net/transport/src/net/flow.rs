//! Records of a session: those that go out, their order, and those that have come. The states are in `states`, the data
//! of one connection in `link`.

use super::line::Line;
use super::link::{Link, Look, Waits, Writing};
use super::states::{Coming, Connection, Farewell, News, Over, Program};
use super::wire::{FrameKind, Header};
use crate::{FrameBytes, Source, Target};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

/// Frames received before the sender is told.
const TELL_EVERY: u32 = 32;

/// Most bytes that go out in one turn, however fast the other end takes them.
const WRITE_BYTES: usize = 32 << 20;

/// A frame of ours.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub bytes: FrameBytes,
    pub buffer: Option<Arc<dyn Source>>,
}

/// A frame that the program has, whose buffer's bytes have not all come.
#[derive(Debug)]
pub(super) struct Given {
    pub frame_bytes: usize,
    pub payload_bytes: usize,
    pub coming: Coming,
}

/// State of a session.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) connection: Connection<Link>,
    /// Counts connections, so that an old one's news is not taken for the new one's.
    pub(super) lines: u64,
    pub(super) program: Program,
    /// Frames that the other end's program has not taken, and how many came before.
    pub(super) out: VecDeque<Outgoing>,
    pub(super) first: u64,
    pub(super) taken: u64,
    pub(super) news: News,
    pub(super) given: Option<Given>,
    /// The program's last look found something.
    pub(super) has_found: bool,
    /// There may be something that the socket does not show.
    pub(super) is_rung: bool,
    /// The timer thread knows that output waits for room.
    pub(super) is_watched: bool,
}

impl Given {
    pub(super) fn new(frame_bytes: usize, payload_bytes: usize) -> Given {
        Given {
            frame_bytes,
            payload_bytes,
            coming: Coming::Bytes(0),
        }
    }

    pub(super) fn came(&self) -> usize {
        match self.coming {
            Coming::Bytes(came) => came,
            Coming::Frame => 0,
        }
    }
}

impl Inner {
    pub(super) fn new(now: Instant) -> Inner {
        Inner {
            connection: Connection::New,
            lines: 0,
            program: Program::Looks(now),
            out: VecDeque::new(),
            first: 0,
            taken: 0,
            news: News::Nothing,
            given: None,
            has_found: true,
            is_rung: false,
            is_watched: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.connection.over().is_some()
    }

    /// Continues over another connection. Returns the one before, if there was one.
    pub(super) fn renew(&mut self, line: Line) -> Option<Link> {
        self.lines += 1;
        self.program.begin_anew();
        if let Some(given) = &mut self.given {
            given.coming = Coming::Frame;
        }
        self.connection.renew(Link::new(line))
    }

    /// Notes the loss of the connection; returns it, if there was one.
    pub(super) fn lose(&mut self, why: String) -> Option<Link> {
        let lost = self.connection.lose(why, Instant::now());
        if lost.is_some() {
            self.program.begin_anew();
        }
        lost
    }

    /// Ends the session: nothing will be sent any more. Returns the last connection.
    pub(super) fn end(&mut self, over: Over) -> Option<Link> {
        self.out.clear();
        self.connection.end(over)
    }

    /// Returns whether a record waits for room in the socket.
    pub(super) fn is_blocked(&self) -> bool {
        let Some(link) = self.connection.up() else {
            return false;
        };
        link.closed.is_none()
            && (link.writing.is_some()
                || link.next < self.out.len()
                || self.news == News::Due
                || link.line.has_output())
    }

    /// Returns the number of all frames that went into the socket.
    pub(super) fn sent(&self) -> u64 {
        let next = self.connection.up().map_or(0, |link| link.next);
        self.first + next as u64
    }

    /// Forgets the frames that the other end's program has taken: `taken` of them.
    pub(super) fn forget(&mut self, taken: u64) {
        while self.first < taken && self.out.pop_front().is_some() {
            self.first += 1;
            if let Some(link) = self.connection.up_mut() {
                link.next = link.next.saturating_sub(1);
            }
        }
    }

    /// Counts a frame that the program has taken, with all that belongs to it.
    pub(super) fn count(&mut self, with_buffer: bool) {
        self.taken += 1;
        self.news.took(with_buffer, TELL_EVERY);
    }

    /// Puts records into the socket until nothing is left, there is no room, or it is another session's turn.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let Some(link) = self.connection.up_mut() else {
            return Ok(());
        };
        if link.closed.is_some() {
            return Ok(());
        }
        let mut bytes = 0;
        loop {
            let Some(writing) = &mut link.writing else {
                let (kind, frame, buffer) = if let Some(out) = self.out.get(link.next) {
                    (FrameKind::Frame, &out.bytes[..], out.buffer.clone())
                } else if self.news == News::Due {
                    (FrameKind::News, &[][..], None)
                } else if self.program.farewell() == Some(Farewell::Due) {
                    (FrameKind::Bye, &[][..], None)
                } else {
                    return link.line.flush();
                };
                let header = Header {
                    kind,
                    frame_bytes: frame.len(),
                    payload_bytes: buffer.as_ref().map_or(0, |buffer| buffer.view().len()),
                    number: self.first + link.next as u64,
                    taken: self.taken,
                };
                link.writing = Some(Writing::new(&header, frame, buffer));
                self.news.said();
                continue;
            };
            loop {
                if bytes >= WRITE_BYTES {
                    return Err(ErrorKind::WouldBlock.into());
                }
                match writing.send_some(&mut link.line)? {
                    0 => break,
                    sent => bytes += sent,
                }
            }
            match writing.kind {
                FrameKind::Frame => link.next += 1,
                FrameKind::News => {}
                FrameKind::Bye => self.program.said(Farewell::Said),
            }
            link.writing = None;
            link.said = Instant::now();
        }
    }

    /// Reads the bytes that come and discards them; 0: the end.
    pub(super) fn pass_over(&mut self) -> io::Result<usize> {
        self.connection.up_mut().map_or(Ok(0), Link::pass_over)
    }

    /// Takes some bytes that are not a buffer's, as far as is known; 0: the end.
    pub(super) fn read(&mut self) -> io::Result<usize> {
        let none = || Err(ErrorKind::WouldBlock.into());
        self.connection.up_mut().map_or_else(none, Link::read)
    }

    /// Returns the consumer of the data that has come.
    pub(super) fn waits(&self) -> Waits {
        let Some(link) = self.connection.up() else {
            return Waits::Nothing;
        };
        match &self.given {
            Some(given) if given.coming != Coming::Frame => match link.has_bytes() {
                true => Waits::Program,
                false => Waits::Nothing,
            },
            _ => link.waits(),
        }
    }

    /// Takes the next record, if all of it except a buffer's bytes is here.
    pub(super) fn look(&mut self) -> Result<Look, &'static str> {
        let link = self.connection.up_mut();
        link.map_or(Ok(Look::Incomplete), Link::look)
    }

    /// Takes some of a buffer's bytes to their place; 0: the end.
    pub(super) fn fill_some(&mut self, place: &mut dyn Target) -> io::Result<usize> {
        let Some(given) = &mut self.given else {
            return Ok(0);
        };
        let (Some(link), Coming::Bytes(came)) = (self.connection.up_mut(), given.coming) else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let got = link.fill_some(place, came, given.payload_bytes - came)?;
        given.coming = Coming::Bytes(came + got);
        Ok(got)
    }
}
