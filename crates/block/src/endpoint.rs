//! Where a service is, and how its channels are made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tranship_bulk::{Domain, Trust};

/// The two channels of a client. What a client reads and what it writes go different ways, as a channel carries data one
/// way only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LaneKind {
    /// The server is the source.
    Read,
    /// The client is the source.
    Write,
}

impl LaneKind {
    /// Both.
    pub const ALL: [LaneKind; 2] = [LaneKind::Read, LaneKind::Write];
}

/// The address of a service: `local:`, `shm:`, or another that its domains know.
#[derive(Clone)]
pub struct Endpoint {
    address: String,
    trust: Trust,
    give_up: Option<Duration>,
    domains: Arc<dyn Fn() -> Domain + Send + Sync>,
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
    /// At a bulk address. Both ends must say the same level of trust; see [`Trust`].
    #[must_use]
    pub fn new(address: &str, trust: Trust) -> Endpoint {
        Endpoint {
            address: address.to_owned(),
            trust,
            give_up: None,
            domains: Arc::new(Domain::new),
        }
    }

    /// Domains are made so: with further backends, certificates, and whatever else they need.
    #[must_use]
    pub fn with_domains(mut self, make: impl Fn() -> Domain + Send + Sync + 'static) -> Endpoint {
        self.domains = Arc::new(make);
        self
    }

    /// After so long without the server, requests to it fail, as long as it is away. Without this they wait.
    #[must_use]
    pub fn give_up_after(mut self, limit: Duration) -> Endpoint {
        self.give_up = Some(limit);
        self
    }

    pub(crate) fn give_up(&self) -> Option<Duration> {
        self.give_up
    }

    /// The level of trust.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.trust
    }

    pub(crate) fn domain(&self) -> Domain {
        (self.domains)()
    }

    /// Where the channel of this kind is.
    pub(crate) fn channel(&self, kind: LaneKind) -> String {
        let end = match kind {
            LaneKind::Read => "read",
            LaneKind::Write => "write",
        };
        format!("{}.{end}", self.address)
    }
}
