//! One listening port for all channels of a process that are named at it.
//!
//! Each connection does its handshake on a thread of its own; there are so many of them at most ([`Handshakes`]).

use super::handshakes::{Handshakes, MOST, Progress};
use super::line::Line;
use super::patient::{self, Patient};
use super::session::Session;
use super::settings::{Security, Settings};
use super::tls::TlsStream;
use super::wire::{Answer, HELLO_BYTES, Hello, Malformed, Secret, Status};
use super::{timer, tls};
use crate::{Error, ErrorKind};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tranship_sys::{epoll, eventfd, stream};

/// Most sessions of a port.
const MAX_SESSIONS: usize = 4096;
/// Most clients that wait at one name.
const MAX_WAITING: usize = 64;
/// A name that was just taken may be offered again: so long a client waits for that.
const BETWEEN: Duration = Duration::from_secs(1);

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) address: SocketAddr,
    settings: Arc<Settings>,
    stop: OwnedFd,
    listens: Mutex<Option<JoinHandle<()>>>,
    book: Mutex<Book>,
    /// Rung when a name was offered.
    offered: Condvar,
}

/// A session, and the certificate of its client.
type Known = (Weak<Session>, Option<Arc<[u8]>>);

#[derive(Debug, Default)]
struct Book {
    doors: HashMap<String, Arc<Door>>,
    /// Names that were taken, until when they may come back.
    recent: HashMap<String, Instant>,
    sessions: HashMap<Secret, Known>,
    handshakes: Handshakes,
}

/// Queue of the clients that connect to one name.
#[derive(Debug)]
pub(super) struct Door {
    /// Sessions that wait; none once the name was given up.
    waiting: Mutex<Option<Waiting>>,
    pub(super) doorbell: OwnedFd,
}

#[derive(Debug, Default)]
struct Waiting {
    sessions: VecDeque<Arc<Session>>,
    /// Clients that have a place and are still being welcomed.
    coming: usize,
}

/// A place at a door, for one session. Dropping it gives the place up.
#[derive(Debug)]
pub(super) struct Place {
    door: Arc<Door>,
    is_used: bool,
}

