//! Sockets over chains of mbufs, for a program whose TCP/IP is in another domain: `sosend`, `soreceive`.
//!
//! ```text
//!  program ── sosend(chain) ──► so_snd ──► Data ──► TCP/IP (another domain)
//!          ◄─ soreceive(most) ─ so_rcv ◄── Data ──
//! ```
//!
//! Both buffers of a socket are chains. A chain goes in and comes out whole, or cut by reference: no byte is copied. The
//! two calls with slices of the program's own copy, and count that. [`Sockets::send_to`] counts the bytes that do not lie
//! in buffers of a pool, and so are copied for the other domain.
//!
//! NOT here: TCP itself, and its side of the two channels ([`tcp`](crate::tcp)), waiting: the program polls its channels.

use crate::tcp::{Id, Kind, Note, RECEIVE};
use std::collections::{HashMap, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use tranship_core::{Aggregate, Body, Inline, Message, Pool, Sender};
use tranship_mbuf::{Chain, Mbufs, NotReceived};

/// Most bytes of a socket that the program has sent, and TCP/IP has no room for yet (`so_snd.sb_hiwat`).
pub const SEND: usize = 256 << 10;
/// Most connections, those included that are gone and that the program has not closed. One more is refused.
pub const CONNECTIONS: usize = 1 << 16;
/// Most messages of TCP/IP that wait for mbufs. For one more the connection of the first of them is given up.
const LATE: usize = 1024;

/// The reason why a socket did not do a call.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// There is no such connection (`ENOTCONN`).
    #[error("there is no such connection: it was closed here, or never taken by soaccept")]
    NotConnected,
    /// The connection is gone, or was shut down for sending (`EPIPE`).
    #[error("the connection is gone, or was shut down for sending")]
    Gone,
    /// Nothing has come, or there is no room (`EWOULDBLOCK`).
    #[error("nothing has come, or the buffer is full: call again after the next message of TCP/IP")]
    WouldBlock,
    /// The program gives no room for a byte (`EINVAL`).
    #[error("there is no room for a byte: receive at least one")]
    NoRoom,
    /// A chain cannot be made.
    #[error(transparent)]
    Mbufs(#[from] tranship_mbuf::Error),
}

/// Bytes of all sockets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Bytes of chains that the program has sent.
    pub sent: u64,
    /// Bytes of chains that the program has received.
    pub received: u64,
    /// Sent bytes that were copied out of slices of the program's own.
    pub copied_in: u64,
    /// Received bytes that were copied to slices of the program's own.
    pub copied_out: u64,
    /// Sent bytes that did not lie in a pool's buffers, and were copied for the other domain.
    pub copied_across: u64,
}

#[derive(Debug, Default)]
struct Socket {
    /// Bytes that came and were not taken.
    receive: Option<Chain>,
    /// Bytes that TCP/IP has no room for.
    send: Option<Chain>,
    /// Bytes that TCP/IP has room for.
    room: usize,
    /// The host sends no more.
    ended: bool,
    /// The program sends no more.
    shut: bool,
    /// TCP/IP was told so.
    shut_said: bool,
    /// TCP/IP does not have the connection any more.
    gone: bool,
}

/// The sockets of one program.
#[derive(Debug)]
pub struct Sockets {
    mbufs: Mbufs,
    all: HashMap<Id, Socket>,
    come: VecDeque<Id>,
    /// Connections that the program has closed, until their bytes are sent.
    closing: Vec<Id>,
    says: VecDeque<(Note, Option<Chain>)>,
    /// Messages of TCP/IP from the first one on for which there was no mbuf.
    late: VecDeque<Message>,
    /// Connections for whose bytes there was no mbuf, though TCP/IP has room.
    short: Vec<Id>,
    counts: Counts,
}

impl Socket {
    /// Takes note that the connection is gone. The bytes that came can still be received.
    fn lose(&mut self) {
        self.gone = true;
        self.send = None;
    }
}

fn length(chain: Option<&Chain>) -> usize {
    chain.map_or(0, Chain::len)
}

fn add(to: &mut Option<Chain>, more: Chain) {
    match to {
        Some(chain) => chain.cat(more),
        None => *to = Some(more),
    }
}

/// Cuts at most `most` bytes off the front.
fn cut(from: &mut Option<Chain>, most: usize) -> Result<Option<Chain>, tranship_mbuf::Error> {
    let Some(chain) = from else { return Ok(None) };
    if chain.len() <= most {
        return Ok(from.take());
    }
    let rest = chain.split_off(most)?;
    Ok(from.replace(rest))
}

