//! Orders to a domain of a world, and its answers.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tranship_model::{BufferId, Carries, ChannelId, Op, Outcome, PoolId, Trust, Way};

#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// A new world.
    Begin(Way),
    Listen {
        channel: ChannelId,
        address: String,
        lines: u8,
        levels: Vec<Trust>,
    },
    Accept(ChannelId),
    Open {
        channel: ChannelId,
        address: String,
        lines: u8,
    },
    NewPool {
        /// All pools are of level `none`, with large buffers only.
        seals: bool,
        pool: PoolId,
        trust: Trust,
        slots: u8,
        forward: Vec<u32>,
    },
    /// An operation, with the model's result of it; an error by its number.
    Do(Op, Result<Outcome, u16>),
    /// Removes a pool, by the library's number of it, from a channel; with the model's result.
    Remove {
        channel: ChannelId,
        pool: u32,
        expected: Result<Outcome, u16>,
    },
    /// List the memory that is here, and try the access to these addresses.
    Look(Vec<usize>),
    LetGo,
    /// All of each pool can be had.
    Whole,
}

/// Answer, in full or with a note of the missing part.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    pub domain: u32,
    /// Number of a new pool.
    pub pool: u32,
    /// Address where the domain listens, if that is a port of its own.
    pub listens: Option<SocketAddr>,
    pub said: Option<Said>,
    pub here: Vec<Here>,
    pub touched: Vec<u8>,
    /// Memory of its pools that all of their users may write, when there may be more of it.
    pub files: Vec<(String, u64)>,
}

/// Outcome of an operation.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    Done,
    Nothing,
    Took(Carries, usize, u8),
    Error(u16, String),
}

impl Said {
    /// Says whether a send was refused because another domain has the pool of level `none`.
    pub fn has_another_reader(&self) -> bool {
        matches!(self, Said::Error(_, text) if text.contains("of level none has another reader"))
    }
}

/// A buffer as its holder sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Here {
    pub id: BufferId,
    /// Handles, 0: it is exclusive.
    pub shared: usize,
    pub writable: bool,
    /// Byte at both ends of it; none if they differ.
    pub data: Option<u8>,
    pub access: u8,
    pub at: usize,
    pub real: String,
}
