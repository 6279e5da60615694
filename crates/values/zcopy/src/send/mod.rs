//! Sends: a list of pieces goes to a socket in order, by reference where that is possible, the rest by copying.
//!
//! ```text
//!   pieces ─► segments: copied, or pages that no longer change
//!                 │ choice: by kind of socket and size
//!        ┌────────┼──────────────┐
//!      copy    splice         notified
//!     sendmsg  vmsplice,splice MSG_ZEROCOPY      (datagrams: copy, or registered: SENDMSG_ZC)
//! ```
//!
//! A call sends as much as there is room for and returns how much, as send(2): no part of it waits here. Datagrams go
//! several in one call (`datagrams`). Lists with files and with buffers of shared pools go in parts (`list`). Such a
//! buffer goes by reference only where the kernel reports when it is done with it, and is kept until then (`held`, and
//! `linger` when the program has released the socket).

mod choice;
mod copy;
mod counts;
mod datagrams;
mod header;
mod held;
mod linger;
mod list;
mod marks;
mod notified;
mod packet;
mod probe;
mod registered;
mod route;
mod segment;
mod sender;
mod socket;
mod splice;
mod way;

pub use counts::Counts;
pub(crate) use route::Route;
pub use segment::Piece;
pub use sender::Sender;
pub use socket::Socket;
pub use way::{Cause, Way, Why};
