//! Connecting: the first time, and again when a connection was lost.

use super::address::Address;
use super::line::Line;
use super::patient::{self, Patient};
use super::session::{Caller, Session};
use super::settings::{Security, Settings};
use super::states::Over;
use super::tls;
use super::tls::Talk;
use super::wire::{Answer, HELLO_BYTES, Hello, Malformed, Secret, Status};
use crate::door::thread;
use crate::{Error, ErrorKind};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_sys::stream;

/// First and last pause after a failure; the pause doubles.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(640)];
/// Refusals in a row after which the process counts as gone: a process that keeps a session keeps its port.
const REFUSALS: u32 = 4;
/// Attempts of a client that is sent away before it was heard. Among many clients that make room, one attempt may
/// succeed.
const TRIES: u32 = 5;

/// Reason for which there is no connection.
struct Failure {
    kind: Kind,
    why: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other,
    /// A process listens, and went in the middle.
    Cut,
    /// A process listens, but not under that name yet.
    NoName,
    /// No process listens at any of the places.
    Refused,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        let kind = Kind::Other;
        Failure { kind, why }
    }
}

/// Error: no process listens at an address yet; the call may be repeated.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Nobody(String);

/// Makes a session with the listener at an address. Blocks for at most the time of a handshake.
pub(super) fn connect(settings: &Arc<Settings>, address: Address) -> Result<Arc<Session>, Error> {
    let (id, (line, answer, peer)) = dial_first(settings, &address).map_err(|failure| {
        let why = match failure.kind {
            Kind::Refused => format!(
                "{}; does the program there run, and is that its port?",
                failure.why
            ),
            _ => failure.why,
        };
        match failure.kind {
            Kind::Refused | Kind::NoName => {
                Error::because(ErrorKind::InvalidEndpoint, "", Nobody(why))
            }
            Kind::Other | Kind::Cut => Error::new(ErrorKind::InvalidEndpoint, why),
        }
    })?;
    let caller = Caller {
        settings: Arc::clone(settings),
        address,
        process: answer.process,
    };
    let session = Session::new(id, settings.timing, peer, Some(caller), None);
    let unmade = |error: std::io::Error| Error::new(ErrorKind::InvalidEndpoint, error.to_string());
    let session = session.map_err(unmade)?;
    session.attach(&mut session.lock(), line, answer.taken);
    Ok(session)
}

type Met = (Line, Answer, String);

fn dial_first(settings: &Settings, address: &Address) -> Result<(Secret, Met), Failure> {
    let until = Instant::now() + settings.timing.handshake;
    let (mut pause, mut tries) = (PAUSES[0], 1);
    loop {
        let hello = Hello {
            again: false,
            // If the last session was made after all, no end has it, and it ends.
            session: tls::random().map_err(|error| error.to_string())?,
            taken: 0,
            name: address.name.clone(),
        };
        match dial(settings, address, &hello, until) {
            Err(Failure {
                kind: Kind::Cut, ..
            }) if tries < TRIES && Instant::now() + pause < until => {}
            met => return met.map(|met| (hello.session, met)),
        }
        tries += 1;
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES[1]);
    }
}

fn dial(
    settings: &Settings,
    address: &Address,
    hello: &Hello,
    until: Instant,
) -> Result<Met, Failure> {
    let looked_up = address.places();
    let places = looked_up.map_err(|error| format!("{:?} is not found: {error}", address.host))?;
    dial_any(settings, address, &places, hello, until)
}

