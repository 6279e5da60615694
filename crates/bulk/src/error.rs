//! Errors that give back what they were given.

use crate::Code;

/// An operation that was refused, with the handle that it was to use up: nothing has changed.
#[derive(thiserror::Error)]
#[error("{code}")]
pub struct Refused<T> {
    /// Why.
    pub code: Code,
    /// The handle.
    pub back: T,
}

impl<T> Refused<T> {
    /// The reason alone; the handle is let go, and its buffer goes back where it came from.
    pub fn into_code(self) -> Code {
        self.code
    }
}

impl<T> std::fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Refused({:?})", self.code)
    }
}
