//! The client library: domains, pools, buffers, aggregates, links.
//!
//! What it is for: everything a program does with tranship on its fast path. On its slow one it speaks with the manager by the crate `session`,
//! which is named `domain` here.
//!
//! ```text
//!  Domain ── Pool ── BufferMut ─freeze─► Buffer ─send─► Sender ═ring═► Receiver ─► Buffer ─drop─► release
//!     │        └ zones, kegs, runs over chunks; collector over the counters of all readers
//!     └ turn(): the manager's events, chunks in and out, claims after its restart
//! ```
//!
//! Folders, from below; each uses those before it:
//!
//! * `error/`, `options`: what everything uses.
//! * `heap`: private memory that is charged like a pool; `account`: the same for an allocator that takes and gives all the time.
//! * `pool/`: own pools (allocation, collection, growth, shrinking, waiting) and foreign ones.
//! * `buffer/`, `aggregate`: the buffers themselves.
//! * `link/`: sender, receiver, names, sleeping, awaiting.
//! * `membership/`: the public `Domain`, and how to join.
//!
//! `unsafe` is here for buffers on the hot path: handles point to their pool without counting, because a pool
//! outlives its outstanding slots, and slices are made over mapped memory after the range was checked.
//!
//! NOT here: the conversation with the manager, its decisions, layouts of shared memory, rings, the allocator, the liveness verdict.

#![warn(missing_docs, clippy::missing_errors_doc)]

mod account;
mod aggregate;
mod aggregate_mut;
mod buffer;
mod error;
mod heap;
mod link;
mod mapped;
mod membership;
mod options;
mod pool;

use tranship_session as domain;
use tranship_session::base;

pub use account::Account;
pub use aggregate::{Aggregate, AggregateReader, MAX_PIECES};
pub use aggregate_mut::AggregateMut;
pub use buffer::{Buffer, BufferMut};
pub use error::{
    Awaited, BadName, Barrier, Cause, Error, ErrorKind, Holder, Limit, NoAddresses, NotTaken,
    OutOfRange, PoolPending, RingFull, SendError, Shortage, SocketProblem, StaleId, TimedOut,
    TooLarge, Violation,
};
pub use heap::Heap;
pub use link::{
    Body, Carrier, ChannelEnd, Driver, Ends, Handed, Inlet, Inline, Listener, Message, Opening,
    Outlet, Payload, PayloadBack, PollItem, REASONS, Receiver, Relay, RelayEnd, RelayStop,
    Released, Sender, poll,
};
pub use mapped::Mapped;
pub use membership::{Did, Domain, DomainBuilder, Steering, Trace, TraceEvent};
pub use options::{ChannelOptions, HeapOptions, Outcome, PoolOptions, Wait, WhenFull};
pub use pool::{Pool, PoolStats};
pub use tranship_proto::{
    BufferId, ChannelId, DomainId, PoolId, Refusal, RefusalCode, Role, StatRecord, Trust,
};
pub use tranship_proto::{
    ChannelStat, DomainStat, HeapStat, HogAction, HogStat, HoldStat, ManagerStat, PoolFigures,
    PoolStat, Pressure,
};
pub use tranship_region::{OutOfBounds, View};
pub use tranship_ring::INLINE_BYTES;
pub use tranship_session::{Got, HeldBuffer, LeakReport, Leaks, Offer, OwnBuffer};
