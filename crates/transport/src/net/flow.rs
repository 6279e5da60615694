//! The records of a session: what goes out and in what order, and what has come.

use super::line::Line;
use super::over::Over;
use super::wire::{FrameKind, HEADER_BYTES, Header, MAX_FRAME_BYTES};
use crate::{FrameBytes, Payload, Place};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Instant;

/// Frames received before the sender is told.
const TELL_EVERY: u32 = 32;
/// Bytes of frames that one look takes; more of them may belong to a buffer, and have to be copied.
const LOOK_BYTES: usize = 2 * (HEADER_BYTES + MAX_FRAME_BYTES);

/// So many bytes go out in one turn, however fast the other end takes them.
const WRITE_BYTES: usize = 32 << 20;

/// Frames of ours.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub bytes: FrameBytes,
    pub payload: Option<Payload>,
}

/// A record on its way into the socket.
#[derive(Debug)]
struct Writing {
    kind: FrameKind,
    head: Vec<u8>,
    payload: Option<Payload>,
    /// Bytes of both that are gone.
    at: usize,
}

/// A frame that the program has, whose buffer's bytes have not all come.
#[derive(Debug)]
pub(super) struct Given {
    pub frame_bytes: usize,
    pub payload_bytes: usize,
    pub came: usize,
    /// The connection is a new one, and the frame has to come again first.
    pub again: bool,
}

/// Where a session stands.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) line: Option<Line>,
    /// Counts connections, so that an old one's news is not taken for the new one's.
    pub(super) lines: u64,
    /// Somebody is making another connection.
    pub(super) dialing: bool,
    /// Everything that the other end's program has not taken; how many came before; how many of them are in the socket.
    pub(super) out: VecDeque<Outgoing>,
    pub(super) first: u64,
    pub(super) next: usize,
    writing: Option<Writing>,
    /// The other end is to be told how many frames were taken.
    pub(super) news_due: bool,
    /// The program has been told that these were taken.
    pub(super) told: u64,
    /// Bytes that have come and belong to no buffer, from `start` on.
    inward: Vec<u8>,
    start: usize,
    /// The last read took all that the socket had: the next one that finds too little does not ask it again.
    drained: bool,
    pub(super) taken: u64,
    pub(super) untold: u32,
    /// One of the untold came with a buffer's bytes.
    pub(super) untold_payload: bool,
    pub(super) given: Option<Given>,
    /// The program's last look found nothing.
    pub(super) empty_look: bool,
    /// There may be something that the socket does not show.
    pub(super) news: bool,
    pub(super) heard: Instant,
    pub(super) said: Instant,
    pub(super) lost: Option<(Instant, String)>,
    pub(super) over: Option<Over>,
    /// The program has let go of it, then; its farewell is in the socket.
    pub(super) left: Option<Instant>,
    pub(super) said_bye: bool,
    /// The last byte is in the socket.
    pub(super) parting: bool,
    /// The timer thread knows that output waits for room.
    pub(super) watched: bool,
    /// When the program looked last; it is looking now, or sleeps until there is something.
    pub(super) looked: Instant,
    pub(super) sleeps: bool,
    /// The descriptor tells of room in the socket, too.
    pub(super) room_asked: bool,
    /// The connection takes nothing more, but may still give.
    pub(super) mute: bool,
    pub(super) why_mute: Option<String>,
}

/// What a look for a record finds.
pub(super) enum Look {
    Record(Header, FrameBytes),
    Incomplete,
}

/// For whom something waits.
pub(super) enum Waits {
    /// A frame, or bytes of a buffer.
    Program,
    /// A record without a frame.
    Record,
    Nothing,
}

impl Given {
    pub(super) fn new(frame_bytes: usize, payload_bytes: usize) -> Given {
        Given {
            frame_bytes,
            payload_bytes,
            came: 0,
            again: false,
        }
    }
}

impl Inner {
    pub(super) fn new(now: Instant) -> Inner {
        Inner {
            line: None,
            lines: 0,
            dialing: false,
            out: VecDeque::new(),
            first: 0,
            next: 0,
            writing: None,
            news_due: false,
            told: 0,
            inward: Vec::new(),
            start: 0,
            drained: false,
            taken: 0,
            untold: 0,
            untold_payload: false,
            given: None,
            empty_look: false,
            news: false,
            heard: now,
            said: now,
            lost: None,
            over: None,
            left: None,
            said_bye: false,
            parting: false,
            watched: false,
            looked: now,
            sleeps: false,
            room_asked: false,
            mute: false,
            why_mute: None,
        }
    }

    /// Nothing of what is half sent or half received counts.
    pub(super) fn begin_anew(&mut self) {
        self.writing = None;
        self.next = 0;
        self.inward.clear();
        self.start = 0;
        self.drained = false;
        (self.mute, self.why_mute) = (false, None);
        (self.said_bye, self.parting) = (false, false);
    }

    /// Goes on over another connection.
    pub(super) fn renew(&mut self, line: Line) {
        self.begin_anew();
        self.line = Some(line);
        self.lines += 1;
        if let Some(given) = &mut self.given {
            (given.came, given.again) = (0, true);
        }
        self.lost = None;
        (self.heard, self.said) = (Instant::now(), Instant::now());
    }

