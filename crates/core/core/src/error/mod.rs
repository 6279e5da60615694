//! Causes of errors with figures of their own: those of channels and of memory. The crate `session` has those between a
//! domain and its manager.

mod channel;
mod memory;

pub use channel::{NotTaken, PoolPending, RingFull, TypeMismatch, Violation};
pub use memory::{Holder, Limit, NoAddresses, Shortage, StaleId, TooLarge};
pub use tranship_error::{Cause, of_kind, system};
pub(crate) use tranship_error::{Error, ErrorKind, SendError};
pub use tranship_proto::{Refusal, RefusalCode};
pub use tranship_region::OutOfBounds;
pub use tranship_session::error::{Awaited, BadName, Barrier, OutOfRange, SocketProblem, TimedOut};
pub(crate) use tranship_session::error::{protocol, refused, unexpected};
