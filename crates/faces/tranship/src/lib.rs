//! Moves large data between isolated processes without copying it.
//!
//! This is the crate that programs name. It lists what they may use of the crates below it, and nothing else is promised:
//! `docs/surface.txt` has all of it, with signatures, and changes only together with this list.
//!
//! | feature | adds |
//! |---|---|
//! | `block` | `block`: a disk's blocks over channels, and NBD |
//! | `net` | `net`: channels between machines, with TLS: addresses `tcp:HOST:PORT/NAME` |
//! | `cache` | `cache`: a cache server, and its values in other processes without being copied |
//! | `malloc` | `malloc`: a `#[global_allocator]` under the manager |
//! | `mbuf` | `mbuf`: network buffers |
//! | `sandbox` | `sandbox`: a process is locked down to what it needs as a domain |
//! | `zcopy` | `zcopy`: values that are sent many times |
//! | `zone` | `zone`: the allocator under all of it, for items of one's own |
//!
//! Each feature adds the module of its name.
//!
//! NOT here: any code of its own.

#![warn(missing_docs)]

#[doc(inline)]
pub use tranship_core::{
    // Buffers.
    Aggregate,
    AggregateMut,
    AggregateReader,
    // What goes wrong.
    Awaited,
    BadName,
    Barrier,
    // Channels.
    Body,
    Buffer,
    // Names of things, and what the manager says of them.
    BufferId,
    BufferMut,
    Cause,
    ChannelEnd,
    ChannelId,
    ChannelOptions,
    ChannelStat,
    // A process's membership, and its memory.
    Did,
    Domain,
    DomainBuilder,
    DomainId,
    DomainStat,
    Error,
    ErrorKind,
    Got,
    Heap,
    HeapOptions,
    HeapStat,
    HeldBuffer,
    HogAction,
    HogStat,
    HoldStat,
    Holder,
    INLINE_BYTES,
    Inline,
    LeakReport,
    Leaks,
    Limit,
    Listener,
    MAX_PIECES,
    ManagerStat,
    Mapped,
    Message,
    NoAddresses,
    NotTaken,
    Offer,
    Opening,
    OutOfBounds,
    OutOfRange,
    Outcome,
    OwnBuffer,
    Payload,
    PayloadBack,
    PollItem,
    Pool,
    PoolFigures,
    PoolId,
    PoolOptions,
    PoolPending,
    PoolStat,
    PoolStats,
    Pressure,
    Receiver,
    Refusal,
    RefusalCode,
    Relay,
    RelayEnd,
    RelayStop,
    Released,
    RingFull,
    SendError,
    Sender,
    Shortage,
    SocketProblem,
    StaleId,
    StatRecord,
    TimedOut,
    TooLarge,
    Trace,
    TraceEvent,
    Trust,
    View,
    Violation,
    Wait,
    WhenFull,
    poll,
};

/// What carries channels to where no shared memory is, for carriers of one's own ([`Domain::add_carrier`]).
pub mod carrier {
    #[doc(inline)]
    pub use tranship_core::{Carrier, Driver, Ends, Handed, Inlet, Outlet, Role};
}

/// Channels between machines: [`add_to`](net::add_to) has a domain understand `tcp:HOST:PORT/NAME`.
#[cfg(feature = "net")]
pub mod net {
    #[doc(inline)]
    pub use tranship_channel::{Over, add_to};
}

/// A disk's blocks over channels, with caches that stay right, and over NBD.
#[cfg(feature = "block")]
pub mod block {
    #[doc(inline)]
    pub use tranship_block::{
        Access, BLOCK_BYTES, Blocking, Cache, Cached, Data, Disk, DiskOptions, Done, Endpoint,
        Fault, Info, Job, Lease, Op, OpenError, Remote, Request, Store, sums,
    };
    #[doc(inline)]
    pub use tranship_block::{front, nbd};
}

/// A cache server ([`Server`](cache::Server), as `tranship cache` runs it), and its values by reference in other processes ([`Reader`](cache::Reader)).
#[cfg(feature = "cache")]
pub mod cache {
    #[doc(inline)]
    pub use tranship_cache::{
        Answer, Hit, Limits, Options, Reader, Refused, Sending, Server, Share, Stats, Taken,
    };
}

