//! HTTP/1.1: a connection's bytes in, checked requests out.
//!
//! Only what has one meaning passes. A head that two parsers could read differently is refused, and ends its connection:
//! so no component behind this one can be told of a request that another one did not see.
//!
//! Sources: RFC 9110, RFC 9112.

mod chunked;
mod head;

use crate::reply::MEMORY;
use crate::request::HEAD_BYTES;
use crate::stage::{Outs, Stage, To, nothing};
use crate::word::Word;
use chunked::Chunked;
use head::{Head, Length};
use tranship::{Aggregate, Body, Buffer, Pool};

/// Bounds of a request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a head.
    pub head: usize,
    /// Most bytes of a body.
    pub body: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: HEAD_BYTES,
            body: 8 << 20,
        }
    }
}

/// The component: what it knows of each connection.
#[derive(Debug)]
pub struct Http {
    pool: Pool,
    limits: Limits,
    conns: Vec<Conn>,
    /// Room for the next record.
    room: Vec<u8>,
}

#[derive(Debug, Default)]
struct Conn {
    generation: u16,
    next: u16,
    /// Bytes of a head that is not complete.
    text: Vec<u8>,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Body(Pending, Rest),
    /// Nothing more is read.
    Over,
}

impl Conn {
    /// Says whether it has read whole requests, and the next one has this number.
    fn is_between(&self, next: u16) -> bool {
        self.next == next && self.text.is_empty() && matches!(self.state, State::Head)
    }
}

/// What a body still lacks.
#[derive(Debug)]
enum Rest {
    Bytes(u64),
    Chunks(Chunked),
}

/// A request whose body is not complete.
#[derive(Debug)]
struct Pending {
    head: Head,
    pieces: Vec<Buffer>,
    bytes: u64,
}

/// How far a step came.
enum Step {
    /// The state has changed: there may be more to do.
    On,
    /// It needs more bytes.
    Wait,
}

impl Http {
    /// Makes the component. Records of requests are allocated from `pool`.
    #[must_use]
    pub fn new(pool: Pool, limits: Limits) -> Http {
        Http {
            pool,
            limits,
            conns: Vec::new(),
            room: Vec::new(),
        }
    }
}

impl Stage for Http {
    fn take(&mut self, _: To, word: Word, body: Body, outs: &mut Outs) {
        let slot = usize::from(word.slot());
        if slot >= self.conns.len() {
            self.conns.resize_with(slot + 1, Conn::default);
        }
        let conn = &mut self.conns[slot];
        let known = conn.generation == word.generation();
        let Some(bytes) = into_buffer(body) else {
            // The connection is gone.
            if known {
                conn.text = Vec::new();
                conn.state = State::Over;
            }
            return;
        };
        let starts = word.has(Word::START);
        if starts && !(known && conn.is_between(word.request())) {
            if known {
                // The front and this component differ in where a request begins: nothing more is read.
                conn.state = State::Over;
                return outs.answer(word.without(Word::START).with(Word::CLOSE | Word::END), 500);
            }
            *conn = Conn {
                generation: word.generation(),
                next: word.request(),
                ..Conn::default()
            };
        } else if !starts && !known {
            // Another process had the bytes before these.
            let note = Word::UNKNOWN | Word::END;
            return outs.send(To::Front, word.with(note), nothing());
        }
        let first = outs.0.len();
        let mut reader = Reader {
            pool: &self.pool,
            limits: self.limits,
            room: &mut self.room,
            name: Word::new(word.slot(), word.generation(), 0),
            bytes: &bytes,
            at: 0,
        };
        loop {
            match reader.step(conn, outs) {
                Ok(Step::On) => {}
                Ok(Step::Wait) => break,
                Err(status) => {
                    conn.state = State::Over;
                    conn.text = Vec::new();
                    let word = reader.word(conn.next).with(Word::CLOSE);
                    outs.answer(word, status);
                    break;
                }
            }
        }
        let mut end = Word::END;
        let within = match &conn.state {
            State::Head => !conn.text.is_empty(),
            State::Body(..) => true,
            State::Over => false,
        };
        if within {
            end |= Word::PARTIAL;
        }
        match outs.0[first..].last_mut() {
            Some((_, last, _)) if !last.has(Word::MORE) => *last = last.with(end),
            _ => {
                let note = reader.word(conn.next).with(end);
                outs.send(To::Front, note, nothing());
            }
        }
    }
}

/// Returns the bytes of a message; `None`: it says that the connection is gone.
fn into_buffer(body: Body) -> Option<Buffer> {
    match body {
        Body::Buffer(bytes) => Some(bytes),
        Body::BufferMut(bytes) => Some(bytes.freeze()),
        _ => None,
    }
}

/// Bytes of a connection that are being read.
struct Reader<'a> {
    pool: &'a Pool,
    limits: Limits,
    room: &'a mut Vec<u8>,
    name: Word,
    bytes: &'a Buffer,
    at: usize,
}

