//! One channel's session between two processes: frames in order, each once, over one TCP connection after the other.
//!
//! A sent frame stays here until the other end's program has taken it: its bytes, and a reference to its buffer. After
//! a connection is lost, the end that connected makes another one. Both ends then state how many frames their programs
//! have taken, and send everything after that again. Nothing is received ahead of the program except the bytes that one
//! look finds: a frame that was not taken is simply sent again.
//!
//! Here: the calls of the program. The timed work is in `tick`, the records themselves are in `flow`.

use super::address::Address;
use super::alarm;
use super::flow::{Given, Inner, Outgoing};
use super::line::Line;
use super::link::{Link, Look, Waits};
use super::settings::{Settings, Timing};
use super::states::{Coming, News, Over};
use super::wire::{FrameKind, Header, MAX_FRAME_BYTES, Secret};
use crate::{Error, ErrorKind, FrameBytes, Source, Target, Transport};
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tranship_sys::epoll::{Epoll, Interest};
use tranship_sys::eventfd;

/// Most frames that may be under way, or waiting to be.
const WINDOW: usize = 1024;

/// Records without a frame that one look takes: an honest end sends one for many frames.
pub(super) const MOST_RECORDS: usize = 256;

/// Time after which a program that has not looked counts as busy: the timer thread sends the waiting records.
pub(super) const IDLE: Duration = Duration::from_millis(10);

/// Parameters with which a session reaches the other end again.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) settings: Arc<Settings>,
    pub(super) address: Address,
    /// The process that has the session.
    pub(super) process: Secret,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: Secret,
    pub(super) timing: Timing,
    /// Name of the other end, for messages.
    pub(super) peer: String,
    /// Parameters for another connection, if this end makes it.
    pub(super) caller: Option<Caller>,
    /// Stays open as long as the session.
    _port: Option<Arc<dyn Debug + Send + Sync>>,
    /// Signalled when there is news that the socket does not show.
    pub(super) doorbell: OwnedFd,
    /// Readable when the doorbell rings, the socket has something, or it has room that was asked for.
    pub(super) ready: Epoll,
    inner: Mutex<Inner>,
}

