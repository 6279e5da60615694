//! The ends of a component of `tranship run`, found by their names.
//!
//! * [`Component`]: joins the program's manager, and gives the ends that the program's file names.
//! * [`Sender`], [`Receiver`]: ends of a channel that outlive the component at the other end.
//! * [`Brief`]: what the supervisor tells a component, in one variable of the environment.
//!
//! NOT here: the file, starting and restarting components (`faces/run`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod brief;
mod component;
mod gone;
mod receiver;
mod sender;

pub use brief::{Brief, End, Part, Returns, VARIABLE, WhenDown};
pub use component::Component;
pub use receiver::Receiver;
pub use sender::Sender;
