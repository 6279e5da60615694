//! Kinds 6 and 7: the two halves of a link. Each end writes its own half and reads the other's.

use crate::front::Front;
use crate::line::{Line, Lines};
use std::ptr::NonNull;

/// An end of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Source,
    Sink,
}

/// A half in memory that `M` keeps mapped.
#[derive(Debug)]
pub struct Half<M> {
    front: NonNull<Front>,
    lines: Lines<'static>,
    side: Side,
    map: M,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl<M: Send> Send for Half<M> {}
// SAFETY: as for Send.
unsafe impl<M: Sync> Sync for Half<M> {}

impl<M> Half<M> {
    #[inline]
    pub(crate) fn front(&self) -> &Front {
        // SAFETY: inside `map` (its bounds were checked), mapped as long as `self`; of it only the atomics are
        // accessed.
        unsafe { self.front.as_ref() }
    }

    /// Returns the ring's lines. The lines of the peer's half are mapped read-only: load only.
    #[inline]
    pub fn ring(&self) -> Lines<'_> {
        self.lines
    }

    /// Returns the lines as a slice.
    pub fn lines(&self) -> &[Line] {
        self.lines.as_slice()
    }

    /// Returns the number of lines.
    #[inline]
    pub fn count(&self) -> u32 {
        self.lines.count()
    }

    /// Returns the end that writes this half.
    #[inline]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the memory.
    pub fn mapping(&self) -> &M {
        &self.map
    }
}

#[cfg(not(loom))]
mod mapped;
#[cfg(loom)]
mod model;

#[cfg(not(loom))]
pub use mapped::{HalfRo, HalfRw, MAX_TYPE_BYTES, len};
#[cfg(loom)]
pub(crate) use model::{HalfRo, HalfRw};
