//! Messages from the manager to a domain.

use crate::{
    ChannelId, DomainId, ExportId, PoolFigures, PoolId, PoolShape, Refusal, Req, Role, StatRecord,
};
use serde::{Deserialize, Serialize};

/// Why the other end of a channel is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum GoneReason {
    /// The domain closed in order; its messages are still there to be taken.
    Closed,
    /// The domain's process ended; its earlier messages are still there to be taken.
    Died,
}

/// From the manager to a domain. The number after `fds:` is how many descriptors travel with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// fds: 1 (control page). The answer to `Hello`. `resumed` says whether the old id was granted.
    Welcome {
        domain: DomainId,
        instance: u64,
        resumed: bool,
        control_page_entries: u32,
        total_bytes: u64,
    },
    /// fds: 0. The request `req` is refused.
    Refused { req: Req, refusal: Refusal },

    /// fds: 0. `entry` is the index in the control page.
    PoolCreated {
        req: Req,
        pool: PoolId,
        entry: u32,
        quota_bytes: u64,
    },
    /// fds: 0.
    Granted { req: Req, pool: PoolId, chunks: u32 },
    /// fds: 0. The answer to `ClaimChunk`. All readers were sent the chunk, or are marked for resync: the writer may
    /// use it.
    ChunkReady {
        req: Req,
        pool: PoolId,
        index: u32,
        serial: u32,
    },
    /// fds: 0. The answer to `ShowChunks`: the first `chunks` of the shown ones, at least one, are ready. The others
    /// were not taken and may be shown again.
    ChunksReady { req: Req, pool: PoolId, chunks: u32 },
    /// fds: 0. Bring the pool, or heap, down to this many bytes, as soon as the memory in use allows.
    Shrink { pool: PoolId, target_bytes: u64 },
    /// fds: 0. The quota now has this value (the control page says so too).
    Quota { pool: PoolId, quota_bytes: u64 },
    /// fds: 0.
    ForwardAllowed {
        req: Req,
        pool: PoolId,
        domain: DomainId,
    },

    /// fds: 0.
    Exported { req: Req, export: ExportId },
    /// fds: 1 (the connector's half), or 2 (the desk too) for a topic or a queue. A domain connected to an export of the receiving
    /// domain; `role` is the receiving domain's.
    Incoming {
        channel: ChannelId,
        export: ExportId,
        peer: DomainId,
        peer_uid: u32,
        peer_pid: u32,
        role: Role,
        lines: u32,
        topic: bool,
    },
    /// fds: 2 (the exporter's half, the peer's pidfd). The answer to `Connect`. The answer to `Subscribe` has 2 more: the
    /// ring's lines, and the bell or a queue's claims. `ring_lines` is the number of lines, 0 for a channel. `shared`: other domains
    /// may have the name too.
    Opened {
        req: Req,
        channel: ChannelId,
        peer: DomainId,
        peer_uid: u32,
        peer_pid: u32,
        lines: u32,
        ring_lines: u32,
        shared: bool,
    },
    /// fds: 1 (the peer's pidfd). The answer to `Accept`.
    Accepted { req: Req, channel: ChannelId },
    /// fds: 1 (slot table). The source wants to send from this pool. `known`: the receiving domain already reads it, so
    /// it need not make `ref` counters. Chunks follow as `ChunkAdded`.
    PoolOffer {
        channel: ChannelId,
        pool: PoolId,
        writer: DomainId,
        shape: PoolShape,
        known: bool,
    },
    /// fds: 0. The answer to `Assign`: the source may send from the pool now.
    Assigned {
        req: Req,
        channel: ChannelId,
        pool: PoolId,
    },
    /// fds: 0. To the sink, after the writer's epoch was raised: references of this pool may be taken from this channel
    /// from now on. Before that the writer's collector may not know the sink's counters.
    PoolOpen { channel: ChannelId, pool: PoolId },
    /// fds: 1 (chunk). To a reader: a chunk of a pool that it reads.
    ChunkAdded {
        pool: PoolId,
        index: u32,
        serial: u32,
    },
    /// fds: 0. To a reader: unmap the chunk, then send `Unmapped`. All buffers in it are dead.
    ChunkGone {
        pool: PoolId,
        index: u32,
        serial: u32,
    },
    /// fds: 0. The answer to `Resync`, after all its chunks.
    Resynced { req: Req, pool: PoolId },
    /// fds: `rcvd`, then `sent` if `with_sent` (the source is not the writer), then `ref` and the reader's pidfd if
    /// `new_reader`. To the writer: its reader set grows; the control page's epoch is already `epoch`. `process` is the
    /// manager's number of the sink's process.
    QueueJoined {
        pool: PoolId,
        channel: ChannelId,
        sink: DomainId,
        process: u64,
        epoch: u64,
        with_sent: bool,
        new_reader: bool,
    },
    /// fds: 0. To the writer: both counters of the queue leave the reader set together. To both ends of the channel, with
    /// epoch 0: nothing of the pool is alive any more, and its counters of the channel are over.
    QueueLeft {
        pool: PoolId,
        channel: ChannelId,
        epoch: u64,
    },
    /// fds: 0. To the writer: the domain is gone, and its references no longer count.
    ReaderLeft {
        pool: PoolId,
        domain: DomainId,
        epoch: u64,
    },
    /// fds: 0. The other end is gone.
    PeerGone {
        channel: ChannelId,
        reason: GoneReason,
    },
    /// fds: 1 (the sending end of a socket pair). The peer wants to be woken by it.
    WakeFd { channel: ChannelId },
    /// fds: 1 (the end that receives). The answer to `WakeFd`.
    WakeEnd { req: Req },
    /// fds: 0. To a reader: nothing of the pool is alive any more; unmap all of it.
    PoolGone { pool: PoolId },

    /// fds: 0.
    Stat { req: Req, record: StatRecord },
    /// fds: 0.
    StatEnd { req: Req },
    /// fds: 0. The answer to a claim.
    Claimed { req: Req },
    /// fds: 0. The manager closes the connection after this event, for this reason.
    Expelled { refusal: Refusal },

    /// fds: 0. The admitted bytes are at most `held_bytes` of the request. If they are fewer, the heap gets no more
    /// until it has given back the rest.
    HeapCreated {
        req: Req,
        heap: PoolId,
        quota_bytes: u64,
        admitted_bytes: u64,
    },
    /// fds: 0. The heap may have that many bytes more.
    Admitted { req: Req, heap: PoolId, bytes: u64 },

    /// fds: 0. The answer to `Figures`: the next pools, by rising ids; none: there are no more. `limit_bytes`: the most
    /// for all quotas together.
    Figures {
        req: Req,
        limit_bytes: u64,
        pools: Vec<PoolFigures>,
    },
    /// fds: 0. The answer to `SetQuota`: the quota that the pool or heap has now.
    QuotaSet { req: Req, quota_bytes: u64 },
    /// fds: 0. Operations on this pool's buffers are to be recorded, or no longer.
    Traced { pool: PoolId, on: bool },
    /// fds: 0. The answer to `Trace`.
    Tracing { req: Req, on: bool },
    /// fds: 1 (trace). An answer to `NextTrace`; `number` is the manager's number of the trace. The domain may be gone.
    TraceRing {
        req: Req,
        number: u32,
        domain: DomainId,
        name: String,
        pid: u32,
        alive: bool,
    },
    /// fds: 0. An answer to `NextTrace`: there are no more.
    TraceEnd { req: Req },
    /// fds: 0. The answer to `Steer`.
    Steering { req: Req, take: bool },
    /// fds: 0. The answer to `SetQuotas`: they are in force. `limit_bytes`: the most for all together.
    QuotasSet { req: Req, limit_bytes: u64 },
}

impl Event {
    /// Returns the exact number of descriptors of the message.
    pub fn fds(&self) -> usize {
        match self {
            Event::Welcome { .. }
            | Event::Accepted { .. }
            | Event::ChunkAdded { .. }
            | Event::WakeFd { .. }
            | Event::TraceRing { .. }
            | Event::WakeEnd { .. } => 1,
            Event::Incoming { topic, .. } => 1 + usize::from(*topic),
            Event::PoolOffer { .. } => 2,
            Event::Opened { ring_lines, .. } => 2 + 2 * usize::from(*ring_lines > 0),
            Event::QueueJoined {
                with_sent,
                new_reader,
                ..
            } => 1 + usize::from(*with_sent) + 2 * usize::from(*new_reader),
            _ => 0,
        }
    }
}
