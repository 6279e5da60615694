//! One listening port for all channels of a process that are named at it.
//!
//! Each connection does its handshake on a thread of its own. [`Handshakes`] limits the number of these threads.

use super::handshakes::{Handshakes, MOST, Progress};
use super::line::Line;
use super::patient::{self, Patient};
use super::session::{End, Session};
use super::settings::{Security, Settings};
use super::tls::Talk;
use super::wire::{Answer, HELLO_BYTES, Hello, Malformed, Secret, Status};
use super::{timer, tls};
use crate::door::{Admission, Door, Listens, MOST as MOST_INSIDE, MOST_OF_ONE, thread};
use crate::{Error, ErrorKind, Met};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use tranship_sys::stream;

/// Most sessions of a port.
const MAX_SESSIONS: usize = 4096;
/// Time between two reports of refusals in the log.
const BETWEEN: Duration = Duration::from_secs(1);

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) address: SocketAddr,
    settings: Arc<Settings>,
    listens: OnceLock<Listens>,
    book: Mutex<Book>,
}

/// A session, and the certificate of its client.
type Known = (Weak<Session>, Option<Arc<[u8]>>);

#[derive(Debug, Default)]
struct Book {
    doors: HashMap<String, Arc<Door>>,
    sessions: HashMap<Secret, Known>,
    handshakes: Handshakes,
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
            listens: OnceLock::new(),
            book: Mutex::default(),
        });
        let weak = Arc::downgrade(&port);
        let listens = Listens::start("tranship-port", listener, move |listener| {
            let (socket, from) = listener.accept()?;
            if let Some(port) = weak.upgrade() {
                welcome(&port, socket, from);
            }
            Ok(())
        });
        let _ = port.listens.set(listens.map_err(failed)?); // once
        Ok(port)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a name; false: it is offered already.
    pub(super) fn offer(&self, name: &str, met: Met) -> bool {
        match self.lock().doors.entry(name.to_owned()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(Door::new(met));
                true
            }
        }
    }

    /// Withdraws a name.
    pub(super) fn withdraw(&self, name: &str) {
        // Not dropped under the lock: it has the listener's function.
        let door = self.lock().doors.remove(name);
        drop(door);
    }

    fn refuse(&self, why: String) {
        let refusals = self.settings.refusals.lock();
        let mut refusals = refusals.unwrap_or_else(PoisonError::into_inner);
        refusals.count += 1;
        // A client that comes often does not fill the log.
        let often = refusals
            .said
            .is_some_and(|(when, _)| when.elapsed() < BETWEEN);
        if !often {
            let unsaid = refusals.count - 1 - refusals.said.map_or(0, |(_, count)| count);
            tracing::warn!(port = %self.address, unsaid, "refused: {why}");
            refusals.said = Some((Instant::now(), refusals.count));
        }
        refusals.why = Some(why);
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

fn welcome(port: &Arc<Port>, socket: TcpStream, from: SocketAddr) {
    let let_in = || -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let own = socket.try_clone().map_err(failed)?;
        let admitted = port.lock().handshakes.admit(from.ip(), own, Instant::now());
        let (number, progress) = admitted
            .ok_or_else(|| format!("{MOST} other handshakes are under way, which is the limit"))?;
        let own = Arc::clone(port);
        let started = thread("tranship-greet", move || {
            let parting = socket.try_clone();
            let greeted = greet(&own, socket, from, &progress);
            if let Err(why) = &greeted {
                let away = progress.is_sent_away();
                own.refuse(match away {
                    true => {
                        format!("{from}: it made room for others before its handshake was done")
                    }
                    false => format!("{from}: {why}"),
                });
                if let Ok(socket) = &parting
                    && !away
                {
                    patient::part(socket);
                }
            }
            own.lock().handshakes.dismiss(number);
            drop((own, parting));
            if let Ok(Some((place, session))) = greeted {
                place.go_in(Box::new(End(session)));
            }
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

/// Does the handshake with a new client. A new session goes in at its place.
fn greet(
    port: &Arc<Port>,
    socket: TcpStream,
    from: SocketAddr,
    progress: &Progress,
) -> Result<Option<(Admission, Arc<Session>)>, String> {
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
    let mut talk = Talk {
        tls: secured.as_deref_mut(),
        socket: &mut patient,
    };
    let decided = match hear(&mut talk).map_err(failed)? {
        Ok(hello) if hello.again => again(port, who.as_deref(), &hello),
        Ok(hello) => new_session(port, from, who, &hello),
        Err(Malformed::Version(other)) => {
            refused(Status::OtherVersion, format!("it speaks version {other}"))
        }
        Err(Malformed::Nonsense) => return Err("that is no tranship".to_owned()),
    };
    let (status, taken) = match &decided {
        Err((status, _)) => (*status, 0),
        Ok(accepted) => (Status::Welcome, accepted.taken),
    };
    if status == Status::Welcome && !progress.welcome() {
        return Err("it made room".to_owned());
    }
    let answer = Answer {
        status,
        process: port.settings.process,
        taken,
    };
    let mut talk = Talk {
        tls: secured.as_deref_mut(),
        socket: &mut Patient::new(&socket, until),
    };
    let said = talk.write_all(&answer.encode()).and_then(|()| talk.flush());
    let accepted = decided.map_err(|(_, why)| why)?;
    said.map_err(failed)?;
    let line = Line::new(socket, secured).map_err(failed)?;
    let session = accepted.session;
    let mut inner = session.lock();
    // A quicker client may have come meanwhile.
    if inner.lines == accepted.lines && !inner.is_over() {
        session.attach(&mut inner, line, accepted.theirs);
    }
    drop(inner);
    let Some(place) = accepted.place else {
        return Ok(None);
    };
    timer::keep(Arc::clone(&session)).map_err(failed)?;
    Ok(Some((place, session)))
}

/// A client that is let in.
struct Accepted {
    session: Arc<Session>,
    /// Of a new session.
    place: Option<Admission>,
    /// The frames that were taken here and there, and the number of the connection that the session had.
    taken: u64,
    theirs: u64,
    lines: u64,
}

type Decided = Result<Accepted, (Status, String)>;

fn refused(status: Status, why: impl Into<String>) -> Decided {
    Err((status, why.into()))
}

fn new_session(
    port: &Arc<Port>,
    from: SocketAddr,
    who: Option<Arc<[u8]>>,
    hello: &Hello,
) -> Decided {
    let door = port.lock().doors.get(&hello.name).cloned();
    let Some(door) = door else {
        let why = format!("no listener is named {:?}", hello.name);
        return refused(Status::NoSuchName, why);
    };
    let Some(place) = door.place(from.ip().to_string()) else {
        let why = format!(
            "too many clients wait at {:?} (at most {MOST_OF_ONE} of one host, {MOST_INSIDE} of all)",
            hello.name
        );
        return refused(Status::Busy, why);
    };
    let (timing, peer) = (port.settings.timing, from.to_string());
    let session = Session::new(hello.session, timing, peer, None, Some(port.clone()));
    match session {
        Ok(session) if port.remember(&session, who) => Ok(Accepted {
            session,
            place: Some(place),
            taken: 0,
            theirs: 0,
            lines: 0,
        }),
        _ => refused(Status::Busy, "too many sessions"),
    }
}

fn again(port: &Port, who: Option<&[u8]>, hello: &Hello) -> Decided {
    let book = port.lock();
    let known = book.sessions.get(&hello.session);
    // The present holder of the number must be the one that had it.
    let known = known.filter(|(_, its)| its.as_deref() == who);
    let session = known.and_then(|(session, _)| session.upgrade());
    drop(book);
    let unknown = || refused(Status::UnknownSession, "it knows a session that we do not");
    let Some(session) = session else {
        return unknown();
    };
    let mut inner = session.lock();
    if inner.is_over() {
        return unknown();
    }
    // From here on no frame is taken over the old connection, so that the number holds.
    session.lose(&mut inner, format!("{} connects again", session.peer));
    let (taken, lines) = (inner.taken, inner.lines);
    drop(inner);
    Ok(Accepted {
        session,
        place: None,
        taken,
        theirs: hello.taken,
        lines,
    })
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
