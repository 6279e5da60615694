//! A cache server that speaks memcached's protocol, whose values lie in a twin allocator and go out by reference.
//!
//! ```text
//!   server/   listeners, workers (one thread, one epoll and one zcopy::Sender each), connections, datagrams
//!      │ commands ▲ replies
//!   parse/    text: classic and meta commands; pure
//!      │
//!   image    what a server hands over to its successor, as bytes; pure
//!      │
//!   store/    shards: keys and metadata in the heap, values in the arena; segmented LRU, expiry, a cleaner that empties
//!             pageblocks in which little is left
//! ```
//!
//! `share/` shows values to other processes by reference; it knows the store, and nothing of sockets.
//!
//! NOT here: the allocator and the sends (`zcopy`), the command line.

#![deny(unsafe_code)]

mod image;
pub mod parse;
mod reply;
mod server;
mod share;
mod stats;
mod store;

pub use image::FORMAT;
pub use server::{Options, Server, Taken};
pub use share::{Answer, Hit, Limits, Reader, Refused, Share};
pub use stats::Stats;
pub use store::{Item, Mode, NotCounted, Outcome, Store, StoreOptions};
