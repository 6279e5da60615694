//! The records of the state: clients, domains, pools, channels, names.

use super::books::extent::{Maker, Piece};
use super::hogs::hold::Hold;
use super::types::{ChunkKey, ClientId, FdToken};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tranship_proto::{ChannelId, DomainId, ExportId, NameKind, PoolId, Req, Role};

/// A protection domain, connected or not.
#[derive(Debug)]
pub(crate) struct Domain {
    pub maker: Maker,
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub process: u64,
    pub dumpable: bool,
    /// The key that it has shown, which opens names.
    pub key: Option<String>,
    pub pidfd: FdToken,
    pub control_page: FdToken,
    pub client: Option<ClientId>,
    /// Between `Hello{resume}` and `ClaimDone`.
    pub claiming: Option<Claiming>,
    /// There was no room to note all its channels.
    pub unheard: bool,
    /// Control page entries.
    pub entries: Vec<Option<PoolId>>,
    /// Memory granted to its pools and admitted to its heaps, bytes.
    pub bytes: u64,
    /// Bytes out of use that it has not reported as unmapped.
    pub stranded_bytes: u64,
    /// Bytes of others' pools that it has held for long, by these pools' users.
    pub lingering: BTreeMap<u32, u64>,
    /// Channels that wait for its answer, by the user that connects.
    pub backlog: BTreeMap<u32, u32>,
    /// Pools whose chunks are sent to it in pieces.
    pub feeding: BTreeSet<PoolId>,
}

/// The progress of a returning domain's claims.
#[derive(Debug, Default)]
pub(crate) struct Claiming {
    /// The domain came back to the manager that it left: its claims are compared with the known state.
    pub same: bool,
    /// Whether something could not be claimed, for lack of descriptors.
    pub cut_short: bool,
    pub pools: BTreeSet<PoolId>,
    pub chunks: BTreeSet<(PoolId, ChunkKey)>,
    pub readers: BTreeSet<PoolId>,
    pub channels: BTreeSet<ChannelId>,
}

/// Private memory of a domain, admitted by the byte. A heap ends with its owner's connection.
#[derive(Debug)]
pub(crate) struct Heap {
    pub name: String,
    pub owner: DomainId,
    /// The user that pays, for limits.
    pub uid: u32,
    pub max_bytes: u64,
    pub quota_bytes: u64,
    pub admitted: u64,
    pub asked_to_shrink: Option<Duration>,
    /// Set by the administrator: no policy moves the quota.
    pub pinned: bool,
    /// The owner's last figures: allocated bytes, and free bytes that are kept. A heap without figures takes no part in
    /// scheduling.
    pub said: Option<(u64, u64)>,
    pub want: Want,
}

/// All of them.
pub(crate) type Heaps = BTreeMap<PoolId, Heap>;

/// The memory that a heap was refused, and the total time of refusals. Its callers do not wait: a refusal is a caller's
/// error.
#[derive(Debug, Default)]
pub(crate) struct Want {
    /// The time and the size of the last refusal.
    pub refused: Option<(Duration, u64)>,
    /// The time up to which it is counted.
    pub counted: Duration,
    pub blocked: Duration,
    pub admits: u64,
}

/// A chunk that is out of use and that a reader may still map.
#[derive(Debug)]
pub(crate) struct Stranded {
    pub holders: BTreeSet<DomainId>,
    /// The user of one of the holders.
    pub payer: u32,
}

/// A chunk that its writer showed.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub serial: u32,
    pub fd: FdToken,
    /// The writer still fills the chunk, and shows it again when no process can write it any more: until then no reader
    /// is shown it.
    pub open: bool,
    /// Until all readers were sent the chunk: the pending answer, and the readers that it waits for.
    pub ready: Option<(Answer, BTreeSet<DomainId>)>,
}

/// The answer that waits for a chunk to be ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The writer's `ClaimChunk`.
    Claim(Req),
    /// The number of one of the pool's `batches`, which may be gone.
    Batch(u64),
}

/// A writer's `ShowChunks`.
#[derive(Debug)]
pub(crate) struct Batch {
    pub req: Req,
    /// The number of taken chunks of the request, and those that are not ready yet.
    pub taken: u32,
    pub left: u32,
}

/// A domain that was shown a pool.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub uid: u32,
    /// The reader's `ref` counters once it has accepted.
    pub refs: Option<FdToken>,
    /// The inode of these counters.
    pub inode: u64,
    /// A `QueueJoined` with `refs` was queued on the writer's present connection.
    pub announced: bool,
    /// The reader may have a place on the writer's reader set.
    pub known: bool,
    /// The reader came from an earlier manager's time, with the counters that the writer named.
    pub proved: bool,
    pub queues: u32,
    /// Offers under way.
    pub offers: u32,
    /// Chunks that the reader was shown and has not reported as unmapped.
    pub shown: BTreeSet<ChunkKey>,
    /// The reader misses chunks: sends have to wait for its `Resync`.
    pub marked: bool,
    pub feed: Option<Feed>,
    /// The reader's held buffers.
    pub hold: Hold,
}

