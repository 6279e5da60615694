//! Operations, and their results.

use crate::types::{BufferId, Carries, ChannelId, Domain, PoolId};
use serde::{Deserialize, Serialize};
use tranship_proto::Trust;

/// Everything that a domain can do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Algorithms 3 and 4: a channel, whose sink takes pools of these levels.
    Connect {
        domain: Domain,
        sink: Domain,
        lines: u8,
        levels: Vec<Trust>,
    },
    /// Makes a pool (Algorithm 5).
    NewPool {
        domain: Domain,
        trust: Trust,
        slots: u8,
        forward: bool,
    },
    /// Makes this sink refuse (or accept) pools from here on: the answer of Algorithm 6, which asks at the first send
    /// from a pool.
    Veto {
        domain: Domain,
        channel: ChannelId,
        veto: bool,
    },
    /// Assigns a pool (Algorithm 6) ahead of the first send from it, or again.
    Assign {
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    },
    /// Either end removes a pool from the channel. The source may assign it again if the sink has not removed it.
    Remove {
        domain: Domain,
        channel: ChannelId,
        pool: PoolId,
    },
    /// A buffer, filled.
    Alloc {
        domain: Domain,
        pool: PoolId,
        data: u8,
    },
    Write {
        domain: Domain,
        buffer: BufferId,
        data: u8,
    },
    Freeze {
        domain: Domain,
        buffer: BufferId,
    },
    Clone {
        domain: Domain,
        buffer: BufferId,
    },
    /// Makes a handle exclusive again.
    Exclusive {
        domain: Domain,
        buffer: BufferId,
    },
    /// Lets a handle go: Algorithm 10, for a buffer that came as a copy.
    Drop {
        domain: Domain,
        buffer: BufferId,
    },
    Inline {
        domain: Domain,
        channel: ChannelId,
        word: u8,
    },
    /// Algorithm 9, a handle more or the last one.
    Send {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        keep: bool,
        word: u8,
    },
    /// Moves a buffer (Algorithm 7).
    Move {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        word: u8,
    },
    /// Shares all of them in one message, and keeps them.
    SendAll {
        domain: Domain,
        channel: ChannelId,
        buffers: Vec<BufferId>,
        word: u8,
    },
    /// Moves all of them in one message.
    MoveAll {
        domain: Domain,
        channel: ChannelId,
        buffers: Vec<BufferId>,
        word: u8,
    },
    /// Sends a buffer back (Algorithm 8).
    Pass {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        word: u8,
    },
    /// Algorithm 10, and the source is told.
    Release {
        domain: Domain,
        channel: ChannelId,
        buffer: BufferId,
        word: u8,
    },
    /// The sink takes the next message, or learns how the channel has ended.
    Deliver {
        domain: Domain,
        channel: ChannelId,
    },
    /// The source takes a buffer that was sent back, or the message of a release. It learns of removals before it.
    TakeBack {
        domain: Domain,
        channel: ChannelId,
    },
    /// The domain lets its end go.
    Close {
        domain: Domain,
        channel: ChannelId,
    },
    /// The domain ends, whatever it is doing.
    Kill {
        domain: Domain,
    },
}

impl Op {
    /// Returns the domain that does it.
    #[must_use]
    pub fn domain(&self) -> Domain {
        match *self {
            Op::Connect { domain, .. }
            | Op::NewPool { domain, .. }
            | Op::Veto { domain, .. }
            | Op::Assign { domain, .. }
            | Op::Remove { domain, .. }
            | Op::Alloc { domain, .. }
            | Op::Write { domain, .. }
            | Op::Freeze { domain, .. }
            | Op::Clone { domain, .. }
            | Op::Exclusive { domain, .. }
            | Op::Drop { domain, .. }
            | Op::Inline { domain, .. }
            | Op::Send { domain, .. }
            | Op::Move { domain, .. }
            | Op::SendAll { domain, .. }
            | Op::MoveAll { domain, .. }
            | Op::Pass { domain, .. }
            | Op::Release { domain, .. }
            | Op::Deliver { domain, .. }
            | Op::TakeBack { domain, .. }
            | Op::Close { domain, .. }
            | Op::Kill { domain } => domain,
        }
    }
}

/// Message that was taken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Event {
    pub carries: Carries,
    /// The receiver has them from here on.
    pub buffers: Vec<BufferId>,
    pub word: u8,
}

/// Result of a step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    Channel(ChannelId),
    Pool(PoolId),
    Buffer(BufferId),
    /// Deliver, TakeBack: nothing waits.
    Nothing,
    Took(Event),
}