/// Makes a message of a chain. One of too many pieces is copied into fewer mbufs first.
fn to_aggregate(
    bytes: &mut Chain,
    pool: &Pool,
) -> Result<(Aggregate, usize), tranship_mbuf::Error> {
    match bytes.to_aggregate(pool) {
        Err(tranship_mbuf::Error::TooMany { .. }) => {
            bytes.defrag()?;
            bytes.to_aggregate(pool)
        }
        done => done,
    }
}

fn nothing() -> Inline {
    match Inline::try_from(&[][..]) {
        Ok(none) => none,
        Err(_) => unreachable!("no byte is too long"),
    }
}

impl Sockets {
    /// Makes sockets without connections, and greets TCP/IP. Mbufs over a pool cross without a copy.
    #[must_use]
    pub fn new(mbufs: Mbufs) -> Sockets {
        let mut sockets = Sockets {
            mbufs,
            all: HashMap::new(),
            come: VecDeque::new(),
            closing: Vec::new(),
            says: VecDeque::new(),
            late: VecDeque::new(),
            short: Vec::new(),
            counts: Counts::default(),
        };
        sockets.lose();
        sockets
    }

    /// Takes note that TCP/IP has died: all connections are gone, and a new process is greeted.
    pub fn lose(&mut self) {
        self.says.clear();
        self.late.clear();
        self.short.clear();
        for id in std::mem::take(&mut self.closing) {
            self.all.remove(&id);
        }
        self.all.values_mut().for_each(Socket::lose);
        let nobody = Id {
            slot: 0,
            generation: 0,
        };
        self.say(nobody, Kind::Hello, 0, None);
    }

    /// Returns the counters of bytes and copies.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes a message of TCP/IP. A message of another meaning is dropped. If there is no mbuf for a message, it waits
    /// for the next call, or [`send_to`](Self::send_to); the messages behind it wait, too.
    pub fn take(&mut self, message: Message) {
        self.late.push_back(message);
        self.catch_up();
        if self.late.len() > LATE {
            let first = self.late.pop_front();
            if let Some(note) = first.and_then(|first| Note::read(first.word)) {
                self.give_up(note.id);
            }
            self.catch_up();
        }
    }

    /// Takes the messages that wait, in their order, as long as there are mbufs.
    fn catch_up(&mut self) {
        while let Some(message) = self.late.pop_front() {
            if let Some(message) = self.take_now(message) {
                self.late.push_front(message);
                return;
            }
        }
    }

    /// Takes a message, or returns it if there is no mbuf for it.
    fn take_now(&mut self, message: Message) -> Option<Message> {
        let note = Note::read(message.word)?;
        if note.kind == Kind::Opened {
            self.open(note.id, note.bytes);
            return None;
        }
        let socket = self.all.get_mut(&note.id).filter(|socket| !socket.gone)?;
        match note.kind {
            Kind::Data => {
                let bytes = match self.mbufs.receive(message) {
                    Ok(bytes) => bytes,
                    Err(NotReceived {
                        error: tranship_mbuf::Error::NoBuffers(_),
                        unreceived,
                    }) => return Some(unreceived),
                    Err(_) => {
                        self.give_up(note.id);
                        return None;
                    }
                };
                let all = length(socket.receive.as_ref()) + bytes.len();
                if bytes.len() != note.bytes || all > 2 * RECEIVE {
                    self.give_up(note.id);
                } else if bytes.is_empty() {
                    // In the buffer, no bytes would look like the end.
                } else if self.closing.contains(&note.id) {
                    // The program receives no more.
                    self.say_taken(note.id, bytes.len());
                } else {
                    add(&mut socket.receive, bytes);
                }
            }
            Kind::Taken => {
                socket.room = socket.room.saturating_add(note.bytes);
                self.flush(note.id);
            }
            Kind::Ended => socket.ended = true,
            Kind::Closed => {
                socket.lose();
                if self.closing.contains(&note.id) {
                    self.forget(note.id);
                }
            }
            Kind::Hello | Kind::Opened => {}
        }
        None
    }

