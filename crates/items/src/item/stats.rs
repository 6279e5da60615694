//! An item zone's figures.

use tranship_zone::ZoneStats;

/// A zone's counters and its present state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ItemStats {
    /// The counters of its caches.
    pub zone: ZoneStats,
    /// Times that an allocation slept at the limit.
    pub sleeps: u64,
    /// Allocations that sleep now.
    pub sleepers: u64,
    /// Items that the zone has, cached ones included. The limit counts these.
    pub items: u64,
    /// The limit.
    pub max: u64,
    /// Bytes of an item.
    pub item_bytes: u64,
    /// Pages of the keg, which other zones may share.
    pub keg_pages: u64,
}
