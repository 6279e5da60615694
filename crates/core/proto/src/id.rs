//! Identifiers, as newtypes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Most slots of a pool: those that 20 bits of a [`BufferId`] can name.
pub const SLOT_LIMIT: u32 = 1 << 20;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        pub struct $name(pub u32);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(/// A protection domain. Never 0.
    DomainId);
id!(/// A pool, or a heap: 1 to 2^20 - 1.
    PoolId);
id!(/// A channel (in this version, a link). Never 0.
    ChannelId);
id!(/// An exported name. Never 0.
    ExportId);
id!(/// Chosen by the client; the manager's answer carries it back.
    Req);

impl PoolId {
    /// Largest pool id.
    pub const MAX: PoolId = PoolId((1 << 20) - 1);
}

/// Names one buffer in one life: pool, slot, generation (`docs/format.md`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufferId(pub u64);

impl BufferId {
    /// Packs the three parts; the bits above each part's width are dropped.
    #[doc(hidden)]
    #[inline]
    pub fn new(pool: PoolId, slot: u32, generation: u32) -> BufferId {
        BufferId(
            (u64::from(pool.0) << 44)
                | (u64::from(slot & (SLOT_LIMIT - 1)) << 24)
                | u64::from(generation & 0xff_ffff),
        )
    }
    /// Returns the pool that the buffer belongs to.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // 20 bits are left
    pub fn pool(self) -> PoolId {
        PoolId((self.0 >> 44) as u32)
    }
    /// Returns the slot in the pool's table.
    #[doc(hidden)]
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // masked to 20 bits
    pub fn slot(self) -> u32 {
        ((self.0 >> 24) as u32) & (SLOT_LIMIT - 1)
    }
    /// Returns the generation, 24 bits.
    #[doc(hidden)]
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // masked to 24 bits
    pub fn generation(self) -> u32 {
        (self.0 as u32) & 0xff_ffff
    }
}

impl fmt::Debug for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.pool(), self.slot(), self.generation())
    }
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_at_their_limits() {
        for (pool, slot, generation) in [
            (1, 0, 0),
            (PoolId::MAX.0, SLOT_LIMIT - 1, 0xff_ffff),
            (7, 8, 9),
        ] {
            let id = BufferId::new(PoolId(pool), slot, generation);
            assert_eq!(
                (id.pool().0, id.slot(), id.generation()),
                (pool, slot, generation)
            );
        }
    }
}