/// Connects to the first of these places that answers.
fn dial_any(
    settings: &Settings,
    address: &Address,
    places: &[SocketAddr],
    hello: &Hello,
    until: Instant,
) -> Result<Met, Failure> {
    let mut failures = Vec::new();
    for (number, place) in places.iter().enumerate() {
        // A place that does not answer leaves the others their share of the time.
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(places.len() - number).unwrap_or(u32::MAX);
        match meet(settings, address, *place, hello, Instant::now() + share) {
            Ok(met) => return Ok(met),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() {
        return Err(format!("{:?} has no address", address.host).into());
    }
    let are_all = |kinds: &[Kind]| failures.iter().all(|failure| kinds.contains(&failure.kind));
    let kind = match failures.iter().any(|failure| failure.kind == Kind::Cut) {
        _ if are_all(&[Kind::Refused]) => Kind::Refused,
        _ if are_all(&[Kind::Refused, Kind::NoName]) => Kind::NoName,
        true => Kind::Cut,
        false => Kind::Other,
    };
    let all: Vec<_> = failures.into_iter().map(|failure| failure.why).collect();
    let why = all.join("; ");
    Err(Failure { kind, why })
}

fn meet(
    settings: &Settings,
    address: &Address,
    place: SocketAddr,
    hello: &Hello,
    until: Instant,
) -> Result<Met, Failure> {
    let failed = |why: String| Failure::from(format!("{place}: {why}"));
    settings.security.allows(place).map_err(failed)?;
    let left = until.saturating_duration_since(Instant::now());
    let left = left.max(Duration::from_millis(1));
    let socket = TcpStream::connect_timeout(&place, left);
    let socket = socket.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure {
            kind: Kind::Refused,
            why: format!("no process listens at {place}"),
        },
        _ => failed(error.to_string()),
    })?;
    let mut patient = Patient::new(&socket, until);
    introduce(settings, address, &socket, &mut patient, hello)
        .and_then(|(secured, answer)| {
            let line = socket.try_clone().and_then(|own| Line::new(own, secured));
            let line = line.map_err(|error| error.to_string())?;
            Ok((line, answer, place.to_string()))
        })
        .map_err(|Failure { kind, why }| {
            patient::part(&socket);
            let kind = match kind {
                Kind::Other if patient.was_cut() => Kind::Cut,
                kind => kind,
            };
            let why = format!("{place}: {why}");
            Failure { kind, why }
        })
}

fn introduce(
    settings: &Settings,
    address: &Address,
    socket: &TcpStream,
    patient: &mut Patient<'_>,
    hello: &Hello,
) -> Result<(Option<Box<rustls::Connection>>, Answer), Failure> {
    let timing = &settings.timing;
    let watched = stream::watch(socket, timing.keepalive, timing.idle_timeout);
    watched.map_err(|error| error.to_string())?;
    let mut secured = match &settings.security {
        Security::Plain { .. } => None,
        Security::Tls(credentials) => Some(credentials.connect(&address.host, patient)?),
    };
    let mut answer = [0; HELLO_BYTES];
    let (tls, socket) = (secured.as_deref_mut(), patient);
    let mut talk = Talk { tls, socket };
    let said = talk.write_all(&hello.encode()).and_then(|()| talk.flush());
    let heard = said.and_then(|()| talk.read_exact(&mut answer));
    heard.map_err(|error| tls::explain(&error))?;
    let answer = Answer::decode(&answer).map_err(|malformed| match malformed {
        Malformed::Nonsense => "that is no tranship, or it speaks TLS and we do not".to_owned(),
        Malformed::Version(other) => format!("it speaks version {other}"),
    })?;
    let refused = |why: &str| Err(Failure::from(why.to_owned()));
    match answer.status {
        Status::Welcome => Ok((secured, answer)),
        // Another connection for an old session: the answer names the process that is there now.
        Status::UnknownSession if hello.again => Ok((secured, answer)),
        Status::UnknownSession => refused("it does not know this session"),
        Status::NoSuchName => Err(Failure {
            kind: Kind::NoName,
            why: format!("no listener there is named {:?}", address.name),
        }),
        Status::OtherVersion => refused("it does not speak our version"),
        Status::Busy => refused("it has too many connections"),
    }
}

/// Makes another connection for a session that has lost the one of this number. It does so on a thread of its own,
/// which notes when it is not dialing any more.
pub(super) fn dial_again(session: &Arc<Session>, lines: u64) -> std::io::Result<()> {
    let called = Arc::clone(session);
    let started = thread("tranship-dial", move || {
        redial(&called);
        let mut inner = called.lock();
        // This thread knows nothing of the next lost connection.
        if inner.lines == lines {
            inner.connection.gave_up();
        }
    });
    started.map(drop)
}

