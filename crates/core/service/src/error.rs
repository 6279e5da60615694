//! Why a call has no result.

use std::fmt;
use tranship_core::{Error, ErrorKind, Message, SendError};

/// A call without a result.
#[derive(Debug)]
pub enum CallError<T = ()> {
    /// The request was not sent, and is here again.
    Unsent(SendError<T>),
    /// The service answered with an error of its own ([`Request::fail`](crate::Request::fail)): this message.
    Failed(Message),
    /// The request was sent, and the service ended in order before a worker took it. Nothing was done: the caller may
    /// call again, with another payload.
    Untaken(Error),
    /// The request was sent, and no answer came. Whether the service did something is not known. `PeerDied`: its
    /// process ended, or it let the request go without an answer. `TimedOut`: the call's time is over. `ChunkPending`:
    /// the answer's memory was not shown to this process, and no manager can be reached.
    Broken(Error),
}

impl<T> CallError<T> {
    /// Converts the unsent payload, and keeps the rest.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> CallError<U> {
        match self {
            CallError::Unsent(failed) => CallError::Unsent(failed.map(form)),
            CallError::Failed(message) => CallError::Failed(message),
            CallError::Untaken(error) => CallError::Untaken(error),
            CallError::Broken(error) => CallError::Broken(error),
        }
    }

    /// The error of a call whose channel of answers is over. A service that ends in order has answered all that a worker took.
    pub(crate) fn over(error: Error) -> CallError<T> {
        match error.kind() {
            ErrorKind::PeerGone => CallError::Untaken(error),
            _ => CallError::Broken(error),
        }
    }

    /// Returns the kind of the error; `Refused` for an error of the service's own.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CallError::Unsent(failed) => failed.kind(),
            CallError::Failed(_) => ErrorKind::Refused,
            CallError::Untaken(error) | CallError::Broken(error) => error.kind(),
        }
    }
}

/// The most bytes of a service's own error that a text shows.
const SHOWN: usize = 200;

impl<T> fmt::Display for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Unsent(failed) => failed.error.fmt(f),
            CallError::Untaken(error) | CallError::Broken(error) => error.fmt(f),
            CallError::Failed(message) if message.len() > SHOWN => {
                write!(
                    f,
                    "the service failed, and says why in {} bytes",
                    message.len()
                )
            }
            CallError::Failed(message) => {
                let text = String::from_utf8_lossy(&message.to_vec()).into_owned();
                write!(f, "the service failed: {}", text.escape_debug())
            }
        }
    }
}

impl<T: fmt::Debug> std::error::Error for CallError<T> {}

/// Serves `?` in callers that do not want the payload back: the payload is dropped.
impl<T> From<CallError<T>> for Error {
    fn from(failed: CallError<T>) -> Error {
        match failed {
            CallError::Unsent(failed) => failed.error,
            CallError::Untaken(error) | CallError::Broken(error) => error,
            CallError::Failed(_) => {
                let text = failed.to_string();
                Error::new(ErrorKind::Refused, text)
            }
        }
    }
}

/// Whether the other end of a channel is gone.
pub(crate) fn is_gone(error: &Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        ErrorKind::PeerGone | ErrorKind::PeerDied | ErrorKind::NotConnected
    )
}
