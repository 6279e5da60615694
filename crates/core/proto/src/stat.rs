//! The records of `tranship ls` and `tranship stat`.

use crate::{ChannelId, DomainId, PoolId, Role, Trust};
use serde::{Deserialize, Serialize};

/// One record of the answer to `Stat`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StatRecord {
    /// The manager itself; always first.
    Manager(ManagerStat),
    /// A domain.
    Domain(DomainStat),
    /// A pool.
    Pool(PoolStat),
    /// A channel, or a name waiting for one.
    Channel(ChannelStat),
    /// The buffers of a pool that a domain holds.
    Hold(HoldStat),
    /// A heap.
    Heap(HeapStat),
}

/// The manager's totals, bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManagerStat {
    /// Random per start.
    pub instance: u64,
    /// Process id.
    pub pid: u32,
    /// Seconds since the manager's start.
    pub uptime_s: u64,
    /// The most that may be granted in all, bytes.
    pub total_bytes: u64,
    /// Granted to pools now.
    pub granted_bytes: u64,
    /// Returned by writers but still mapped by readers.
    pub stranded_bytes: u64,
    /// Bytes of existing chunks of pools: granted, made and not returned. Heaps are private memory, and not included.
    pub data_bytes: u64,
    /// Slot tables and counters.
    pub table_bytes: u64,
    /// Halves of channels.
    pub ring_bytes: u64,
    /// Bytes that the manager itself shares with its domains.
    pub control_page_bytes: u64,
    /// Number of descriptors that the manager holds for its clients.
    pub descriptors: u64,
    /// The most descriptors that it may hold.
    pub max_descriptors: u64,
    /// Most bytes that its own process may need for one user, by that user's limits.
    pub own_bytes_per_user: u64,
    /// The longest turn of its loop since its start, in microseconds of processor time.
    pub longest_turn_us: u64,
    /// The memory shortage outside.
    pub pressure: Pressure,
    /// The most that may be granted at present, bytes: less than the total while memory is short outside.
    pub limit_bytes: u64,
}

/// The memory shortage outside of the manager, on the machine or in a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    /// The state is not known.
    Unwatched,
    /// Memory is not short.
    None,
    /// Some tasks wait for memory: idle memory is requested.
    Some,
    /// All tasks wait for memory, or a limit is near: no pool grows.
    Full,
}

impl Pressure {
    /// All, by their numbers.
    pub const ALL: [Pressure; 4] = [
        Pressure::Unwatched,
        Pressure::None,
        Pressure::Some,
        Pressure::Full,
    ];

    /// Returns the word for the state.
    pub fn name(self) -> &'static str {
        match self {
            Pressure::Unwatched => "unwatched",
            Pressure::None => "none",
            Pressure::Some => "some",
            Pressure::Full => "full",
        }
    }
}

impl ManagerStat {
    /// Returns all shared memory in use, as the kernel counts it in the memfds of the manager and its domains. The
    /// kernel's number is larger for a moment, while memory is being made or unmapped. It is also larger while a
    /// program keeps an end whose other end is gone.
    pub fn shared_bytes(&self) -> u64 {
        self.data_bytes
            + self.stranded_bytes
            + self.table_bytes
            + self.ring_bytes
            + self.control_page_bytes
    }
}

/// A domain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DomainStat {
    /// The domain's id.
    pub domain: DomainId,
    /// The domain's name for itself.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Whether the domain is connected; a domain without a connection is kept until its process ends.
    pub connected: bool,
    /// Whether processes of the same uid may ptrace it.
    pub dumpable: bool,
    /// Bytes of returned chunks that it still maps.
    pub stranded_bytes: u64,
    /// Bytes of shared memory that it made and that its cgroup is charged for: chunks of its pools.
    pub data_bytes: u64,
    /// Bytes of slot tables of its pools, and of counters of those and of others.
    pub table_bytes: u64,
    /// Bytes of its halves of channels.
    pub ring_bytes: u64,
    /// Memory granted to its own pools and admitted to its heaps, bytes.
    pub own_bytes: u64,
    /// Buffers of others' pools that were moved to it, or that it has held for longer than the manager's `linger`,
    /// bytes.
    pub lingering_bytes: u64,
    /// The rule that it has broken, if any.
    pub hog: Option<HogStat>,
}

impl DomainStat {
    /// Returns the bytes of others' memory that are charged to it.
    pub fn charged_bytes(&self) -> u64 {
        self.lingering_bytes.saturating_add(self.stranded_bytes)
    }
}

/// The action against a domain that holds too much memory of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HogAction {
    /// The manager reports it and does nothing else.
    Report,
    /// The domain is granted memory rarely, and no more than it needs.
    Throttle,
    /// The manager ends the domain's membership.
    Disconnect,
    /// The manager kills its process.
    Kill,
}

impl HogAction {
    /// Returns the word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            HogAction::Report => "report",
            HogAction::Throttle => "throttle",
            HogAction::Disconnect => "disconnect",
            HogAction::Kill => "kill",
        }
    }
}

impl std::fmt::Display for HogAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A domain that holds more memory of others than a rule allows, for as long as the rule says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HogStat {
    /// The manager's action.
    pub action: HogAction,
    /// The limit that its charge exceeds, bytes.
    pub over_bytes: u64,
    /// How long it has exceeded the limit, ms.
    pub since_ms: u64,
}

