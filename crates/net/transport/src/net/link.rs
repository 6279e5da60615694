//! One connection of a session, with all that is half sent or half received over it: none of it counts over the next
//! one.

use super::line::Line;
use super::wire::{FrameKind, HEADER_BYTES, Header, MAX_FRAME_BYTES};
use crate::{FrameBytes, Source, Target};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;
use tranship_sys::epoll::Interest;

/// Bytes of frames that one look takes; more of them may belong to a buffer, and have to be copied.
const LOOK_BYTES: usize = 2 * (HEADER_BYTES + MAX_FRAME_BYTES);

/// A record on its way into the socket.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) kind: FrameKind,
    head: Vec<u8>,
    buffer: Option<Arc<dyn Source>>,
    /// Bytes of both that are gone.
    at: usize,
}

impl Writing {
    pub(super) fn new(header: &Header, frame: &[u8], buffer: Option<Arc<dyn Source>>) -> Writing {
        Writing {
            kind: header.kind,
            head: [&header.encode()[..], frame].concat(),
            buffer,
            at: 0,
        }
    }

    /// Sends some more bytes of the record, and returns their number. 0: all bytes are sent.
    pub(super) fn send_some(&mut self, line: &mut Line) -> io::Result<usize> {
        let bytes = self.buffer.as_ref().map(|buffer| buffer.view());
        if self.at == self.head.len() + bytes.map_or(0, |bytes| bytes.len()) {
            return Ok(0);
        }
        let sent = line.send_record(&self.head, bytes, self.at)?;
        self.at += sent;
        Ok(sent)
    }
}

/// The connection that is there.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) line: Line,
    /// Reason for which the connection takes no more frames. Frames may still come.
    pub(super) closed: Option<String>,
    /// Events that the session's descriptor reports.
    pub(super) interest: Interest,
    /// Number of the frames in the socket that the other end's program has not taken.
    pub(super) next: usize,
    pub(super) writing: Option<Writing>,
    /// Bytes that have come and belong to no buffer, from `start` on.
    inward: Vec<u8>,
    start: usize,
    /// The last read took all of the bytes: the next one that finds too little does not ask the socket again.
    drained: bool,
    pub(super) heard: Instant,
    pub(super) said: Instant,
}

/// Consumer of the data that waits.
pub(super) enum Waits {
    /// A frame, or bytes of a buffer.
    Program,
    /// A record without a frame.
    Record,
    Nothing,
}

/// Result of a look for a record.
pub(super) enum Look {
    Record(Header, FrameBytes),
    Incomplete,
}

impl Link {
    pub(super) fn new(line: Line) -> Link {
        let now = Instant::now();
        Link {
            line,
            closed: None,
            interest: Interest::Read,
            next: 0,
            writing: None,
            inward: Vec::new(),
            start: 0,
            drained: false,
            heard: now,
            said: now,
        }
    }

    /// Reads the bytes that come and discards them; 0: the end.
    pub(super) fn pass_over(&mut self) -> io::Result<usize> {
        self.line.recv(&mut [0; LOOK_BYTES])
    }

    /// Takes some bytes that are not a buffer's, as far as is known; 0: the end.
    pub(super) fn read(&mut self) -> io::Result<usize> {
        self.inward.drain(..self.start);
        self.start = 0;
        if self.inward.len() >= LOOK_BYTES {
            // A whole record is there.
            return Err(ErrorKind::WouldBlock.into());
        }
        if std::mem::take(&mut self.drained) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut piece = [0; LOOK_BYTES];
        let room = LOOK_BYTES - self.inward.len();
        let got = self.line.recv(&mut piece[..room])?;
        self.drained = self.line.is_plain() && (1..room).contains(&got);
        self.inward.extend_from_slice(&piece[..got]);
        if got > 0 {
            self.heard = Instant::now();
        }
        Ok(got)
    }

    fn header(&self) -> Option<Result<Header, &'static str>> {
        let waiting = &self.inward[self.start..];
        let header = waiting.first_chunk::<HEADER_BYTES>()?;
        Some(Header::decode(header).ok_or("a record whose header is not valid"))
    }

    /// Returns whether some bytes are there, or the end.
    pub(super) fn has_bytes(&self) -> bool {
        self.start < self.inward.len() || self.line.has_input()
    }

    /// Returns the consumer of the next record. An impossible record is left to the program's thread, which finds the
    /// error.
    pub(super) fn waits(&self) -> Waits {
        let here = self.inward.len() - self.start;
        match self.header() {
            None => Waits::Nothing,
            Some(Err(_)) => Waits::Program,
            Some(Ok(header)) if here < HEADER_BYTES + header.frame_bytes => Waits::Nothing,
            Some(Ok(header)) if header.kind == FrameKind::Frame => Waits::Program,
            Some(Ok(_)) => Waits::Record,
        }
    }

    /// Takes the next record, if all of it except a buffer's bytes is here.
    pub(super) fn look(&mut self) -> Result<Look, &'static str> {
        let Some(header) = self.header() else {
            return Ok(Look::Incomplete);
        };
        let header = header?;
        let from = self.start + HEADER_BYTES;
        let Some(bytes) = self.inward.get(from..from + header.frame_bytes) else {
            return Ok(Look::Incomplete);
        };
        let bytes = FrameBytes::from_slice(bytes);
        self.start = from + header.frame_bytes;
        Ok(Look::Record(header, bytes))
    }

    /// Takes some of the `left` bytes of a buffer that are still to come to their place, from `at` on; 0: the end.
    pub(super) fn fill_some(
        &mut self,
        place: &mut dyn Target,
        at: usize,
        left: usize,
    ) -> io::Result<usize> {
        let waiting = &self.inward[self.start..];
        match waiting.len().min(left) {
            0 => {
                self.drained = false;
                let got = self.line.recv_to(place, at, left)?;
                if got > 0 {
                    self.heard = Instant::now();
                }
                Ok(got)
            }
            got => {
                let written = place.write(at, &waiting[..got]);
                written.map_err(io::Error::other)?;
                self.start += got;
                Ok(got)
            }
        }
    }
}