    /// Adds a connection, or refuses it.
    fn open(&mut self, id: Id, room: usize) {
        let is_full = self.all.len() >= CONNECTIONS || self.says.len() >= CONNECTIONS;
        match self.all.get(&id).map(|socket| socket.gone) {
            // TCP/IP is wrong: the connection stays as it is.
            Some(false) => {}
            None if !is_full => {
                let socket = Socket {
                    room,
                    ..Socket::default()
                };
                self.all.insert(id, socket);
                self.come.push_back(id);
            }
            // A TCP/IP that does not read its channel is not told of all refused connections.
            _ if self.says.len() < 2 * CONNECTIONS => self.say(id, Kind::Closed, 0, None),
            _ => {}
        }
    }

    /// Cuts a connection: without all its bytes the stream cannot go on.
    fn give_up(&mut self, id: Id) {
        if let Some(socket) = self.all.get_mut(&id).filter(|socket| !socket.gone) {
            socket.lose();
            self.say(id, Kind::Closed, 0, None);
            if self.closing.contains(&id) {
                self.forget(id);
            }
        }
    }

    /// Takes the next new connection.
    pub fn soaccept(&mut self) -> Option<Id> {
        self.come.pop_front()
    }

    /// Says whether `soreceive` has bytes, the end, or an error.
    #[must_use]
    pub fn soreadable(&self, id: Id) -> bool {
        let socket = self.all.get(&id);
        socket.is_none_or(|s| s.receive.is_some() || s.ended || s.gone)
    }

    /// Returns for how many bytes `sosend` has room.
    #[must_use]
    pub fn sbspace(&self, id: Id) -> usize {
        let waiting = |socket: &Socket| SEND.saturating_sub(length(socket.send.as_ref()));
        self.all.get(&id).map_or(0, waiting)
    }

    /// Sends a chain behind all before: all of it, by reference, or nothing. Its bytes stay as they are until the host has
    /// acknowledged them. A chain longer than the buffer goes if the buffer is empty.
    ///
    /// # Errors
    /// The chain, with `WouldBlock`, `Gone` or `NotConnected`.
    pub fn sosend(&mut self, id: Id, bytes: Chain) -> Result<(), (SocketError, Chain)> {
        let Some(socket) = self.all.get_mut(&id) else {
            return Err((SocketError::NotConnected, bytes));
        };
        if socket.gone || socket.shut {
            return Err((SocketError::Gone, bytes));
        }
        let waiting = length(socket.send.as_ref());
        if waiting > 0 && waiting + bytes.len() > SEND {
            return Err((SocketError::WouldBlock, bytes));
        }
        if !bytes.is_empty() {
            self.counts.sent += bytes.len() as u64;
            add(&mut socket.send, bytes);
            self.flush(id);
        }
        Ok(())
    }

