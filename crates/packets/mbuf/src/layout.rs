//! The layout of an mbuf in memory, and the sizes that follow from it.

use crate::flags::Flags;
use crate::header::Header;
use crate::size::{DAT, MHLEN, MINI_SIZE, MLEN, PKTDAT};
use crate::zones::Home;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// Bytes of an owner that are kept in the mbuf itself.
pub(crate) const OWNER_WORDS: usize = 7;

/// Memory of the caller's, and the caller's counter of its references (`m_extaddref`).
///
/// Each mbuf that refers to the memory counts one in the counter, beside the references that the caller counts. The
/// thread that counts the last reference away calls `free`; the caller does so for its own references.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Counted {
    /// The memory, which may be written while the counter is 1.
    pub bytes: NonNull<[u8]>,
    /// The counter. It has to stay until `free` was called.
    pub count: NonNull<AtomicU32>,
    /// Called with both arguments when the counter is 0, on any thread.
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    /// Arguments of `free`.
    pub args: [*mut c_void; 2],
}

// SAFETY: the attaching caller promises that any thread may use and free the memory.
unsafe impl Send for Counted {}

impl Counted {
    pub(crate) fn counter<'a>(&self) -> &'a AtomicU32 {
        // SAFETY: the attaching caller promises that it stays until `free` was called.
        unsafe { self.count.as_ref() }
    }
}

/// One mbuf. Never referred to as a whole: the part behind `DAT` changes its meaning.
#[repr(C, align(64))]
pub(crate) struct Raw {
    pub(crate) next: *mut Raw,
    pub(crate) nextpkt: *mut Raw,
    /// An address; of a file segment, the offset in the file.
    pub(crate) data: *mut u8,
    pub(crate) len: u32,
    pub(crate) flags: Flags,
    pub(crate) home: *const Home,
    /// The zone's number for it. It is kept here because computing it would cost two dependent loads of the zone's
    /// address.
    pub(crate) number: u32,
    /// The packet's length; for the first mbuf of a packet.
    pub(crate) pkt_len: u32,
    pub(crate) header: Header,
    pub(crate) ext: Ext,
    pub(crate) owner: Owner,
}

/// External storage, as one mbuf refers to it.
#[repr(C)]
pub(crate) struct Ext {
    /// The first byte of the storage; for a file segment, its offset in the file.
    pub(crate) buf: *mut u8,
    pub(crate) size: u32,
    pub(crate) kind: ExtKind,
    pub(crate) spare: u8,
    pub(crate) spare2: u16,
    /// The number of mbufs that refer to the storage. Only the holder's counts.
    pub(crate) count: AtomicU32,
    /// A file segment's descriptor.
    pub(crate) fd: i32,
    /// The mbuf that attached the storage first. It outlives all others that refer to it.
    pub(crate) holder: *mut Raw,
}

/// The kind of external storage, and so the way of freeing it.
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
    /// An owner with a destructor: a vector, bytes, memory of a device.
    #[doc(alias = "EXT_MOD_TYPE")]
    Owned = 3,
    /// A buffer of this domain, or a received one.
    Buffer = 4,
    /// A part of a file that is not mapped here.
    #[doc(alias = "EXT_SFBUF")]
    #[doc(alias = "M_EXTPG")]
    File = 5,
    /// Memory of the caller's, whose references the caller counts too ([`Counted`](crate::Counted)).
    #[doc(alias = "EXT_EXTREF")]
    Counted = 6,
}

/// The owner that is dropped with the storage; the holder's.
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
