//! A chain of mbufs, and its properties.

use crate::counts::{Routine, count};
use crate::error::{Error, NoBuffers, What};
use crate::ext;
use crate::flags::{Flags, Kind};
use crate::header::Header;
use crate::layout::ExtKind;
use crate::seg::Seg;
use crate::size::ClusterSize;
use crate::zones::{How, Inner};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use tranship_core::Buffer;

/// One or more mbufs, linked; a packet, if the first has a header.
///
/// A chain owns its mbufs, and its share of their storage; dropping it is `m_freem`. It may be sent to another thread
/// and be freed there. An operation that fails leaves the chain as it was, even if the traditional routine frees it.
///
/// If there is a header, the packet's length always equals the chain's.
///
/// ```
/// # mod tranship { pub use tranship_mbuf as mbuf; }
/// use tranship::mbuf::Mbufs;
///
/// let mbufs = Mbufs::new()?; // its mbufs may outlive this handle
/// let mut packet = mbufs.devget(&[7; 3000], 0)?;
/// let rest = packet.split_off(1000)?; // no byte is copied
/// assert_eq!((packet.len(), rest.len()), (1000, 2000));
/// packet.trim_front(4);
/// packet.cat(rest);
/// assert_eq!(packet.pullup(100)?, [7; 100]); // in one piece
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mbuf")]
#[doc(alias = "m_freem")]
#[repr(transparent)]
pub struct Chain {
    first: Seg,
}

// SAFETY: a chain's mbufs are its own. Storage that it shares is only read, its count is atomic, and owners are Send.
// It is not Sync: sharing storage out of `&Chain` counts up from 1 without a locked instruction.
unsafe impl Send for Chain {}

impl Chain {
    /// Makes a chain of an mbuf and all behind it.
    #[inline(always)]
    pub(crate) fn new(first: Seg) -> Chain {
        Chain { first }
    }

    #[inline(always)]
    pub(crate) fn first(&self) -> Seg {
        self.first
    }

    pub(crate) fn set_first(&mut self, first: Seg) {
        self.first = first;
    }

    #[inline(always)]
    pub(crate) fn into_first(self) -> Seg {
        ManuallyDrop::new(self).first
    }

    pub(crate) fn segs(&self) -> impl Iterator<Item = Seg> + use<> {
        self.first.walk()
    }

    pub(crate) fn inner(&self) -> &Inner {
        self.first.home().inner()
    }

    /// Returns the bytes of the whole chain (`m_length`). For a packet this is the header's length, which is equal.
    #[doc(alias = "m_length")]
    #[doc(alias = "m_fixhdr")]
    #[must_use]
    pub fn len(&self) -> usize {
        if self.is_packet() && self.first.pkt_len() != u32::MAX as usize {
            self.first.pkt_len()
        } else {
            self.first.total()
        }
    }

    /// Says whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of mbufs.
    #[must_use]
    pub fn count(&self) -> usize {
        self.segs().count()
    }

    /// Says whether there is a packet header.
    #[inline]
    #[must_use]
    pub fn is_packet(&self) -> bool {
        self.first.has(Flags::PKTHDR)
    }

