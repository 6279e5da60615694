//! The words that everybody here uses: trust, roles, directions, states.

use serde::{Deserialize, Serialize};

/// What the two ends of a channel, and the users of a pool, are kept from.
///
/// | level | who can write a buffer | held by |
/// |---|---|---|
/// | `Full` | every domain with the pool | nothing: it is agreed who does |
/// | `Half` | its owner | each library, which protects its own mapping: honest mistakes fault |
/// | `Producer` | the pool's creator, ever | the kernel's seals |
/// | `None` | its owner | the kernel's seals: each domain writes only memory that no other can |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Trust {
    None,
    Producer,
    Half,
    Full,
}

impl Trust {
    /// All levels.
    pub const ALL: [Trust; 4] = [Trust::None, Trust::Producer, Trust::Half, Trust::Full];
}

/// Who provides the buffers of a channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Role {
    /// This end assigns pools.
    Master,
    /// This end gets its buffers from the other one.
    Slave,
    /// As the other end wants it; nobody is this once the channel is connected.
    Generic,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 3] = [Role::Master, Role::Slave, Role::Generic];

    /// What the other end then is.
    #[must_use]
    pub fn other(self) -> Role {
        match self {
            Role::Master => Role::Slave,
            Role::Slave => Role::Master,
            Role::Generic => Role::Generic,
        }
    }
}

/// Which end of a channel: data goes from the source to the sink.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Direction {
    Source,
    Sink,
}

impl Direction {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Direction {
        match self {
            Direction::Source => Direction::Sink,
            Direction::Sink => Direction::Source,
        }
    }
}

/// Where one end of a channel stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ChannelState {
    /// No endpoint, or none any more: a bind that was refused.
    Uninitialized,
    /// Created, nobody has bound yet.
    Initialized,
    /// We have asked to bind and wait for the answer.
    Binding,
    /// Buffers may travel.
    Connected,
    /// One end wants to close: buffers are only given back.
    Teardown,
    /// Over.
    Closed,
}

/// A buffer as one domain sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum BufferState {
    /// Not here.
    Invalid,
    /// Somebody else's, and we hold copies of it.
    ReadOnly,
    /// Ours, with copies elsewhere.
    ReadOnlyOwned,
    /// Ours alone.
    ReadWrite,
}

/// What a domain may do to a buffer's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    None,
    Read,
    ReadWrite,
}
