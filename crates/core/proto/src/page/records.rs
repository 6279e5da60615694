//! The records: the facts of `stat`, and facts that only repeated looks can find.

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
    /// The buffers of a pool that a domain holds.
    Hold(HoldView),
    /// A heap.
    Heap(HeapStat),
}

/// A pool, with its writer's figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolView {
    /// The record of `stat`.
    #[serde(flatten)]
    pub stat: PoolStat,
    /// Time that callers waited for memory, summed over callers, ns.
    pub blocked_ns: u64,
    /// Time spent collecting, ns.
    pub collect_ns: u64,
    /// Buffers handed out.
    pub allocs: u64,
    /// Bytes of chunks that are partly in use.
    pub live_bytes: u64,
    /// The most of that at once, lately, bytes.
    pub peak_bytes: u64,
    /// Buffers in use.
    pub live_buffers: u64,
    /// Buffers in caches.
    pub cached_buffers: u64,
    /// Dead and not collected, bytes.
    pub garbage_bytes: u64,
    /// Bytes of free buffers in caches.
    pub cached_bytes: u64,
    /// Callers that wait.
    pub waiters: u64,
    /// How long a thread has waited at least, ns; 0: no thread waits.
    pub waiting_ns: u64,
}

/// A channel, with the positions of its cursors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChannelView {
    /// The record of `stat`.
    #[serde(flatten)]
    pub stat: ChannelStat,
    /// Messages sent and not taken.
    pub depth: u64,
    /// How often the source found no room, and how long it waited then, ns.
    pub stalls: u64,
    /// See `stalls`.
    pub stalled_ns: u64,
    /// How long the source has been waiting for room, ns; 0: it does not wait.
    pub waiting_ns: u64,
    /// Whether the sink sleeps until a message comes.
    pub sink_asleep: bool,
}

/// The buffers of a pool that a domain holds, and for how long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoldView {
    /// The record of `stat`.
    #[serde(flatten)]
    pub stat: HoldStat,
    /// The least time for which it has had its oldest buffer, ns.
    pub oldest_ns: u64,
    /// That buffer's bytes.
    pub oldest_bytes: u64,
}