impl Session {
    pub(super) fn new(
        id: Secret,
        timing: Timing,
        peer: String,
        caller: Option<Caller>,
        port: Option<Arc<dyn Debug + Send + Sync>>,
    ) -> io::Result<Arc<Session>> {
        let now = Instant::now();
        let (doorbell, ready) = (eventfd::create()?, Epoll::new()?);
        ready.add(&doorbell, 0, Interest::Read)?;
        Ok(Arc::new(Session {
            id,
            timing,
            peer,
            caller,
            _port: port,
            doorbell,
            ready,
            inner: Mutex::new(Inner::new(now)),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the session. None: the program has it just now.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(inner)) => Some(inner.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Rings the doorbell: something is new that the socket does not show.
    pub(super) fn ring(&self, inner: &mut Inner) {
        inner.is_rung = true;
        // This fails only if the doorbell is rung already.
        let _ = eventfd::signal(&self.doorbell);
    }

    pub(super) fn end(&self, inner: &mut Inner, over: Over) {
        let gone = inner.end(over);
        self.unwatch(gone);
        self.ring(inner);
    }

    /// Drops a connection, if there was one.
    fn unwatch(&self, gone: Option<Link>) {
        if let Some(link) = gone {
            // The timer thread may hold the socket for a moment: it fails only if it was never watched.
            let _ = self.ready.remove(&*link.line.socket());
        }
    }

    /// Makes the descriptor report room, too, for as long as output waits for some.
    pub(super) fn ask_for_room(&self, inner: &mut Inner) {
        let interest = match inner.is_blocked() {
            true => Interest::ReadWrite,
            false => Interest::Read,
        };
        if let Some(link) = inner.connection.up_mut()
            && link.interest != interest
        {
            // The timer thread sees the news that the descriptor does not report.
            let _ = self.ready.modify(&*link.line.socket(), 1, interest);
            link.interest = interest;
        }
    }

    /// Notes that the connection is lost.
    pub(super) fn lose(&self, inner: &mut Inner, why: String) {
        let gone = inner.lose(why);
        if gone.is_none() {
            return;
        }
        self.unwatch(gone);
        if let Some(lost) = inner.connection.lost()
            && self.timing.grace.is_zero()
        {
            let why = Over::gone(lost.why.clone());
            return self.end(inner, why);
        }
        self.ring(inner);
        alarm::wake();
    }

    /// Returns whether bytes have come; notes the end of the connection.
    fn has_come(&self, inner: &mut Inner, got: io::Result<usize>) -> bool {
        match got {
            Ok(0) => self.closed(inner),
            Ok(_) => return true,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {}
                // Only bytes that TLS does not accept: another process has written into the connection, or something
                // broke it.
                io::ErrorKind::InvalidData => {
                    let why = format!("{} sent what TLS refuses: {error}", self.peer);
                    self.lose(inner, why);
                }
                _ => {
                    let why = format!("the connection to {} broke: {error}", self.peer);
                    self.lose(inner, why);
                }
            },
        }
        false
    }

    /// Notes that the other end has closed the connection.
    fn closed(&self, inner: &mut Inner) {
        let why = inner
            .connection
            .up_mut()
            .and_then(|link| link.closed.take());
        let why = why.unwrap_or_else(|| format!("{} closed the connection", self.peer));
        self.lose(inner, why);
    }

    /// Continues over a new connection; the other end's program has taken `taken` frames of ours.
    pub(super) fn attach(&self, inner: &mut Inner, line: Line, taken: u64) {
        if inner.is_over() {
            return;
        }
        let all = inner.first + inner.out.len() as u64;
        if taken < inner.first || taken > all {
            let why = format!(
                "{} says that it has taken {taken} frames, of which {} to {all} can be",
                self.peer, inner.first
            );
            return self.end(inner, Over::broken(why));
        }
        let socket = line.socket();
        let before = inner.renew(line);
        self.unwatch(before);
        let watched = self.ready.add(&*socket, 1, Interest::Read);
        inner.forget(taken);
        if let Err(error) = watched {
            let why = format!("the connection to {} cannot be watched: {error}", self.peer);
            return self.lose(inner, why);
        }
        self.flush(inner);
        self.ring(inner);
    }

    /// Puts the waiting records into the socket, as far as there is room; returns whether all of them went.
    pub(super) fn flush(&self, inner: &mut Inner) -> bool {
        match inner.write() {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                // Bytes from before the end may still be there to be taken: the end is found by reading.
                let why = format!(
                    "the connection to {} takes nothing more: {error}",
                    self.peer
                );
                if let Some(link) = inner.connection.up_mut() {
                    link.closed = Some(why);
                }
                self.ring(inner);
                true
            }
        }
    }

    /// Applies the statements of a record besides its frame. False: the session is over.
    pub(super) fn apply(&self, inner: &mut Inner, header: &Header) -> bool {
        let sent = inner.sent();
        if header.taken < inner.first || header.taken > sent {
            let why = format!(
                "{} says that it has taken {} frames, of which {} to {sent} can be",
                self.peer, header.taken, inner.first
            );
            self.end(inner, Over::broken(why));
            return false;
        }
        inner.forget(header.taken);
        if header.number != inner.taken {
            let why = format!(
                "{} sent frame {} where {} is next",
                self.peer, header.number, inner.taken
            );
            self.end(inner, Over::broken(why));
            return false;
        }
        if header.kind == FrameKind::Bye {
            let why = format!("{} has ended the channel", self.peer);
            self.end(inner, Over::gone(why));
            return false;
        }
        true
    }

    /// Applies the records before the next frame; returns what waits after them. A record that is not valid waits for
    /// the program, too. `Record`: there are more records than one look takes.
    pub(super) fn advance(&self, inner: &mut Inner) -> Waits {
        for _ in 0..MOST_RECORDS {
            match inner.waits() {
                Waits::Program => return Waits::Program,
                Waits::Record => {
                    if let Ok(Look::Record(header, _)) = inner.look()
                        && !self.apply(inner, &header)
                    {
                        return Waits::Nothing;
                    }
                }
                Waits::Nothing => {
                    let got = inner.read();
                    if !self.has_come(inner, got) {
                        return Waits::Nothing;
                    }
                }
            }
        }
        Waits::Record
    }

    /// Returns the next frame's record, with everything before it applied. None: not yet, or the session is over.
    fn next_record(&self, inner: &mut Inner) -> Option<(Header, FrameBytes)> {
        match self.advance(inner) {
            Waits::Nothing => return None,
            // The program is to look again.
            Waits::Record => {
                self.ring(inner);
                return None;
            }
            Waits::Program => {}
        }
        match inner.look() {
            Ok(Look::Record(header, bytes)) => {
                self.apply(inner, &header).then_some((header, bytes))
            }
            Ok(Look::Incomplete) => None,
            Err(rule) => {
                let why = format!("{} sent {rule}", self.peer);
                self.end(inner, Over::broken(why));
                None
            }
        }
    }

    fn gone(inner: &Inner) -> Option<Error> {
        inner.connection.over().map(|over| {
            let kind = match over.violation {
                true => ErrorKind::PeerViolation,
                false => ErrorKind::PeerGone,
            };
            Error::new(kind, over.why.clone())
        })
    }

    /// Reports the frames that were taken, if that has not been reported.
    pub(super) fn tell(&self, inner: &mut Inner) {
        if inner.news != News::Nothing {
            inner.news.hurry();
            self.flush(inner);
        }
    }

    /// Returns whether output waits for room and no thread looks after it.
    pub(super) fn is_stuck(inner: &Inner, now: Instant) -> bool {
        inner.is_blocked() && !inner.program.is_attentive(now, IDLE)
    }
}

/// The program's end of a session.
#[derive(Debug)]
pub(super) struct End(pub(super) Arc<Session>);

impl Transport for End {
    fn send(&mut self, frame: &[u8], buffer: Option<&Arc<dyn Source>>) -> Result<(), Error> {
        let session = &*self.0;
        let mut inner = session.lock();
        let inner = &mut *inner;
        if inner.is_over() {
            return Err(ErrorKind::PeerGone.into());
        }
        let len = frame.len();
        if inner.out.len() >= WINDOW || len == 0 || len > MAX_FRAME_BYTES {
            return Err(ErrorKind::Full.into());
        }
        inner.out.push_back(Outgoing {
            bytes: FrameBytes::from_slice(frame),
            buffer: buffer.cloned(),
        });
        if !session.flush(inner) && !std::mem::replace(&mut inner.is_watched, true) {
            alarm::wake();
        }
        Ok(())
    }

    fn recv(&mut self) -> Result<Option<(FrameBytes, usize)>, Error> {
        let session = &*self.0;
        let mut inner = session.lock();
        let inner = &mut *inner;
        session.flush(inner);
        if inner.is_watched {
            inner.program.looked(Instant::now());
        }
        if inner.given.is_some() {
            return Ok(None);
        }
        if let Some((header, bytes)) = session.next_record(inner) {
            match header.payload_bytes {
                0 => inner.count(false),
                payload_bytes => {
                    inner.given = Some(Given::new(header.frame_bytes, payload_bytes));
                }
            }
            inner.has_found = true;
            return Ok(Some((bytes, header.payload_bytes)));
        }
        if let Some(gone) = Session::gone(inner) {
            return Err(gone);
        }
        // The next frame also reports the frames that were taken. A program that looks again first, or sleeps, sends no
        // frame.
        if !std::mem::take(&mut inner.has_found) {
            session.tell(inner);
        }
        Ok(None)
    }

    fn came(&self) -> usize {
        let session = &*self.0;
        let inner = session.lock();
        inner.given.as_ref().map_or(0, Given::came)
    }

    fn fill(&mut self, place: &mut dyn Target) -> Result<bool, Error> {
        let session = &*self.0;
        let mut inner = session.lock();
        let inner = &mut *inner;
        // A program that takes large buffers all the time leaves the timer thread no moment to report.
        let said = inner.connection.up().map(|link| link.said.elapsed());
        if said >= Some(session.timing.keepalive) {
            inner.news.hurry();
        }
        session.flush(inner);
        loop {
            if let Some(gone) = Session::gone(inner) {
                return Err(gone);
            }
            match &inner.given {
                None => return Ok(true),
                Some(given) if given.coming == Coming::Frame => {
                    let (frame_bytes, payload_bytes) = (given.frame_bytes, given.payload_bytes);
                    let Some((header, _)) = session.next_record(inner) else {
                        match inner.is_over() {
                            true => continue,
                            false => return Ok(false),
                        }
                    };
                    if (header.frame_bytes, header.payload_bytes) != (frame_bytes, payload_bytes) {
                        let why = format!("{} sent another frame the second time", session.peer);
                        session.end(inner, Over::broken(why));
                    } else if let Some(given) = &mut inner.given {
                        given.coming = Coming::Bytes(0);
                    }
                }
                Some(given) if given.came() == given.payload_bytes => {
                    inner.given = None;
                    inner.count(true);
                    session.flush(inner);
                    return Ok(true);
                }
                Some(_) => {
                    let got = inner.fill_some(place);
                    if !session.has_come(inner, got) {
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn done(&mut self) -> u64 {
        self.0.lock().first
    }

    fn peer_place(&self) -> String {
        self.0.peer.clone()
    }

    fn why(&self) -> Option<String> {
        let inner = self.0.lock();
        inner.connection.over().map(|over| over.why.clone())
    }

    fn watched(&self) -> (BorrowedFd<'_>, bool) {
        (self.0.ready.as_fd(), false)
    }

    fn arm(&mut self, tells: bool) -> bool {
        let session = &*self.0;
        let mut inner = session.lock();
        if std::mem::take(&mut inner.is_rung) || inner.is_over() {
            // This fails only if nothing has rung.
            let _ = eventfd::drain(&session.doorbell);
            return false;
        }
        // Only for frames with a buffer the other end keeps something.
        if tells && !matches!(inner.news, News::Taken { buffers: false, .. }) {
            session.tell(&mut inner);
        }
        session.ask_for_room(&mut inner);
        true
    }
}

impl Drop for End {
    /// Releases the session for the program: frames that were sent still go out, and a farewell.
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.program.left(Instant::now());
        inner.given = None;
        self.0.flush(&mut inner);
        drop(inner);
        alarm::wake();
    }
}
