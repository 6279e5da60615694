//! A carrier over a backend: listening, connecting.

use crate::begin::begin;
use crate::meet;
use crate::wire::Wire;
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_core::carrier::{self, Carrier, Ends, Handed};
use tranship_core::{Domain, Error, ErrorKind};
use tranship_transport::net::{BuiltIn, Nobody};
use tranship_transport::{Backend, Copying, Transport};

/// First and last pause between two checks whether a process listens; the pause doubles.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(640)];

/// Carries channels over connections of a backend.
///
/// ```
/// # mod tranship { pub use tranship_core::*; pub mod net { pub use tranship_channel::*; pub use tranship_transport::net::*; } }
/// use std::sync::Arc;
/// use tranship::carrier::add_to;
/// use tranship::net::{Net, Over, Timing};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tranship::Domain;
///
/// let domain = Domain::embedded()?;
/// let timing = Timing { grace: std::time::Duration::from_secs(60), ..Timing::default() };
/// add_to(&domain, Arc::new(Over::new("lan", Arc::new(Net::plain(timing)?)))); // `lan:HOST:PORT/NAME`
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Over {
    scheme: [&'static str; 1],
    backend: Arc<dyn Backend>,
}

impl Over {
    /// Creates a carrier for addresses that begin with `scheme` and a colon.
    pub fn new(scheme: &'static str, backend: Arc<dyn Backend>) -> Over {
        let scheme = [scheme];
        Over { scheme, backend }
    }
}

/// Teaches a domain all addresses that are built in here: `copy:NAME`, which is for comparing, `tcp:HOST:PORT/NAME` and
/// `tcp+plain:HOST:PORT/NAME`. The environment names the domain's network credentials, as
/// [`default_credentials`](tranship_transport::net::default_credentials) describes. They are read when the first such
/// address is used.
///
/// # Errors
/// It does not fail today.
pub fn add_to(domain: &Domain) -> Result<(), Error> {
    let add = |scheme, backend: Arc<dyn Backend>| {
        carrier::add_to(domain, Arc::new(Over::new(scheme, backend)));
    };
    add("copy", Arc::new(Copying));
    add("tcp", Arc::new(BuiltIn::tls()));
    add("tcp+plain", Arc::new(BuiltIn::plain()));
    Ok(())
}

impl Carrier for Over {
    fn schemes(&self) -> &[&str] {
        &self.scheme
    }

    fn listen(&self, _: &str, rest: &str, ends: Ends) -> Result<Box<dyn Any + Send + Sync>, Error> {
        let met = move |transport| {
            let wire = Wire::new(transport);
            let from = wire.place.clone();
            if let Err(error) = greet(wire, &ends) {
                tracing::warn!(address = ends.address(), from, %error, "a channel was not made");
            }
        };
        self.backend.listen(rest, Arc::new(met))
    }

    fn open(&self, _: &str, rest: &str, ends: &Ends) -> Result<Handed, Error> {
        let mut wire = Wire::new(self.connect(rest, ends)?);
        let (hello, pool) = meet::introduction(ends)?;
        meet::say(&mut wire, hello);
        let theirs = meet::hear(&mut wire, ends.sends())?;
        begin(wire, ends, hello, theirs, pool)
    }
}

impl Over {
    /// Connects, once a process listens.
    fn connect(&self, rest: &str, ends: &Ends) -> Result<Box<dyn Transport>, Error> {
        let started = Instant::now();
        let deadline = ends
            .timeout()
            .and_then(|timeout| started.checked_add(timeout));
        let mut pause = PAUSES[0];
        loop {
            let error = match self.backend.connect(rest) {
                Ok(transport) => return Ok(transport),
                Err(error) => error,
            };
            if !ends.is_wanted() {
                let text = format!("nobody waits for {} any more", ends.address());
                return Err(Error::because(ErrorKind::TimedOut, text, error));
            }
            if !is_nobody(&error) {
                return Err(error.context(format!("connecting to {}", ends.address())));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let text = format!(
                    "nobody has listened at {} for {} ms",
                    ends.address(),
                    started.elapsed().as_millis()
                );
                return Err(Error::because(ErrorKind::TimedOut, text, error));
            }
            std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
            pause = (pause * 2).min(PAUSES[1]);
        }
    }
}

/// Makes a channel with a client. Before its introduction nothing is made for it.
fn greet(mut wire: Wire, ends: &Ends) -> Result<(), Error> {
    let theirs = meet::hear(&mut wire, ends.sends())?;
    let made = meet::introduction(ends);
    let (ours, pool) =
        made.inspect_err(|error| meet::refuse(&mut wire, error.kind(), &error.to_string()))?;
    meet::say(&mut wire, ours);
    let handed = begin(wire, ends, ours, theirs, pool)?;
    ends.hand_out(handed)
}

/// Returns whether it may be otherwise in a moment.
fn is_nobody(error: &Error) -> bool {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    error.find().is_some_and(refused) || error.find::<Nobody>().is_some()
}
