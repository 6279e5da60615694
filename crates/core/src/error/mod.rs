//! The causes of errors that have figures, or a meaning to programs, of their own.

mod channel;
mod manager;
mod memory;

pub use channel::{NotTaken, PoolPending, RingFull, Violation};
pub use manager::{Awaited, BadName, Barrier, OutOfRange, SocketProblem, TimedOut};
pub use memory::{Holder, Limit, NoAddresses, Shortage, StaleId, TooLarge};
pub use tranship_error::{Cause, Error, Kind, SendError};

use tranship_proto::Refusal;

/// The manager said no.
pub(crate) fn refused(refusal: Refusal) -> Error {
    Error::because(refusal.kind(), "the manager refused", refusal)
}

/// The manager said what no manager says.
pub(crate) fn protocol(what: impl std::fmt::Display) -> Error {
    let text = format!("the manager broke the protocol: {what}");
    Error::new(Kind::PeerViolation, text)
}
