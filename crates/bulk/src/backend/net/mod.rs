//! `tcp:HOST:PORT/NAME`: between machines, over TCP, by default with TLS in which both ends show certificates.
//!
//! Each end has memory of its own for a pool. Without TLS a buffer's bytes go out as references to their pages
//! (`sendfile`) and come in straight to their place; with TLS they are encrypted on the way out and decrypted on the way
//! in. At most one buffer of each place in a pool is under way, and the other end has a place for each: nothing is ever
//! sent that has no room there.
//!
//! ```text
//!  program ── Transport ─┐                                        one TCP connection after the other
//!  keeper (thread) ──────┤ Session: out, first, next │ taken, given ── Line (TLS) ───────── the other end
//!  dial (thread, client) ┘        kept until taken       once                    Port (thread, who listens)
//! ```
//!
//! A lost connection is made again by who connected, and the session goes on with nothing lost or twice; a process that
//! is gone, one that is silent, and a connection that cannot be made again for too long end the channel with words about
//! it ([`crate::Channel::why`], [`crate::last_detail`]).

mod address;
pub mod certificate;
mod dial;
mod flow;
mod keeper;
mod line;
mod patient;
mod port;
mod session;
mod strangers;
mod tick;
mod tls;
mod wire;

use super::{Backend, Bytes, Frame, Listener, Place, RecvError, Transport, Wait};
use crate::{Error, Kind};
use address::Address;
use port::{Door, Port};
use session::Session;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tranship_sys::process::trusted_env;
use tranship_sys::{eventfd, stream};

pub use dial::Nobody;
pub use tls::{CA_FILE, CERT_FILE, Credentials, KEY_FILE};

/// Names the directory with our credentials.
pub const CREDENTIALS_VARIABLE: &str = "TRANSHIP_TLS";
/// `trusted-network` lets `tcp+plain:` leave this machine.
pub const PLAIN_VARIABLE: &str = "TRANSHIP_PLAIN_TCP";

/// How long what may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// After so long without a word this end says that it is there.
    pub beat: Duration,
    /// After so long without a word from the other end the connection counts as lost: several beats of the other end.
    pub silence: Duration,
    /// So long a lost connection is made again; then the other end is gone.
    pub grace: Duration,
    /// TLS and the exchange of names.
    pub acquaintance: Duration,
    /// What a program has sent before it let go of a channel may take so long to go out.
    pub linger: Duration,
}

impl Default for Timing {
    /// 1 s, 5 s, 10 s, 5 s, 5 s.
    fn default() -> Timing {
        Timing {
            beat: Duration::from_secs(1),
            silence: Duration::from_secs(5),
            grace: Duration::from_secs(10),
            acquaintance: Duration::from_secs(5),
            linger: Duration::from_secs(5),
        }
    }
}

#[derive(Debug)]
enum Security {
    Tls(Credentials),
    Plain { anywhere: bool },
}

