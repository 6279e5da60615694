//! `shm:`: between processes, over rings in shared memory.
//!
//! Each end writes one half of a link and maps the other's read-only (`ring`), so that nobody can write
//! what is the other's to say. A frame is one or more lines of a ring; whoever sleeps is woken, and only then is a
//! system call made. A socket beside it makes the acquaintance, carries descriptors (the frame that they belong
//! to says how many to take), and shows the other end's end. The manager makes the pair, by its rules of who may create and
//! who may bind a name, and says whose process is at the other end.

mod link;
mod wire;

use crate::account::{Account, endpoint};
use crate::{Error, Kind};
use link::{Link, Sleeper};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tranship_core::{PeerSocket, SocketListener};
use tranship_ring::{Consumer, HalfRo, HalfRw, Producer, Publish, Push, Ring, Side, doorbell};
use tranship_sys::epoll::wait_readable;
use tranship_sys::socket::ToStranger;
use tranship_sys::{pidfd, socket};
use tranship_transport::{
    Backend, Bytes, Frame, FrameBytes, Listener, Readable, RecvError, Transport, Wait,
};
use wire::{Brought, Wire};

/// Lines of each ring.
const LINES: u32 = 2048;
/// Bytes of a frame in one line.
const LINE_BYTES: usize = 56;
/// The longest frame, bytes: metadata and what is around it.
const MAX_FRAME_BYTES: usize = 4096;
/// Descriptors of a frame, and of a message of the socket: more are not ours to keep.
const MAX_FDS: usize = 1;
/// Frames that may wait until the acquaintance is made.
const EARLY: usize = 16;
/// Looks without one at what the other end has taken, unless that many frames are out.
const HEAD_LOOKS: u32 = 32;
const MANY: usize = 64;
/// Empty looks between two looks at the socket.
const LOOKS: u32 = 1024;

/// The backend of the manager's names on this machine.
#[derive(Debug)]
pub struct Shm(pub(crate) Arc<Account>);

impl Default for Shm {
    /// By the process's own membership.
    fn default() -> Shm {
        Shm(Account::process())
    }
}

#[derive(Debug)]
struct Name {
    listener: SocketListener,
    /// Readable when the manager has something to say, or somebody who has connected.
    news: Arc<OwnedFd>,
}

/// Waits for the other end's half.
#[derive(Debug)]
struct Early(Arc<Wire>);

impl Wait for Early {
    fn wait(&self, limit: Duration) {
        // Whatever the kernel says, the caller looks again.
        let _ = wait_readable(&*self.0, Some(limit));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[derive(Debug)]
struct End {
    socket: Arc<Wire>,
    /// The other end's process, which may end while others still hold its socket.
    process: OwnedFd,
    pid: u32,
    listens: bool,
    /// Our half, until the other one is here.
    made: Option<HalfRw>,
    /// Our half's memory, until it is shown: with the first frame, by who connects.
    unshown: Option<OwnedFd>,
    /// The frame that came with the other half.
    first: Option<Frame>,
    link: Option<Arc<Link>>,
    producer: Producer,
    consumer: Consumer,
    early: VecDeque<Frame>,
    /// Where each frame that has not been taken ends in our ring.
    ends: VecDeque<(u64, u64)>,
    pushed: u64,
    sent: u64,
    /// How far the other end was, and how many looks it is until the next look at that.
    head_seen: u64,
    head_looks: Cell<u32>,
    /// Of the frame that is arriving: bytes so far, how many there will be, and descriptors.
    partial: FrameBytes,
    expects: Option<(usize, usize)>,
    looks: u32,
    /// Descriptors that a look at the socket found before the line that speaks of them.
    ahead: VecDeque<Shown>,
    hung_up: bool,
}

/// What a message of the socket says, and the descriptors that came with it.
type Shown = (Vec<u8>, Vec<OwnedFd>);

impl Shm {
    /// Over a membership that the program has.
    ///
    /// # Errors
    /// As [`Domain::over`](crate::Domain::over).
    pub fn over(domain: &tranship_core::Domain) -> Result<Shm, Error> {
        Ok(Shm(Account::over(domain)?))
    }
}

impl Backend for Shm {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        let domain = self.0.domain()?;
        let listener = domain.listen_socket(name).map_err(endpoint)?;
        let news = listener
            .as_fd()
            .try_clone_to_owned()
            .map_err(Error::system("fcntl"))?;
        Ok(Box::new(Name {
            listener,
            news: Arc::new(news),
        }))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        let met = self.0.domain()?.connect_socket(name).map_err(endpoint)?;
        if wire::is_shunned(met.uid) {
            return Err(Kind::PeerViolation.into());
        }
        Ok(Box::new(End::new(met, false)?))
    }

    fn bytes(&self) -> Bytes {
        Bytes::Shared
    }
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error> {
        // Whoever binds says so at once; who does not keeps nobody out.
        match self.listener.accept_speaking().map_err(endpoint)? {
            Some(met) if wire::is_shunned(met.uid) => {
                drop(ToStranger::from(met.socket));
                Ok(None)
            }
            Some(met) => Ok(Some(Box::new(End::new(met, true)?))),
            None => Ok(None),
        }
    }

    /// Its first frame comes with what makes it one that speaks.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        Arc::new(Readable(Arc::clone(&self.news)))
    }
}

