//! Output of a connection: text in one piece, with values between its parts.

use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use tranship_zcopy::{Piece, Sender, Socket, Value};

/// End of a value.
const END: &[u8] = b"\r\n";
/// Pieces offered in one call.
const PIECES: usize = 128;

/// Room for text that a connection keeps while nothing waits.
const KEPT: usize = 16 << 10;

#[derive(Debug)]
enum Out {
    /// This many bytes of the text, in its order.
    Text(usize),
    /// The value's bytes from here on, to there.
    Value(Value, usize, usize),
}

/// Replies in their order.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    queue: VecDeque<Out>,
    /// All waiting text, in a row, from a place on: the text before it was sent.
    text: Vec<u8>,
    said: usize,
    bytes: usize,
    values: usize,
}

/// Copying a small value into the text around it is faster than naming it to the kernel as a piece of its own.
const SMALL: usize = 256;

impl Replies {
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.write(|to| to.extend_from_slice(text));
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.text(line.as_bytes());
        self.text(b"\r\n");
    }

    /// Adds text behind the text that waits: several parts cost as much as one.
    #[inline(always)]
    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.text.len();
        write(&mut self.text);
        let len = self.text.len() - before;
        self.bytes += len;
        match self.queue.back_mut() {
            Some(Out::Text(last)) => *last += len,
            _ if len == 0 => {}
            _ => self.queue.push_back(Out::Text(len)),
        }
    }

    /// Adds the line before a value.
    pub(crate) fn value_line(&mut self, key: &[u8], flags: u32, len: usize, cas: Option<u64>) {
        self.write(|to| {
            // Three numbers of up to 20 digits, and the text around them.
            to.reserve(key.len() + 80);
            to.extend_from_slice(b"VALUE ");
            to.extend_from_slice(key);
            for number in [Some(flags.into()), Some(len as u64), cas]
                .into_iter()
                .flatten()
            {
                to.push(b' ');
                push_number(to, number);
            }
            to.extend_from_slice(END);
        });
    }

    /// Adds a value and a line end, which goes along with the text behind it.
    pub(crate) fn value(&mut self, value: Value) {
        let len = value.len();
        if len <= SMALL {
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

    /// Returns the waiting bytes, and the number of values that are held for them.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.bytes, self.values)
    }

    /// Returns the bytes of memory for text; none where that is little.
    pub(crate) fn room(&self) -> usize {
        match self.text.capacity() {
            ..=KEPT => 0,
            more => more,
        }
    }

    /// Returns the pieces that wait.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut said = self.said;
        self.queue.iter().map(move |out| match out {
            Out::Text(len) => {
                let text = &self.text[said..said + len];
                said += len;
                Piece::Bytes(text)
            }
            Out::Value(value, from, to) => Piece::Part(value, *from..*to),
        })
    }

    /// Sends as much as there is room for; returns how much. `WouldBlock` only if nothing went.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        socket: &mut Socket,
        sender: &mut Sender,
    ) -> io::Result<usize> {
        let mut all = 0;
        while !self.queue.is_empty() {
            // Most are a line, a value and its end.
            let mut pieces = SmallVec::<[_; 4]>::new();
            let mut offered = 0;
            for piece in self.pieces().take(PIECES) {
                offered += piece.len();
                pieces.push(piece);
            }
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

    /// Returns the whole reply, cut into parts of `size` bytes, each behind its header.
    pub(crate) fn cut<'a>(&'a self, size: usize, headers: &'a [[u8; 8]]) -> Vec<Vec<Piece<'a>>> {
        let mut parts: Vec<Vec<Piece<'a>>> = Vec::with_capacity(headers.len());
        let mut room = 0;
        for piece in self.pieces() {
            let (mut at, len) = (0, piece.len());
            while at < len {
                if room == 0 {
                    parts.push(vec![Piece::Bytes(&headers[parts.len()])]);
                    room = size;
                }
                let now = room.min(len - at);
                let last = parts.last_mut().expect("just pushed");
                last.push(part(&piece, at, now));
                at += now;
                room -= now;
            }
        }
        parts
    }

    /// Returns all of it.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.bytes);
        for piece in self.pieces() {
            match piece {
                Piece::Bytes(text) => all.extend_from_slice(text),
                Piece::Part(value, range) => all.extend_from_slice(&value[range]),
                _ => unreachable!("replies are text and values"),
            }
        }
        all
    }

    /// Forgets all of it.
    pub(crate) fn clear(&mut self) {
        *self = Replies::default();
    }

    fn advance(&mut self, mut sent: usize) {
        self.bytes -= sent;
        while sent > 0 {
            let first = self.queue.front_mut().expect("no more is sent than waits");
            let (now, whole) = match first {
                Out::Text(len) => {
                    let now = sent.min(*len);
                    *len -= now;
                    self.said += now;
                    (now, *len == 0)
                }
                Out::Value(_, from, to) => {
                    let now = sent.min(*to - *from);
                    *from += now;
                    self.values -= usize::from(from == to);
                    (now, from == to)
                }
            };
            sent -= now;
            if whole {
                self.queue.pop_front();
            }
        }
        self.forget_said();
    }

    /// Makes room of text that was sent: at once if nothing else is left, else when it is the larger half.
    fn forget_said(&mut self) {
        if self.said == self.text.len() {
            self.text.clear();
            self.text.shrink_to(KEPT);
            self.said = 0;
        } else if self.said > KEPT && self.said > self.text.len() / 2 {
            self.text.drain(..self.said);
            self.said = 0;
        }
    }
}

