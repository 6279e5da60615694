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
use tranship_mbuf::{Chain, Mbufs};

/// Most bytes of a socket that the program has sent, and TCP/IP has no room for yet (`so_snd.sb_hiwat`).
pub const SEND: usize = 256 << 10;

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
            counts: Counts::default(),
        };
        sockets.lose();
        sockets
    }

    /// Takes note that TCP/IP has died: all connections are gone, and a new process is greeted.
    pub fn lose(&mut self) {
        self.says.clear();
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

    /// Takes a message of TCP/IP. A message of another meaning is dropped.
    pub fn take(&mut self, message: Message) {
        let Some(note) = Note::read(message.word) else {
            return;
        };
        if note.kind == Kind::Opened {
            let socket = Socket {
                room: note.bytes,
                ..Socket::default()
            };
            self.all.insert(note.id, socket);
            self.come.push_back(note.id);
            return;
        }
        let Some(socket) = self.all.get_mut(&note.id) else {
            return;
        };
        match note.kind {
            Kind::Data => {
                let bytes = self.mbufs.receive(message).ok();
                let fits = |bytes: &Chain| {
                    let all = length(socket.receive.as_ref()) + bytes.len();
                    bytes.len() == note.bytes && all <= 2 * RECEIVE
                };
                match bytes.filter(fits) {
                    // The program receives no more.
                    Some(bytes) if self.closing.contains(&note.id) => {
                        self.say(note.id, Kind::Taken, bytes.len(), None);
                    }
                    Some(bytes) => add(&mut socket.receive, bytes),
                    // Without its bytes the stream cannot go on.
                    None => {
                        socket.lose();
                        self.say(note.id, Kind::Closed, 0, None);
                    }
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
    /// `WouldBlock`, `Gone`, `NotConnected`; `Mbufs` if there is no mbuf for a cut. Bytes that came are received first.
    pub fn soreceive(&mut self, id: Id, most: usize) -> Result<Option<Chain>, SocketError> {
        let socket = self.all.get_mut(&id).ok_or(SocketError::NotConnected)?;
        match cut(&mut socket.receive, most)? {
            Some(bytes) => {
                self.counts.received += bytes.len() as u64;
                self.say(id, Kind::Taken, bytes.len(), None);
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

    /// Sends what there is to say to TCP/IP, as far as its channel has room. Returns whether all went. Buffers of `pool`
    /// cross by reference; all other bytes are copied into it, and counted.
    ///
    /// # Errors
    /// Those of the channel, except that it is full; `OutOfMemory` of the pool. What was not sent stays to be said.
    pub fn send_to(
        &mut self,
        tcpip: &mut Sender,
        pool: &Pool,
    ) -> Result<bool, tranship_core::Error> {
        use tranship_core::ErrorKind;
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
        Ok(true)
    }

    fn say(&mut self, id: Id, kind: Kind, bytes: usize, body: Option<Chain>) {
        self.says.push_back((Note::new(id, kind, bytes), body));
    }

    fn forget(&mut self, id: Id) {
        self.all.remove(&id);
        self.closing.retain(|closing| *closing != id);
    }

    /// Says the bytes that TCP/IP has room for, and the end behind the last of them.
    fn flush(&mut self, id: Id) {
        let Some(socket) = self.all.get_mut(&id) else {
            return;
        };
        // Without an mbuf for the cut the bytes wait for the next room.
        while socket.room > 0
            && let Ok(Some(bytes)) = cut(&mut socket.send, socket.room)
        {
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