/// A manager inside a program of one's own: configuration and entry points.
pub mod manager {
    #[doc(inline)]
    pub use tranship_manager::{
        Config, ConfigError, Embedded, Forward, Limits, Listener, PressureConfig, Reserved, Rule,
        Shutdown, Who, run,
    };
}

/// Policies that divide memory among pools, and a program of one's own that does ([`Domain::steer`]).
pub mod policy {
    #[doc(inline)]
    pub use tranship_core::Steering;
    #[doc(inline)]
    pub use tranship_policy::{
        Activity, Config, Entry, Governor, POLICIES, Policy, PoolState, Round, Rule, Snapshot,
        Target, UnknownPolicy, Wish, find,
    };
}

/// Connections that carry frames: what channels to elsewhere run over, and what one of one's own has to offer.
#[cfg(feature = "net")]
pub mod transport {
    #[cfg(feature = "net")]
    #[doc(inline)]
    pub use tranship_transport::net;
    #[doc(inline)]
    pub use tranship_transport::{
        Backend, Copying, Frame, FrameBytes, Listener, Payload, Place, RecvError, Source, Target,
        Transport, Wait,
    };
}

/// A `#[global_allocator]` whose heap the manager admits, limits and rebalances like a pool.
#[cfg(feature = "malloc")]
pub mod malloc {
    #[doc(inline)]
    pub use tranship_malloc::{
        HeapStats, Tranship, Usage, alloc, alloc_zeroed, free, resize, stats, trim, usable, usage,
    };
}

/// Network buffers: chains of mbufs with clusters, external storage, tags, packet queues.
#[cfg(feature = "mbuf")]
pub mod mbuf {
    #[doc(inline)]
    pub use tranship_mbuf::{
        Calls, Chain, Checksum, Cluster, ClusterSize, Error, ExtKind, FileZone, Flags, Header,
        Histogram, Insane, Kind, Limits, MCLBYTES, MHLEN, MINCLSIZE, MINI_SIZE, MJUM9BYTES,
        MJUM16BYTES, MJUMPAGESIZE, MLEN, MSIZE, Mbuf, MbufOptions, MbufStats, Mbufs, NoBuffers,
        NotReceived, PERSISTENT, PacketQueue, Print, Reader, Routine, SIZE_CLASSES, SendTag, Tag,
        TaggedZone, Tags, What, Writer, ZoneUse,
    };
}

/// A process is locked down to what it needs as a domain.
#[cfg(feature = "sandbox")]
pub mod sandbox {
    #[doc(inline)]
    pub use tranship_sandbox::{Landlock, Sandbox};
}

/// Data that is sent many times: a twin allocator, and sends that do not copy.
#[cfg(feature = "zcopy")]
pub mod zcopy {
    #[doc(inline)]
    pub use tranship_zcopy::{
        Arena, Cause, Choice, Copied, Counts, Error, Explanation, Mark, Options, Piece, Place,
        Report, ReportError, Sender, Socket, Stats, Took, Value, ValueMut, Way, Why,
    };
}

/// Zones of items in this process's own memory: caches for each thread, constructors, limits, reclamation.
#[cfg(feature = "zone")]
pub mod zone {
    #[doc(inline)]
    pub use tranship_zone::item::{
        Alarm, AllocError, DebugOptions, ItemStats, ItemsOut, KegError, MAX_ITEM_BYTES, Refused,
        Request, Wait, Warning,
    };
    #[doc(inline)]
    pub use tranship_zone::reaper::{Driver, reclaim, set_driver};
    #[doc(inline)]
    pub use tranship_zone::{
        Arena, Bytes, ItemKeg, ItemOptions, ItemZone, Level, Object, ZoneConfig, ZoneStats,
    };
}

/// What the README shows must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../../README.md")]
struct Readme;

/// What the guide shows, too.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/guide.md")]
struct Guide;

/// And what the page about ZCopy shows.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/zcopy.md")]
struct ZCopy;

/// And the one about heaps.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/malloc.md")]
struct Malloc;

/// And the one about bulk transfer.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/bulk.md")]
struct Bulk;