fn redial(session: &Session) {
    let Some(caller) = &session.caller else {
        return;
    };
    let (mut pause, mut refusals) = (PAUSES[0], 0);
    loop {
        let inner = session.lock();
        // The timer thread ends the session when its time is over.
        if patience_is_over(session, &inner) {
            return;
        }
        let hello = Hello {
            again: true,
            session: session.id,
            taken: inner.taken,
            name: caller.address.name.clone(),
        };
        drop(inner);
        let until = Instant::now() + caller.settings.timing.handshake;
        let met = dial(&caller.settings, &caller.address, &hello, until);
        let mut inner = session.lock();
        match met {
            Ok((line, answer, _)) => {
                let known = answer.status == Status::Welcome && answer.process == caller.process;
                return match known {
                    true => session.attach(&mut inner, line, answer.taken),
                    false => {
                        let why = match answer.process == caller.process {
                            true => format!("{} has given the channel up", session.peer),
                            false => format!(
                                "{}: another process is there now; the one with the channel is gone",
                                session.peer
                            ),
                        };
                        session.end(&mut inner, Over::gone(why));
                    }
                };
            }
            Err(Failure {
                kind: Kind::Refused,
                why,
            }) => {
                refusals += 1;
                if refusals >= REFUSALS {
                    let why = format!("{why}: the process there is gone");
                    return session.end(&mut inner, Over::gone(why));
                }
            }
            Err(Failure { why, .. }) => {
                refusals = 0;
                inner.connection.failed(why);
            }
        }
        drop(inner);
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// Returns whether the patience is over. It also is if there is nothing to wait for: the session has another
/// connection, or is over.
fn patience_is_over(session: &Session, inner: &super::flow::Inner) -> bool {
    let since = inner.connection.lost().map(|lost| lost.since.elapsed());
    since.is_none_or(|since| since > session.timing.grace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Timing;
    use crate::net::port::Port;
    use std::net::TcpListener;

    fn settings(handshake: Duration) -> Arc<Settings> {
        let timing = Timing {
            handshake,
            ..Timing::default()
        };
        Arc::new(Settings {
            security: Security::Plain { anywhere: false },
            timing,
            process: [1; 16],
            refusals: Default::default(),
        })
    }

    fn ask(settings: &Settings, places: &[SocketAddr]) -> Result<Met, Failure> {
        let address = Address::parse("somewhere:1/x").expect("address");
        let hello = Hello {
            again: false,
            session: [9; 16],
            taken: 0,
            name: address.name.clone(),
        };
        let until = Instant::now() + settings.timing.handshake;
        dial_any(settings, &address, places, &hello, until)
    }

    /// A client that is sent away in the middle comes again, under another name of its session, but not for ever.
    #[test]
    fn who_was_sent_away_comes_again() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let at = listener.local_addr().expect("address");
        let settings = settings(Duration::from_secs(600));
        let sent_away = std::thread::spawn(move || {
            let mut sessions = std::collections::BTreeSet::new();
            for _ in 0..TRIES {
                let (mut socket, _) = listener.accept().expect("accept");
                let mut hello = [0; HELLO_BYTES];
                socket.read_exact(&mut hello).expect("a hello");
                sessions.insert(Hello::decode(&hello).expect("a hello").0.session);
            }
            sessions.len()
        });
        let address = Address::parse(&format!("{at}/x")).expect("address");
        let failure = dial_first(&settings, &address).expect_err("sent away");
        assert!(failure.kind == Kind::Cut, "{}", failure.why);
        assert_eq!(sent_away.join().expect("no panic"), TRIES as usize);
    }

    /// A name that stands for several places: one where connections are made and nothing is said, one where no process
    /// listens, and the right one.
    #[test]
    fn one_place_that_does_not_answer_is_not_the_end() {
        let any = "127.0.0.1:0".parse().expect("address");
        let settings = settings(Duration::from_secs(6));
        let port = Port::open(&settings, any).expect("port");
        assert!(port.offer("x", Arc::new(|_| {})));
        let silent = TcpListener::bind(any).expect("listen");
        let silent_at = silent.local_addr().expect("address");
        let nobody = TcpListener::bind(any).expect("listen");
        let nobody_at = nobody.local_addr().expect("address");
        drop(nobody);
        let (_, answer, at) = ask(&settings, &[nobody_at, silent_at, port.address])
            .map_err(|failure| failure.why)
            .expect("the last one");
        assert_eq!(
            (answer.status, at),
            (Status::Welcome, port.address.to_string())
        );
        // The process is known to be gone only if no process listens at any of them.
        let none = ask(&settings, &[nobody_at, nobody_at]).expect_err("nobody");
        assert!(none.kind == Kind::Refused, "{}", none.why);
        let settings = self::settings(Duration::from_millis(300));
        for places in [[silent_at, nobody_at], [nobody_at, silent_at]] {
            let none = ask(&settings, &places).expect_err("nobody");
            assert!(none.kind != Kind::Refused, "{}", none.why);
            for place in places {
                assert!(none.why.contains(&place.to_string()), "{}", none.why);
            }
        }
    }
}