impl Security {
    fn allows(&self, place: SocketAddr) -> Result<(), String> {
        match self {
            Security::Plain { anywhere: false } if !place.ip().is_loopback() => Err(format!(
                "tcp+plain goes anywhere but to this machine only if it is told that the network is trusted \
                 ({PLAIN_VARIABLE}=trusted-network)"
            )),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Settings {
    security: Security,
    timing: Timing,
    /// This process, as others see it.
    process: wire::Secret,
    /// Connections that were refused, and why the last one was.
    refused: Mutex<(u64, Option<String>)>,
    /// When refusals were last spoken of, and how many there were then.
    said: Mutex<Option<(std::time::Instant, u64)>>,
}

/// Who is at the other end of a connection, as a number: by its certificate; without one nobody knows.
fn number(certificate: Option<&[u8]>) -> u32 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    certificate.hash(&mut hasher);
    // No process of this machine has such a number.
    u32::try_from(hasher.finish() >> 33).unwrap_or(0) | 1 << 31
}

/// The backend. Cloneable; all clones share their ports.
#[derive(Clone, Debug)]
pub struct Net {
    settings: Arc<Settings>,
    ports: Arc<Mutex<HashMap<SocketAddr, Weak<Port>>>>,
    /// Ports that stay open without a name.
    kept: Arc<Mutex<Vec<Arc<Port>>>>,
}

impl Net {
    fn new(security: Security, timing: Timing) -> Result<Net, String> {
        let process = tls::random()?;
        Ok(Net {
            settings: Arc::new(Settings {
                security,
                timing,
                process,
                refused: Mutex::default(),
                said: Mutex::default(),
            }),
            ports: Arc::default(),
            kept: Arc::default(),
        })
    }

    /// With TLS: both ends show certificates of the same authority, and who connects asks for a certificate with the
    /// name or the address that it connects to.
    ///
    /// # Errors
    /// In words, if the kernel gives no random numbers.
    pub fn tls(credentials: Credentials, timing: Timing) -> Result<Net, String> {
        Net::new(Security::Tls(credentials), timing)
    }

    /// Without TLS, and only on this machine.
    ///
    /// # Errors
    /// As [`Net::tls`].
    pub fn plain(timing: Timing) -> Result<Net, String> {
        Net::new(Security::Plain { anywhere: false }, timing)
    }

    /// Without TLS: whoever reaches the network between the ends can read and change everything.
    ///
    /// # Errors
    /// As [`Net::tls`].
    pub fn plain_on_trusted_network(timing: Timing) -> Result<Net, String> {
        Net::new(Security::Plain { anywhere: true }, timing)
    }

    /// Opens a port before there is a name at it, and keeps it open; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// In words, if the address is taken or is not of this machine.
    pub fn open(&self, at: SocketAddr) -> Result<SocketAddr, String> {
        let port = self.port(at)?;
        let address = port.address;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(port);
        Ok(address)
    }

    fn port(&self, at: SocketAddr) -> Result<Arc<Port>, String> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = ports.get(&at).and_then(Weak::upgrade) {
            return Ok(port);
        }
        ports.retain(|_, port| port.strong_count() > 0);
        let port = Port::open(&self.settings, at)?;
        ports.insert(port.address, Arc::downgrade(&port));
        Ok(port)
    }

    /// How many connections to our ports were refused, and why the last one was, in words.
    #[must_use]
    pub fn refused(&self) -> (u64, Option<String>) {
        let refused = self.settings.refused.lock();
        refused.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn listen_at(&self, address: &str) -> Result<Name, String> {
        let address = Address::parse(address)?;
        let places = address.places();
        let places = places.map_err(|error| format!("{:?} is not found: {error}", address.host))?;
        let place = places
            .first()
            .ok_or_else(|| format!("{:?} has no address", address.host))?;
        let port = self.port(*place)?;
        let offered = port
            .offer(&address.name)
            .map_err(|error| error.to_string())?;
        let door = offered
            .ok_or_else(|| format!("{place}: somebody waits as {:?} already", address.name))?;
        let name = address.name;
        Ok(Name { port, name, door })
    }
}

impl Backend for Net {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        match self.listen_at(name) {
            Ok(name) => Ok(Box::new(name)),
            Err(why) => Err(Error::new(Kind::InvalidEndpoint, why)),
        }
    }

    /// Blocks for at most the time of an acquaintance.
    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        let wrong = |why| Error::new(Kind::InvalidEndpoint, why);
        let address = Address::parse(name).map_err(wrong)?;
        let session = dial::connect(&self.settings, address)?;
        Ok(Box::new(End(session)))
    }

    fn bytes(&self) -> Bytes {
        Bytes::Carried
    }
}

#[derive(Debug)]
struct Name {
    port: Arc<Port>,
    name: String,
    door: Arc<Door>,
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error> {
        Ok(self
            .door
            .take()
            .map(|session| Box::new(End(session)) as Box<dyn Transport>))
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        super::stream::readable(&self.door.bell)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.port.withdraw(&self.name, &self.door);
    }
}

