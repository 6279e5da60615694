//! ZCopy in user space: a twin allocator for data that is sent many times, and sends that do not copy it.
//!
//! Values lie in pageblocks of their own, apart from memory that a program writes all the time (keys, counters, lists).
//! A full pageblock is protected at the next send. Values in it go out by reference, and a write to it gets a page of
//! its own. Thus bytes that were sent never change. Values in a block that is not full are copied.
//!
//! Source: Song et al., Revisiting Software Zero-Copy for Web-caching Applications with Twin Memory Allocation (2012).
//! The paper changes the kernel; this is an ordinary library.
//!
//! `unsafe` is here because it is an allocator whose mappings change under the values.
//!
//! Buffers of shared pools and parts of files can be sent beside them.
//!
//! NOT here: shared pools themselves (`core`), the preload library (`zcopy-preload`), the cache server (`cache`).

#![warn(missing_docs, clippy::missing_errors_doc)]

mod arena;
mod error;
#[doc(hidden)]
pub mod kernel;
mod report;
mod send;
mod tally;
mod value;

pub use arena::{Options, Stats, ValuePlace};
pub use error::Error;
pub use report::{Copied, Report, ReportError, Took};
pub use send::{Cause, Counts, Piece, Sender, Socket, Way, Why};
pub use value::{Arena, Mark, Value, ValueMut};
