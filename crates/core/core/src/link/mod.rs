//! Links: a one-way data ring with a control ring back, in shared memory.
//!
//! The files, from below: data on a ring (`inline`, `descriptor`, `message`) or beside it (`store`); the carrier's work
//! (`driver`); one end's state (`shared`) and the work on it (`sleep`, `bell`, `registered`, `member`, `leave`); the
//! two cursors (`sender`, `receiver`) and their payloads (`payload`, `back`); the making of ends (`end`, `typing`,
//! `beside`, `open`, `inside`, `feed`, `local`, `carrier`, `listener`); waiting for several ends, and awaiting (`rung`, `poll`,
//! `pollable`, `reactor`, `looking`, `futures`, `carried`); taking by id (`inbox`).

mod address;
mod back;
mod bell;
mod beside;
mod carried;
mod carrier;
mod descriptor;
mod driver;
mod end;
mod feed;
mod futures;
mod inbox;
mod inline;
mod inside;
mod leave;
mod listener;
mod local;
mod looking;
mod member;
mod memory;
mod message;
mod open;
mod payload;
mod poll;
mod pollable;
mod reactor;
mod receiver;
mod registered;
mod removal;
mod rung;
mod sender;
mod shared;
mod sleep;
mod status;
mod store;
mod typing;

pub(crate) use address::{Address, unknown};
pub use back::{PayloadBack, Released};
pub(crate) use beside::Beside;
pub use carried::{Inlet, Outlet, REASONS};
pub use carrier::{Carrier, Ends, Handed};
pub use driver::Driver;
pub use end::{ChannelEnd, Sealed};
pub(crate) use feed::Feed;
pub(crate) use futures::Registration;
pub use inbox::Inbox;
pub use inline::Inline;
pub(crate) use listener::Accepts;
pub use listener::Listener;
pub(crate) use local::{
    Guard, Within, listen as listen_local, open as open_local, try_open as try_open_local,
};
pub use looking::Opening;
pub(crate) use looking::{look_for_named, open as open_named};
pub use message::{Body, Message};
pub use open::End;
pub(crate) use open::check;
pub use payload::Payload;
pub use poll::{PollItem, Polled, poll};
pub(crate) use reactor::put as put_task;
pub use receiver::{Due, Receiver, Taken};
pub use rung::Bell;
pub use sender::Sender;
pub(crate) use shared::LinkShared;
pub use status::Status;
