//! What can happen, and what is learned from it.

use super::{Aggregate, BufferId, ChannelId, Domain, Piece, PoolId};
use crate::{Agreement, Direction, Kind, negotiate::Wish};
use serde::{Deserialize, Serialize};

/// Everything that a domain can do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Algorithm 3.
    Create {
        domain: Domain,
        direction: Direction,
        wish: Wish,
    },
    /// Algorithm 4.
    Bind {
        domain: Domain,
        channel: ChannelId,
        wish: Wish,
    },
    /// Algorithm 5.
    NewPool {
        domain: Domain,
        buffers: u8,
        buffer_bytes: u64,
        forward: bool,
    },
    DestroyPool {
        domain: Domain,
        pool: PoolId,
    },
    /// From here on this end refuses (or accepts) pools.
    Veto {
        domain: Domain,
        channel: ChannelId,
        veto: bool,
    },
    /// Algorithm 6.
    Assign {
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    },
    Remove {
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    },
    Write {
        domain: Domain,
        buffer: BufferId,
        data: u8,
    },
    /// Algorithm 7.
    Move {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    },
    /// Algorithm 8.
    Pass {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    },
    /// Algorithm 9.
    Copy {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    },
    /// Algorithm 10.
    Release {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        meta: u8,
    },
    /// Section 5.1.11: the bytes of `from` into `to`, which is then moved.
    FullCopy {
        domain: Domain,
        channel: ChannelId,
        from: BufferId,
        to: BufferId,
        meta: u8,
    },
    /// A piece in front of the piece `at` of an aggregate.
    Insert {
        domain: Domain,
        aggregate: u8,
        at: u8,
        piece: Piece,
    },
    /// Takes the piece `at` out.
    TakeOut {
        domain: Domain,
        aggregate: u8,
        at: u8,
    },
    /// Moves all buffers of the aggregate, or copies them.
    SendAll {
        domain: Domain,
        aggregate: u8,
        channel: ChannelId,
        copies: bool,
        meta: u8,
    },
    /// Shows the aggregate's pieces in one range.
    Map {
        domain: Domain,
        aggregate: u8,
    },
    /// Ends the oldest mapping of it.
    Unmap {
        domain: Domain,
        aggregate: u8,
    },
    Close {
        domain: Domain,
        channel: ChannelId,
    },
    /// The domain forgets an end that is over.
    Forget {
        domain: Domain,
        channel: ChannelId,
    },
    /// The domain ends, whatever it is doing.
    Kill {
        domain: Domain,
    },
    /// The domain takes the next message of the channel, or learns that the other end is gone.
    Deliver {
        domain: Domain,
        channel: ChannelId,
    },
}

impl Op {
    /// Who does it.
    #[must_use]
    pub fn domain(&self) -> Domain {
        match *self {
            Op::Create { domain, .. }
            | Op::Bind { domain, .. }
            | Op::NewPool { domain, .. }
            | Op::DestroyPool { domain, .. }
            | Op::Veto { domain, .. }
            | Op::Assign { domain, .. }
            | Op::Remove { domain, .. }
            | Op::Write { domain, .. }
            | Op::Move { domain, .. }
            | Op::Pass { domain, .. }
            | Op::Copy { domain, .. }
            | Op::Release { domain, .. }
            | Op::FullCopy { domain, .. }
            | Op::Insert { domain, .. }
            | Op::TakeOut { domain, .. }
            | Op::SendAll { domain, .. }
            | Op::Map { domain, .. }
            | Op::Unmap { domain, .. }
            | Op::Close { domain, .. }
            | Op::Forget { domain, .. }
            | Op::Kill { domain }
            | Op::Deliver { domain, .. } => domain,
        }
    }
}

/// What a domain learns from a message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    Bound(Result<Agreement, Kind>),
    /// The other end's pool is here.
    PoolAssigned(PoolId),
    /// What became of our own assignment.
    AssignDone(PoolId, Result<(), Kind>),
    PoolRemoved(PoolId),
    RemoveDone(PoolId, Result<(), Kind>),
    Moved(BufferId, u8, Option<u8>),
    Copied(BufferId, u8, Option<u8>),
    Passed(BufferId, u8),
    Released(BufferId, u8),
    /// Copied, or moved, as one.
    All(bool, Aggregate, u8),
    /// The other end wants to close.
    TeardownBegun,
    /// The other end is dead; these of our buffers came back.
    Gone(Vec<BufferId>),
}

/// What a step gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Channel(ChannelId),
    Pool(PoolId),
    /// Deliver: nothing waits.
    Nothing,
    /// Deliver: a message was taken, and the domain learned this from it.
    Took(Vec<Event>),
}