    /// Returns the packet header.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        // SAFETY: with `PKTHDR` it is valid, and borrowed with the chain.
        self.is_packet().then(|| unsafe { &*self.first.header() })
    }

    /// Returns the packet header, for writing.
    pub fn header_mut(&mut self) -> Option<&mut Header> {
        self.is_packet()
            // SAFETY: as above.
            .then(|| unsafe { &mut *self.first.header() })
    }

    /// Makes the chain a packet, with an empty header, if it is none.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached.
    pub fn make_packet(&mut self) -> Result<(), NoBuffers> {
        if self.is_packet() {
            return Ok(());
        }
        let first = self.first;
        let total = first.total();
        if first.has(Flags::EXT) || first.home().is_mini() {
            ext::new_header(first); // its place is free
            first.set_flags(first.flags() | Flags::PKTHDR);
            if !first.has(Flags::EXT) {
                first.set_data(first.start());
            }
        } else {
            let head = self
                .inner()
                .get(How::NoWait, first.flags().kind(), Flags::PKTHDR)?;
            head.set_next(Some(first));
            self.first = head;
        }
        self.first.set_pkt_len(total);
        Ok(())
    }

    /// Takes the packet header away, and the flags that belong to it (`m_demote_pkthdr`).
    #[doc(alias = "m_demote_pkthdr")]
    #[doc(alias = "m_demote")]
    pub fn demote(&mut self) {
        let first = self.first;
        if first.has(Flags::PKTHDR) {
            // SAFETY: valid with `PKTHDR`, and not used again.
            unsafe { first.header().drop_in_place() };
            first.lose_header();
        }
    }

    /// Returns the first mbuf's kind (`m_type`).
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.first.flags().kind()
    }

    /// Returns the first mbuf's flags.
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags(self.first.flags().0 & 0xff_ffff)
    }

    /// Sets flags of the first mbuf. Flags that describe its storage stay as they are.
    pub fn insert_flags(&mut self, flags: Flags) {
        self.first
            .set_flags(self.first.flags() | flags & Flags::FREE);
    }

    /// Clears flags of the first mbuf. Flags that describe its storage stay as they are.
    pub fn remove_flags(&mut self, flags: Flags) {
        self.first
            .set_flags(self.first.flags() - (flags & Flags::FREE));
    }

    /// Clears the protocol's flags of all mbufs, at the border between two layers (`m_clrprotoflags`).
    #[doc(alias = "m_clrprotoflags")]
    pub fn clear_protocol_flags(&mut self) {
        self.segs()
            .for_each(|seg| seg.set_flags(seg.flags() - Flags::PROTOFLAGS));
    }

    /// Marks the end of a record at its last mbuf.
    pub fn end_record(&mut self) {
        let last = self.first.last();
        last.set_flags(last.flags() | Flags::EOR);
    }

    /// Returns the chain's mbufs, in order.
    pub fn iter(&self) -> impl Iterator<Item = Mbuf<'_>> {
        self.segs().map(Mbuf::new)
    }

    /// Returns the bytes of each mbuf, for writing; `None` for an mbuf whose storage is shared, read-only or not
    /// mapped.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = Option<&mut [u8]>> {
        // SAFETY: each mbuf's bytes once, borrowed with the chain.
        self.segs().map(|seg| unsafe { seg.bytes_mut() })
    }

    /// Returns the last mbuf (`m_last`).
    #[doc(alias = "m_last")]
    #[must_use]
    pub fn last(&self) -> Mbuf<'_> {
        Mbuf::new(self.first.last())
    }

    /// Finds the mbuf with a byte, and the byte's place in it. For the chain's length it returns the end of the last
    /// mbuf; beyond, `None` (`m_getptr`).
    #[doc(alias = "m_getptr")]
    #[must_use]
    pub fn getptr(&self, offset: usize) -> Option<(Mbuf<'_>, usize)> {
        let (seg, at) = find(self.first, offset)?;
        Some((Mbuf::new(seg), at))
    }

    /// Returns the bytes that fit in front of the data, in place (`M_LEADINGSPACE`).
    #[doc(alias = "M_LEADINGSPACE")]
    #[must_use]
    pub fn leading_space(&self) -> usize {
        self.first.leading()
    }

    /// Returns the bytes that fit behind the data, in place, in the last mbuf (`M_TRAILINGSPACE`).
    #[doc(alias = "M_TRAILINGSPACE")]
    #[must_use]
    pub fn trailing_space(&self) -> usize {
        self.first.last().trailing()
    }

    /// Says whether all bytes can be written in place (`M_WRITABLE` of each mbuf).
    #[doc(alias = "M_WRITABLE")]
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.segs().all(Seg::writable)
    }

    /// Leaves room in front of later data: an empty first mbuf's data begins `len` bytes from its start, or as far back
    /// as possible (`m_data +=`, `M_ALIGN` the other way round).
    ///
    /// # Errors
    /// `Occupied` if it has data; `TooLong` for more than its room.
    pub fn reserve_front(&mut self, len: usize) -> Result<(), Error> {
        let first = self.first;
        if first.len() != 0 || !first.writable() {
            return Err(Error::Occupied);
        }
        let limit = first.size();
        if len > limit {
            return Err(Error::TooLong { wanted: len, limit });
        }
        first.set_data(first.start().wrapping_add(len));
        Ok(())
    }

    /// Places later data of `len` bytes as far back as possible in the empty first mbuf, at a multiple of 8
    /// (`M_ALIGN`).
    ///
    /// # Errors
    /// `Occupied` if it has data; `TooLong` for more than its room.
    #[doc(alias = "m_align")]
    #[doc(alias = "M_ALIGN")]
    pub fn align(&mut self, len: usize) -> Result<(), Error> {
        let first = self.first;
        if first.len() != 0 || !first.writable() {
            return Err(Error::Occupied);
        }
        let limit = first.size();
        if len > limit {
            return Err(Error::TooLong { wanted: len, limit });
        }
        first.align(len);
        Ok(())
    }

    /// Attaches a cluster of 2 KiB to the first mbuf, which has no data yet (`m_clget`).
    ///
    /// # Errors
    /// `Occupied` if it has data or storage; `NoBuffers` when there is no memory, or a limit is reached.
    #[doc(alias = "m_clget")]
    #[doc(alias = "MCLGET")]
    pub fn clget(&mut self) -> Result<(), Error> {
        self.cljget(ClusterSize::Std)
    }

    /// Attaches a cluster of a size (`m_cljget`).
    ///
    /// # Errors
    /// `Occupied` if it has data or storage; `NoBuffers` when there is no memory, or a limit is reached.
    #[doc(alias = "m_cljget")]
    pub fn cljget(&mut self, size: ClusterSize) -> Result<(), Error> {
        self.check_vacant()?;
        // SAFETY: without data or storage, as was just checked, and the chain is borrowed mutably.
        unsafe { self.inner().clget(self.first, size, How::NoWait)? };
        Ok(())
    }

    pub(crate) fn check_vacant(&self) -> Result<(), Error> {
        if self.first.len() != 0 || self.first.has(Flags::EXT) {
            return Err(Error::Occupied);
        }
        Ok(())
    }

    /// Sets the length of the first mbuf's data: at most its storage from the data's start on (`m_len =`). The packet's
    /// length follows.
    ///
    /// # Errors
    /// `TooLong` for more than that.
    #[doc(alias = "m_len")]
    pub fn set_first_len(&mut self, len: usize) -> Result<(), Error> {
        let first = self.first;
        let limit = first.behind_data();
        if len > limit {
            return Err(Error::TooLong { wanted: len, limit });
        }
        first.set_len(len);
        self.fix_header();
        Ok(())
    }

    /// Makes the packet's length that of its mbufs, and returns it (`m_fixhdr`). It serves C programs that set lengths
    /// in chains which begin at a later mbuf.
    #[doc(alias = "m_fixhdr")]
    pub fn fix_header(&mut self) -> usize {
        let total = self.first.total();
        if self.is_packet() {
            self.first.set_pkt_len(total);
        }
        total
    }

    /// Gives this packet's header and tags to another chain, whose own header is dropped (`m_move_pkthdr`).
    ///
    /// # Errors
    /// `NoHeader` if this chain is no packet; `NoBuffers` when there is no memory, or a limit is reached. On failure
    /// both chains are as before.
    #[doc(alias = "m_move_pkthdr")]
    pub fn move_header(&mut self, to: &mut Chain) -> Result<(), Error> {
        if !self.is_packet() {
            return Err(Error::NoHeader);
        }
        to.make_packet()?;
        if let (Some(from), Some(to)) = (self.header_mut(), to.header_mut()) {
            *to = std::mem::take(from);
        }
        to.first
            .set_flags((to.first.flags() - Flags::MOVED) | self.first.flags() & Flags::MOVED);
        to.first.set_flags(to.first.flags() | Flags::PKTHDR);
        self.demote();
        Ok(())
    }

    /// Gives a copy of this packet's header and tags to another chain (`m_dup_pkthdr`).
    ///
    /// # Errors
    /// `NoHeader` if this chain is no packet; `NoBuffers` when there is no memory, or a limit is reached. On failure
    /// the other chain is as before.
    #[doc(alias = "m_dup_pkthdr")]
    pub fn dup_header(&self, to: &mut Chain) -> Result<(), Error> {
        let header = self.header().ok_or(Error::NoHeader)?;
        let copy = header.duplicate();
        let copy = copy.ok_or_else(|| NoBuffers::from(What::Tag))?;
        to.make_packet()?;
        if let Some(to) = to.header_mut() {
            *to = copy;
        }
        to.first
            .set_flags((to.first.flags() - Flags::MOVED) | self.first.flags() & Flags::MOVED);
        Ok(())
    }

    /// Frees the first mbuf and returns the rest, which has no header (`m_free`).
    #[doc(alias = "m_free")]
    #[must_use]
    pub fn free_first(self) -> Option<Chain> {
        let first = self.into_first();
        // SAFETY: it was the chain's.
        unsafe { ext::free_one(first) }.map(Chain::new)
    }

    /// Gives the chain away as a plain pointer, for C programs.
    #[must_use]
    pub fn into_raw(self) -> NonNull<()> {
        let first = self.into_first();
        // SAFETY: a chain's pointer is not null.
        unsafe { NonNull::new_unchecked(first.raw().cast()) }
    }

    /// Makes a chain from a pointer again.
    ///
    /// # Safety
    /// The pointer is a result of `into_raw`, and is taken back once.
    #[must_use]
    pub unsafe fn from_raw(chain: NonNull<()>) -> Chain {
        // SAFETY: as the caller promises.
        Chain::new(unsafe { Seg::new(chain.cast()) })
    }

    /// Says whether the first mbuf of such a pointer was freed, and not allocated again since: for C programs, which
    /// may free a chain twice.
    ///
    /// # Safety
    /// The pointer is a result of `into_raw`, and the allocator has not given its memory back since.
    #[must_use]
    pub unsafe fn is_freed(chain: NonNull<()>) -> bool {
        // SAFETY: as the caller promises; only the flags are read.
        unsafe { Seg::new(chain.cast()) }.flags() == Flags::FREED
    }

    pub(crate) fn routine(&self, routine: Routine) {
        count(routine);
    }
}