impl Door {
    fn new(doorbell: OwnedFd) -> Door {
        Door {
            waiting: Mutex::new(Some(Waiting::default())),
            doorbell,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Option<Arc<Session>> {
        // The doorbell is rung at each arrival; there may be several.
        let _ = eventfd::drain(&self.doorbell);
        self.lock().as_mut()?.sessions.pop_front()
    }

    /// Takes a place, before the client is told that it is welcome; none if too many wait.
    fn place(self: &Arc<Self>) -> Option<Place> {
        if let Some(waiting) = &mut *self.lock() {
            if waiting.sessions.len() + waiting.coming >= MAX_WAITING {
                return None;
            }
            waiting.coming += 1;
        }
        Some(Place {
            door: self.clone(),
            is_used: false,
        })
    }
}

impl Place {
    /// Puts a session into the queue. Returns it if the name was given up.
    fn put(mut self, session: Arc<Session>) -> Result<(), Arc<Session>> {
        match &mut *self.door.lock() {
            Some(waiting) => {
                waiting.coming -= 1;
                waiting.sessions.push_back(session);
            }
            None => return Err(session),
        }
        self.is_used = true;
        // This fails only if the doorbell is rung already.
        let _ = eventfd::signal(&self.door.doorbell);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_used
            && let Some(waiting) = &mut *self.door.lock()
        {
            waiting.coming -= 1;
        }
    }
}

impl Port {
    pub(super) fn open(settings: &Arc<Settings>, at: SocketAddr) -> Result<Arc<Port>, Error> {
        let failed =
            |error: io::Error| Error::because(ErrorKind::InvalidEndpoint, at.to_string(), error);
        let allowed = settings.security.allows(at);
        allowed.map_err(|why| Error::new(ErrorKind::InvalidEndpoint, format!("{at}: {why}")))?;
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = Arc::new(Port {
            address: listener.local_addr().map_err(failed)?,
            settings: Arc::clone(settings),
            stop: eventfd::create().map_err(failed)?,
            listens: Mutex::new(None),
            book: Mutex::default(),
            offered: Condvar::new(),
        });
        let stop = port.stop.try_clone().map_err(failed)?;
        let weak = Arc::downgrade(&port);
        let run = move || listen(&listener, &stop, &weak);
        let started = timer::thread("tranship-port", run).map_err(failed)?;
        *port.listens.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(port)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a name; None: it is offered already.
    pub(super) fn offer(&self, name: &str) -> io::Result<Option<Arc<Door>>> {
        let door = Arc::new(Door::new(eventfd::create()?));
        let mut book = self.lock();
        if book.doors.contains_key(name) {
            return Ok(None);
        }
        book.doors.insert(name.to_owned(), Arc::clone(&door));
        drop(book);
        self.offered.notify_all();
        Ok(Some(door))
    }

    /// Withdraws a name; the clients that waited there are told.
    pub(super) fn withdraw(&self, name: &str, door: &Door) {
        let mut book = self.lock();
        book.doors.remove(name);
        let now = Instant::now();
        book.recent.retain(|_, until| *until > now);
        book.recent.insert(name.to_owned(), now + BETWEEN);
        drop(book);
        let waiting = door.lock().take();
        for session in waiting.into_iter().flat_map(|waiting| waiting.sessions) {
            session.leave();
        }
    }

    fn refuse(&self, why: String) {
        let refused = self.settings.refused.lock();
        let mut refused = refused.unwrap_or_else(PoisonError::into_inner);
        let count = refused.0 + 1;
        *refused = (count, Some(why.clone()));
        drop(refused);
        let said = self.settings.said.lock();
        let mut said = said.unwrap_or_else(PoisonError::into_inner);
        // A client that comes often does not fill the log.
        let often = said.is_some_and(|(when, _)| when.elapsed() < BETWEEN);
        if !often {
            let unsaid = count - 1 - said.map_or(0, |(_, count)| count);
            tracing::warn!(port = %self.address, unsaid, "refused: {why}");
            *said = Some((Instant::now(), count));
        }
    }

    fn door(&self, name: &str, until: Instant) -> Option<Arc<Door>> {
        let mut book = self.lock();
        loop {
            if let Some(door) = book.doors.get(name) {
                return Some(Arc::clone(door));
            }
            let until = until.min(*book.recent.get(name)?);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.offered.wait_timeout(book, left);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn remember(&self, session: &Arc<Session>, who: Option<Arc<[u8]>>) -> bool {
        let mut book = self.lock();
        book.sessions
            .retain(|_, (session, _)| session.strong_count() > 0);
        let room = book.sessions.len() < MAX_SESSIONS && !book.sessions.contains_key(&session.id);
        if room {
            let weak = Arc::downgrade(session);
            book.sessions.insert(session.id, (weak, who));
        }
        room
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // This fails only if the doorbell is rung already.
        let _ = eventfd::signal(&self.stop);
        let listens = self.listens.get_mut();
        let listens = listens.unwrap_or_else(PoisonError::into_inner).take();
        // The address is thus free once this is gone. The thread itself may be the last to have held it.
        if let Some(listens) = listens
            && listens.thread().id() != std::thread::current().id()
        {
            let _ = listens.join();
        }
    }
}

fn listen(listener: &TcpListener, stop: &OwnedFd, port: &Weak<Port>) {
    loop {
        // Whatever the kernel returns, both are checked.
        let _ = stream::wait(Some(listener), false, Some(stop), Duration::from_secs(3600));
        let Some(port) = port.upgrade() else {
            return;
        };
        match listener.accept() {
            Ok((socket, from)) => welcome(&port, socket, from),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // No descriptors, or no memory: connections wait in the kernel's queue meanwhile.
            Err(_) => {
                let _ = epoll::wait_readable(stop, Some(Duration::from_millis(50)));
            }
        }
    }
}

fn welcome(port: &Arc<Port>, socket: TcpStream, from: SocketAddr) {
    let let_in = || -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let own = socket.try_clone().map_err(failed)?;
        let admitted = port.lock().handshakes.admit(from.ip(), own, Instant::now());
        let (number, progress) = admitted
            .ok_or_else(|| format!("{MOST} other handshakes are under way, which is the limit"))?;
        let own = Arc::clone(port);
        let started = timer::thread("tranship-greet", move || {
            let parting = socket.try_clone();
            if let Err(why) = greet(&own, socket, from, &progress) {
                let away = progress.is_sent_away();
                own.refuse(match away {
                    true => {
                        format!("{from}: it made room for others before its handshake was done")
                    }
                    false => format!("{from}: {why}"),
                });
                if let Ok(socket) = parting
                    && !away
                {
                    patient::part(&socket);
                }
            }
            own.lock().handshakes.dismiss(number);
        });
        started.map(drop).map_err(|error| {
            port.lock().handshakes.dismiss(number);
            failed(error)
        })
    };
    if let Err(why) = let_in() {
        port.refuse(format!("{from}: {why}"));
    }
}

/// Does the handshake with a new client.
fn greet(
    port: &Arc<Port>,
    socket: TcpStream,
    from: SocketAddr,
    progress: &Progress,
) -> Result<(), String> {
    let failed = |error: io::Error| tls::explain(&error);
    let timing = &port.settings.timing;
    let until = Instant::now() + timing.handshake;
    socket.set_nonblocking(false).map_err(failed)?;
    stream::watch(&socket, timing.keepalive, timing.idle_timeout).map_err(failed)?;
    let mut patient = Patient::new(&socket, until).noting(progress);
    let mut secured = match &port.settings.security {
        Security::Plain { .. } => None,
        Security::Tls(credentials) => Some(credentials.accept(&mut patient)?),
    };
    if secured.is_some() {
        progress.certified();
    }
    let who = secured.as_ref().and_then(|tls| tls::peer(tls));
    let hello = match &mut secured {
        None => hear(&mut patient),
        Some(tls) => {
            let socket = &mut patient;
            hear(&mut TlsStream { tls, socket })
        }
    };
    let mut handshake = Handshake {
        port,
        from,
        until,
        who,
    };
    let decided = match hello.map_err(failed)? {
        Ok(hello) => handshake.decide(&hello),
        Err(Malformed::Version(other)) => {
            Decided::refused(Status::OtherVersion, format!("it speaks version {other}"))
        }
        Err(Malformed::Nonsense) => return Err("that is no tranship".to_owned()),
    };
    let (status, taken) = match &decided {
        Decided::Refused(status, _) => (*status, 0),
        Decided::New(..) => (Status::Welcome, 0),
        Decided::Again(_, taken, ..) => (Status::Welcome, *taken),
    };
    if status == Status::Welcome && !progress.welcome() {
        return Err("it made room".to_owned());
    }
    let answer = Answer {
        status,
        process: port.settings.process,
        taken,
    };
    let mut patient = Patient::new(&socket, until);
    let said = match &mut secured {
        None => tell(&mut patient, &answer),
        Some(tls) => {
            let socket = &mut patient;
            tell(&mut TlsStream { tls, socket }, &answer)
        }
    };
    match decided {
        Decided::Refused(_, why) => Err(why),
        Decided::New(place, session) => {
            said.map_err(failed)?;
            let line = Line::new(socket, secured).map_err(failed)?;
            session.attach(&mut session.lock(), line, 0);
            timer::keep(Arc::clone(&session)).map_err(failed)?;
            place.put(session).map_err(|session| {
                session.leave();
                "the name was just given up".to_owned()
            })
        }
        Decided::Again(session, _, theirs, lines) => {
            said.map_err(failed)?;
            let line = Line::new(socket, secured).map_err(failed)?;
            let mut inner = session.lock();
            // A quicker client may have come meanwhile.
            if inner.lines == lines && !inner.is_over() {
                session.attach(&mut inner, line, theirs);
            }
            Ok(())
        }
    }
}

enum Decided {
    Refused(Status, String),
    New(Place, Arc<Session>),
    /// The session, the frames that were taken here and there, and the number of the connection that it had.
    Again(Arc<Session>, u64, u64, u64),
}

impl Decided {
    fn refused(status: Status, why: impl Into<String>) -> Decided {
        Decided::Refused(status, why.into())
    }
}

struct Handshake<'a> {
    port: &'a Arc<Port>,
    from: SocketAddr,
    until: Instant,
    who: Option<Arc<[u8]>>,
}

impl Handshake<'_> {
    fn decide(&mut self, hello: &Hello) -> Decided {
        match hello.again {
            true => self.again(hello),
            false => self.new_session(hello),
        }
    }

    fn new_session(&mut self, hello: &Hello) -> Decided {
        let Some(door) = self.port.door(&hello.name, self.until) else {
            let why = format!("no listener is named {:?}", hello.name);
            return Decided::refused(Status::NoSuchName, why);
        };
        let Some(place) = door.place() else {
            let why = format!("{MAX_WAITING} clients wait at {:?}", hello.name);
            return Decided::refused(Status::Busy, why);
        };
        let session = Session::new(
            hello.session,
            self.port.settings.timing,
            self.from.to_string(),
            None,
            Some(self.port.clone()),
        );
        match session {
            Ok(session) if self.port.remember(&session, self.who.take()) => {
                Decided::New(place, session)
            }
            _ => Decided::refused(Status::Busy, "too many sessions"),
        }
    }

    fn again(&self, hello: &Hello) -> Decided {
        let book = self.port.lock();
        let known = book.sessions.get(&hello.session);
        let known = known.and_then(|(session, who)| Some((session.upgrade()?, who.clone())));
        drop(book);
        let unknown =
            || Decided::refused(Status::UnknownSession, "it knows a session that we do not");
        let Some((session, who)) = known else {
            return unknown();
        };
        // The present holder of the number must be the one that had it.
        if who != self.who {
            return unknown();
        }
        let mut inner = session.lock();
        if inner.is_over() {
            return unknown();
        }
        // From here on no frame is taken over the old connection, so that the number holds.
        session.lose(&mut inner, format!("{} connects again", session.peer));
        let (taken, lines) = (inner.taken, inner.lines);
        drop(inner);
        Decided::Again(session, taken, hello.taken, lines)
    }
}

fn hear(from: &mut impl Read) -> io::Result<Result<Hello, Malformed>> {
    let mut fixed = [0; HELLO_BYTES];
    from.read_exact(&mut fixed)?;
    let (mut hello, len) = match Hello::decode(&fixed) {
        Ok(hello) => hello,
        Err(malformed) => return Ok(Err(malformed)),
    };
    let mut name = vec![0; len];
    from.read_exact(&mut name)?;
    match String::from_utf8(name) {
        Ok(name) => {
            hello.name = name;
            Ok(Ok(hello))
        }
        Err(_) => Ok(Err(Malformed::Nonsense)),
    }
}

fn tell(to: &mut impl Write, answer: &Answer) -> io::Result<()> {
    to.write_all(&answer.encode())?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that is told that it is welcome already has a place, so that none is sent away after the welcome.
    #[test]
    fn places_at_a_door_are_taken_before_anybody_is_welcome() {
        let door = Arc::new(Door::new(eventfd::create().expect("eventfd")));
        let mut places: Vec<_> = (0..MAX_WAITING)
            .map(|_| door.place().expect("a place"))
            .collect();
        assert!(door.place().is_none());
        drop(places.pop());
        let again = door.place().expect("one was given up");
        assert!(door.place().is_none());
        // A name that was given up sends away each client that comes to it.
        *door.lock() = None;
        drop((again, places));
        assert!(door.place().is_some());
    }
}
