//! Messages from a domain to the manager.

use crate::{ChannelId, DomainId, ExportId, Levels, PoolId, PoolShape, Req, Trust};
use serde::{Deserialize, Serialize};

/// Stands for a domain in [`AllowForward`](Request::AllowForward): all readers of the pool. No domain has this id.
pub const ALL_READERS: DomainId = DomainId(0);

/// A domain's end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Sends buffers.
    Source,
    /// Receives buffers.
    Sink,
}

impl Role {
    /// Returns the role of the other end.
    pub fn opposite(self) -> Role {
        match self {
            Role::Source => Role::Sink,
            Role::Sink => Role::Source,
        }
    }
}

/// One end of an existing channel, as its holder names it after a restart of the manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChannelClaim {
    /// The channel's id under the old manager.
    pub channel: ChannelId,
    /// The name under which it was made.
    pub name: String,
    /// The claimant's end.
    pub role: Role,
    /// The other end's domain, as the old manager gave it.
    pub peer: DomainId,
    /// Lines in the claimant's own half.
    pub lines: u32,
    /// The inode of the other end's half, as the claimant has it mapped.
    pub peer_inode: u64,
}

/// A channel within a process, or one whose other end is carried elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LocalChannel {
    /// The channel's number in its domain.
    pub channel: ChannelId,
    /// The address, with its scheme.
    pub address: String,
    /// The domain's end.
    pub role: Role,
    /// The other end's domain, in the same process.
    pub peer: Option<DomainId>,
    /// The other end's place, if it is not a domain of this manager.
    pub place: Option<String>,
    /// The pool for arriving messages.
    pub pool: Option<PoolId>,
    /// Lines in the source's half, and in the sink's.
    pub lines: [u32; 2],
}

