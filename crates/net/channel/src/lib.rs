//! Channels whose other end is elsewhere. A message that a program sends by a [`Sender`](tranship_core::Sender) of its
//! domain comes out of a [`Receiver`](tranship_core::Receiver) of another domain, on another machine if need be.
//!
//! ```text
//!  program ─ Sender ══ring══ Outlet ─ sending ══ frames ══ receiving ─ Inlet ══ring══ Receiver ─ program
//!            credit, what was taken  ◄──────── frames ────────
//! ```
//!
//! * [`Over`]: a carrier, over any connections whose bytes are carried ([`Backend`]).
//! * [`add_to`]: all that are built in: `copy:`, and with the feature `net` `tcp:` and `tcp+plain:`.
//! * `wire`: the frames. `sending`, `receiving`: the work of each end. `driver`: the thread that does it, the program's
//!   or the channel's. `meet`, `begin`: how channels begin.
//!
//! A buffer's bytes go from the sender's mapping straight into the socket, and out of it straight into a buffer of a
//! pool of the receiver's domain, which is charged to it. Nothing is sent that the receiver has not said it has room
//! for.
//!
//! NOT here: connections, TLS, connecting again (`transport`); channels in shared memory and inside a process (`core`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod begin;
mod bytes;
mod driver;
mod meet;
mod over;
mod receiving;
mod sending;
mod wire;
mod word;

pub use over::{Over, add_to};
pub use tranship_transport::Backend;
