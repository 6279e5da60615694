//! Settings and counts of a backend.

use super::tls::Credentials;
use super::wire;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

/// Variable whose value `trusted-network` lets `tcp+plain:` leave this machine.
pub const PLAIN_VARIABLE: &str = "TRANSHIP_PLAIN_TCP";

/// Time limits of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Time without a word after which this end sends a keepalive.
    pub keepalive: Duration,
    /// Time without a word from the other end after which the connection counts as lost: several keepalives of the
    /// other end.
    pub idle_timeout: Duration,
    /// Time during which a lost connection is made again. After that the other end counts as gone.
    pub grace: Duration,
    /// Time for TLS and the exchange of names.
    pub handshake: Duration,
    /// Time that remaining frames have to go out after a program has released its channel.
    pub linger: Duration,
}

impl Default for Timing {
    /// Returns 1 s, 5 s, 10 s, 5 s, 5 s.
    fn default() -> Timing {
        Timing {
            keepalive: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(5),
            grace: Duration::from_secs(10),
            handshake: Duration::from_secs(5),
            linger: Duration::from_secs(5),
        }
    }
}

/// Rule for which processes may be at the other end.
#[derive(Debug)]
pub(super) enum Security {
    Tls(Credentials),
    Plain { anywhere: bool },
}

impl Security {
    pub(super) fn allows(&self, place: SocketAddr) -> Result<(), String> {
        match self {
            Security::Plain { anywhere: false } if !place.ip().is_loopback() => Err(format!(
                "tcp+plain goes anywhere but to this machine only if it is told that the network is trusted \
                 ({PLAIN_VARIABLE}=trusted-network)"
            )),
            _ => Ok(()),
        }
    }
}

/// Settings that all connections of a backend share.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) security: Security,
    pub(super) timing: Timing,
    /// Identity of this process for other processes.
    pub(super) process: wire::Secret,
    pub(super) refusals: Mutex<Refusals>,
}

/// Connections that were refused.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    pub(super) count: u64,
    /// Reason of the last refusal.
    pub(super) why: Option<String>,
    /// Time of the last report in the log, and the count then.
    pub(super) said: Option<(std::time::Instant, u64)>,
}