/// Finds the mbuf with a byte; for the chain's length, the end of the last mbuf.
pub(crate) fn find(first: Seg, mut offset: usize) -> Option<(Seg, usize)> {
    let mut at = first;
    loop {
        if offset < at.len() {
            return Some((at, offset));
        }
        match at.next() {
            Some(next) => {
                offset -= at.len();
                at = next;
            }
            None => return (offset == at.len()).then_some((at, offset)),
        }
    }
}

impl Drop for Chain {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the chain's mbufs are its own, and it is not used again.
        unsafe { ext::free(self.first) };
    }
}

/// One mbuf of a chain, for reading.
#[derive(Clone, Copy)]
pub struct Mbuf<'a> {
    seg: Seg,
    chain: PhantomData<&'a Chain>,
}

impl<'a> Mbuf<'a> {
    fn new(seg: Seg) -> Mbuf<'a> {
        Mbuf {
            seg,
            chain: PhantomData,
        }
    }

    /// Returns the bytes of data (`m_len`).
    #[must_use]
    pub fn len(&self) -> usize {
        self.seg.len()
    }

    /// Says whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the flags (`m_flags`).
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags(self.seg.flags().0 & 0xff_ffff)
    }

    /// Returns the kind (`m_type`).
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.seg.flags().kind()
    }

    /// Returns the data (`mtod`); `None` if it is not mapped here or may change under the reader.
    #[doc(alias = "mtod")]
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        // SAFETY: the chain is borrowed for `'a`, so nothing writes its private storage, and shared storage is never
        // written.
        unsafe { self.seg.bytes() }
    }

    /// Returns the address of the data, also if it may change under the reader; `None` if it is not mapped here.
    #[must_use]
    pub fn as_ptr(&self) -> Option<NonNull<u8>> {
        let mapped = !self.seg.has(Flags::EXTPG);
        mapped.then(|| NonNull::new(self.seg.data())).flatten()
    }

    /// Returns the chain that begins with this mbuf as a plain pointer, for C programs. A caller that makes a [`Chain`]
    /// of it ([`Chain::from_raw`]) must not let it drop, nor any of its mbufs, as long as it is a part of this chain.
    #[must_use]
    pub fn as_raw(&self) -> NonNull<()> {
        // SAFETY: an mbuf's pointer is not null.
        unsafe { NonNull::new_unchecked(self.seg.raw().cast()) }
    }

    /// Returns the bytes of the storage (`M_SIZE`).
    #[doc(alias = "M_SIZE")]
    #[must_use]
    pub fn size(&self) -> usize {
        self.seg.size()
    }

    /// Returns the kind of the external storage, if there is any (`ext_type`).
    #[must_use]
    pub fn storage(&self) -> Option<ExtKind> {
        self.seg.ext_kind()
    }

    /// Returns how many mbufs refer to the storage.
    #[must_use]
    pub fn references(&self) -> u32 {
        self.seg.references()
    }

    /// Says whether the bytes may be written in place (`M_WRITABLE`).
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.seg.writable()
    }

    /// Returns the bytes in front of the data that may be written (`M_LEADINGSPACE`).
    #[must_use]
    pub fn leading_space(&self) -> usize {
        self.seg.leading()
    }

    /// Returns the bytes behind the data that may be written (`M_TRAILINGSPACE`).
    #[must_use]
    pub fn trailing_space(&self) -> usize {
        self.seg.trailing()
    }

    /// Says whether it is a mini-mbuf.
    #[must_use]
    pub fn is_mini(&self) -> bool {
        self.seg.home().is_mini()
    }

    /// Returns the file and the offset of the data, if the data is a piece of a file.
    #[must_use]
    pub fn file(&self) -> Option<(BorrowedFd<'a>, u64)> {
        self.seg.file()
    }

    /// Returns the buffer that holds the data, if there is one.
    #[must_use]
    pub fn buffer(&self) -> Option<&'a Buffer> {
        self.seg.buffer()
    }

    pub(crate) fn seg(&self) -> Seg {
        self.seg
    }
}
