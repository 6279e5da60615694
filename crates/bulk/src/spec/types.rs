//! What the model is made of.

use crate::{Agreement, ChannelState, Direction, Kind, Trust, negotiate::Wish};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// A domain.
pub type Domain = u8;
/// A channel.
pub type ChannelId = u8;
/// A pool.
pub type PoolId = u8;

/// A buffer: its pool and its place in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BufferId {
    pub pool: PoolId,
    pub index: u8,
}

/// Where the ownership of a buffer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// This domain owns it.
    At(Domain),
    /// It was moved or passed over the channel and has not been taken.
    Transit(ChannelId),
    /// Its owner died, and nobody can know who else has it. It comes back with the end of its pool.
    Stranded,
}

/// The copies of a buffer over one channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Copies {
    /// Sent and not known to be released, at the source.
    pub out: u8,
    /// Taken and not released, at the sink.
    pub held: u8,
}

/// A piece of a buffer, in an aggregate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Piece {
    pub buffer: BufferId,
    /// Bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Pieces in their order.
pub type Aggregate = Vec<Piece>;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Buffer {
    pub place: Place,
    /// What is in it; None: not specified (after a pass).
    pub data: Option<u8>,
    pub copies: BTreeMap<ChannelId, Copies>,
    /// Over which channel each holder of copies got the first of those that it holds.
    pub first: BTreeMap<Domain, ChannelId>,
    /// To whom the pool's creator gave it last, until it comes back.
    pub lent: Option<Domain>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pool {
    pub creator: Domain,
    /// Fixed by the first assignment that the other end accepts; until then, that of the one under way.
    pub trust: Option<Trust>,
    pub fixed: bool,
    /// May others than the creator assign it?
    pub forward: bool,
    pub buffer_bytes: u64,
    /// By which channel it came to each domain first.
    pub came_by: BTreeMap<Domain, ChannelId>,
}

/// Where the assignment of a pool to a channel stands, at one end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Assignment {
    /// Asked, not answered.
    Asking,
    /// Said yes, memory not shown yet.
    Accepted,
    /// Yes was said, memory shown, not confirmed.
    Showing,
    Assigned,
    /// We want to remove it.
    Removing,
    /// We said yes to its removal.
    Agreed,
}

impl Assignment {
    /// Is the pool's memory there?
    pub(crate) fn has_memory(self) -> bool {
        matches!(self, Self::Assigned | Self::Removing | Self::Agreed)
    }
}

/// One end of a channel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    pub domain: Domain,
    /// Who is at the other end, once it is bound; also when that one has forgotten its own.
    pub peer: Option<Domain>,
    pub state: ChannelState,
    pub pools: BTreeMap<PoolId, Assignment>,
    /// Refuses the pools that the other end assigns.
    pub vetoes: bool,
    /// The other end is in teardown too: nothing new is on its way here.
    pub peer_began: bool,
    /// In teardown: has said that it holds nothing any more.
    pub finished: bool,
    /// In teardown: has heard so.
    pub peer_finished: bool,
    /// What is on its way here.
    pub queue: VecDeque<Message>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel {
    pub creator: Domain,
    pub creator_direction: Direction,
    pub wish: Wish,
    pub agreed: Option<Agreement>,
    /// Source and sink; None: not bound.
    pub ends: [Option<End>; 2],
}

/// What travels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    Bind(Wish),
    BindAnswer(Result<Agreement, Kind>),
    Assign(PoolId),
    AssignAnswer(PoolId, Result<(), Kind>),
    Show(PoolId),
    Shown(PoolId),
    Remove(PoolId),
    RemoveAnswer(PoolId, Result<(), Kind>),
    /// The remover's last word.
    RemoveDecision(PoolId, bool),
    Move(BufferId, u8),
    Copy(BufferId, u8),
    Pass(BufferId, u8),
    Release(BufferId, u8),
    /// Moved, or copied, as one.
    All(bool, Aggregate, u8),
    Teardown,
    Finished,
}
