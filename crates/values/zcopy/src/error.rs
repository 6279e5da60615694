//! Errors of an allocation.

use std::io;

/// Reason for which there is no memory for a value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arena's limit is reached.
    #[error("no room for a value of {asked} bytes: {used} of {max} bytes are in use")]
    OutOfMemory {
        /// Bytes asked for.
        asked: usize,
        /// Bytes of pageblocks and large values in use.
        used: u64,
        /// The arena's limit, bytes.
        max: u64,
    },
    /// This process was forked from the one that made the arena. Its values can be read and sent here, but no value can
    /// be added.
    #[error("this arena belongs to the process that this one was forked from; make one here")]
    Forked,
    /// The manager admits no more to the domain that the arena is charged to ([`crate::Options::charge_to`]).
    #[error(
        "no room for a value of {asked} bytes: the manager admits no more than about the {used} bytes that are in use"
    )]
    NotAdmitted {
        /// Bytes asked for.
        asked: usize,
        /// Bytes of pageblocks and large values in use.
        used: u64,
    },
    /// The manager gives the arena no heap to be charged to.
    #[error("the manager gives no heap: {0}")]
    NoHeap(#[from] tranship_core::Error),
    /// The arena's file was handed over to another process ([`crate::Arena::give_away`]).
    #[error("this arena was handed over to another process; values can still be read here")]
    Given,
    /// The kernel refused memory, addresses or a descriptor.
    #[error("the kernel refused: {0}")]
    System(#[from] io::Error),
}
