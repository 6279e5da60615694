//! Address of a service, and the properties of its channels and pools.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tranship_core::{ChannelOptions, Domain, Error, PoolOptions, Trust, Wait};

/// Most bytes that one end of a connection has for messages to send, and as many for those that are carried to it. A
/// message of the largest size takes 320 KiB.
const POOL_BYTES: u64 = 16 << 20;
/// Bytes of a pool that stay once they were needed: getting memory anew for each burst costs more than the disk.
const KEPT_BYTES: u64 = 6 << 20;
/// Unit in which memory is granted: three messages of the largest size.
const CHUNK_BYTES: u64 = 1 << 20;
/// Buffers of a pool: more than there are questions, answers, and buffers that are kept for the next ones.
const SLOTS: u32 = 2048;
/// Messages of a channel: more than questions that a client may have, so that no honest end finds it full.
const LINES: u32 = 256;

/// The address of a service: `local:`, `shm:`, or another that its domains know.
///
/// ```
/// # mod tranship { pub use tranship_core::*; pub use tranship_block as block; }
/// use std::time::Duration;
/// use tranship::block::{Endpoint, Remote};
/// use tranship::{Domain, Trust};
///
/// let manager = Domain::embedded()?;
/// let socket = manager.socket_path().ok_or("no socket")?;
/// let disk = Endpoint::new("shm:disk", Trust::Producer)
///     .with_domains(move || Domain::builder().socket(&socket).connect())
///     .give_up_after(Duration::from_secs(1));
/// // Nobody serves it: a caller gets an error a second later, instead of waiting.
/// assert!(Remote::new(&disk).wait(Duration::from_millis(10)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Endpoint {
    address: String,
    trust: Trust,
    give_up: Option<Duration>,
    domains: Arc<dyn Fn() -> Result<Domain, Error> + Send + Sync>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.address, self.trust)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Endpoint {
    /// Creates an endpoint at an address of this machine. Both ends must give the same level of trust; see [`Trust`].
    ///
    /// Addresses of other machines need domains that know them: [`with_domains`](Endpoint::with_domains).
    #[must_use]
    pub fn new(address: &str, trust: Trust) -> Endpoint {
        let local = address.starts_with("local:");
        Endpoint {
            address: address.to_owned(),
            trust,
            give_up: None,
            domains: Arc::new(move || {
                let member = Domain::builder().name("block");
                // Names of this process need no other process's manager.
                match local {
                    true => member.embedded(),
                    false => member.connect(),
                }
            }),
        }
    }

    /// Sets how domains are made: with carriers, another manager, and other options.
    #[must_use]
    pub fn with_domains(
        mut self,
        make: impl Fn() -> Result<Domain, Error> + Send + Sync + 'static,
    ) -> Endpoint {
        self.domains = Arc::new(make);
        self
    }

    /// Makes requests fail after so long without the server, as long as it is away. Without this they wait.
    #[must_use]
    pub fn give_up_after(mut self, limit: Duration) -> Endpoint {
        self.give_up = Some(limit);
        self
    }

    pub(crate) fn give_up(&self) -> Option<Duration> {
        self.give_up
    }

    /// Returns the level of trust.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust
    }

    pub(crate) fn domain(&self) -> Result<Domain, Error> {
        (self.domains)()
    }

    /// Returns the address of the channel for questions.
    pub(crate) fn asks(&self) -> String {
        format!("{}.ask", self.address)
    }

    /// Returns the address of the channel for answers.
    pub(crate) fn answers(&self) -> String {
        format!("{}.answer", self.address)
    }

    /// Returns the options of a pool to send from. It is for one connection, because its other end can read all of it. A
    /// proxy there passes its buffers on.
    pub(crate) fn pool(&self) -> PoolOptions {
        PoolOptions::new(POOL_BYTES)
            .name("block")
            .chunk_bytes(CHUNK_BYTES)
            .keep(KEPT_BYTES)
            .slots(SLOTS)
            .trust(self.trust)
            .allow_forward(true)
    }

    /// Returns the options of both ends of both channels. A waiting thread leaves the processor to working threads, and
    /// no send waits. Only a pool is taken that is as [`Endpoint::pool`] says.
    pub(crate) fn channels(&self) -> ChannelOptions {
        let channels = ChannelOptions::new()
            .lines(LINES)
            .wait(Wait::Sleep)
            .accept_trust([self.trust])
            .accept_pools(|offer| offer.max_bytes <= POOL_BYTES && offer.slots <= SLOTS);
        let shared = ["shm:", "local:"]
            .iter()
            .any(|scheme| self.address.starts_with(scheme));
        match shared && self.trust != Trust::None {
            true => channels,
            false => channels.arrivals(self.pool().trust(Trust::Producer).name("block arrivals")),
        }
    }
}