/// From a domain to the manager. The number after `fds:` is how many descriptors travel with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// fds: 0. The first message. `resume` names the domain that this process was under a manager that has died. The id
    /// is granted if it is free. The message carries the sender's pidfd (SCM_PIDFD).
    Hello {
        version: u16,
        name: String,
        resume: Option<DomainId>,
        dumpable: bool,
    },
    /// fds: 0. The domain has unmapped everything and leaves.
    Goodbye,

    /// fds: 1 (slot table). Answer: `PoolCreated`. The caller is writer and payer.
    CreatePool {
        req: Req,
        name: String,
        shape: PoolShape,
    },
    /// fds: 0. The writer has no live buffer in the pool and has unmapped it.
    DestroyPool { pool: PoolId },
    /// fds: 0. The writer asks to make `chunks` more chunks. Answer: `Granted` (0 < granted <= asked) or refusal.
    Grant { req: Req, pool: PoolId, chunks: u32 },
    /// fds: 0. Gives back that many granted chunks that were never shown (making them failed).
    Ungrant { pool: PoolId, chunks: u32 },
    /// fds: one for each of `chunks`, at most [`MAX_FDS`](crate::MAX_FDS). Shows chunks by window index and serial;
    /// serials rise. Chunks that were not granted before are granted with it, as far as there is room, but only if at
    /// least `least` of them fit. Answer: `ChunksReady` or refusal.
    ShowChunks {
        req: Req,
        pool: PoolId,
        #[serde(deserialize_with = "crate::codec::as_many_as_descriptors")]
        chunks: Vec<(u32, u32)>,
        least: u32,
    },
    /// fds: 0. The writer has unmapped and closed the chunk; readers are to follow.
    ReturnChunk {
        pool: PoolId,
        index: u32,
        serial: u32,
    },
    /// fds: 0. A reader has unmapped a chunk that was reported as gone.
    Unmapped {
        pool: PoolId,
        index: u32,
        serial: u32,
    },
    /// fds: 0. A reader missed messages: send all chunks of the pool again.
    Resync { req: Req, pool: PoolId },
    /// fds: 0. The writer (or a holder of the right) lets `domain` assign this pool to its own channels. Only the
    /// writer may give the right to all readers ([`ALL_READERS`]).
    AllowForward {
        req: Req,
        pool: PoolId,
        domain: DomainId,
    },

    /// fds: 0. Offers a name; every `Connect` to it makes one channel. Answer: `Exported`.
    Export { req: Req, name: String, role: Role },
    /// fds: 0. Withdraws the name.
    Unexport { export: ExportId },
    /// fds: 1 (own half of the link). Asks for the role opposite to the exporter's. With `wait` the request is kept
    /// until the name appears. Answer: `Opened` or refusal.
    Connect {
        req: Req,
        name: String,
        role: Role,
        lines: u32,
        wait: bool,
    },
    /// fds: 0. Gives up a waiting `Connect`, which is answered with `Refused`: `NoSuchName` if no domain offers the
    /// name, `PeerGone` if it was not accepted. A `Connect` that is answered already gets no other answer.
    CancelConnect { req: Req },
    /// fds: 1 (own half). The exporter accepts an `Incoming` channel. Answer: `Accepted`.
    Accept {
        req: Req,
        channel: ChannelId,
        lines: u32,
    },
    /// fds: 0. The exporter does not want the channel.
    Reject { channel: ChannelId },
    /// fds: 1 (`sent` counters). The source assigns a pool to its channel. Answer: `Assigned`.
    Assign {
        req: Req,
        channel: ChannelId,
        pool: PoolId,
    },
    /// fds: 1 (`rcvd`), or 2 (`rcvd`, `ref`) with `with_refs`. The sink's answer to `PoolOffer`.
    AcceptPool {
        channel: ChannelId,
        pool: PoolId,
        with_refs: bool,
    },
    /// fds: 0. The sink's refusal of `PoolOffer`; if the reason is the pool's level, with the levels that it takes.
    VetoPool {
        channel: ChannelId,
        pool: PoolId,
        levels: Option<Levels>,
    },
    /// fds: 0. The sink took the last message of a closed or dead source.
    Drained { channel: ChannelId },
    /// fds: 0. This end leaves the channel. A source sends it after setting `closed` in its half.
    CloseChannel { channel: ChannelId },
    /// fds: 0. Asks for a descriptor to sleep on, to which the peer writes a byte. Answer: `WakeEnd` or refusal.
    WakeFd { req: Req, channel: ChannelId },

    /// fds: 2 (the source's half, the sink's). Of a channel that no manager has brought about. For `stat`, until the
    /// connection ends. No answer.
    RegisterChannel { channel: LocalChannel },
    /// fds: 0. The channel no longer exists.
    UnregisterChannel { channel: ChannelId },

    /// fds: 0. Answers: `Stat` records until `StatEnd`.
    Stat { req: Req },

    /// fds: 1 (slot table). After a restart: the writer shows a pool again. Answer: `PoolCreated`.
    ClaimPool {
        req: Req,
        pool: PoolId,
        name: String,
        shape: PoolShape,
    },
    /// fds: 1 (chunk). After a restart: the writer shows a chunk again. Answer: `ChunkReady`.
    ClaimChunk {
        req: Req,
        pool: PoolId,
        index: u32,
        serial: u32,
    },
    /// fds: 1 (`ref`). After a restart, a reader claims a pool. It names the pool, its counters, and the chunks that it
    /// still maps as (index, serial). It also names the inode of the slot table that it maps, and the level at which it
    /// maps them. A list that is too long comes in pieces.
    ClaimReader {
        req: Req,
        pool: PoolId,
        slots: u32,
        table: u64,
        trust: Trust,
        mapped: Vec<(u32, u32)>,
    },
    /// fds: 1 (own half). After a restart. Answer: `Claimed` once both ends agree.
    ClaimChannel { req: Req, claim: ChannelClaim },
    /// fds: 1 (`sent` or `rcvd`, by role). After a restart: an assignment of the channel.
    ClaimAssign {
        req: Req,
        channel: ChannelId,
        pool: PoolId,
    },
    /// fds: 0. After a restart: everything has been claimed.
    ClaimDone { req: Req },
    /// fds: 0. After a restart: the readers on the writer's reader set with the inodes of their `ref` counters, and its
    /// queues with their sinks and the numbers of these sinks' processes. Other processes are not believed. Answer:
    /// `Claimed`.
    ClaimReaderSet {
        req: Req,
        pool: PoolId,
        readers: Vec<(DomainId, u64)>,
        queues: Vec<(ChannelId, DomainId, u64)>,
    },

    /// fds: 0. A heap: private memory of this domain, admitted by the byte. The domain has `held_bytes` already (from
    /// before a restart of the manager, or allocated while there was none). Answer: `HeapCreated`. The heap ends with
    /// the connection.
    CreateHeap {
        req: Req,
        name: String,
        max_bytes: u64,
        held_bytes: u64,
    },
    /// fds: 0. The heap no longer exists; all its admitted bytes are given back.
    DestroyHeap { heap: PoolId },
    /// fds: 0. May the heap grow by `bytes`, or at least by `least_bytes`? Answer: `Admitted`
    /// (`least_bytes` <= admitted <= `bytes`) or refusal.
    Admit {
        req: Req,
        heap: PoolId,
        bytes: u64,
        least_bytes: u64,
    },
    /// fds: 0. The heap has given `bytes` back to the kernel.
    GiveBack { heap: PoolId, bytes: u64 },
    /// fds: 0. The heap's figures: bytes that are allocated in it, and bytes that are free and kept. A heap with
    /// figures takes part in scheduling. No answer.
    HeapFigures {
        heap: PoolId,
        live_bytes: u64,
        cached_bytes: u64,
    },

    /// fds: 0. From root or the manager's own user: sets the quota of a pool or heap of any user. Answer: `QuotaSet`.
    SetQuota {
        req: Req,
        pool: PoolId,
        quota_bytes: u64,
    },

    /// fds: 0. Asks for the writers' figures of pools with ids above `after`. Answer: `Figures`.
    Figures { req: Req, after: PoolId },

    /// fds: 0. From root, the manager's own user, and that of the pool's writer. Domains that have the pool record
    /// their operations on buffers that are allocated, or received, from now on; or no longer. `while_here`: until this
    /// connection ends. Answer: `Tracing`.
    Trace {
        req: Req,
        pool: PoolId,
        on: bool,
        while_here: bool,
    },
    /// fds: 1 (trace). The ring into which this domain records. No answer.
    ShowTrace,
    /// fds: 0. Asks for the next domain's trace after this number, of those that the client may see. Answer:
    /// `TraceRing`, or `TraceEnd`.
    NextTrace { req: Req, after: u32 },

    /// fds: 0. This client's policy sets quotas from now on, until its connection ends, or it says that it no longer
    /// does. Answer: `Steering`, or `Steered` if another client does.
    Steer { req: Req, take: bool },
    /// fds: 0. From the client that steers: sets the quotas of pools, all of them or none. Answer: `QuotasSet`.
    SetQuotas {
        req: Req,
        quotas: Vec<(PoolId, u64)>,
    },

    /// fds: 0. Offers the name of a topic, or of a queue, of which the caller is a writer. Each `Subscribe` to it makes
    /// one channel from the writer to the reader, and `Incoming` brings the reader's desk as a second descriptor. With
    /// `shared`, several domains may have the name, each once; all must ask so. Answer: `Exported`.
    Publish {
        req: Req,
        name: String,
        queue: bool,
        shared: bool,
    },
    /// fds: 2 (own half, desk). Asks for the messages of a topic's writer, or of a queue's, that is none of `have`. Waits
    /// until there is one. Answer: `Opened` with the ring's lines and the bell of the caller's user (a queue's: its
    /// claims) as third and fourth descriptor, or refusal. `CancelConnect` ends it.
    Subscribe {
        req: Req,
        name: String,
        lines: u32,
        queue: bool,
        have: Vec<DomainId>,
    },
    /// fds: 3 (own half, lines, and the bell of the reader's user, or the queue's claims). The writer accepts an
    /// `Incoming` reader. Its ring has `ring_lines` lines. Answer: `Accepted`.
    AcceptSubscriber {
        req: Req,
        channel: ChannelId,
        lines: u32,
        ring_lines: u32,
    },

    /// fds: 0. Offers a channel's name that several domains share. Each of them offers it once, by this request. A
    /// `Connect` goes to one of them. Answer: `Exported`.
    ExportShared { req: Req, name: String, role: Role },
    /// fds: 1 (own half). As `Connect` with `wait`, to a domain that is none of `have`. Answer: `Opened` or refusal.
    ConnectBesides {
        req: Req,
        name: String,
        role: Role,
        lines: u32,
        have: Vec<DomainId>,
    },

    /// fds: 0. Shows the key by which the manager's `[[given]]` rules know this domain. No answer.
    ShowKey { key: String },
}

