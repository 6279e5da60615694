//! Errors that give back the value that was not sent.

use crate::{Error, ErrorKind};
use std::fmt;

/// A failed operation that takes something for good gives it back, with nothing done to it.
///
/// ```
/// # use tranship_error as tranship;
/// use tranship::{Error, ErrorKind, SendError};
///
/// fn send(frame: Vec<u8>) -> Result<(), SendError<Vec<u8>>> {
///     Err(SendError::new(Error::from(ErrorKind::Full), frame))
/// }
/// let refused = send(vec![7; 3]).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Full);
/// assert_eq!(refused.unsent, [7; 3]); // for another try
/// ```
pub struct SendError<T> {
    /// Why.
    pub error: Error,
    /// The value that was not sent.
    pub unsent: T,
}

impl<T> SendError<T> {
    /// Makes an error from a reason and the value that was not sent.
    pub fn new(error: impl Into<Error>, unsent: T) -> SendError<T> {
        SendError {
            error: error.into(),
            unsent,
        }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Converts the unsent value, and keeps the error.
    pub fn map<U>(self, form: impl FnOnce(T) -> U) -> SendError<U> {
        SendError {
            error: self.error,
            unsent: form(self.unsent),
        }
    }
}

/// Serves `?` in callers that do not want the value back: the value is dropped.
impl<T> From<SendError<T>> for Error {
    fn from(failed: SendError<T>) -> Error {
        failed.error
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<T> std::error::Error for SendError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
