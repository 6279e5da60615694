//! Backend `tcp:HOST:PORT/NAME`: between machines, over TCP, by default with TLS in which both ends show certificates;
//! and `copy:NAME` over a Unix socket of this machine.
//!
//! Each end has memory of its own for a pool. Without TLS a buffer's bytes go from their mapping into the socket, and
//! arrive directly in their place. With TLS they are encrypted on the way out and decrypted on the way in.
//!
//! ```text
//!  program ── Transport ──┐                                       one TCP connection after the other
//!  timer thread ──────────┤ Session: out, first, next │ taken, given ── Line (TLS) ───────── the other end
//!  dial (thread, client) ─┘        kept until taken       once           Port (thread, listener)
//! ```
//!
//! The end that connected makes a lost connection again. The session then goes on with nothing lost and nothing twice.
//! A channel ends with a reason ([`Transport::why`]) when the other process is gone or silent, or when no connection
//! can be made for too long.

mod address;
mod alarm;
mod built_in;
pub mod certificate;
mod copy;
mod dial;
mod flow;
mod handshakes;
mod line;
mod link;
mod patient;
mod port;
mod session;
mod settings;
mod states;
mod tick;
mod timer;
mod tls;
mod wire;

use crate::{Backend, Error, ErrorKind, Met, Transport};
use address::Address;
use port::Port;
use session::End;
use settings::{Security, Settings};
use std::any::Any;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use built_in::{BuiltIn, CREDENTIALS_VARIABLE, default_credentials};
pub use copy::Copying;
pub use dial::Nobody;
pub use settings::{PLAIN_VARIABLE, Timing};
pub use tls::{CA_FILE, CERT_FILE, Credentials, KEY_FILE};

/// The backend. Cloneable; all clones share their ports.
///
/// ```
/// # mod tranship { pub use tranship_transport::net; }
/// use std::time::Duration;
/// use tranship::net::{Credentials, Net, Timing, certificate};
///
/// // An authority, and what it has signed for this machine. `tranship cert` makes files of them.
/// let day = Duration::from_secs(86_400);
/// let ca = certificate::authority("an example", day)?;
/// let own = certificate::issue(&ca, "localhost", &["127.0.0.1".to_owned()], day)?;
/// let credentials = Credentials::new(ca.cert.as_bytes(), own.cert.as_bytes(), own.key.as_bytes())?;
///
/// let net = Net::tls(credentials, Timing::default())?;
/// let port = net.open("127.0.0.1:0".parse().unwrap())?; // of the kernel's choice
/// assert_ne!(port.port(), 0); // at which channels are listened for: `tcp:127.0.0.1:PORT/NAME`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Net {
    settings: Arc<Settings>,
    ports: Arc<Mutex<HashMap<SocketAddr, Weak<Port>>>>,
    /// Ports that stay open without a name.
    kept: Arc<Mutex<Vec<Arc<Port>>>>,
}

impl Net {
    fn new(security: Security, timing: Timing) -> Result<Net, Error> {
        let process = tls::random()?;
        Ok(Net {
            settings: Arc::new(Settings {
                security,
                timing,
                process,
                refusals: Mutex::default(),
            }),
            ports: Arc::default(),
            kept: Arc::default(),
        })
    }

    /// Creates the backend with TLS: both ends show certificates of the same authority. The client asks for a
    /// certificate with the name or the address that it connects to.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the kernel gives no random numbers.
    pub fn tls(credentials: Credentials, timing: Timing) -> Result<Net, Error> {
        Net::new(Security::Tls(credentials), timing)
    }

    /// Creates the backend without TLS, for this machine only.
    ///
    /// # Errors
    /// As [`Net::tls`].
    pub fn plain(timing: Timing) -> Result<Net, Error> {
        Net::new(Security::Plain { anywhere: false }, timing)
    }

    /// Creates the backend without TLS: any machine that reaches the network between the ends can read and change
    /// everything.
    ///
    /// # Errors
    /// As [`Net::tls`].
    pub fn plain_on_trusted_network(timing: Timing) -> Result<Net, Error> {
        Net::new(Security::Plain { anywhere: true }, timing)
    }

    /// Opens a port before there is a name at it, and keeps it open; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidEndpoint`] if the address is taken, is not of this machine, or may not be used without TLS. Its
    /// cause is the kernel's error.
    pub fn open(&self, at: SocketAddr) -> Result<SocketAddr, Error> {
        let port = self.port(at)?;
        let address = port.address;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(port);
        Ok(address)
    }

    fn port(&self, at: SocketAddr) -> Result<Arc<Port>, Error> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = ports.get(&at).and_then(Weak::upgrade) {
            return Ok(port);
        }
        ports.retain(|_, port| port.strong_count() > 0);
        let port = Port::open(&self.settings, at)?;
        ports.insert(port.address, Arc::downgrade(&port));
        Ok(port)
    }

    /// Returns the number of connections to our ports that were refused, and the reason of the last refusal in words.
    #[must_use]
    pub fn refused(&self) -> (u64, Option<String>) {
        let refusals = self.settings.refusals.lock();
        let refusals = refusals.unwrap_or_else(PoisonError::into_inner);
        (refusals.count, refusals.why.clone())
    }

    fn listen_at(&self, address: &str, met: Met) -> Result<Name, Error> {
        let wrong = |why| Error::new(ErrorKind::InvalidEndpoint, why);
        let address = Address::parse(address).map_err(wrong)?;
        let lost = format!("{:?} is not found", address.host);
        let places = address.places();
        let places =
            places.map_err(|error| Error::because(ErrorKind::InvalidEndpoint, lost, error))?;
        let nowhere = || wrong(format!("{:?} has no address", address.host));
        let place = places.first().ok_or_else(nowhere)?;
        let port = self.port(*place)?;
        if !port.offer(&address.name, met) {
            let text = format!(
                "{place}: a listener named {:?} is there already",
                address.name
            );
            return Err(wrong(text));
        }
        let name = address.name;
        Ok(Name { port, name })
    }
}

impl Backend for Net {
    fn listen(&self, name: &str, met: Met) -> Result<Box<dyn Any + Send + Sync>, Error> {
        Ok(Box::new(self.listen_at(name, met)?))
    }

    /// Connects. Blocks for at most the time of a handshake.
    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        let wrong = |why| Error::new(ErrorKind::InvalidEndpoint, why);
        let address = Address::parse(name).map_err(wrong)?;
        let session = dial::connect(&self.settings, address)?;
        let kept = timer::keep(Arc::clone(&session));
        kept.map_err(|error| wrong(error.to_string()))?;
        Ok(Box::new(End(session)))
    }
}

#[derive(Debug)]
struct Name {
    port: Arc<Port>,
    name: String,
}

impl Drop for Name {
    fn drop(&mut self) {
        self.port.withdraw(&self.name);
    }
}
