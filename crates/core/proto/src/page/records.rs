//! The records: what `stat` says, and what only somebody who looks again and again can know.

use crate::{ChannelStat, DomainStat, HeapStat, HoldStat, ManagerStat, PoolStat};
use serde::{Deserialize, Serialize};

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageRecord {
    /// The manager itself; always first.
    Manager(ManagerStat),
    /// A domain.
    Domain(DomainStat),
    /// A pool.
    Pool(PoolView),
    /// A channel, or a name waiting for one.
    Channel(ChannelView),
    /// What a domain holds of a pool.
    Hold(HoldView),
    /// A heap.
    Heap(HeapStat),
}

/// A pool, with what its writer says of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolView {
    /// As `stat` says it.
    #[serde(flatten)]
    pub stat: PoolStat,
    /// Time that callers waited for memory, summed over callers, ns.
    pub blocked_ns: u64,
    /// Time spent collecting, ns.
    pub collect_ns: u64,
    /// Buffers handed out.
    pub allocs: u64,
    /// Chunks of which something is in use, bytes.
    pub live_bytes: u64,
    /// The most of that at once, lately, bytes.
    pub peak_bytes: u64,
    /// Buffers in use.
    pub live_buffers: u64,
    /// Buffers in caches.
    pub cached_buffers: u64,
    /// Dead and not collected, bytes.
    pub garbage_bytes: u64,
    /// Free and at hand, bytes.
    pub cached_bytes: u64,
    /// Callers that wait.
    pub waiters: u64,
    /// For how long somebody has waited at least, ns; 0: nobody does.
    pub waiting_ns: u64,
}

/// A channel, with where its cursors are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChannelView {
    /// As `stat` says it.
    #[serde(flatten)]
    pub stat: ChannelStat,
    /// Messages sent and not taken.
    pub depth: u64,
    /// Times that the source found no room, and for how long it waited then, ns.
    pub stalls: u64,
    /// See `stalls`.
    pub stalled_ns: u64,
    /// For how long the source has been waiting for room, ns; 0: it is not.
    pub waiting_ns: u64,
    /// Whether the sink sleeps until something comes.
    pub sink_asleep: bool,
}

/// What a domain holds of a pool, and for how long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoldView {
    /// As `stat` says it.
    #[serde(flatten)]
    pub stat: HoldStat,
    /// For how long it has had the buffer that it has had longest, at least, ns.
    pub oldest_ns: u64,
    /// That buffer's bytes.
    pub oldest_bytes: u64,
}
