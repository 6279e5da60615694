//! Moves large data between isolated processes without copying it.
//!
//! This is the crate that programs name. It lists what they may use of the crates below it, and nothing else is promised:
//! `docs/surface.txt` has all of it, with signatures, and changes only together with this list.
//!
//! | feature | adds |
//! |---|---|
//! | `block` | `block`: a disk's blocks over channels, and NBD |
//! | `net` | `net`: channels between machines, with TLS: addresses `tcp:HOST:PORT/NAME` |
//! | `embedded` | `manager`, `Domain::embedded`: a manager as a thread of the program |
//! | `cache` | `cache`: a cache server, and its values in other processes without being copied |
//! | `component` | `component`: the ends of a component of `tranship run`, by their names |
//! | `malloc` | `malloc`: a `#[global_allocator]` under the manager |
//! | `mbuf` | `mbuf`: network buffers |
//! | `policy` | `policy`: a program of one's own divides memory among pools |
//! | `queue` | `queue`: many producers, many consumers, each item taken by exactly one |
//! | `sandbox` | `sandbox`: a process is locked down to what it needs as a domain |
//! | `store` | `store`: values by key and queues of values, kept by one process for many |
//! | `service` | `service`: requests and replies, a name with many clients |
//! | `topic` | `topic`: one publisher's messages to any number of subscribers |
//! | `typed` | `typed`: messages as plain structs, whose layout both ends compare; with `service`, the attribute `#[tranship::service]` |
//! | `flatbuffers`, `arrow` | `typed::flat`, `typed::arrow`: FlatBuffers and Arrow batches where they lie |
//! | `zcopy` | `zcopy`: values that are sent many times |
//! | `zone` | `zone`: the allocator under all of it, for items of one's own |
//!
//! The root has what an ordinary program uses. The other modules have the rest, without features: [`error`] the causes of
//! errors, [`admin`] an operator's questions, [`heap`] private memory under quotas, [`carrier`] channels of one's own.
//!
//! NOT here: any code of its own.

#![warn(missing_docs)]
#![deny(unsafe_code)]

#[doc(inline)]
pub use tranship_core::{
    Aggregate, AggregateMut, Body, Buffer, BufferId, BufferMut, ChannelEnd, ChannelId,
    ChannelOptions, Domain, DomainBuilder, DomainId, Error, ErrorKind, INLINE_BYTES, Inbox, Inline,
    Listener, MAX_PIECES, Mapped, Message, Opening, Outcome, Payload, PayloadBack, PollItem, Pool,
    PoolId, PoolOptions, Receiver, Released, SendError, Sender, Status, Trust, View, Wait,
    WhenFull, poll,
};
#[doc(inline)]
pub use tranship_core::{admin, carrier, error, heap};

/// Queues: many producers, many consumers, each item taken by exactly one ([`Queues`](queue::Queues)).
#[cfg(feature = "queue")]
pub mod queue {
    #[doc(inline)]
    pub use tranship_queue::{
        Cause, Consumer, ConsumerOptions, ConsumerSeen, ConsumerStatus, Enqueue, Item, Lost,
        Producer, ProducerSeen, ProducerStatus, QueueOptions, Queues, WhenLost,
    };
}

/// Topics: one publisher's messages to any number of subscribers ([`Topics`](topic::Topics)).
#[cfg(feature = "topic")]
pub mod topic {
    #[doc(inline)]
    pub use tranship_topic::{
        Publish, Publisher, PublisherStatus, Subscriber, SubscriberOptions, SubscriberSeen,
        SubscriberStatus, TopicOptions, Topics, WhenBehind,
    };
}

#[cfg(feature = "policy")]
#[doc(inline)]
pub use tranship_core::policy;

/// Channels between machines: [`add_to`](net::add_to) teaches a domain the addresses `tcp:HOST:PORT/NAME`.
#[cfg(feature = "net")]
pub mod net {
    #[doc(inline)]
    pub use tranship_channel::{Over, add_to};
    #[doc(inline)]
    pub use tranship_transport::net::{
        CA_FILE, CERT_FILE, CREDENTIALS_VARIABLE, Credentials, KEY_FILE, Net, PLAIN_VARIABLE,
        Timing, certificate,
    };
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
    pub use tranship_cache::{Answer, Hit, Limits, Options, Reader, Refused, Server, Share, Stats};
}

/// A process of a program that `tranship run` started: its ends by their names ([`Component`](component::Component)).
#[cfg(feature = "component")]
pub mod component {
    #[doc(inline)]
    pub use tranship_component::{
        Brief, Component, End, Part, Receiver, Returns, Sender, VARIABLE, WhenDown,
    };
}

