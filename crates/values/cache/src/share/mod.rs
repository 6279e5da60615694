//! Values by reference for other processes: a reader asks by a channel, and is sent a buffer of a pool that it maps
//! read-only.
//!
//! ```text
//!   reader (process)            ask: a key, by the control ring         share server (a thread of the server)
//!     Reader::get  ────────────────────────────────────────────────►  store.get(key)
//!                                                                      copies: the value's copy in the pool, made when it is first asked for
//!     Hit: read in place ◄───────────────────────────────────────────  send(copy); the account of the reader's domain notes it
//!                                reply: a buffer, a miss, a refusal
//! ```
//!
//! The ledger says which domain holds which value (`Buffer::is_held_by`), never the reader.
//!
//! NOT here: pools and channels (`core`), sockets (`server`).

mod account;
mod client;
mod copies;
mod counts;
mod options;
mod reader;
mod server;
mod wire;

pub(crate) use counts::Counts;
pub use options::Share;
pub use reader::{Answer, Hit, Reader};
pub(crate) use server::ShareServer;
pub use wire::{Limits, Refused};