impl Request {
    /// Returns the exact number of descriptors that the message needs.
    pub fn fds(&self) -> usize {
        match self {
            Request::CreatePool { .. }
            | Request::Connect { .. }
            | Request::ConnectBesides { .. }
            | Request::Accept { .. }
            | Request::Assign { .. }
            | Request::ClaimPool { .. }
            | Request::ClaimChunk { .. }
            | Request::ClaimReader { .. }
            | Request::ClaimChannel { .. }
            | Request::ClaimAssign { .. }
            | Request::ShowTrace => 1,
            Request::RegisterChannel { .. } | Request::Subscribe { .. } => 2,
            Request::AcceptSubscriber { .. } => 3,
            Request::AcceptPool { with_refs, .. } => 1 + usize::from(*with_refs),
            Request::ShowChunks { chunks, .. } => chunks.len(),
            _ => 0,
        }
    }

    /// Returns the number that the answer carries back, for requests that have an answer.
    pub fn req(&self) -> Option<Req> {
        match *self {
            Request::CreatePool { req, .. }
            | Request::Grant { req, .. }
            | Request::ShowChunks { req, .. }
            | Request::Resync { req, .. }
            | Request::AllowForward { req, .. }
            | Request::Export { req, .. }
            | Request::Connect { req, .. }
            | Request::CancelConnect { req }
            | Request::Accept { req, .. }
            | Request::Assign { req, .. }
            | Request::WakeFd { req, .. }
            | Request::Stat { req }
            | Request::ClaimPool { req, .. }
            | Request::ClaimChunk { req, .. }
            | Request::ClaimReader { req, .. }
            | Request::ClaimChannel { req, .. }
            | Request::ClaimAssign { req, .. }
            | Request::ClaimReaderSet { req, .. }
            | Request::CreateHeap { req, .. }
            | Request::Admit { req, .. }
            | Request::SetQuota { req, .. }
            | Request::Figures { req, .. }
            | Request::Trace { req, .. }
            | Request::NextTrace { req, .. }
            | Request::Steer { req, .. }
            | Request::SetQuotas { req, .. }
            | Request::Publish { req, .. }
            | Request::Subscribe { req, .. }
            | Request::AcceptSubscriber { req, .. }
            | Request::ExportShared { req, .. }
            | Request::ConnectBesides { req, .. }
            | Request::ClaimDone { req } => Some(req),
            _ => None,
        }
    }