impl End {
    /// Makes our half and shows it.
    fn new(met: PeerSocket, listens: bool) -> Result<End, Error> {
        let side = if listens { Side::Source } else { Side::Sink };
        let (memory, half) = HalfRw::create(side, LINES)?;
        let mut end = End {
            socket: Arc::new(Wire::new(met.socket, met.uid)),
            process: met.process,
            pid: met.pid,
            listens,
            made: Some(half),
            unshown: Some(memory),
            first: None,
            link: None,
            producer: Producer::new(),
            consumer: Consumer::new(),
            early: VecDeque::new(),
            ends: VecDeque::new(),
            pushed: 0,
            sent: 0,
            head_seen: 0,
            head_looks: Cell::new(0),
            partial: FrameBytes::new(),
            expects: None,
            looks: 0,
            ahead: VecDeque::new(),
            hung_up: false,
        };
        if listens {
            // That the other end is gone already is found by receiving.
            let _ = end.show_half(&[]);
        }
        Ok(end)
    }

    /// Shows our half, and says something with it.
    fn show_half(&mut self, says: &[u8]) -> Result<(), Error> {
        let Some(memory) = self.unshown.take() else {
            return Ok(());
        };
        let shown = socket::sendmsg(
            &*self.socket,
            &[b"L", says].concat(),
            &[memory.as_fd()],
            true,
        );
        shown.map_err(Error::of(Kind::PeerGone))
    }

    /// The next message of the socket.
    fn take_shown(&mut self) -> Result<Option<Shown>, RecvError> {
        match self.ahead.pop_front() {
            Some(shown) => Ok(Some(shown)),
            None => self.look_at_socket(),
        }
    }

    /// The next message of the socket, those apart that only wake. Of these it takes at most a few: more wait for the
    /// next look.
    fn look_at_socket(&mut self) -> Result<Option<Shown>, RecvError> {
        for _ in 0..EARLY {
            match self.receive()? {
                Some((bytes, fds)) if bytes == doorbell::PRESSED && fds.is_empty() => {}
                other => return Ok(other.map(|(bytes, fds)| (bytes[1..].to_vec(), fds))),
            }
        }
        Ok(None)
    }

    fn receive(&mut self) -> Result<Option<Shown>, RecvError> {
        let mut bytes = [0; 1 + MAX_FRAME_BYTES];
        // Before the look: what it sent before it ended is found by it.
        let dead = pidfd::is_dead(&self.process).unwrap_or(false);
        match self.socket.recv(&mut bytes) {
            Ok((_, Brought::Other)) => Err(Kind::PeerViolation.into()),
            // The kernel says the same of too many descriptors and of too few places for them.
            Ok((got, _)) if got.ctrunc && !socket::has_room_for(1, &*self.socket) => {
                Err(Kind::Limit.into())
            }
            Ok((got, _)) if got.ctrunc || got.truncated || got.fds.len() > MAX_FDS => {
                Err(Kind::PeerViolation.into())
            }
            Ok((got, _)) if got.bytes == 0 => {
                self.hung_up = true;
                Ok(None)
            }
            Ok((got, _)) => Ok(Some((bytes[..got.bytes].to_vec(), got.fds))),
            Err(error) if error.kind() == ErrorKind::WouldBlock && !dead => Ok(None),
            Err(error) if socket::is_shortage(&error) => {
                Err(RecvError::NotNow(Error::of(Kind::OutOfMemory)(error)))
            }
            Err(_) => {
                self.hung_up = true;
                Ok(None)
            }
        }
    }

