//! Types of the model.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tranship_proto::Trust;

/// A domain.
pub type Domain = u8;
/// A channel.
pub type ChannelId = u8;
/// A pool.
pub type PoolId = u8;

/// Way by which memory reaches the other end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Way {
    /// `local:`: the handle itself, within one domain.
    Inside,
    /// `shm:`: the same memory, or at level `none` a copy.
    Shared,
    /// All else: its bytes.
    Carried,
}

/// A buffer in use: its pool, and its place there, which another one may have later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BufferId {
    pub pool: PoolId,
    pub index: u8,
}

/// Access to a buffer's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    None,
    Read,
    ReadWrite,
}

/// Hold of a domain on a buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hold {
    /// The only handle of the buffer, which writes.
    Sole,
    /// This many handles, beside those of others. `given`: the first of them arrived by a move, and can be handed back.
    /// It goes last.
    Shared { handles: u8, given: bool },
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Buffer {
    pub data: u8,
    /// Another domain was sent it, and so knows its id.
    pub sent: bool,
    pub holds: BTreeMap<Domain, Hold>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pool {
    pub writer: Domain,
    /// Trust level, which is fixed.
    pub trust: Trust,
    /// Number of buffers at once.
    pub slots: u8,
    /// Domains other than the writer may send from it.
    pub forward: bool,
}

impl Pool {
    pub(crate) fn new(writer: Domain, trust: Trust, slots: u8) -> Pool {
        Pool {
            writer,
            trust,
            slots,
            forward: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EndState {
    Open,
    Closed,
    Died,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel {
    pub source: Domain,
    pub sink: Domain,
    /// State of the source and of the sink.
    pub ends: [EndState; 2],
    /// Number of messages each way. Where they are carried more may be under way; the number is not specified.
    pub lines: u8,
    /// Trust levels that the sink takes.
    pub levels: BTreeSet<Trust>,
    /// Whether it refuses pools that it has not agreed to yet.
    pub vetoes: bool,
    pub assigned: BTreeSet<PoolId>,
    /// Pools that the source, and that the sink, has removed.
    pub removed: [BTreeSet<PoolId>; 2],
    /// Messages on their way to the sink, and back.
    pub queue: VecDeque<Message>,
    pub back: VecDeque<Message>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Carries {
    Inline,
    Shared,
    Moved,
    Aggregate,
    MovedAggregate,
    /// Message on the way back: something was released, which has a name that both know, or not.
    Released {
        named: bool,
    },
    /// On the way back: the sink has removed a pool.
    Removed {
        pool: PoolId,
    },
}

impl Channel {
    /// Returns whether the source knows that the sink has removed the pool.
    pub(crate) fn is_lost(&self, pool: PoolId) -> bool {
        let says = |message: &Message| message.carries == Carries::Removed { pool };
        self.removed[1].contains(&pool) && !self.back.iter().any(says)
    }
}

impl Carries {
    /// Returns whether the operation makes its buffers the receiver's alone.
    #[must_use]
    pub fn moves(self) -> bool {
        matches!(self, Carries::Moved | Carries::MovedAggregate)
    }

    /// Returns the form in which its buffers arrive where they are only read.
    #[must_use]
    pub fn shared(self) -> Carries {
        match self {
            Carries::Moved => Carries::Shared,
            Carries::MovedAggregate => Carries::Aggregate,
            other => other,
        }
    }
}

/// Part of a buffer in a message: the buffer itself, or its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Piece {
    Buffer(BufferId),
    Bytes(u8),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Message {
    pub carries: Carries,
    pub pieces: Vec<Piece>,
    pub word: u8,
}