/// Configuration of a manager inside the program ([`DomainBuilder::config`]).
#[cfg(feature = "embedded")]
pub mod manager {
    #[doc(inline)]
    pub use tranship_manager::{
        Config, ConfigError, Forward, Limits, PressureConfig, Reserved, Rule, Who,
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
        Calls, Chain, Checksum, Cluster, ClusterSize, Counted, Error, ExtKind, FileZone, Flags,
        Header, Histogram, Insane, Kind, Limits, MCLBYTES, MHLEN, MINCLSIZE, MINI_SIZE, MJUM9BYTES,
        MJUM16BYTES, MJUMPAGESIZE, MLEN, MSIZE, Mbuf, MbufOptions, MbufStats, Mbufs, NoBuffers,
        NotReceived, PERSISTENT, PacketQueue, Print, Reader, Routine, SIZE_CLASSES, SendTag, Tag,
        TaggedZone, Tags, What, Writer, ZoneUse,
    };
}

/// A process is locked down to what it needs as a domain.
#[cfg(feature = "sandbox")]
pub mod sandbox {
    #[doc(inline)]
    pub use tranship_sandbox::{Confined, Landlock, Sandbox};
}

/// Values by key, and queues of values: one process keeps a [`Store`](store::Store) for many.
#[cfg(feature = "store")]
pub mod store {
    #[doc(inline)]
    pub use tranship_store::{Got, Store, StoreOptions, Stores, Value, Wait};
}

/// Requests and replies: a [`Service`](service::Service) has a name, many clients and several workers.
#[cfg(feature = "service")]
pub mod service {
    #[doc(inline)]
    pub use tranship_service::{
        Call, CallError, CallOptions, Client, Request, Service, ServiceOptions, Services,
    };
}

/// Messages as plain structs, whose layout both ends of a channel compare.
#[cfg(feature = "typed")]
pub mod typed {
    #[cfg(feature = "arrow")]
    #[doc(inline)]
    pub use tranship_typed::arrow;
    #[cfg(feature = "flatbuffers")]
    #[doc(inline)]
    pub use tranship_typed::flat;
    #[cfg(feature = "service")]
    #[doc(inline)]
    pub use tranship_typed::{
        Answer, Client, Fault, Interface, Parcel, Pass, Service, Stream, Streaming, reply_draft,
    };
    #[cfg(feature = "queue")]
    #[doc(inline)]
    pub use tranship_typed::{Consumer, Job, Producer};
    #[doc(inline)]
    pub use tranship_typed::{
        Draft, Items, Layout, Message, Receiver, Sendable, Sender, Value, zerocopy,
    };
    #[cfg(feature = "topic")]
    #[doc(inline)]
    pub use tranship_typed::{Publisher, Subscriber};
    // Names in the attribute's code.
    #[cfg(feature = "service")]
    #[doc(hidden)]
    pub use tranship_typed::{Came, Error, Request, arguments, no_method};
}

#[cfg(all(feature = "typed", feature = "service"))]
#[doc(inline)]
pub use tranship_typed::service;

/// Data that is sent many times: a twin allocator, and sends that do not copy.
#[cfg(feature = "zcopy")]
pub mod zcopy {
    #[doc(inline)]
    pub use tranship_zcopy::{
        Arena, Cause, Copied, Counts, Error, Options, Piece, Report, ReportError, Sender, Socket,
        Stats, Took, Value, ValueMut, Way, Why,
    };
}

/// Zones of items in this process's own memory: caches for each thread, constructors, limits, reclamation.
#[cfg(feature = "zone")]
pub mod zone {
    #[doc(inline)]
    pub use tranship_items::arena::{Memory, OwnPages};
    #[doc(inline)]
    pub use tranship_items::item::{
        Alarm, AllocError, DebugOptions, ItemStats, ItemsOut, KegError, MAX_ITEM_BYTES, Refused,
        Request, Wait, Warning,
    };
    #[doc(inline)]
    pub use tranship_items::reaper::{Driver, reclaim, set_driver};
    #[doc(inline)]
    pub use tranship_items::{
        Arena, Bytes, ItemKeg, ItemOptions, ItemZone, Level, Object, ZoneConfig, ZoneStats,
    };
}

/// Compiles the programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../../README.md")]
struct Readme;

/// Compiles the programs of the guide.
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

/// And the page about topics.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/topics.md")]
struct TopicsPage;

/// And the page about queues.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/queues.md")]
struct QueuesPage;

/// And those about types and services.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/types.md")]
struct Types;

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/services.md")]
struct ServicesPage;

/// And the page about programs of components.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/run.md")]
struct RunPage;

/// And the page about stores.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/store.md")]
struct StorePage;

/// And the page about three programs.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/decisions/three-programs.md")]
struct ThreePrograms;