    /// It is over, or given up: nothing will be sent any more.
    pub(super) fn drop_output(&mut self) {
        self.out.clear();
        self.writing = None;
    }

    /// Is there something that waits for room in the socket?
    pub(super) fn is_blocked(&self) -> bool {
        let Some(line) = self.line.as_ref().filter(|_| !self.mute) else {
            return false;
        };
        self.writing.is_some() || self.next < self.out.len() || self.news_due || line.has_output()
    }

    /// The other end's program has taken so many.
    pub(super) fn forget(&mut self, taken: u64) {
        while self.first < taken && self.out.pop_front().is_some() {
            self.first += 1;
            self.next = self.next.saturating_sub(1);
        }
    }

    /// The program has taken a frame, with all that belongs to it.
    pub(super) fn count(&mut self) {
        self.taken += 1;
        self.untold += 1;
        self.news_due |= self.untold >= TELL_EVERY;
    }

    fn begin(
        &mut self,
        kind: FrameKind,
        frame: &[u8],
        payload: Option<Payload>,
        number: u64,
    ) -> Writing {
        let header = Header {
            kind,
            frame_bytes: frame.len(),
            payload_bytes: payload.as_ref().map_or(0, Payload::len),
            number,
            taken: self.taken,
        };
        (self.untold, self.untold_payload) = (0, false);
        self.news_due = false;
        Writing {
            kind,
            head: [&header.encode()[..], frame].concat(),
            payload,
            at: 0,
        }
    }

    /// Puts records into the socket until nothing is left, there is no room, or it is somebody else's turn.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let mut bytes = 0;
        loop {
            let Some(line) = self.line.as_mut().filter(|_| !self.mute) else {
                return Ok(());
            };
            let Some(writing) = &mut self.writing else {
                let number = self.first + self.next as u64;
                self.writing = Some(if let Some(out) = self.out.get(self.next) {
                    let (bytes, payload) = (out.bytes.clone(), out.payload.clone());
                    self.begin(FrameKind::Frame, &bytes, payload, number)
                } else if self.news_due {
                    self.begin(FrameKind::News, &[], None, number)
                } else if self.left.is_some() && !self.said_bye {
                    self.begin(FrameKind::Bye, &[], None, number)
                } else {
                    return line.flush();
                });
                continue;
            };
            let payload = writing.payload.as_ref();
            let all = writing.head.len() + payload.map_or(0, Payload::len);
            while writing.at < all {
                if bytes >= WRITE_BYTES {
                    return Err(ErrorKind::WouldBlock.into());
                }
                let sent = line.send_record(&writing.head, payload, writing.at)?;
                writing.at += sent;
                bytes += sent;
            }
            match writing.kind {
                FrameKind::Frame => self.next += 1,
                FrameKind::News => {}
                FrameKind::Bye => self.said_bye = true,
            }
            self.writing = None;
            self.said = Instant::now();
        }
    }

    /// Takes what comes and forgets it; 0: the end.
    pub(super) fn pass_over(&mut self) -> io::Result<usize> {
        let mut nowhere = [0; LOOK_BYTES];
        match &mut self.line {
            Some(line) => line.recv(&mut nowhere),
            None => Ok(0),
        }
    }

    /// Takes some bytes that are not a buffer's, as far as is known; 0: the end.
    pub(super) fn read(&mut self) -> io::Result<usize> {
        let Some(line) = &mut self.line else {
            return Err(ErrorKind::WouldBlock.into());
        };
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
        let got = line.recv(&mut piece[..room])?;
        self.drained = line.is_plain() && (1..room).contains(&got);
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

    /// For whom what came waits. What cannot be waits for the program, which finds that out.
    pub(super) fn waits(&self) -> Waits {
        if self.given.is_some() {
            let here = self.start < self.inward.len();
            let line = self.line.as_ref();
            let there = || line.is_some_and(Line::has_input);
            return match here || there() {
                true => Waits::Program,
                false => Waits::Nothing,
            };
        }
        let here = self.inward.len() - self.start;
        match self.header() {
            None => Waits::Nothing,
            Some(Err(_)) => Waits::Program,
            Some(Ok(header)) if here < HEADER_BYTES + header.frame_bytes => Waits::Nothing,
            Some(Ok(header)) if header.kind == FrameKind::Frame => Waits::Program,
            Some(Ok(_)) => Waits::Record,
        }
    }

    /// Takes the next record, if all of it but a buffer's bytes is here.
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

    /// Takes some of a buffer's bytes to their place; 0: the end.
    pub(super) fn fill_some(&mut self, place: &Place) -> io::Result<usize> {
        let Some(given) = &mut self.given else {
            return Ok(0);
        };
        let left = given.payload_bytes - given.came;
        let waiting = &self.inward[self.start..];
        let got = match waiting.len().min(left) {
            0 => {
                let Some(line) = &mut self.line else {
                    return Err(ErrorKind::WouldBlock.into());
                };
                self.drained = false;
                let got = line.recv_to(place, given.came)?;
                if got > 0 {
                    self.heard = Instant::now();
                }
                got
            }
            got => {
                let written = place.write(given.came, &waiting[..got]);
                written.map_err(io::Error::other)?;
                self.start += got;
                got
            }
        };
        given.came += got;
        Ok(got)
    }
}
