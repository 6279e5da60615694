//! Connections that the component `tcpip` has: their streams come and go over two channels.

use super::client::Read;
use crate::component::Ends;
use crate::lane::{Ended, In, Out};
use crate::os::Piece;
use crate::reply::body;
use crate::stage::{To, nothing};
use crate::word::Word;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tranship::{Body, Buffer, Message, Pool};
use tranship_netpath::tcp::{Id, Kind, Note, RECEIVE};

/// Messages that are taken together.
const BATCH: usize = 64;
/// Most pieces of one message.
const PIECES: usize = 64;

/// Messages to be sent to `tcpip`.
type Says = Rc<RefCell<VecDeque<(Note, Body)>>>;

/// The channels from and to `tcpip`.
#[derive(Debug)]
pub struct Streams {
    end: In,
    out: Out,
    pool: Pool,
    says: Says,
    got: Vec<Message>,
    taken: VecDeque<Message>,
    /// Slots of the front by slots of `tcpip`.
    slots: Vec<u16>,
    woken: bool,
}

/// News of `tcpip`.
#[derive(Debug)]
pub(super) enum News {
    /// It says something of a connection.
    Note(Note, Body),
    /// The process has ended, and with it all its connections.
    Gone,
}

impl Streams {
    /// Takes the channels to `tcpip` out of a component's ends; `None`: the program has none.
    #[must_use]
    pub fn of(ends: &mut Ends) -> Option<Streams> {
        let end = ends.ins.iter().position(|end| end.from == To::Tcpip)?;
        let out = ends.outs.iter().position(|out| out.to == To::Tcpip)?;
        let mut streams = Streams {
            end: ends.ins.remove(end),
            out: ends.outs.remove(out),
            pool: ends.pool.clone(),
            says: Says::default(),
            got: Vec::new(),
            taken: VecDeque::new(),
            slots: Vec::new(),
            woken: true,
        };
        streams.say_hello();
        Some(streams)
    }

    /// Begins anew, with a process of `tcpip` that knows no connection of this front.
    ///
    /// Crash: messages that a dead process had not taken go to the next one, and name connections that it does not have.
    fn say_hello(&mut self) {
        let mut says = self.says.borrow_mut();
        says.clear();
        let nobody = Id {
            slot: 0,
            generation: 0,
        };
        says.push_back((Note::new(nobody, Kind::Hello, 0), nothing()));
    }

    /// Takes the next news.
    pub(super) fn take(&mut self) -> Option<News> {
        loop {
            if let Some(message) = self.taken.pop_front() {
                match Note::read(message.word) {
                    Some(note) => return Some(News::Note(note, message.body)),
                    None => continue,
                }
            }
            let was_woken = std::mem::take(&mut self.woken);
            if !was_woken && !self.end.is_ready() {
                return None;
            }
            let ended = self.end.take(&mut self.got, BATCH) == Err(Ended);
            self.taken.extend(self.got.drain(..));
            if ended {
                self.say_hello();
                self.look();
                return Some(News::Gone);
            }
            if self.taken.is_empty() {
                // A byte that wakes may come later than its message was taken.
                self.end.disarm();
                return None;
            }
        }
    }

    /// Connects to a process of `tcpip` that has come. Says whether it is there.
    pub(super) fn look(&mut self) -> bool {
        self.end.look();
        self.out.look(&self.pool);
        self.end.is_there() && self.out.is_there()
    }

    /// Takes note that the domain's descriptor can be read.
    pub(super) fn woken(&mut self) {
        self.woken = true;
        self.look();
    }

    /// Gets ready to sleep. `false`: there is something to take.
    pub(super) fn arm(&mut self) -> bool {
        self.end.arm()
    }

    /// Sends the messages of connections. Says whether all went.
    pub(super) fn send(&mut self) -> bool {
        let mut says = self.says.borrow_mut();
        if says.is_empty() {
            return true;
        }
        let count = says.len().min(self.out.room());
        let batch = says.drain(..count);
        let batch = batch.map(|(note, body)| (Word(note.word()), body));
        let mut lost = Vec::new();
        self.out.send(&self.pool, batch, |word, _| {
            lost.extend(Note::read(word.0));
        });
        // It is said again, without its bytes: then `tcpip` cuts the connection.
        for note in lost.into_iter().rev() {
            says.push_front((note, nothing()));
        }
        says.is_empty()
    }

    /// Makes the stream of a connection in a slot of the front.
    pub(super) fn open(&self, note: Note) -> Stream {
        Stream {
            id: note.id,
            pool: self.pool.clone(),
            says: self.says.clone(),
            came: VecDeque::new(),
            unread: 0,
            room: note.bytes,
            ended: false,
            gone: false,
        }
    }

