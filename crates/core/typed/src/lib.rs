//! Messages as plain structs, over the channels that stand.
//!
//! A [`Message`] is a struct whose bytes are its value (`zerocopy`). Its [`Layout`] names its fields, with their types and
//! places. The ends [`Sender<M>`](Sender) and [`Receiver<M>`](Receiver) are a channel's ends like those without a type: they open at the same addresses. When a
//! channel opens both ends compare the layouts as texts, and programs of different definitions refuse each other.
//!
//! Files, from below: `layout` (the text), `message` (what can be one), `value` (messages in buffers), `ends`.
//!
//! NOT here: any conversion of bytes. What is sent is what lies in memory.

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod ends;
mod layout;
mod message;
mod value;

pub use ends::{Receiver, Sendable, Sender};
pub use layout::Layout;
pub use message::{Items, Message};
pub use tranship_typed_derive::Message;
pub use value::{Draft, Value};
pub use zerocopy;
