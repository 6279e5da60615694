//! Bulk channels: ownership of buffers, trust, and one interface over every backend.
//!
//! * [`Domain`], [`Channel`], [`Pool`], [`Buffer`], [`ReadBuffer`]: handles; what was given away is used up.
//! * [`Event`], [`Completion`]: what a program learns, by callback, by looking or by awaiting.
//! * [`spec`]: the semantics as an executable model, against which everything else is tested.
//! * [`negotiate`](mod@negotiate): what the two ends of a channel agree on.
//! * [`Error`]: all that can go wrong, each [`Kind`] under a stable number.
//! * [`Shm`]: channels over rings; what else they run over is `transport`.
//!
//! NOT here: system calls (`sys`), memory and its seals (`region`), rings (`ring`), connections (`transport`), cbufs whose readers only read
//! (`core`).

#![deny(unsafe_code)]

mod account;
mod aggregate;
mod buffer;
mod bytes;
mod channel;
mod completion;
mod domain;
mod list;
mod mapping;
mod memory;
mod message;
mod meta;
pub mod negotiate;
mod parcel;
mod party;
mod pool;
pub mod raw;
mod relay;
mod shm;
pub mod spec;
mod statistics;
mod terms;
mod waiting;

pub use aggregate::Aggregate;
pub use buffer::{Buffer, ReadBuffer, Readable};
pub use channel::{Channel, Event, Mode};
pub use completion::{Completion, Ended};
pub use list::{MAX_PIECES, Piece};
pub use mapping::Mapping;
pub use memory::SEAL_FROM_BYTES;
pub use message::PoolInfo;
pub use meta::Meta;
pub use negotiate::{Agreement, Constraints, Wish};
pub use parcel::{Incoming, LENGTH_BYTES, Outgoing};
pub use party::{Domain, EndOptions};
pub use pool::Pool;
pub use relay::{Relay, Side};
pub use shm::Shm;
pub use statistics::Statistics;
pub use terms::{Access, BufferState, ChannelState, Direction, Role, Trust};
pub use tranship_error::{Error, Kind, SendError};
pub use waiting::wait_any;