    /// Takes note of the slot of a connection.
    pub(super) fn put(&mut self, id: Id, slot: u16) {
        let at = usize::from(id.slot);
        if at >= self.slots.len() {
            self.slots.resize(at + 1, u16::MAX);
        }
        self.slots[at] = slot;
    }

    /// Returns the slot of the front that a connection has, or had.
    pub(super) fn slot(&self, id: Id) -> Option<u16> {
        self.slots.get(usize::from(id.slot)).copied()
    }
}

/// A connection of `tcpip`. Dropping it closes the connection, behind the sent bytes.
#[derive(Debug)]
pub(super) struct Stream {
    pub id: Id,
    pool: Pool,
    says: Says,
    /// Bytes that were not read.
    came: VecDeque<Buffer>,
    unread: usize,
    /// Bytes that `tcpip` has room for.
    pub room: usize,
    /// The client sends no more.
    pub ended: bool,
    /// `tcpip` does not have it any more.
    pub gone: bool,
}

impl Stream {
    fn say(&self, kind: Kind, bytes: usize, body: Body) {
        let note = Note::new(self.id, kind, bytes);
        self.says.borrow_mut().push_back((note, body));
    }

    /// Adds bytes that have come. `false`: they are more than `tcpip` may send.
    pub(super) fn come(&mut self, body: Body) -> bool {
        match body {
            Body::Buffer(bytes) => self.add(bytes),
            Body::Aggregate(all) => {
                for bytes in all.pieces() {
                    self.add(bytes.clone());
                }
            }
            _ => {}
        }
        self.unread < 2 * RECEIVE
    }

    fn add(&mut self, bytes: Buffer) {
        // Without bytes it would look like an end.
        if !bytes.is_empty() {
            self.unread += bytes.len();
            self.came.push_back(bytes);
        }
    }

    pub(super) fn read(&mut self) -> Read {
        match self.came.pop_front() {
            Some(bytes) => {
                self.unread -= bytes.len();
                self.say(Kind::Taken, bytes.len(), nothing());
                let all = self.came.is_empty() && !self.ended;
                Read::Bytes(bytes, all)
            }
            None if self.gone => Read::Broken,
            None if self.ended => Read::End,
            None => Read::Nothing,
        }
    }

    pub(super) fn write<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a Piece>,
        skip: usize,
    ) -> Result<usize, Errno> {
        if self.gone {
            return Err(Errno::PIPE);
        }
        if self.room == 0 {
            return Err(Errno::AGAIN);
        }
        let (mut all, mut bytes, mut skip) = (Vec::new(), 0, skip);
        for piece in pieces.take(PIECES) {
            let end = piece.len().min(skip + self.room - bytes);
            let part = match piece {
                Piece::Shared(buffer) => buffer.slice(skip..end),
                Piece::Own(own) => match self.pool.try_alloc(end - skip) {
                    Ok(mut copy) => {
                        copy.copy_from_slice(&own[skip..end]);
                        copy.freeze()
                    }
                    Err(_) if bytes > 0 => break,
                    Err(_) => return Err(Errno::NOMEM),
                },
            };
            bytes += part.len();
            all.push(part);
            skip = 0;
            if bytes == self.room {
                break;
            }
        }
        self.room -= bytes;
        self.say(Kind::Data, bytes, body(&self.pool, all));
        Ok(bytes)
    }

    pub(super) fn finish(&mut self) {
        if !self.gone {
            self.say(Kind::Ended, 0, nothing());
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.gone {
            self.say(Kind::Closed, 0, nothing());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship::{Domain, PoolOptions};

    #[test]
    fn bytes_that_are_not_read_are_bounded() {
        let domain = Domain::embedded().expect("a domain");
        let pool = domain
            .create_pool(PoolOptions::new(1 << 20))
            .expect("a pool");
        let id = Id {
            slot: 0,
            generation: 1,
        };
        let mut stream = Stream {
            id,
            pool: pool.clone(),
            says: Says::default(),
            came: VecDeque::new(),
            unread: 0,
            room: 0,
            ended: false,
            gone: false,
        };
        let bytes = pool.try_alloc(RECEIVE).expect("memory").freeze();
        assert!(stream.come(Body::Buffer(bytes.clone())));
        assert!(matches!(stream.read(), Read::Bytes(..)));
        // A buffer without bytes is no end.
        assert!(stream.come(Body::Buffer(bytes.slice(0..0))));
        assert!(matches!(stream.read(), Read::Nothing));
        // One buffer can come again and again.
        assert!(stream.come(Body::Buffer(bytes.clone())));
        assert!(stream.come(Body::Buffer(bytes.slice(1..))));
        assert!(!stream.come(Body::Buffer(bytes)));
    }
}
