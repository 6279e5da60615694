//! What one mbuf looks like in memory, and the sizes that follow from it.
//!
//! ```text
//!   0  next, nextpkt, data        every mbuf
//!  24  len, flags and kind
//!  32  home                       the zone it came from
//!  40  number, packet length
//!  48  ┌ header, tags first            of the first mbuf of a packet, else data
//!  96  │ ┌ ext: buf, size, count, holder      of one with external storage, else data
//! 128  │ │ owner: what is dropped with the storage
//! 192  └─└ end of a mini-mbuf; else data up to 256
//! ```
//! Allocating a packet with its cluster and freeing it touch the first two cache lines.

use crate::flags::Flags;
use crate::header::Header;
use crate::zones::Home;
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

/// Bytes of an mbuf (`MSIZE`).
pub const MSIZE: usize = 256;
/// Bytes of a mini-mbuf, which has no data area.
pub const MINI_SIZE: usize = 192;
/// Data bytes inside an mbuf that has no packet header (`MLEN`).
pub const MLEN: usize = MSIZE - DAT;
/// Data bytes inside an mbuf with a packet header (`MHLEN`).
pub const MHLEN: usize = MSIZE - PKTDAT;
/// From this length on a cluster is better than an mbuf (`MINCLSIZE`).
pub const MINCLSIZE: usize = MHLEN + 1;
/// Bytes of a cluster (`MCLBYTES`).
pub const MCLBYTES: usize = 2048;
/// Bytes of a page-sized jumbo cluster (`MJUMPAGESIZE`).
pub const MJUMPAGESIZE: usize = 4096;
/// Bytes of a 9 KiB jumbo cluster (`MJUM9BYTES`).
pub const MJUM9BYTES: usize = 9216;
/// Bytes of a 16 KiB jumbo cluster (`MJUM16BYTES`).
pub const MJUM16BYTES: usize = 16384;

/// The sizes of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ClusterSize {
    /// 2 KiB.
    Std,
    /// 4 KiB.
    Page,
    /// 9 KiB.
    Jumbo9,
    /// 16 KiB.
    Jumbo16,
}

impl ClusterSize {
    /// All, the smallest first.
    pub const ALL: [ClusterSize; 4] = [
        ClusterSize::Std,
        ClusterSize::Page,
        ClusterSize::Jumbo9,
        ClusterSize::Jumbo16,
    ];

    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            ClusterSize::Std => MCLBYTES,
            ClusterSize::Page => MJUMPAGESIZE,
            ClusterSize::Jumbo9 => MJUM9BYTES,
            ClusterSize::Jumbo16 => MJUM16BYTES,
        }
    }

    /// The smallest of at least so many bytes.
    #[must_use]
    pub fn for_bytes(bytes: usize) -> Option<ClusterSize> {
        Self::ALL.into_iter().find(|size| bytes <= size.bytes())
    }
}

/// Where data may begin without and with a packet header.
pub(crate) const DAT: usize = 48;
pub(crate) const PKTDAT: usize = 96;
/// Bytes of an owner that are kept in the mbuf itself.
pub(crate) const OWNER_WORDS: usize = 7;

/// One mbuf. Never referred to as a whole: what lies behind `DAT` changes its meaning.
#[repr(C, align(64))]
pub(crate) struct Raw {
    pub(crate) next: *mut Raw,
    pub(crate) nextpkt: *mut Raw,
    /// An address; of a file segment, the offset in the file.
    pub(crate) data: *mut u8,
    pub(crate) len: u32,
    pub(crate) flags: Flags,
    pub(crate) home: *const Home,
    /// What the zone calls it: known without asking where the zone's memory begins, which costs two loads that wait
    /// for each other.
    pub(crate) number: u32,
    /// Of the first mbuf of a packet.
    pub(crate) pkt_len: u32,
    pub(crate) header: Header,
    pub(crate) ext: Ext,
    pub(crate) owner: Owner,
}

/// External storage, as one mbuf refers to it.
#[repr(C)]
pub(crate) struct Ext {
    /// First byte of the storage; of a file segment, its offset in the file.
    pub(crate) buf: *mut u8,
    pub(crate) size: u32,
    pub(crate) kind: ExtKind,
    pub(crate) spare: u8,
    pub(crate) spare2: u16,
    /// How many mbufs refer to the storage. Only the holder's counts.
    pub(crate) count: AtomicU32,
    /// A file segment's descriptor.
    pub(crate) fd: i32,
    /// The mbuf that attached the storage first. It outlives all others that refer to it.
    pub(crate) holder: *mut Raw,
}

/// What external storage is, and so how it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExtKind {
    /// A cluster of a zone: 2 KiB, a page, 9 KiB or 16 KiB.
    #[doc(alias = "EXT_CLUSTER")]
    #[doc(alias = "EXT_JUMBOP")]
    #[doc(alias = "EXT_JUMBO9")]
    #[doc(alias = "EXT_JUMBO16")]
    Cluster = 1,
    /// An mbuf and its cluster, allocated and freed as a unit.
    #[doc(alias = "EXT_PACKET")]
    Packet = 2,
    /// Something with a destructor: a vector, bytes, memory of a device.
    #[doc(alias = "EXT_EXTREF")]
    #[doc(alias = "EXT_MOD_TYPE")]
    Owned = 3,
    /// A buffer of this domain, or one that it received.
    Cbuf = 4,
    /// A part of a file that is not mapped here.
    #[doc(alias = "EXT_SFBUF")]
    #[doc(alias = "M_EXTPG")]
    File = 5,
}

/// What is dropped with the storage; the holder's.
#[repr(C)]
pub(crate) struct Owner {
    pub(crate) drop: Option<unsafe fn(*mut u8)>,
    pub(crate) words: [u64; OWNER_WORDS],
}

const _: () = {
    assert!(offset_of!(Raw, number) == 40 && offset_of!(Raw, pkt_len) == 44);
    assert!(offset_of!(Raw, header) == DAT);
    assert!(offset_of!(Raw, ext) == PKTDAT && size_of::<Ext>() == 32);
    assert!(offset_of!(Raw, owner) == 128 && size_of::<Raw>() == MINI_SIZE);
    assert!(MLEN == 208 && MHLEN == 160);
};
