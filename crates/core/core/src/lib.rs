//! The client library: domains, pools, buffers, aggregates, channels.
//!
//! Purpose: everything that a program does with tranship on its fast path. On the slow path it speaks with the manager
//! by the crate `session`, which is named `domain` here.
//!
//! The feature `embedded` adds a manager as a thread of the program, `policy` a program of one's own that divides memory.
//!
//! ```text
//!  Domain ── Pool ── BufferMut ─freeze─► Buffer ─send─► Sender ═ring═► Receiver ─► Buffer ─drop─► release
//!     │        └ zones, kegs, runs over chunks; collector over the counters of all readers
//!     └ turn(): the manager's events, chunks in and out, claims after its restart
//! ```
//!
//! Folders, from below; each uses those before it:
//!
//! * `error/`, `options`: errors and options, for all of it.
//! * `pool/`: own pools (allocation, collection, growth, shrinking, waiting) and foreign ones.
//! * `buffer/`, `aggregate`: the buffers themselves.
//! * `link/`: sender, receiver, names, sleeping, awaiting.
//! * `membership/`: the public `Domain`, how to join, and an operator's questions.
//! * `heap`: private memory that is charged like a pool; `account`: such memory for an allocator that takes and gives often.
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
pub mod error;
pub mod heap;
mod link;
mod mapped;
mod membership;
mod options;
mod pool;
#[doc(hidden)]
pub mod topics;

use tranship_session as domain;
use tranship_session::base;

pub use account::Account;
pub use aggregate::{Aggregate, MAX_PIECES};
pub use aggregate_mut::AggregateMut;
pub use buffer::{Buffer, BufferMut};
pub use link::{
    Body, ChannelEnd, Inbox, Inline, Listener, Message, Opening, Payload, PayloadBack, PollItem,
    Receiver, Released, Sender, Status, poll,
};
pub use mapped::Mapped;
pub use membership::{Domain, DomainBuilder};
pub use options::{ChannelOptions, Outcome, PoolOptions, Wait, WhenFull};
pub use pool::Pool;
pub use tranship_error::{Error, ErrorKind, SendError};
pub use tranship_proto::{BufferId, ChannelId, DomainId, PoolId, Trust};
pub use tranship_region::View;
pub use tranship_ring::INLINE_BYTES;

/// An operator's view: the manager's figures, quotas, histories of buffers, leaks ([`Domain::admin`]).
pub mod admin {
    pub use crate::membership::{Admin, Did, Trace, TraceEvent};
    pub use crate::pool::PoolStats;
    pub use tranship_proto::{
        ChannelStat, DomainStat, HeapStat, HogAction, HogStat, HoldStat, ManagerStat, PoolFigures,
        PoolStat, Pressure, StatRecord,
    };
    pub use tranship_session::{Got, HeldBuffer, LeakReport, Leaks, OwnBuffer};
}

/// For the crate `typed` alone, whose ends are channel ends too.
#[doc(hidden)]
pub mod ends {
    pub use crate::link::{End, Sealed};
    pub use tranship_proto::Role;
}

/// Carriers of one's own: they carry channels to places without shared memory.
pub mod carrier {
    pub use crate::link::{Carrier, Driver, Ends, Handed, Inlet, Outlet, REASONS};
    pub use crate::membership::add_to;
}

/// Policies that divide memory among pools, and a program of one's own that applies one
/// ([`Admin::steer`](crate::admin::Admin::steer)).
#[cfg(feature = "policy")]
pub mod policy {
    pub use crate::membership::Steering;
    pub use tranship_policy::{
        Activity, Config, Entry, Governor, POLICIES, Policy, PoolState, Round, Rule, Snapshot,
        Target, UnknownPolicy, Wish, find,
    };
}
