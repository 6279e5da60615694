//! Network buffers: chains of mbufs, clusters, external storage, tags, packet queues; after mbuf(9).
//!
//! ```text
//!  Chain ─► mbuf ──► mbuf ──► mini-mbuf        256 bytes each, a mini-mbuf 192
//!           header   │ data   │                the first of a packet has a header: length, tags, offloads
//!           │ ext    └ inside └ ext
//!           ▼                   ▼
//!           cluster 2 KiB       a vector, a shared buffer, a piece of a file ...
//! ```
//!
//! NOT here: protocols, devices, the allocator under the zones (`zone`), shared memory (`core`).

#![warn(missing_docs, clippy::missing_errors_doc)]
// Unsafe parts: mbufs are linked by plain pointers (`seg`), their flags determine their contents (`ext`), and storage
// is shared by counting.

mod alloc;
mod attach;
mod bytes;
mod chain;
mod counts;
mod cross;
mod error;
mod ext;
mod file;
mod flags;
mod get;
mod header;
mod histogram;
#[cfg_attr(not(feature = "inject"), allow(dead_code))]
pub mod inject;
mod layout;
mod limits;
mod ops;
mod print;
mod queue;
mod sanity;
mod seg;
mod sendtag;
mod size;
mod special;
mod stats;
mod tag;
mod template;
mod zones;

pub use crate::bytes::{Reader, Writer};
pub use alloc::{Cluster, MbufOptions, Mbufs};
pub use chain::{Chain, Mbuf};
pub use counts::{Calls, Routine};
pub use cross::NotReceived;
pub use error::{Error, NoBuffers, What};
pub use flags::{Flags, Kind};
pub use header::{Checksum, Header};
pub use histogram::{Histogram, SIZE_CLASSES};
pub use layout::{Counted, ExtKind};
pub use limits::Limits;
pub use print::Print;
pub use queue::PacketQueue;
pub use sanity::Insane;
pub use sendtag::SendTag;
pub use size::{
    ClusterSize, MCLBYTES, MHLEN, MINCLSIZE, MINI_SIZE, MJUM9BYTES, MJUM16BYTES, MJUMPAGESIZE,
    MLEN, MSIZE,
};
pub use special::{FileZone, TaggedZone};
pub use stats::{MbufStats, ZoneUse};
pub use tag::{PERSISTENT, Tag, Tags};
