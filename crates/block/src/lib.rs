//! A block service over channels: the application of "Bulk Transfer over Shared Memory" (chapter 7), for real disks.
//!
//! * [`Store`]: stores of blocks. [`Disk`] is a file or a device, [`Remote`] a server's blocks over channels,
//!   [`Cached`] either of them with a cache in front.
//! * [`front`]: serves a store over channels, to any number of clients.
//! * [`nbd`]: serves it to programs that speak the NBD protocol.
//!
//! A server is a disk behind a front; the proxy of a machine is a remote store, cached, behind both fronts.
//!
//! NOT here: buffers and pools, and how they travel (`core`, `channel`); file systems; the command line (`cli`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod blocking;
mod cache;
mod data;
mod disk;
mod endpoint;
mod fault;
pub mod front;
mod lease;
mod leases;
mod limits;
mod memory;
pub mod nbd;
mod remote;
mod slots;
mod store;
mod sum;
mod transient;
mod wire;

pub use blocking::Blocking;
pub use cache::{Cache, Cached};
pub use data::Data;
pub use disk::{Access, Disk, DiskOptions, OpenError};
pub use endpoint::Endpoint;
pub use fault::Fault;
pub use lease::Lease;
pub use limits::BLOCK_BYTES;
pub use remote::Remote;
pub use store::{Done, Extent, Info, Job, Op, Request, Store};
pub use sum::sums;

/// Code in the documentation, which must run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/block.md")]
struct Documentation;
