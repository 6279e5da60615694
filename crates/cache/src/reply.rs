//! What is to be sent on a connection: text in one piece, values between.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use tranship_zcopy::{Piece, Sender, Socket, Value};

/// What a value ends with.
const END: &[u8] = b"\r\n";
/// Pieces offered in one call.
const PIECES: usize = 128;

#[derive(Debug)]
enum Out {
    Text(Vec<u8>),
    /// The value's bytes from here on, to there.
    Value(Value, usize, usize),
}

/// Replies in their order.
#[derive(Debug)]
pub(crate) struct Replies {
    queue: VecDeque<Out>,
    bytes: usize,
    values: usize,
    /// Values of up to so many bytes go along with the text around them, in one piece.
    joined: usize,
}

/// A small value is copied to the text around it sooner than named to the kernel as a piece of its own.
const SMALL: usize = 256;

impl Default for Replies {
    fn default() -> Replies {
        Replies {
            queue: VecDeque::new(),
            bytes: 0,
            values: 0,
            joined: SMALL,
        }
    }
}

impl Replies {
    /// All values are copied to the text around them.
    pub(crate) fn joined() -> Replies {
        Replies {
            joined: usize::MAX,
            ..Replies::default()
        }
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        match self.queue.back_mut() {
            Some(Out::Text(last)) => last.extend_from_slice(text),
            _ => self.queue.push_back(Out::Text(text.to_vec())),
        }
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.text(line.as_bytes());
        self.text(b"\r\n");
    }

    /// A value and a line end, which goes along with the text behind it.
    pub(crate) fn value(&mut self, value: Value) {
        let len = value.len();
        if len <= self.joined {
            self.text(&value);
        } else {
            self.bytes += len;
            self.values += 1;
            self.queue.push_back(Out::Value(value, 0, len));
        }
        self.text(END);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes that wait, and values that are held for it.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.bytes, self.values)
    }

    /// Sends what there is room for; says how much. `WouldBlock` only if nothing went.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        sender: &mut Sender,
    ) -> io::Result<usize> {
        let mut all = 0;
        while !self.queue.is_empty() {
            let pieces: Vec<_> = self.queue.iter().take(PIECES).map(Out::piece).collect();
            let offered: usize = self.queue.iter().take(PIECES).map(Out::len).sum();
            let sent = match sender.send(fd, socket, &pieces) {
                Ok(sent) => sent,
                Err(_) if all > 0 => return Ok(all),
                Err(error) => return Err(error),
            };
            drop(pieces);
            all += sent;
            self.advance(sent);
            if sent < offered {
                break;
            }
        }
        Ok(all)
    }

    /// All of it, cut into parts of so many bytes, each behind its header.
    pub(crate) fn cut<'a>(&'a self, size: usize, headers: &'a [[u8; 8]]) -> Vec<Vec<Piece<'a>>> {
        let mut parts: Vec<Vec<Piece<'a>>> = Vec::with_capacity(headers.len());
        let mut room = 0;
        for out in &self.queue {
            let (mut at, len) = (0, out.len());
            while at < len {
                if room == 0 {
                    parts.push(vec![Piece::Bytes(&headers[parts.len()])]);
                    room = size;
                }
                let now = room.min(len - at);
                let last = parts.last_mut().expect("just pushed");
                last.push(out.part(at, now));
                at += now;
                room -= now;
            }
        }
        parts
    }

    /// All of it.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.bytes);
        for out in &self.queue {
            match out {
                Out::Text(text) => all.extend_from_slice(text),
                Out::Value(value, from, to) => all.extend_from_slice(&value[*from..*to]),
            }
        }
        all
    }

    /// Forgets all of it.
    pub(crate) fn clear(&mut self) {
        *self = Replies {
            joined: self.joined,
            ..Replies::default()
        };
    }

    fn advance(&mut self, mut sent: usize) {
        self.bytes -= sent;
        while sent > 0 {
            let first = self.queue.front_mut().expect("no more is sent than waits");
            let len = first.len();
            if sent >= len {
                sent -= len;
                self.values -= usize::from(matches!(first, Out::Value(..)));
                self.queue.pop_front();
                continue;
            }
            match first {
                Out::Text(text) => drop(text.drain(..sent)),
                Out::Value(_, from, _) => *from += sent,
            }
            break;
        }
    }
}

impl Out {
    fn piece(&self) -> Piece<'_> {
        match self {
            Out::Text(text) => Piece::Bytes(text),
            Out::Value(value, from, to) => Piece::Part(value, *from..*to),
        }
    }

    /// Some of its bytes.
    fn part(&self, at: usize, len: usize) -> Piece<'_> {
        match self {
            Out::Text(text) => Piece::Bytes(&text[at..at + len]),
            Out::Value(value, from, _) => Piece::Part(value, from + at..from + at + len),
        }
    }

    fn len(&self) -> usize {
        match self {
            Out::Text(text) => text.len(),
            Out::Value(_, from, to) => to - from,
        }
    }
}
