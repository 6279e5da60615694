//! An allocation's request, and its answer.

use std::time::{Duration, Instant};

/// How long an allocation may wait for others to free when the zone is at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Does not wait.
    #[default]
    No,
    /// Until then.
    Until(Instant),
    /// For ever.
    Forever,
}

impl Wait {
    /// Waits for at most `time` from now on; for ever if that is beyond the clock's range.
    #[must_use]
    pub fn at_most(time: Duration) -> Self {
        Instant::now()
            .checked_add(time)
            .map_or(Self::Forever, Self::Until)
    }
}

/// The options of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// How long it may wait.
    pub wait: Wait,
    /// Whether it may use the keg's reserve.
    pub use_reserve: bool,
}

impl Request {
    /// Waits as said.
    #[must_use]
    pub fn wait(wait: Wait) -> Self {
        Self {
            wait,
            use_reserve: false,
        }
    }

    /// Allows the request to use the reserve.
    #[must_use]
    pub fn with_reserve(self) -> Self {
        Self {
            use_reserve: true,
            ..self
        }
    }
}

/// Errors of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The zone is at its limit, and nothing was freed in time.
    #[error("the zone is at its limit of {max} items")]
    Limit {
        /// The limit.
        max: u64,
    },
    /// There is no memory for another slab (of `bytes`), or the arena's window is full.
    #[error("no memory for another slab of {bytes} bytes")]
    NoMemory {
        /// Bytes of a slab.
        bytes: u64,
    },
    /// The initialiser refused.
    #[error("the item's initialiser refused")]
    Init,
    /// The constructor refused.
    #[error("the item's constructor refused")]
    Ctor,
    /// The zone is closed.
    #[error("the zone is closed")]
    Closed,
}
