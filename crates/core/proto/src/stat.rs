//! The table of figures: everything that `tranship stat`, `tranship top`, metrics, JSON and Python say of a manager.
//!
//! A new figure is one line here, and its value where the record is made. A line has the name (it ends in the unit), the
//! type, the kind, after `as` the metric's name if that is another one, and `on page` if only the statistics page has
//! the figure. New lines come last in their record: the page's words follow the table.

use crate::figures::{Field, Figure, Kind, Reading, Record, Value, Writing};
use crate::{ChannelId, DomainId, HogAction, NameKind, PoolId, Pressure, Role, Trust};
use serde::{Deserialize, Serialize};

macro_rules! records {
    ($(
        $(#[doc = $about:literal])+
        $record:ident {
            $(
                $(#[doc = $help:literal])+
                $name:ident: $type:ty = $kind:ident $(as $metric:literal)? $(on $page:ident)?;
            )+
        }
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
            pub struct $record {
                $( $(#[doc = $help])+ pub $name: $type, )+
            }

            impl $record {
                const FIGURES: &[Figure] = &[$(Figure {
                    name: stringify!($name),
                    kind: Kind::$kind,
                    page_only: records!(@is $($page)?),
                    metric: records!(@some $($metric)?),
                    python: <$type as Field>::PYTHON,
                    help: concat!($($help),+),
                }),+];

                pub(crate) fn put(&self, to: &mut Writing) {
                    $( self.$name.put(to); )+
                }

                pub(crate) fn take(from: &mut Reading<'_>) -> Option<Self> {
                    Some(Self { $( $name: Field::take(from)?, )+ })
                }
            }

            impl Record for $record {
                fn figures(&self) -> &'static [Figure] {
                    Self::FIGURES
                }
                fn values(&self) -> Vec<Value<'_>> {
                    vec![$( self.$name.value() ),+]
                }
            }
        )+

        /// Every record: its name, its meaning, its figures.
        pub const RECORDS: &[(&str, &str, &[Figure])] =
            &[$( (stringify!($record), concat!($($about),+), $record::FIGURES) ),+];
    };
    (@is $page:ident) => { true };
    (@is) => { false };
    (@some $metric:literal) => { Some($metric) };
    (@some) => { None };
}

records! {
    /// The manager.
    ManagerStat {
        /// Random per start.
        instance: u64 = Fact;
        /// Process id.
        pid: u32 = Fact;
        /// Time since the manager's start.
        uptime_s: u64 = Gauge;
        /// The most that may be granted in all.
        total_bytes: u64 = Gauge as "memory_limit";
        /// Granted to pools and heaps now.
        granted_bytes: u64 = Gauge as "memory_granted";
        /// Returned by writers, still mapped by readers.
        stranded_bytes: u64 = Gauge as "memory_stranded";
        /// Chunks of pools: granted, made and not returned. Heaps are private memory, and not included.
        data_bytes: u64 = Fact;
        /// Slot tables, counters and histories.
        table_bytes: u64 = Fact;
        /// Halves of channels.
        ring_bytes: u64 = Fact;
        /// Memory that the manager itself shares with its domains: a page for each client.
        control_page_bytes: u64 = Fact;
        /// Descriptors that the manager holds for its clients.
        descriptors: u64 = Gauge;
        /// The most descriptors that it may hold.
        max_descriptors: u64 = Gauge as "manager_descriptors_limit";
        /// The most that its own process may need for one user, by that user's limits.
        own_bytes_per_user: u64 = Gauge as "manager_memory_per_user_limit";
        /// The longest turn of its loop since its start, processor time.
        longest_turn_us: u64 = Most;
        /// The memory shortage outside, on the machine or in a cgroup.
        pressure: Pressure = Fact;
        /// The most that may be granted at present: less than the total while memory is short outside.
        limit_bytes: u64 = Gauge as "memory_effective_limit";
    }

    /// A domain.
    DomainStat {
        /// The domain's id.
        domain: DomainId = Fact;
        /// The domain's name for itself.
        name: String = Fact;
        /// Process id.
        pid: u32 = Fact;
        /// User id.
        uid: u32 = Fact;
        /// Whether the domain is connected. A domain without a connection is kept until its process ends.
        connected: bool = Gauge;
        /// Whether processes of the same user may look into it (ptrace).
        dumpable: bool = Fact;
        /// Returned chunks that it still maps: charged to it.
        stranded_bytes: u64 = Gauge;
        /// Chunks of its pools. The domain made them, and its cgroup is charged for them.
        data_bytes: u64 = Gauge;
        /// Slot tables of its pools, and counters of those and of others.
        table_bytes: u64 = Gauge;
        /// Rings of its ends of channels.
        ring_bytes: u64 = Gauge;
        /// Granted to its own pools and admitted to its heaps.
        own_bytes: u64 = Gauge;
        /// Buffers of others' pools that were given to it to be written, or that it has held for longer than the manager's `linger`:
        /// charged to it.
        lingering_bytes: u64 = Gauge;
        /// The rule that it has broken, if any.
        hog: Option<HogStat> = Fact;
        /// Memory that it may still be granted: of the total, of its user's share, and of the limit for one domain.
        room_bytes: u64 = Most;
    }

    /// A rule that a domain has broken: it holds more memory of others than the rule allows.
    HogStat {
        /// The manager's action.
        action: HogAction = Fact;
        /// The limit that the domain's charge exceeds.
        over_bytes: u64 = Fact;
        /// How long it has exceeded the limit.
        since_ms: u64 = Fact;
    }

    /// A pool.
    PoolStat {
        /// The pool's id.
        pool: PoolId = Fact;
        /// The pool's name.
        name: String = Fact;
        /// The domain that allocates and fills.
        writer: DomainId = Fact;
        /// Whether the writer is still alive.
        writer_alive: bool = Fact;
        /// The processes that can write the pool.
        trust: Trust = Fact;
        /// The pool's granted memory.
        granted_bytes: u64 = Gauge;
        /// The pool's present quota.
        quota_bytes: u64 = Gauge;
        /// The most that the pool may ever have.
        max_bytes: u64 = Gauge;
        /// Chunks that are there: less than granted while some are being made.
        data_bytes: u64 = Gauge;
        /// Chunks that are partly in use, by the writer's word.
        live_bytes: u64 = Gauge;
        /// The most of the live bytes at once, lately, by the writer's word.
        peak_bytes: u64 = Gauge;
        /// Buffers that the writer's last look found dead and that were not used again until then, by its word.
        garbage_bytes: u64 = Gauge;
        /// Free buffers in the caches of the writer's threads, by its word.
        cached_bytes: u64 = Gauge;
        /// At level `half`: pages of buffers beyond the requested length, by the writer's word. It counts buffers in
        /// use, and free buffers as they last were.
        padding_bytes: u64 = Gauge;
        /// The pool's slot table, and the counters of its writer, readers and channels.
        table_bytes: u64 = Gauge;
        /// Buffers of the pool that are charged to their holders.
        lingering_bytes: u64 = Gauge;
        /// Returned chunks that a reader still maps.
        stranded_bytes: u64 = Gauge;
        /// The size of a chunk.
        chunk_bytes: u64 = Fact;
        /// Slots in its table: the most buffers at a time.
        slots: u32 = Fact;
        /// Domains that read the pool.
        readers: u32 = Gauge;
        /// Buffers in use, by the writer's word.
        live_buffers: u64 = Gauge;
        /// Buffers in caches, by the writer's word.
        cached_buffers: u64 = Gauge;
        /// Buffers handed out, by the writer's word.
        allocs: u64 = Counter as "pool_allocations";
        /// Time that callers waited for memory, summed over callers, by the writer's word.
        blocked_ns: u64 = Counter;
        /// Time spent collecting, by the writer's word.
        collect_ns: u64 = Counter;
        /// Callers that wait for memory, by the writer's word.
        waiters: u64 = Gauge;
        /// The share of its callers' time that may be spent waiting, if the configuration has one.
        target_ppm: Option<u32> = Most;
        /// How long a caller has waited at least; 0: no caller waits.
        waiting_ns: u64 = Most on page;
        /// Collections, by the writer's word.
        collections: u64 = Counter;
    }

    /// A heap: private memory of its owner, admitted by the byte.
    HeapStat {
        /// The heap's id. Heaps and pools are counted together.
        heap: PoolId = Fact;
        /// The heap's name.
        name: String = Fact;
        /// The domain that owns the memory.
        owner: DomainId = Fact;
        /// The heap's admitted memory.
        admitted_bytes: u64 = Gauge;
        /// Allocated in the heap, by its owner's word, if it gives any.
        live_bytes: u64 = Gauge;
        /// Free and kept, by its owner's word.
        cached_bytes: u64 = Gauge;
        /// The heap's present quota.
        quota_bytes: u64 = Gauge;
        /// The most that the heap may ever have.
        max_bytes: u64 = Gauge;
    }

    /// A channel, or a name without one, exported or awaited (`channel` 0, no sink or no source). A channel within a
    /// process, or to elsewhere, is shown by its domain's word: the name is the whole address, the number is the
    /// domain's own.
    ChannelStat {
        /// The channel's id.
        channel: ChannelId = Fact;
        /// The name under which it was made.
        name: String = Fact;
        /// Sending end.
        source: Option<DomainId> = Fact;
        /// Receiving end.
        sink: Option<DomainId> = Fact;
        /// The other end's place by the carrier's word, if it is not a domain of this manager.
        place: Option<String> = Fact;
        /// For a name without a channel: the exporter's role.
        exported_as: Option<Role> = Fact;
        /// For a name that no domain exports yet: the role of the domain that waits for it.
        waiting_as: Option<Role> = Fact;
        /// Messages that the receiver has taken; of a topic, taken or missed, by the publisher's word.
        taken: u64 = Counter as "channel_messages";
        /// Messages sent and not taken.
        depth: u64 = Gauge;
        /// Places for messages in its ring.
        lines: u32 = Gauge;
        /// How often the sender found no room.
        stalls: u64 = Counter;
        /// Time that the sender waited for room, without the present wait.
        stalled_ns: u64 = Counter;
        /// How long the sender has been waiting for room; 0: it does not wait.
        waiting_ns: u64 = Most;
        /// Whether the receiver sleeps until a message comes.
        sink_asleep: bool = Fact;
        /// Both halves of its ring.
        ring_bytes: u64 = Gauge;
        /// Pools assigned to it.
        pools: Vec<PoolId> = Fact;
        /// What its name is: a channel's, a topic's or a queue's. A connection to a topic or queue whose writer has
        /// ended counts as a channel.
        kind: NameKind = Fact;
        /// How long the subscriber of a topic has taken none of the messages that it has still to take; 0: it has none
        /// to take.
        behind_ns: u64 = Most;
    }

    /// The buffers of a pool that a domain holds.
    HoldStat {
        /// The holder.
        domain: DomainId = Fact;
        /// The pool.
        pool: PoolId = Fact;
        /// Buffers with a reference of the holder, as the manager last saw it: it looks once a period.
        buffers: u32 = Gauge as "held_buffers";
        /// Length of those buffers.
        bytes: u64 = Gauge as "held";
        /// Buffers of these that are charged to the holder.
        lingering_bytes: u64 = Gauge as "held_lingering";
        /// How long the manager has seen it hold the oldest buffer.
        held_ms: Option<u64> = Most as "held_oldest";
        /// Length of the oldest buffer.
        oldest_bytes: u64 = Most on page;
    }
}

impl Field for Option<HogStat> {
    const PYTHON: &'static str = "_HogStat | None";
    fn value(&self) -> Value<'_> {
        self.as_ref()
            .map_or(Value::Absent, |hog| Value::Record(hog))
    }
    fn put(&self, to: &mut Writing) {
        to.words.push(u64::from(self.is_some()));
        if let Some(hog) = self {
            hog.put(to);
        }
    }
    fn take(from: &mut Reading<'_>) -> Option<Self> {
        Some(if from.next() == 0 {
            None
        } else {
            HogStat::take(from)
        })
    }
}

/// One record of the answer to `Stat`, and of the statistics page.
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

impl StatRecord {
    /// Returns the record.
    pub fn record(&self) -> &dyn Record {
        match self {
            StatRecord::Manager(record) => record,
            StatRecord::Domain(record) => record,
            StatRecord::Pool(record) => record,
            StatRecord::Channel(record) => record,
            StatRecord::Hold(record) => record,
            StatRecord::Heap(record) => record,
        }
    }

    /// Returns the name of the list that has it in JSON and Python. The manager's record is in none: it is `manager`.
    pub fn list(&self) -> &'static str {
        match self {
            StatRecord::Manager(_) => "manager",
            StatRecord::Domain(_) => "domains",
            StatRecord::Pool(_) => "pools",
            StatRecord::Channel(_) => "channels",
            StatRecord::Hold(_) => "holds",
            StatRecord::Heap(_) => "heaps",
        }
    }

    /// Writes its words; returns its kind on the statistics page.
    pub(crate) fn put(&self, to: &mut Writing) -> u64 {
        match self {
            StatRecord::Manager(record) => (record.put(to), 1).1,
            StatRecord::Domain(record) => (record.put(to), 2).1,
            StatRecord::Pool(record) => (record.put(to), 3).1,
            StatRecord::Channel(record) => (record.put(to), 4).1,
            StatRecord::Hold(record) => (record.put(to), 5).1,
            StatRecord::Heap(record) => (record.put(to), 6).1,
        }
    }

    pub(crate) fn take(kind: u64, from: &mut Reading<'_>) -> Option<Self> {
        match kind {
            1 => ManagerStat::take(from).map(StatRecord::Manager),
            2 => DomainStat::take(from).map(StatRecord::Domain),
            3 => PoolStat::take(from).map(StatRecord::Pool),
            4 => ChannelStat::take(from).map(StatRecord::Channel),
            5 => HoldStat::take(from).map(StatRecord::Hold),
            6 => HeapStat::take(from).map(StatRecord::Heap),
            _ => None,
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

impl DomainStat {
    /// Returns the bytes of others' memory that are charged to it.
    pub fn charged_bytes(&self) -> u64 {
        self.lingering_bytes.saturating_add(self.stranded_bytes)
    }
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
    /// Collections.
    pub collections: u64,
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