impl Reader<'_> {
    fn word(&self, request: u16) -> Word {
        Word(self.name.0 | Word::new(0, 0, request).0)
    }

    /// Does one step. The error is the status that the connection ends with.
    fn step(&mut self, conn: &mut Conn, outs: &mut Outs) -> Result<Step, u16> {
        match std::mem::take(&mut conn.state) {
            State::Over => {
                conn.state = State::Over;
                Ok(Step::Wait)
            }
            State::Head => self.read_head(conn, outs),
            State::Body(mut pending, mut rest) => {
                let done = match &mut rest {
                    Rest::Bytes(left) => {
                        let here = (self.bytes.len() - self.at)
                            .min(usize::try_from(*left).unwrap_or(usize::MAX));
                        if here > 0 {
                            pending
                                .pieces
                                .push(self.bytes.slice(self.at..self.at + here));
                            pending.bytes += here as u64;
                            self.at += here;
                            *left -= here as u64;
                        }
                        *left == 0
                    }
                    Rest::Chunks(chunked) => {
                        let before = self.at;
                        let most = self.limits.body;
                        let done = chunked.read(self.bytes, &mut self.at, |piece| {
                            pending.bytes += piece.len() as u64;
                            match pending.bytes > most || pending.pieces.len() >= MOST_PIECES {
                                true => Err(413),
                                false => {
                                    pending.pieces.push(piece);
                                    Ok(())
                                }
                            }
                        })?;
                        debug_assert!(self.at >= before);
                        done
                    }
                };
                match done {
                    true => {
                        self.pass(conn, pending, outs)?;
                        Ok(Step::On)
                    }
                    false => {
                        conn.state = State::Body(pending, rest);
                        Ok(Step::Wait)
                    }
                }
            }
        }
    }

    /// Reads a head, or as much of it as is there.
    fn read_head(&mut self, conn: &mut Conn, outs: &mut Outs) -> Result<Step, u16> {
        if self.at == self.bytes.len() {
            return Ok(Step::Wait);
        }
        let had = conn.text.len();
        let here = (self.bytes.len() - self.at).min(self.limits.head.saturating_sub(had) + 1);
        conn.text.resize(had + here, 0);
        let copied = self
            .bytes
            .view()
            .copy_to_slice(self.at, &mut conn.text[had..]);
        copied.map_err(|_| 500u16)?;
        let Some(end) = head::end_of(&conn.text, had)? else {
            self.at += here;
            if conn.text.len() > self.limits.head {
                // A target that alone is too long has an answer of its own.
                return Err(if conn.text.contains(&b'\n') { 431 } else { 414 });
            }
            return Ok(Step::Wait);
        };
        self.at += end - had;
        conn.text.truncate(end);
        let read = head::read(&conn.text, self.room);
        conn.text.clear();
        let Some((head, length)) = read? else {
            // An empty line ahead of a request.
            return Ok(Step::On);
        };
        let expects = head.expects;
        let pending = Pending {
            head,
            pieces: Vec::new(),
            bytes: 0,
        };
        let rest = match length {
            Length::Bytes(0) => {
                self.pass(conn, pending, outs)?;
                return Ok(Step::On);
            }
            Length::Bytes(bytes) if bytes > self.limits.body => return Err(413),
            Length::Bytes(bytes) => Rest::Bytes(bytes),
            Length::Chunked => Rest::Chunks(Chunked::default()),
        };
        if expects && self.at == self.bytes.len() {
            let word = self.word(conn.next).with(Word::MORE).with_status(100);
            outs.send(To::Front, word, nothing());
        }
        conn.state = State::Body(pending, rest);
        Ok(Step::On)
    }

    /// Passes a whole request on.
    fn pass(&mut self, conn: &mut Conn, pending: Pending, outs: &mut Outs) -> Result<(), u16> {
        let Pending {
            head,
            pieces,
            bytes,
        } = pending;
        let word = self.word(conn.next).with(head.flags);
        let record = head
            .record
            .finish(u32::try_from(bytes).map_err(|_| 413u16)?);
        let mut to = self
            .pool
            .alloc_timeout(record.len(), MEMORY)
            .map_err(|_| 503u16)?;
        to.copy_from_slice(&record);
        *self.room = record;
        let record = to.freeze();
        let body = match pieces.is_empty() {
            true => Body::Buffer(record),
            false => {
                let mut all = Aggregate::new();
                all.set_list_pool(self.pool);
                let pieces = std::iter::once(record).chain(pieces);
                for piece in pieces {
                    all.push_back(piece).map_err(|_| 413u16)?;
                }
                Body::Aggregate(all)
            }
        };
        outs.send(To::Guard, word, body);
        conn.next = conn.next.wrapping_add(1);
        if word.has(Word::CLOSE) {
            conn.state = State::Over;
        }
        Ok(())
    }
}

/// Most pieces of a body, each a part of what was received at once, or a chunk.
const MOST_PIECES: usize = 1000;