    /// Takes the other end's half, if it is here; then what waited for it goes out.
    fn meet(&mut self) -> Result<(), RecvError> {
        if self.made.is_none() {
            return Ok(());
        }
        let Some((says, fds)) = self.take_shown()? else {
            return Ok(());
        };
        if !says.is_empty() {
            self.first = Some(Frame {
                bytes: says.into(),
                ..Frame::default()
            });
        }
        let (side, fd) = (!self.listens, fds.first().ok_or(Kind::PeerViolation)?);
        let side = if side { Side::Source } else { Side::Sink };
        let other = HalfRo::open(fd, side, LINES).map_err(Error::of(Kind::PeerViolation))?;
        let Some(own) = self.made.take() else {
            return Ok(());
        };
        let link = Link::new(Ring::new(own, other), Arc::clone(&self.socket));
        self.link = Some(Arc::new(link));
        while let Some(frame) = self.early.pop_front() {
            if self.push(&frame).is_err() {
                return Err(Kind::PeerViolation.into());
            }
        }
        Ok(())
    }

    fn push(&mut self, frame: &Frame) -> Result<(), Error> {
        let Some(link) = &self.link else {
            return Err(Kind::Full.into());
        };
        let lines = link.ring.own_lines();
        let pieces = frame.bytes.chunks(LINE_BYTES);
        let need = u32::try_from(pieces.len()).map_err(Error::of(Kind::Full))?;
        let room = self.producer.room(lines, need, || link.ring.their_head());
        // A head that cannot be is a violation; receiving ends the connection, which this only stops using.
        if room.map_err(Error::of(Kind::PeerGone))? < need {
            return Err(Kind::Full.into());
        }
        if !frame.fds.is_empty() {
            // Before the lines that speak of them.
            let fds: Vec<BorrowedFd<'_>> = frame.fds.iter().map(|fd| fd.as_fd()).collect();
            match socket::sendmsg(&*self.socket, b"F", &fds, true) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(Kind::Full.into());
                }
                Err(error) if socket::is_shortage(&error) => return Err(Kind::Full.into()),
                Err(_) => return Err(Kind::PeerGone.into()),
            }
        }
        for (number, piece) in pieces.enumerate() {
            let first = match number {
                0 => ((frame.bytes.len() as u64) << 40) | ((frame.fds.len() as u64) << 32),
                _ => 0,
            };
            let words = line(first, piece);
            // With the last line the other end is looked at.
            let publish = match (number + 1) * LINE_BYTES < frame.bytes.len() {
                true => Publish::Release,
                false => Publish::SeqCst,
            };
            // Crash: whoever dies between two lines leaves a frame that is never whole, and is never used.
            if self.producer.push(lines, publish, words) == Push::Full {
                return Err(Kind::PeerGone.into());
            }
            self.pushed += 1;
        }
        self.ends.push_back((self.pushed, self.sent));
        self.sent += 1;
        link.notify();
        Ok(())
    }

    /// The next whole frame of the ring.
    fn pop(&mut self, link: &Link) -> Result<Option<Frame>, RecvError> {
        let lines = link.ring.their_lines();
        loop {
            // One that is whole waits for its descriptors.
            if let Some((len, fds)) = self.expects
                && self.partial.len() == len
            {
                return self.whole(link, fds).map(Some);
            }
            let Some(words) = self.consumer.try_pop(lines) else {
                return Ok(None);
            };
            let (len, _) = match self.expects {
                Some(expects) => expects,
                None => {
                    let len = usize::try_from(words[0] >> 40).unwrap_or(usize::MAX);
                    let fds = usize::try_from((words[0] >> 32) & 0xff).unwrap_or(usize::MAX);
                    if len == 0 || len > MAX_FRAME_BYTES || fds > MAX_FDS {
                        return Err(Kind::PeerViolation.into());
                    }
                    self.expects = Some((len, fds));
                    (len, fds)
                }
            };
            let missing = (len - self.partial.len()).min(LINE_BYTES);
            self.partial.extend_from_slice(&piece(&words)[..missing]);
        }
    }

    /// The frame whose lines have all come, with its descriptors.
    fn whole(&mut self, link: &Link, fds: usize) -> Result<Frame, RecvError> {
        let mut shown = Vec::new();
        if fds > 0 {
            if self.ahead.is_empty() && !socket::has_room_for(fds, &*self.socket) {
                return Err(RecvError::NotNow(Kind::Limit.into()));
            }
            // They were sent before the line.
            let (_, all) = self.take_shown()?.ok_or(Kind::PeerViolation)?;
            shown.extend(all.into_iter().map(Arc::new));
        }
        if shown.len() != fds {
            return Err(Kind::PeerViolation.into());
        }
        self.expects = None;
        link.ring.give_back_and_fence(self.consumer.head());
        link.notify();
        Ok(Frame {
            bytes: std::mem::take(&mut self.partial),
            fds: shown,
            payload: None,
        })
    }
}