#[derive(Debug)]
struct End(Arc<Session>);

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        self.0.send(frame)
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        self.0.recv()
    }

    fn brings(&self) -> usize {
        self.0.brings()
    }

    fn came(&self) -> usize {
        self.0.came()
    }

    fn fill(&mut self, place: &Place) -> Result<bool, RecvError> {
        self.0.fill(place)
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        self.0.done(numbers);
    }

    fn peer_process(&self) -> u32 {
        self.0.peer_number
    }

    fn peer_place(&self) -> Option<String> {
        Some(self.0.peer.clone())
    }

    fn why(&self) -> Option<String> {
        self.0.lock().over.as_ref().map(|over| over.why.clone())
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        Arc::new(Waiting(Arc::clone(&self.0)))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[derive(Debug)]
struct Waiting(Arc<Session>);

impl Wait for Waiting {
    fn wait(&self, limit: Duration) {
        let session = &self.0;
        let mut inner = session.lock();
        if std::mem::take(&mut inner.news) || inner.over.is_some() {
            // It fails only if nothing has rung.
            let _ = eventfd::drain(&session.bell);
            return;
        }
        session.tell(&mut inner);
        let (socket, room) = match &inner.line {
            Some(line) => (Some(line.socket()), inner.is_blocked()),
            None => (None, false),
        };
        inner.sleeps = true;
        drop(inner);
        // Whatever the kernel says, the caller looks again.
        let _ = stream::wait(socket.as_deref(), room, Some(&session.bell), limit);
        let mut inner = session.lock();
        (inner.sleeps, inner.looked) = (false, std::time::Instant::now());
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.ready.as_fd())
    }

    fn arm(&self) -> bool {
        let session = &self.0;
        let mut inner = session.lock();
        if std::mem::take(&mut inner.news) || inner.over.is_some() {
            // As above.
            let _ = eventfd::drain(&session.bell);
            return false;
        }
        session.tell(&mut inner);
        session.ask_for_room(&mut inner);
        true
    }
}

/// `tcp:` and `tcp+plain:` as the environment says, shared by the whole process; made at their first use.
#[derive(Debug)]
pub struct BuiltIn {
    plain: bool,
}

static BUILT_IN: [Mutex<Option<Net>>; 2] = [Mutex::new(None), Mutex::new(None)];

impl BuiltIn {
    /// With the credentials of [`default_credentials`].
    #[must_use]
    pub fn tls() -> BuiltIn {
        BuiltIn { plain: false }
    }

    /// Without TLS; to other machines only if [`PLAIN_VARIABLE`] says so.
    #[must_use]
    pub fn plain() -> BuiltIn {
        BuiltIn { plain: true }
    }

    fn net(&self) -> Result<Net, Error> {
        let mut made = BUILT_IN[usize::from(self.plain)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(net) = &*made {
            return Ok(net.clone());
        }
        let timing = Timing::default();
        let net = match self.plain {
            true => {
                let said = trusted_env(PLAIN_VARIABLE);
                let anywhere = said.is_some_and(|said| said == "trusted-network");
                Net::new(Security::Plain { anywhere }, timing)
            }
            false => default_credentials()
                .and_then(|directory| Credentials::load(&directory))
                .and_then(|credentials| Net::tls(credentials, timing)),
        };
        let net = net.map_err(|why| Error::new(Kind::System, why))?;
        Ok(made.insert(net).clone())
    }
}

/// Where `tcp:` looks for credentials: the directory that `TRANSHIP_TLS` names, else the user's
/// (`~/.config/tranship/tls`), else the system's (`/etc/tranship/tls`); for a privileged process (set-uid) only that.
///
/// # Errors
/// In words, if there is none of them.
pub fn default_credentials() -> Result<PathBuf, String> {
    if let Some(named) = trusted_env(CREDENTIALS_VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    let home = trusted_env("HOME").map(|home| PathBuf::from(home).join(".config"));
    let config = trusted_env("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
    let user = config.map(|config| config.join("tranship/tls"));
    let places = user.into_iter().chain([PathBuf::from("/etc/tranship/tls")]);
    for place in places.clone() {
        if place.join(CERT_FILE).exists() {
            return Ok(place);
        }
    }
    let looked: Vec<_> = places.map(|place| place.display().to_string()).collect();
    Err(format!(
        "no credentials: {CREDENTIALS_VARIABLE} is not set, and there are none in {}; `tranship cert` makes some",
        looked.join(" or ")
    ))
}

impl Backend for BuiltIn {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        self.net()?.listen(name)
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        self.net()?.connect(name)
    }

    fn bytes(&self) -> Bytes {
        Bytes::Carried
    }
}
