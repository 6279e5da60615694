//! A connection.

use super::client::Client;
use super::{LINGER, Options};
use crate::os::Piece;
use crate::word::Word;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::time::Instant;
use tranship::Body;

#[derive(Debug)]
pub(super) struct Conn {
    pub client: Client,
    /// Generation of the slot for messages. It changes when replies that are under way no longer count.
    pub generation: u16,
    /// Generation of the slot for the socket's events.
    pub born: u16,
    /// The request whose reply goes out next.
    pub next: u16,
    /// Replies whose turn has not come.
    pub early: Vec<(Word, Body)>,
    /// Bytes to send, from byte `skip` of the first piece on.
    pub out: VecDeque<Piece>,
    skip: usize,
    pub out_bytes: usize,
    /// Messages to `http` that are not answered.
    pub unanswered: u32,
    /// `http` has a part of a request.
    pub partial: bool,
    /// A part of a reply was passed to the client.
    pub mid: bool,
    /// The socket may have more to read.
    pub unread: bool,
    /// The client sends no more.
    pub ended: bool,
    /// Nothing is read any more; the connection ends when all is sent.
    pub last: bool,
    /// The client gets time to read before the end.
    pub lingers: bool,
    /// The last event of the request, or the reply.
    pub since: Instant,
    /// When the client last took something.
    pub took: Instant,
    /// Messages that were not answered when a roll call went behind them, and are not answered yet.
    pub called: u32,
}

/// How much was sent.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    All,
    Some,
    Broken,
}

impl Conn {
    pub(super) fn new(client: Client, generation: u16, next: u16, now: Instant) -> Conn {
        Conn {
            client,
            generation,
            born: generation,
            next,
            early: Vec::new(),
            out: VecDeque::new(),
            skip: 0,
            out_bytes: 0,
            unanswered: 0,
            partial: false,
            mid: false,
            unread: false,
            ended: false,
            last: false,
            lingers: false,
            since: now,
            took: now,
            called: 0,
        }
    }

    /// Adds a reply to what is to be sent.
    pub(super) fn push(&mut self, body: Body) {
        match body {
            Body::Buffer(piece) => self.push_piece(Piece::Shared(piece)),
            Body::BufferMut(piece) => self.push_piece(Piece::Shared(piece.freeze())),
            Body::Aggregate(mut all) => {
                while let Some(piece) = all.remove(0) {
                    self.push_piece(Piece::Shared(piece));
                }
            }
            Body::Inline(bytes) => self.push_own(bytes.to_vec()),
            Body::AggregateMut(_) | Body::Released(_) => {}
        }
    }

    /// Adds bytes of the front's own.
    pub(super) fn push_own(&mut self, bytes: Vec<u8>) {
        self.push_piece(Piece::Own(bytes));
    }

    fn push_piece(&mut self, piece: Piece) {
        if piece.len() > 0 {
            self.out_bytes += piece.len();
            self.out.push_back(piece);
        }
    }

    /// Takes note of an answered message, if this is the end of one. Returns how many were answered.
    pub(super) fn answered(&mut self, word: Word, now: Instant) -> usize {
        if !word.has(Word::END) || self.unanswered == 0 {
            return 0;
        }
        self.unanswered -= 1;
        self.called = self.called.saturating_sub(1);
        // A note may come behind the reply to the request that its bytes began.
        if !self.is_past(word) {
            self.partial = word.has(Word::PARTIAL);
        }
        self.since = now;
        1
    }

    /// Says whether the reply of a word's request, or one behind it, went out.
    pub(super) fn is_past(&self, word: Word) -> bool {
        let behind = self.next.wrapping_sub(word.request());
        (1..=u16::MAX / 2).contains(&behind)
    }

    /// Returns the word of bytes that were read, and takes note of them.
    pub(super) fn pass(&mut self, slot: u16, now: Instant) -> Word {
        let word = Word::new(slot, self.generation, self.next);
        let starts = self.unanswered == 0 && !self.partial;
        self.unanswered += 1;
        self.since = now;
        self.partial = false;
        match starts {
            true => word.with(Word::START),
            false => word,
        }
    }

    /// Returns when the time of what the client or a component is to do next is over, and the status for it; 0: the
    /// connection ends.
    pub(super) fn deadline(&self, options: &Options) -> (Instant, u16) {
        if self.last && self.out.is_empty() {
            (self.since + LINGER, 0)
        } else if !self.out.is_empty() {
            (self.took + options.taken, 0)
        } else if self.unanswered > 0 {
            (self.since + options.answer, 504)
        } else if self.partial {
            (self.since + options.request, 408)
        } else {
            (self.since + options.idle, 0)
        }
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self, now: Instant) -> Flushed {
        while !self.out.is_empty() {
            let wrote = match self.client.write(self.out.iter(), self.skip) {
                Ok(wrote) => wrote,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Flushed::Some,
                Err(_) => return Flushed::Broken,
            };
            self.took = now;
            self.out_bytes -= wrote;
            self.skip += wrote;
            while let Some(first) = self.out.front()
                && self.skip >= first.len()
            {
                self.skip -= first.len();
                self.out.pop_front();
            }
        }
        Flushed::All
    }
}
