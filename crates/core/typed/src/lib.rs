//! Messages as plain structs, over the channels of `tranship-core`.
//!
//! A [`Message`] is a struct whose bytes are its value (`zerocopy`). Its [`Layout`] names its fields, with their types
//! and places. The ends [`Sender<M>`](Sender) and [`Receiver<M>`](Receiver) open at the same addresses as a channel's
//! ends without a type. When a channel opens, both ends compare the layouts as texts, and programs with different
//! definitions refuse each other.
//!
//! Files, from below: `layout` (the text), `message` (what can be one), `value` (messages in buffers), `ends`. With the feature `service`: `pass`
//! (arguments and results) and `calls` (typed clients and services). With `topic`: `topics`. With `queue`: `queues`. With `flatbuffers`
//! and `arrow`: `flat`, `arrow` (other libraries' data, where it lies).
//!
//! NOT here: any conversion of bytes. The bytes in memory are sent as they are.

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

#[cfg(feature = "service")]
mod answer;
#[cfg(feature = "arrow")]
pub mod arrow;
#[cfg(feature = "service")]
mod calls;
mod ends;
#[cfg(feature = "flatbuffers")]
pub mod flat;
mod layout;
mod message;
#[cfg(feature = "service")]
mod pass;
#[cfg(feature = "queue")]
mod queues;
#[cfg(feature = "service")]
mod streams;
#[cfg(feature = "topic")]
mod topics;
mod value;

#[cfg(feature = "service")]
#[doc(hidden)]
pub use answer::Came;
#[cfg(feature = "service")]
pub use answer::{Answer, Fault};
#[cfg(feature = "service")]
pub use calls::{Client, Interface, Service, reply_draft};
#[cfg(feature = "service")]
#[doc(hidden)]
pub use calls::{arguments, no_method};
pub use ends::{Receiver, Sendable, Sender};
pub use layout::Layout;
pub use message::{Items, Message};
#[cfg(feature = "service")]
pub use pass::{Parcel, Pass};
#[cfg(feature = "queue")]
pub use queues::{Consumer, Job, Producer};
#[cfg(feature = "service")]
pub use streams::{Stream, Streaming};
#[cfg(feature = "topic")]
pub use topics::{Publisher, Subscriber};
#[cfg(feature = "service")]
#[doc(hidden)]
pub use tranship_core::Error;
#[cfg(feature = "service")]
#[doc(hidden)]
pub use tranship_service::Request;
pub use tranship_typed_derive::Message;
#[cfg(feature = "service")]
pub use tranship_typed_derive::service;
pub use value::{Draft, Value};
pub use zerocopy;