    /// Sends copies of the program's bytes, as [`sosend`](Self::sosend) does, and counts them.
    ///
    /// # Errors
    /// Those of `sosend`; `Mbufs` if there is no memory for the copies.
    pub fn sosend_slices(&mut self, id: Id, slices: &[IoSlice<'_>]) -> Result<usize, SocketError> {
        let bytes = self.mbufs.from_slices(slices, 0)?;
        let len = bytes.len();
        self.sosend(id, bytes).map_err(|(error, _)| error)?;
        self.counts.copied_in += len as u64;
        Ok(len)
    }

    /// Receives at most `most` bytes that are there, by reference. `None`: the host has ended its stream.
    ///
    /// # Errors
    /// `WouldBlock`, `Gone`, `NotConnected`; `NoRoom` if `most` is 0; `Mbufs` if there is no mbuf for a cut. Bytes that came are received first.
    pub fn soreceive(&mut self, id: Id, most: usize) -> Result<Option<Chain>, SocketError> {
        let socket = self.all.get_mut(&id).ok_or(SocketError::NotConnected)?;
        if most == 0 {
            return Err(SocketError::NoRoom);
        }
        match cut(&mut socket.receive, most)? {
            Some(bytes) => {
                self.counts.received += bytes.len() as u64;
                self.say_taken(id, bytes.len());
                Ok(Some(bytes))
            }
            None if socket.gone => Err(SocketError::Gone),
            None if socket.ended => Ok(None),
            None => Err(SocketError::WouldBlock),
        }
    }

    /// Receives copies of the bytes that are there, as far as they fit, and counts them. 0: the host has ended its stream.
    ///
    /// # Errors
    /// Those of [`soreceive`](Self::soreceive).
    pub fn soreceive_slices(
        &mut self,
        id: Id,
        to: &mut [IoSliceMut<'_>],
    ) -> Result<usize, SocketError> {
        let most = to.iter().map(|slice| slice.len()).sum();
        let Some(bytes) = self.soreceive(id, most)? else {
            return Ok(0);
        };
        let len = bytes.to_slices(0, to)?;
        self.counts.copied_out += len as u64;
        Ok(len)
    }

    /// Ends the stream to the host, behind the bytes that were sent.
    pub fn soshutdown(&mut self, id: Id) {
        if let Some(socket) = self.all.get_mut(&id)
            && !std::mem::replace(&mut socket.shut, true)
        {
            self.flush(id);
        }
    }

    /// Closes a socket. The bytes that were sent still go to the host.
    pub fn soclose(&mut self, id: Id) {
        let Some(socket) = self.all.get_mut(&id) else {
            return;
        };
        socket.receive = None;
        if socket.gone {
            self.forget(id);
        } else if !self.closing.contains(&id) {
            self.closing.push(id);
            socket.shut = true;
            self.flush(id);
        }
    }

    /// Sends what there is to say to TCP/IP, as far as its channel has room. Returns whether all went, and nothing waits
    /// for mbufs. Buffers of `pool` cross by reference; all other bytes are copied into it, and counted.
    ///
    /// # Errors
    /// Those of the channel, except that it is full; `OutOfMemory` of the pool. What was not sent stays to be said.
    pub fn send_to(
        &mut self,
        tcpip: &mut Sender,
        pool: &Pool,
    ) -> Result<bool, tranship_core::Error> {
        use tranship_core::ErrorKind;
        self.catch_up();
        for id in std::mem::take(&mut self.short) {
            self.flush(id);
        }
        while let Some((note, bytes)) = self.says.front_mut() {
            let (body, copied) = match bytes {
                None => (Body::Inline(nothing()), 0),
                Some(bytes) => match to_aggregate(bytes, pool) {
                    Ok((all, copied)) => (Body::Aggregate(all), copied),
                    Err(error) => {
                        let text = format!("a socket's bytes cannot be sent now: {error}");
                        return Err(tranship_core::Error::new(ErrorKind::OutOfMemory, text));
                    }
                },
            };
            match tcpip.try_send((body, note.word())) {
                Ok(_) => {
                    self.counts.copied_across += copied as u64;
                    self.says.pop_front();
                }
                Err(failed)
                    if matches!(failed.kind(), ErrorKind::Full | ErrorKind::PoolPending) =>
                {
                    return Ok(false);
                }
                Err(failed) => return Err(failed.error),
            }
        }
        Ok(self.late.is_empty() && self.short.is_empty())
    }

    fn say(&mut self, id: Id, kind: Kind, bytes: usize, body: Option<Chain>) {
        self.says.push_back((Note::new(id, kind, bytes), body));
    }

    /// Says that bytes were taken. A connection has one such message: a TCP/IP that does not read makes no more wait.
    fn say_taken(&mut self, id: Id, bytes: usize) {
        let is_it = |note: &Note| note.id == id && note.kind == Kind::Taken;
        match self.says.iter_mut().rev().find(|(note, _)| is_it(note)) {
            Some((note, _)) => note.bytes = note.bytes.saturating_add(bytes),
            None => self.say(id, Kind::Taken, bytes, None),
        }
    }

    fn forget(&mut self, id: Id) {
        self.all.remove(&id);
        self.closing.retain(|closing| *closing != id);
    }

    /// Says the bytes that TCP/IP has room for, and the end behind the last of them.
    fn flush(&mut self, id: Id) {
        let socket = self.all.get_mut(&id).filter(|socket| !socket.gone);
        let Some(socket) = socket else {
            return;
        };
        while socket.room > 0 {
            let bytes = match cut(&mut socket.send, socket.room) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                // Without an mbuf for the cut the bytes wait for the next `send_to`.
                Err(_) if self.short.contains(&id) => return,
                Err(_) => return self.short.push(id),
            };
            socket.room -= bytes.len();
            let note = Note::new(id, Kind::Data, bytes.len());
            self.says.push_back((note, Some(bytes)));
        }
        if socket.send.is_some() || !socket.shut {
            return;
        }
        let said = std::mem::replace(&mut socket.shut_said, true);
        if self.closing.contains(&id) {
            self.say(id, Kind::Closed, 0, None);
            self.forget(id);
        } else if !said {
            self.say(id, Kind::Ended, 0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_mbuf::Limits;

    const ID: Id = Id {
        slot: 3,
        generation: 9,
    };

    fn message(id: Id, kind: Kind, bytes: usize, body: &[u8]) -> Message {
        Message {
            word: Note::new(id, kind, bytes).word(),
            body: Body::Inline(Inline::try_from(body).expect("few bytes")),
        }
    }

    fn opened(room: usize) -> Sockets {
        let mut sockets = Sockets::new(Mbufs::new().expect("mbufs"));
        sockets.take(message(ID, Kind::Opened, room, &[]));
        assert_eq!(sockets.soaccept(), Some(ID));
        sockets.says.clear();
        sockets
    }

    fn said(sockets: &Sockets) -> Vec<(Kind, usize)> {
        let says = sockets.says.iter();
        says.map(|(note, _)| (note.kind, note.bytes)).collect()
    }

    #[test]
    fn no_bytes_and_no_room_are_no_end() {
        let mut sockets = opened(1000);
        sockets.take(message(ID, Kind::Data, 0, &[]));
        assert!(!sockets.soreadable(ID));
        sockets.take(message(ID, Kind::Data, 2, b"ab"));
        let none = sockets.soreceive_slices(ID, &mut []);
        assert!(matches!(none, Err(SocketError::NoRoom)));
        for _ in 0..2 {
            let one = sockets.soreceive(ID, 1).expect("a byte");
            assert_eq!(one.map(|one| one.len()), Some(1));
        }
        assert_eq!(said(&sockets), [(Kind::Taken, 2)]);
    }

    #[test]
    fn a_connection_opens_once_and_ends_once() {
        let mut sockets = opened(1000);
        sockets.take(message(ID, Kind::Data, 1, b"a"));
        sockets.take(message(ID, Kind::Opened, 5, &[]));
        assert_eq!((sockets.soaccept(), sockets.soreadable(ID)), (None, true));
        for _ in 0..3 {
            sockets.take(message(ID, Kind::Data, 7, b"wrong"));
        }
        assert_eq!(said(&sockets), [(Kind::Closed, 0)]);
        // Closed, and the bytes before the close have no room.
        let mut sockets = opened(0);
        let bytes = sockets.mbufs.devget(b"last", 0).expect("an mbuf");
        sockets.sosend(ID, bytes).expect("an empty buffer");
        sockets.soclose(ID);
        sockets.take(message(ID, Kind::Data, 7, b"wrong"));
        assert!(sockets.all.is_empty() && sockets.closing.is_empty());
        assert_eq!(said(&sockets), [(Kind::Closed, 0)]);
    }

    #[test]
    fn connections_have_a_limit() {
        let mut sockets = opened(0);
        for number in 0..5 * CONNECTIONS {
            let id = Id {
                slot: u16::try_from(number % 65_536).expect("16 bits"),
                generation: u16::try_from(100 + number / 65_536).expect("few"),
            };
            sockets.take(message(id, Kind::Opened, 0, &[]));
        }
        assert_eq!(sockets.all.len(), CONNECTIONS);
        assert_eq!(sockets.come.len(), CONNECTIONS - 1);
        assert_eq!(sockets.says.len(), 2 * CONNECTIONS);
    }

    #[test]
    fn bytes_wait_for_mbufs_in_their_order() {
        let mut sockets = opened(10);
        let mbufs = sockets.mbufs.clone();
        let limits = mbufs.limits();
        let bytes = mbufs.devget(&[7; 100], 0).expect("an mbuf");
        let none = Limits {
            mbufs: 1,
            clusters: 0,
            jumbo_page: 0,
            jumbo9: 0,
            jumbo16: 0,
        };
        mbufs.set_limits(none).expect("lowered");
        let mut held = Vec::new();
        while let Ok(one) = mbufs.devget(&[1], 0) {
            held.push(one);
        }
        // Each zone has its own last mbuf.
        while let Ok(one) = mbufs.mini() {
            held.push(one);
        }
        sockets.sosend(ID, bytes).expect("an empty buffer");
        sockets.take(message(ID, Kind::Data, 2, b"ab"));
        sockets.take(message(ID, Kind::Ended, 0, &[]));
        let short = sockets.short == [ID] && sockets.late.len() == 2;
        mbufs.set_limits(limits).expect("raised");
        assert!(short && said(&sockets).is_empty());
        drop(held);
        sockets.catch_up();
        assert!(sockets.late.is_empty());
        assert_eq!(length(sockets.all[&ID].receive.as_ref()), 2);
        sockets.flush(ID);
        assert_eq!(said(&sockets), [(Kind::Data, 10)]);
    }
}
