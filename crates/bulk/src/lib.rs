//! Bulk channels: ownership of buffers, trust, and one interface over every backend.
//!
//! * [`spec`]: the semantics as an executable model, against which everything else is tested.
//! * [`negotiate`](mod@negotiate): what the two ends of a channel agree on.
//! * [`Code`]: all that can go wrong, under stable numbers.
//!
//! NOT here: system calls (`sys`), memory and its seals (`region`), rings (`sync`), cbufs whose readers only read
//! (`core`).

#![forbid(unsafe_code)]

mod code;
pub mod negotiate;
pub mod spec;
mod terms;

pub use code::Code;
pub use negotiate::{Agreement, Constraints, Wish};
pub use terms::{Access, BufferState, ChannelState, Direction, Role, Trust};
