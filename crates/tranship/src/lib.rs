//! Moves large data between isolated processes without copying it.
//!
//! This is the crate that programs name; it re-exports `tranship-core`, `tranship-mbuf` as [`mbuf`], `tranship-malloc` as [`malloc`],
//! `tranship-bulk` as [`bulk`], `tranship-zcopy` as [`zcopy`].
//!
//! NOT here: any code of its own.

pub use tranship_core::*;
/// A manager inside a program of one's own: configuration and entry points.
pub mod manager {
    pub use tranship_manager::*;
}

/// Bulk channels: buffers that change their owner, at four levels of trust, over one interface.
pub mod bulk {
    pub use tranship_bulk::*;
}

/// A `#[global_allocator]` whose heap the manager admits, limits and rebalances like a pool.
pub mod malloc {
    pub use tranship_malloc::*;
}

/// Network buffers: chains of mbufs with clusters, external storage, tags, packet queues.
pub mod mbuf {
    pub use tranship_mbuf::*;
}

/// Data that is sent many times: a twin allocator, and sends that do not copy.
pub mod zcopy {
    pub use tranship_zcopy::*;
}

/// What the README shows must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// And what the page about ZCopy shows.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/zcopy.md")]
struct ZCopy;