/// A pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolStat {
    /// The pool's id.
    pub pool: PoolId,
    /// The pool's name.
    pub name: String,
    /// The domain that allocates and fills.
    pub writer: DomainId,
    /// Whether the writer is still alive.
    pub writer_alive: bool,
    /// Largest size, bytes.
    pub max_bytes: u64,
    /// The pool's present quota, bytes.
    pub quota_bytes: u64,
    /// The pool's granted memory, bytes.
    pub granted_bytes: u64,
    /// Bytes that are returned but still mapped by a reader.
    pub stranded_bytes: u64,
    /// Chunks that are there, bytes.
    pub data_bytes: u64,
    /// Bytes of its slot table, and of its writer's, readers' and channels' counters.
    pub table_bytes: u64,
    /// Chunk size, bytes.
    pub chunk_bytes: u64,
    /// Slots in its table.
    pub slots: u32,
    /// The processes that can write the pool.
    pub trust: Trust,
    /// Number of domains that read it.
    pub readers: u32,
    /// Bytes of chunks that are partly in use, by the writer's word.
    pub live_bytes: u64,
    /// Bytes of buffers that the writer's last look found dead and that were not used again until then, by the writer's
    /// word.
    pub garbage_bytes: u64,
    /// Bytes of free buffers in the writer's threads' caches, by the writer's word.
    pub cached_bytes: u64,
    /// At level `half`: bytes of buffers' pages beyond the requested length, by the writer's word: of buffers in use,
    /// and of free ones as they last were.
    pub padding_bytes: u64,
    /// Bytes of the pool that are charged to their holders.
    pub lingering_bytes: u64,
}

/// A channel; or a name without one, exported or awaited (`channel` 0, no sink or no source). For a channel within a
/// process, or to elsewhere, the domain's word is shown: the name is the whole address, the number is that domain's
/// own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChannelStat {
    /// The channel's id.
    pub channel: ChannelId,
    /// The name under which it was made.
    pub name: String,
    /// Sending end.
    pub source: Option<DomainId>,
    /// Receiving end.
    pub sink: Option<DomainId>,
    /// For a name without a channel: the exporter's role.
    pub exported_as: Option<Role>,
    /// For a name that no domain exports yet: the role of the domain that waits for it.
    pub waiting_as: Option<Role>,
    /// Pools assigned to it.
    pub pools: Vec<PoolId>,
    /// Messages taken by the sink so far.
    pub taken: u64,
    /// Lines in the data ring.
    pub lines: u32,
    /// Both ends' halves, bytes.
    pub ring_bytes: u64,
    /// The other end's place by the carrier's word, if it is not a domain of this manager.
    pub place: Option<String>,
}

/// The buffers of one pool that one domain holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoldStat {
    /// The holder.
    pub domain: DomainId,
    /// The pool.
    pub pool: PoolId,
    /// Buffers with a reference of this domain.
    pub buffers: u32,
    /// Bytes of those buffers.
    pub bytes: u64,
    /// Bytes of these buffers that are charged to the holder.
    pub lingering_bytes: u64,
    /// How long the manager has seen it hold the oldest buffer, ms. The manager looks once a period.
    pub held_ms: Option<u64>,
}

/// A heap: private memory of its owner, admitted by the byte.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeapStat {
    /// The heap's id; heaps and pools are counted together.
    pub heap: PoolId,
    /// The heap's name.
    pub name: String,
    /// The domain that owns the memory.
    pub owner: DomainId,
    /// Largest size, bytes.
    pub max_bytes: u64,
    /// The heap's present quota, bytes.
    pub quota_bytes: u64,
    /// The heap's admitted memory, bytes.
    pub admitted_bytes: u64,
    /// Bytes allocated in the heap, by its owner's word, if it gives any.
    pub live_bytes: u64,
    /// Bytes that are free and kept, by its owner's word.
    pub cached_bytes: u64,
}

/// The facts about a pool for a policy: its writer's figures, as far as they are possible, and its rule
/// (`docs/scheduling.md`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolFigures {
    /// The pool's id.
    pub pool: PoolId,
    /// The pool's name.
    pub name: String,
    /// Time that callers waited for memory, summed over callers, ns.
    pub blocked_ns: u64,
    /// Time spent collecting, ns.
    pub collect_ns: u64,
    /// Buffers handed out.
    pub allocs: u64,
    /// Bytes in use.
    pub live_bytes: u64,
    /// The most at once, lately, bytes.
    pub peak_bytes: u64,
    /// Buffers in use.
    pub live_buffers: u64,
    /// Bytes that the writer's last look found dead.
    pub garbage_bytes: u64,
    /// Bytes of free buffers in its threads' caches.
    pub cached_bytes: u64,
    /// Bytes that are charged to their holders.
    pub lingering_bytes: u64,
    /// Callers that wait.
    pub waiters: u32,
    /// The pool's present quota, bytes.
    pub quota_bytes: u64,
    /// The pool's granted memory, bytes.
    pub granted_bytes: u64,
    /// Chunk size, bytes.
    pub chunk_bytes: u64,
    /// The pool's minimum, bytes.
    pub min_bytes: u64,
    /// The rule's maximum, bytes.
    pub max_bytes: u64,
    /// The rule's weight.
    pub weight: u32,
    /// The rule's priority.
    pub priority: i32,
    /// The share of time that its callers should wait, in millionths.
    pub target_ppm: Option<u32>,
    /// The pool's callers.
    pub callers: u32,
    /// The pools that share the target, by a common name.
    pub group: Option<String>,
    /// The most for the whole group, bytes.
    pub group_max_bytes: Option<u64>,
}
