//! Messages that come before the next line.

use crate::domain::{Asked, POLL_INTERVAL};
use crate::error::{Error, ErrorKind, Violation};
use crate::pool::Missing;
use std::time::Instant;
use tranship_proto::{ChannelId, PoolId};

/// A message, or an end, that a receiver has put aside.
pub(super) enum Ahead {
    Nothing,
    /// Nothing is put aside, and lines are given back by hand.
    Held,
    /// A line that was taken off the ring but cannot be received yet. Its count and the head wait with it.
    Line(Pending),
    /// The end: no line is looked at any more.
    End(Over),
}

/// Reason why nothing more comes.
#[derive(Clone)]
pub(super) enum Over {
    Closed,
    Died,
    Never,
    Lost,
    Violated(Violation),
    /// The sender, a carrier in this process, said why.
    Because(Error),
}

impl Over {
    pub(super) fn error(self, channel: ChannelId) -> Error {
        let (kind, text) = match self {
            Over::Closed => (
                ErrorKind::PeerGone,
                format!(
                    "the sender of channel {channel} has closed it, and everything it sent was taken"
                ),
            ),
            Over::Died => (
                ErrorKind::PeerDied,
                format!(
                    "the sender of channel {channel} died or gave up before it closed it; what it had sent was taken, but that may not be all"
                ),
            ),
            Over::Never => (
                ErrorKind::NotConnected,
                format!(
                    "channel {channel} was not made after all: its other end, or the manager, went before it was accepted; connect again"
                ),
            ),
            Over::Lost => (
                ErrorKind::Lost,
                format!(
                    "messages of channel {channel} are lost: the domain that wrote their memory ended before this one, or a manager, had it"
                ),
            ),
            Over::Because(why) => return why,
            Over::Violated(violation) => {
                let text = "the sender broke a rule, the channel is closed";
                return Error::because(ErrorKind::PeerViolation, text, violation);
            }
        };
        Error::new(kind, text)
    }
}

/// The message, and what it waits for.
pub(super) struct Pending {
    pub(super) words: [u64; 8],
    pub(super) due: Due,
}

/// The memory or room for which a message waits.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub(super) awaits: Awaits,
    /// The manager is not asked again before that.
    pub(super) again: Instant,
}

impl Due {
    pub(super) fn of(awaits: Awaits) -> Due {
        let again = Instant::now() + POLL_INTERVAL;
        Due { awaits, again }
    }

    /// Returns the pool.
    pub fn pool(&self) -> PoolId {
        self.awaits.pool()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Awaits {
    /// The manager has to open the pool.
    Open(PoolId),
    Chunk(PoolId, Missing),
    /// An own pool has to have room for a copy.
    Room(PoolId),
}

impl Awaits {
    pub(super) fn pool(self) -> PoolId {
        match self {
            Awaits::Open(pool) | Awaits::Chunk(pool, _) | Awaits::Room(pool) => pool,
        }
    }
}

/// A request to the manager for all chunks of a pool, for the message that waits.
pub(super) struct Resync {
    pub(super) pool: PoolId,
    pub(super) asked: Asked,
    /// Whether the pool's writer was dead before. A writer that comes, claims and goes meanwhile leaves all its chunks
    /// with the manager.
    pub(super) dead: bool,
}

/// Reason why a reference could not be taken.
pub(super) enum Untaken {
    Violation(Violation),
    Missing(PoolId, Missing),
    /// The pool is assigned, but the manager has not said yet that this end's counters are on the writer's reader set.
    NotOpen(PoolId),
    /// An own pool has no room for the copy.
    NoRoom(PoolId, Error),
}

impl From<Violation> for Untaken {
    fn from(violation: Violation) -> Untaken {
        Untaken::Violation(violation)
    }
}