    /// Returns the request's purpose, for an error that says that it was not answered.
    pub fn purpose(&self) -> &'static str {
        match self {
            Request::Hello { .. } => "hello",
            Request::CreatePool { .. } => "a request for a pool",
            Request::Grant { .. } | Request::Admit { .. } => "a request for memory",
            Request::ShowChunks { .. } => "chunks that it was shown",
            Request::Resync { .. } => "a request for a pool's chunks",
            Request::AllowForward { .. } => "a request to allow forwarding",
            Request::Export { .. } | Request::ExportShared { .. } | Request::Publish { .. } => {
                "a request for a name"
            }
            Request::Connect { .. } | Request::ConnectBesides { .. } => {
                "a request for a connection"
            }
            Request::Subscribe { .. } => "a subscription",
            Request::Accept { .. } => "the acceptance of a connection",
            Request::AcceptSubscriber { .. } => "the acceptance of a subscriber",
            Request::Assign { .. } => "the assignment of a pool",
            Request::WakeFd { .. } => "a request for a descriptor to wait on",
            Request::Stat { .. } => "a question for what there is",
            Request::CreateHeap { .. } => "a request for a heap",
            Request::SetQuota { .. } | Request::SetQuotas { .. } => "a request to set quotas",
            Request::Figures { .. } => "a question for pools' figures",
            Request::Trace { .. } => "a request for a trace",
            Request::NextTrace { .. } => "a question for traces",
            Request::Steer { .. } => "a request for the right to set quotas",
            _ => "what it was told",
        }
    }
}