/// A line of a frame's bytes.
#[inline]
fn line(first: u64, piece: &[u8]) -> [u64; 8] {
    let mut bytes = [0; LINE_BYTES];
    bytes[..piece.len()].copy_from_slice(piece);
    let mut words = [first; 8];
    for (word, bytes) in words[1..].iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// The bytes of a line.
#[inline]
fn piece(words: &[u64; 8]) -> [u8; LINE_BYTES] {
    let mut bytes = [0; LINE_BYTES];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&words[1..]) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        if frame.bytes.is_empty() || frame.bytes.len() > MAX_FRAME_BYTES {
            return Err(Kind::Full.into());
        }
        if self.link.is_none() && self.meet().is_err() {
            return Err(Kind::PeerGone.into());
        }
        if self.unshown.is_some() && frame.fds.is_empty() {
            self.show_half(&frame.bytes)?;
            // Taken as soon as the other half is here.
            self.ends.push_back((0, self.sent));
            self.sent += 1;
            return Ok(());
        }
        match (self.link.is_some(), self.early.len() < EARLY) {
            (true, _) => self.push(frame),
            (false, true) => {
                self.early.push_back(frame.clone());
                Ok(())
            }
            (false, false) => Err(Kind::Full.into()),
        }
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        self.meet()?;
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(link) = self.link.take() else {
            return match self.hung_up {
                true => Err(Kind::PeerGone.into()),
                false => Ok(None),
            };
        };
        let received = self.recv_over(&link);
        self.link = Some(link);
        received
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        let Some(link) = &self.link else {
            return;
        };
        // The line of the other end's head is not fetched at each look: it takes part in every message then.
        if self.ends.len() < MANY && self.head_looks.get() > 0 {
            self.head_looks.set(self.head_looks.get() - 1);
            return;
        }
        if self.ends.is_empty() {
            return;
        }
        self.head_looks.set(HEAD_LOOKS);
        self.head_seen = link.ring.their_head();
        while let Some((end, number)) = self.ends.front() {
            if *end > self.head_seen {
                break;
            }
            numbers.push(*number);
            self.ends.pop_front();
        }
    }

    fn peer_process(&self) -> u32 {
        self.pid
    }

    fn peer_owner(&self) -> String {
        format!("user {}", self.socket.uid())
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        // What has been taken meanwhile lets nobody sleep, and is looked at next.
        self.head_looks.set(0);
        match &self.link {
            Some(link) => Arc::new(Sleeper {
                link: Arc::clone(link),
                head: self.head_seen,
            }),
            None => Arc::new(Early(Arc::clone(&self.socket))),
        }
    }
}

impl End {
    fn recv_over(&mut self, link: &Link) -> Result<Option<Frame>, RecvError> {
        // Ordering: relaxed; a word of our own.
        if link.armed.load(Ordering::Relaxed) {
            link.disarm();
        }
        if let Some(frame) = self.pop(link)? {
            return Ok(Some(frame));
        }
        let mut over = link.has_ended() || self.hung_up;
        self.looks = self.looks.wrapping_add(1);
        // Before its first line the other end may have ended without a link to say so in.
        let now = self.looks.is_multiple_of(LOOKS) || self.consumer.head() == 0;
        // Ordering: relaxed; a hint of our own.
        let suspect = link.suspect.load(Ordering::Relaxed);
        if !over && (suspect || now) {
            link.suspect.store(false, Ordering::Relaxed);
            // The end of the socket is the other end's. Descriptors may come just ahead of their line.
            match self.look_at_socket()? {
                Some(_) if self.ahead.len() >= EARLY => return Err(Kind::PeerViolation.into()),
                Some(shown) => self.ahead.push_back(shown),
                None => over = self.hung_up,
            }
        }
        if !over {
            return Ok(None);
        }
        // What it published before it ended.
        match self.pop(link)? {
            Some(frame) => Ok(Some(frame)),
            None => Err(Kind::PeerGone.into()),
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.end();
        }
    }
}