/// A transfer of all chunks of a pool to a reader, in pieces.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Next window index.
    pub next: u32,
    /// Requests to be answered at the end.
    pub reqs: Vec<Req>,
}

/// A channel to which a pool is assigned, as the pool's reader set sees it.
#[derive(Debug)]
pub(crate) struct Queue {
    pub source: DomainId,
    pub sink: DomainId,
    pub sent: FdToken,
    pub rcvd: FdToken,
    /// The epoch in which the writer was last told of it.
    pub epoch: u64,
    /// The events for the queue's ends once the writer has been told; `None`: it has.
    pub opening: Option<Opening>,
}

/// Answers that wait for a writer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opening {
    /// The source's `Assign`, if the source still has this connection.
    Assigned { client: Option<ClientId>, req: Req },
    /// Claims of both ends, which had the channel before the manager was started.
    Claimed { source: Req, sink: Req },
}

/// A channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub name: String,
    pub source: DomainId,
    pub sink: DomainId,
    /// Users to whom the source's and the sink's end are counted.
    pub payers: [Option<u32>; 2],
    /// The domain that connected; the other one exported.
    pub connector: DomainId,
    pub lines: u32,
    pub stage: Stage,
    pub source_gone: bool,
    /// Both halves, kept for observers.
    pub source_half: Option<FdToken>,
    pub sink_half: Option<FdToken>,
    /// The half of a source that has gone, whose descriptor is not kept.
    pub source_ring: Option<Piece>,
    pub pools: BTreeSet<PoolId>,
}

impl Channel {
    pub fn is_incoming(&self) -> bool {
        matches!(self.stage, Stage::Incoming(..))
    }
    /// Returns the bytes of both ends' halves, as far as they exist.
    pub fn ring_bytes(&self, bytes_of: impl Fn(FdToken) -> u64) -> u64 {
        let halves = match &self.stage {
            Stage::Incoming(w, _) => [Some(w.half), None],
            Stage::Open => [self.source_half, self.sink_half],
        };
        let source = self.source_ring.map_or(0, |piece| piece.bytes);
        source + halves.into_iter().flatten().map(bytes_of).sum::<u64>()
    }
    /// Returns the domain that exported its name.
    pub fn exporter(&self) -> DomainId {
        match self.connector == self.source {
            true => self.sink,
            false => self.source,
        }
    }
    pub fn role_of(&self, domain: DomainId) -> Option<Role> {
        if self.source == domain {
            Some(Role::Source)
        } else if self.sink == domain {
            Some(Role::Sink)
        } else {
            None
        }
    }
}

/// The progress of a channel.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The exporter has to answer the connector's request. The flag: other domains may have the name too.
    Incoming(Box<Waiting>, bool),
    Open,
}

/// An exported name.
#[derive(Debug)]
pub(crate) struct Export {
    pub name: String,
    pub domain: DomainId,
    /// The exporter's role in the channels that are made here.
    pub role: Role,
    pub kind: NameKind,
    /// Whether other domains may have the name too.
    pub shared: bool,
    /// When a connection was last shown to the exporter, as a number that grows with each. 0: never.
    pub given: u64,
    /// Until when others are asked first, because the exporter has left a connection unanswered for too long, and has answered none since.
    pub silent_until: Duration,
    /// The number of the waiting connect from which the next look for those that may come goes on.
    pub next: u64,
}

/// A `Connect` that waits for its name.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub domain: DomainId,
    /// The user to whom it is counted.
    pub uid: u32,
    pub req: Req,
    pub name: String,
    pub role: Role,
    pub lines: u32,
    pub half: FdToken,
    /// A subscriber's, or a consumer's, desk.
    pub desk: Option<FdToken>,
    pub kind: NameKind,
    /// Domains that have the name, to which the asker is connected.
    pub have: Vec<DomainId>,
}

impl Waiting {
    /// Says whether the asker looks for another writer than this one.
    pub fn has(&self, exporter: DomainId) -> bool {
        self.have.contains(&exporter)
    }
}

/// An assignment that the sink has still to accept.
#[derive(Debug)]
pub(crate) struct Offer {
    pub req: Req,
    pub source: DomainId,
    /// The source's user.
    pub uid: u32,
    pub sink: DomainId,
    pub sent: FdToken,
}

/// A domain, and the domain's own number for the channel.
pub(crate) type RegisteredKey = (DomainId, ChannelId);

/// An answer in progress.
#[derive(Debug)]
pub(crate) struct StatRun {
    pub req: Req,
    /// The last item that was sent.
    pub last: Option<Item>,
    /// Records wait for the shell's reading.
    pub waits: bool,
}

/// The items of an answer, in this order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item {
    Manager,
    Domain(DomainId),
    Pool(PoolId),
    Heap(PoolId),
    Channel(ChannelId),
    Registered(RegisteredKey),
    Export(ExportId),
    Waiting(DomainId, Req),
    Hold(PoolId, DomainId),
}

/// Most queues, and most readers, of one pool: when its writer is gone the counters of all are read.
pub(crate) const MAX_QUEUES: usize = 4096;
