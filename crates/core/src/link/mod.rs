//! Links: a one-way data ring with a control ring back, in shared memory.

mod descriptor;
mod futures;
mod inline;
mod listener;
mod message;
mod open;
mod poll;
mod pollable;
mod reactor;
mod receiver;
mod rendezvous;
mod select;
mod sender;
mod shared;
mod sleep;

pub(crate) use descriptor::Reference;
pub(crate) use futures::open_async;
pub use inline::Inline;
pub use listener::Listener;
pub use message::{Body, Message, Payload};
pub(crate) use open::{End, checked_name};
pub use poll::{PollItem, poll};
pub use receiver::Receiver;
pub(crate) use rendezvous::connect;
pub use rendezvous::{PeerSocket, SocketListener};
pub use select::select;
pub use sender::{Sender, WithWhenFull};
pub(crate) use shared::{Gone, LinkShared};