/// Adds a number, in decimal.
fn push_number(to: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len() - 1;
    loop {
        #[allow(clippy::cast_possible_truncation, reason = "a digit")]
        (digits[at] += (number % 10) as u8);
        number /= 10;
        if number == 0 {
            return to.extend_from_slice(&digits[at..]);
        }
        at -= 1;
    }
}

/// Returns some bytes of a piece.
fn part<'a>(piece: &Piece<'a>, at: usize, len: usize) -> Piece<'a> {
    match piece {
        Piece::Bytes(text) => Piece::Bytes(&text[at..at + len]),
        Piece::Part(value, range) => Piece::Part(value, range.start + at..range.start + at + len),
        _ => unreachable!("replies are text and values"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_zcopy::Arena;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 1, 9, 10, 4096, u64::MAX] {
            let mut digits = Vec::new();
            push_number(&mut digits, number);
            assert_eq!(digits, number.to_string().as_bytes());
        }
    }

    /// The rest of replies is exactly the unsent bytes, however many are taken, and whatever comes behind meanwhile.
    #[test]
    fn what_is_left_of_replies_is_what_was_not_sent() {
        let arena = Arena::new().expect("an arena");
        let value = |len: usize, byte: u8| arena.copy(&vec![byte; len]).expect("a value");
        for step in [1, 3, 250, 720, 1000, 7919] {
            let mut replies = Replies::default();
            let mut expected = Vec::new();
            // Text enough for its sent part to be forgotten while more waits.
            replies.text(&[b't'; 3 * KEPT]);
            expected.resize(3 * KEPT, b't');
            for round in 0..250u8 {
                let (small, large) = (value(10, round), value(700, round));
                replies.line("a line");
                replies.value(small.clone());
                replies.value(large.clone());
                for part in [&b"a line\r\n"[..], &small, END, &large, END] {
                    expected.extend_from_slice(part);
                }
                let sent = step.min(expected.len());
                replies.advance(sent);
                expected.drain(..sent);
                assert_eq!(replies.to_vec(), expected, "{step}, {round}");
                assert_eq!(replies.waiting().0, expected.len());
                assert_eq!(replies.is_empty(), expected.is_empty());
            }
            replies.advance(expected.len());
            assert_eq!((replies.waiting(), replies.text.len()), ((0, 0), 0));
        }
    }
}
