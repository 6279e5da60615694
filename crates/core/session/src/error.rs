//! Errors between a domain and its manager: the causes that have figures, or a meaning of their own for programs.

use std::io;
use std::time::Instant;
pub use tranship_error::{Cause, Error, ErrorKind, system};
pub use tranship_proto::OutOfRange;
use tranship_proto::{Event, MAX_MARKS, MAX_NAME_BYTES, PoolId, Refusal};

/// Makes the error for a refusal of the manager.
pub fn refused(refusal: Refusal) -> Error {
    Error::because(refusal.kind(), "the manager refused", refusal)
}

/// Makes the error for a message that no manager sends.
pub fn protocol(what: impl std::fmt::Display) -> Error {
    let text = format!("the manager broke the protocol: {what}");
    Error::new(ErrorKind::PeerViolation, text)
}

/// Makes the error for an answer other than the expected one.
pub fn unexpected(answer: &Event, asked: &str) -> Error {
    protocol(format!("{answer:?} where {asked}"))
}

/// The reason why a manager's socket cannot be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketProblem {
    /// This user has no access.
    #[error(
        "permission denied; look at the modes of the socket and of the directories above it, or name another one"
    )]
    Access,
    /// Another kind of file is there.
    #[error("it is no socket; name a manager's socket, or a path that does not exist yet")]
    NotASocket,
    /// A socket of another kind is there.
    #[error("it is a socket, but no manager's (not SEQPACKET); name another one")]
    OtherKind,
    /// No socket can have this path.
    #[error("its path has {bytes} bytes, a socket's has at most {max}")]
    PathLength {
        /// The length of the path.
        bytes: usize,
        /// Allowed.
        max: usize,
    },
}

/// An obstacle between a process and a manager that it had joined before.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Barrier {
    /// A sandbox, or the modes of files.
    #[error("connecting is forbidden: {}", io::Error::from_raw_os_error(*errno))]
    Denied {
        /// The kernel's error number.
        errno: i32,
    },
    /// The process has changed its root directory, and there is no such socket in the new one.
    #[error("its socket is not under the present root directory")]
    OtherRoot,
    /// The manager does not let the process in.
    #[error("the manager refuses it: {0}")]
    Refused(Refusal),
}

/// The time given is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out after {waited_ms} ms: {awaited}")]
pub struct TimedOut {
    /// The event that has not happened.
    pub awaited: Awaited,
    /// The time waited, milliseconds.
    pub waited_ms: u64,
}

impl TimedOut {
    /// Returns the error for an event that was waited for since `begun`.
    pub fn since(begun: Instant, awaited: Awaited) -> TimedOut {
        let waited_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        TimedOut { awaited, waited_ms }
    }
}

/// The event that was waited for in vain.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Awaited {
    /// The manager's answer to a request.
    #[error("the manager has not answered {0}")]
    Manager(&'static str),
    /// A domain that offers a name.
    #[error("no domain offers `{0}`")]
    Offer(String),
    /// A listener's consent to a connection.
    #[error("a program listens at `{0}`, but has not accepted this connection")]
    Acceptance(String),
    /// A domain that connects to a name.
    #[error("no domain has connected to `{0}`")]
    Connection(String),
    /// The receiver's consent to a pool.
    #[error(
        "the receiver has not accepted pool {0} yet; it accepts at its next call of the library"
    )]
    Consent(PoolId),
    /// A message.
    #[error("no message came")]
    Message,
    /// A message of a topic.
    #[error("no message of topic `{0}` came")]
    TopicMessage(String),
    /// A publisher of a topic that takes this subscriber in.
    #[error("no publisher of topic `{0}` has taken this subscriber in")]
    Publisher(String),
    /// Subscribers of a topic.
    #[error("topic `{topic}` has {have} subscribers, not {wanted}")]
    Subscribers {
        /// The topic's name.
        topic: String,
        /// The subscribers that have joined.
        have: usize,
        /// The subscribers that were waited for.
        wanted: usize,
    },
    /// The answer of a service.
    #[error("service `{0}` has not answered")]
    Answer(String),
    /// A request of a service's client.
    #[error("no client has called")]
    Request,
    /// The memory of a received message, which the manager has still to show.
    #[error(
        "a message came, but the manager, which may be away, has not shown its memory, in pool {0}"
    )]
    Memory(PoolId),
}

/// The reason why a name cannot be used: it has 1 to [`MAX_NAME_BYTES`] bytes and only visible characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// The name's length.
    #[error("a name has 1 to {MAX_NAME_BYTES} bytes, this one has {bytes}")]
    Length {
        /// The length of the name.
        bytes: usize,
    },
    /// A control character.
    #[error("a name has no control characters, this one has {found:?} at byte {at}")]
    Control {
        /// The first such character.
        found: char,
        /// The position of the fault, bytes.
        at: usize,
    },
    /// A character that is invisible, or that changes the look of its neighbours.
    #[error(
        "a name has no invisible, unassigned or direction characters, this one has U+{:04X} at byte {at}",
        u32::from(*found)
    )]
    Unseen {
        /// The first such character.
        found: char,
        /// The position of the fault, bytes.
        at: usize,
    },
    /// Too many combining marks in a row.
    #[error(
        "a name has at most {MAX_MARKS} combining marks in a row, this one has more at byte {at}"
    )]
    Marks {
        /// The position of the first mark too many.
        at: usize,
    },
}

impl Cause for TimedOut {
    fn kind(&self) -> ErrorKind {
        ErrorKind::TimedOut
    }
}

impl Cause for BadName {
    fn kind(&self) -> ErrorKind {
        ErrorKind::BadArgument
    }
}
