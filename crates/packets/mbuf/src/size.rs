//! The sizes of mbufs and clusters.

/// Bytes of an mbuf (`MSIZE`).
pub const MSIZE: usize = 256;
/// Bytes of a mini-mbuf, which has no data area.
pub const MINI_SIZE: usize = 192;
/// Data bytes inside an mbuf that has no packet header (`MLEN`).
pub const MLEN: usize = MSIZE - DAT;
/// Data bytes inside an mbuf with a packet header (`MHLEN`).
pub const MHLEN: usize = MSIZE - PKTDAT;
/// The length from which on a cluster is better than an mbuf (`MINCLSIZE`).
pub const MINCLSIZE: usize = MHLEN + 1;
/// Bytes of a cluster (`MCLBYTES`).
pub const MCLBYTES: usize = 2048;
/// Bytes of a page-sized jumbo cluster (`MJUMPAGESIZE`).
pub const MJUMPAGESIZE: usize = 4096;
/// Bytes of a 9 KiB jumbo cluster (`MJUM9BYTES`).
pub const MJUM9BYTES: usize = 9216;
/// Bytes of a 16 KiB jumbo cluster (`MJUM16BYTES`).
pub const MJUM16BYTES: usize = 16384;

/// The longest chain that an operation makes, in bytes, as a packet's header counts them. Joined chains
/// ([`Chain::cat`](crate::Chain::cat)) may have more: they take no new memory.
pub(crate) const MAX_BYTES: usize = u32::MAX as usize;

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

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            ClusterSize::Std => MCLBYTES,
            ClusterSize::Page => MJUMPAGESIZE,
            ClusterSize::Jumbo9 => MJUM9BYTES,
            ClusterSize::Jumbo16 => MJUM16BYTES,
        }
    }

    /// Returns the smallest size of at least `bytes`.
    #[must_use]
    pub fn for_bytes(bytes: usize) -> Option<ClusterSize> {
        Self::ALL.into_iter().find(|size| bytes <= size.bytes())
    }
}

/// The data's first offset without and with a packet header.
pub(crate) const DAT: usize = 48;
pub(crate) const PKTDAT: usize = 96;
