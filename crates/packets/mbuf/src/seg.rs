//! One mbuf as the operations see it: a plain pointer with accessors.
//!
//! Making a [`Seg`] is unsafe, using it is not. Its maker promises that the mbuf is live, and that its chain belongs to
//! the caller, as long as any copy of the `Seg` is used. A chain hands out `Seg`s under its own borrow; operations that
//! free an mbuf do not use it afterwards.

use crate::error::Error;
use crate::flags::Flags;
use crate::header::Header;
use crate::layout::{Counted, Ext, ExtKind, Owner, Raw};
use crate::size::{DAT, MSIZE, PKTDAT};
use crate::zones::Home;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use tranship_core::Buffer;
use tranship_region::View;

/// An mbuf's pointers.
pub(crate) struct Pointers {
    pub(crate) home: *const Home,
    pub(crate) next: *const Raw,
    pub(crate) holder: Option<*const Raw>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Seg(NonNull<Raw>);

impl Seg {
    /// # Safety
    /// The mbuf is live and its chain the caller's, while this or a copy of it is used.
    #[inline(always)]
    pub(crate) unsafe fn new(mbuf: NonNull<Raw>) -> Seg {
        Seg(mbuf)
    }

    #[inline(always)]
    pub(crate) fn raw(self) -> *mut Raw {
        self.0.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn next(self) -> Option<Seg> {
        // SAFETY: live, by `new`.
        NonNull::new(unsafe { (*self.raw()).next }).map(Seg)
    }

    #[inline(always)]
    pub(crate) fn set_next(self, next: Option<Seg>) {
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).next = next.map_or(std::ptr::null_mut(), Seg::raw) }
    }

    pub(crate) fn nextpkt(self) -> Option<Seg> {
        // SAFETY: live, by `new`.
        NonNull::new(unsafe { (*self.raw()).nextpkt }).map(Seg)
    }

    /// Returns the link to the next packet, in its place.
    pub(crate) fn nextpkt_ref<'a>(self) -> Option<&'a Seg> {
        // SAFETY: live, by `new`; a `Seg` is nothing but the pointer, and it is not null.
        self.nextpkt()
            .map(|_| unsafe { &*(&raw const (*self.raw()).nextpkt).cast::<Seg>() })
    }

    pub(crate) fn set_nextpkt(self, next: Option<Seg>) {
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).nextpkt = next.map_or(std::ptr::null_mut(), Seg::raw) }
    }

    #[inline(always)]
    pub(crate) fn data(self) -> *mut u8 {
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).data }
    }

    #[inline(always)]
    pub(crate) fn set_data(self, data: *mut u8) {
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).data = data }
    }

    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).len as usize }
    }

    #[inline(always)]
    pub(crate) fn set_len(self, len: usize) {
        debug_assert!(u32::try_from(len).is_ok());
        #[allow(clippy::cast_possible_truncation)] // storage is shorter than 4 GiB
        // SAFETY: live, by `new`.
        unsafe {
            (*self.raw()).len = len as u32;
        }
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> Flags {
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).flags }
    }

    #[inline(always)]
    pub(crate) fn set_flags(self, flags: Flags) {
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).flags = flags }
    }

    #[inline(always)]
    pub(crate) fn has(self, flags: Flags) -> bool {
        self.flags().contains(flags)
    }

    /// Returns the pointers as they are, without following them.
    pub(crate) fn pointers(self) -> Pointers {
        // SAFETY: live, by `new`; with `EXT` that part is valid.
        unsafe {
            Pointers {
                home: (*self.raw()).home,
                next: (*self.raw()).next,
                holder: self
                    .has(Flags::EXT)
                    .then(|| (*self.ext()).holder.cast_const()),
            }
        }
    }

    /// Returns the zone that the mbuf came from.
    #[inline(always)]
    pub(crate) fn home<'a>(self) -> &'a Home {
        // SAFETY: live, by `new`; a home outlives its mbufs.
        unsafe { &*(*self.raw()).home }
    }

    /// Gives the mbuf back to its zone. Its storage is gone, unless the zone's mbufs keep theirs.
    ///
    /// # Safety
    /// The mbuf is not used again.
    #[inline(always)]
    pub(crate) unsafe fn give_back(self) {
        self.set_flags(Flags::FREED);
        // SAFETY: as the caller promises; the number was written when the mbuf came into the zone.
        unsafe { self.home().free(self.0.cast(), (*self.raw()).number) }
    }

    /// Returns the length of the whole packet; meaningful with `PKTHDR`.
    #[inline(always)]
    pub(crate) fn pkt_len(self) -> usize {
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).pkt_len as usize }
    }

    #[inline(always)]
    pub(crate) fn set_pkt_len(self, len: usize) {
        debug_assert!(self.has(Flags::PKTHDR));
        // A chain of 4 GiB or more shares storage many times over: its header has the largest possible number.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        // SAFETY: live, by `new`.
        unsafe { (*self.raw()).pkt_len = len }
    }

    /// Sets the number, which it has already, and an empty packet in one store. A second store would be merged with the
    /// header's stores. The merged store would lie across the header's words, and delay their next reader.
    #[inline(always)]
    pub(crate) fn set_number_only(self, number: u32) {
        // SAFETY: live, by `new`.
        unsafe {
            debug_assert_eq!((*self.raw()).number, number);
            let both = u64::from(number)
                << if cfg!(target_endian = "little") {
                    0
                } else {
                    32
                };
            (&raw mut (*self.raw()).number).cast::<u64>().write(both);
        }
    }

    /// Returns the address at which the header is or would be.
    #[inline(always)]
    pub(crate) fn header(self) -> *mut Header {
        // SAFETY: live, by `new`; only the address is taken.
        unsafe { &raw mut (*self.raw()).header }
    }

    #[inline(always)]
    pub(crate) fn ext(self) -> *mut Ext {
        // SAFETY: live, by `new`; only the address is taken.
        unsafe { &raw mut (*self.raw()).ext }
    }

    #[inline(always)]
    pub(crate) fn owner(self) -> *mut Owner {
        // SAFETY: live, by `new`; only the address is taken.
        unsafe { &raw mut (*self.raw()).owner }
    }

    pub(crate) fn ext_kind(self) -> Option<ExtKind> {
        self.has(Flags::EXT)
            // SAFETY: with `EXT` the part is valid.
            .then(|| unsafe { (*self.ext()).kind })
    }

    /// Returns the mbuf that holds the storage; with `EXT` only.
    pub(crate) fn holder(self) -> Seg {
        debug_assert!(self.has(Flags::EXT));
        // SAFETY: with `EXT` the part is valid, and the holder lives as long as the storage.
        unsafe { Seg(NonNull::new_unchecked((*self.ext()).holder)) }
    }

    /// Returns the caller's counter, if this mbuf holds storage that has one.
    #[inline]
    pub(crate) fn counted(self) -> Option<&'static Counted> {
        // SAFETY: storage of this kind has a `Counted` as its owner, in the holder, which outlives its last reference.
        unsafe {
            let words = &raw const (*self.owner()).words;
            ((*self.ext()).kind == ExtKind::Counted).then(|| &*words.cast())
        }
    }

    /// Returns how many mbufs refer to the storage; of storage that the caller counts, the caller's count.
    #[inline]
    pub(crate) fn references(self) -> u32 {
        if !self.has(Flags::EXT) {
            return 1;
        }
        if let Some(counted) = self.holder().counted() {
            // Ordering: Acquire, as below; partner: the release of each reference that was counted away.
            return counted.counter().load(Ordering::Acquire);
        }
        // Ordering: Acquire pairs with the Release of the thread that dropped the last other reference: a thread that
        // finds itself alone may write over bytes that the other was reading.
        // SAFETY: the holder is live, see `holder`.
        unsafe { (*self.holder().ext()).count.load(Ordering::Acquire) }
    }

    /// Returns the buffer, if the storage is one.
    pub(crate) fn buffer<'a>(self) -> Option<&'a Buffer> {
        (self.ext_kind() == Some(ExtKind::Buffer)).then(|| {
            // SAFETY: storage of this kind has a `Buffer` as its owner, in the holder, until the last reference goes.
            unsafe { &*(&raw const (*self.holder().owner()).words).cast::<Buffer>() }
        })
    }

    /// Returns the file and the offset, if the storage is a part of a file.
    pub(crate) fn file<'a>(self) -> Option<(BorrowedFd<'a>, u64)> {
        (self.ext_kind() == Some(ExtKind::File)).then(|| {
            // SAFETY: the owner keeps the descriptor open until the last reference goes.
            let fd = unsafe { BorrowedFd::borrow_raw((*self.ext()).fd) };
            (fd, self.data().addr() as u64)
        })
    }

    /// Returns the first byte of the storage.
    #[inline(always)]
    pub(crate) fn start(self) -> *mut u8 {
        let flags = self.flags();
        if flags.contains(Flags::EXT) {
            // SAFETY: with `EXT` the part is valid.
            return unsafe { (*self.ext()).buf };
        }
        let offset = if flags.contains(Flags::PKTHDR) {
            PKTDAT
        } else {
            DAT
        };
        self.raw().cast::<u8>().wrapping_add(offset)
    }

    /// Returns the bytes of the storage (`M_SIZE`).
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        let flags = self.flags();
        if flags.contains(Flags::EXT) {
            // SAFETY: with `EXT` the part is valid.
            return unsafe { (*self.ext()).size as usize };
        }
        if self.home().is_mini() {
            return 0;
        }
        MSIZE
            - if flags.contains(Flags::PKTHDR) {
                PKTDAT
            } else {
                DAT
            }
    }

    /// Says whether the storage may be written: it is mapped here, has no other reference, and is not read-only
    /// (`M_WRITABLE`).
    #[inline]
    pub(crate) fn writable(self) -> bool {
        let flags = self.flags();
        if !flags.contains(Flags::EXT) {
            return true;
        }
        !flags.intersects(Flags::RDONLY | Flags::EXTPG | Flags::VOLATILE)
            && self.references() == 1
            && self.buffer().is_none_or(Buffer::is_unique)
    }

    /// Says whether the bytes can be read as a slice.
    #[inline]
    pub(crate) fn readable(self) -> bool {
        !self.flags().intersects(Flags::EXTPG | Flags::VOLATILE)
    }

    /// Returns the bytes before the data that may be written (`M_LEADINGSPACE`); never more than the storage has,
    /// wherever the data pointer is.
    pub(crate) fn leading(self) -> usize {
        if self.writable() {
            let before = self.data().addr().saturating_sub(self.start().addr());
            before.min(self.size())
        } else {
            0
        }
    }

    /// Returns the bytes behind the data that may be written (`M_TRAILINGSPACE`). There are none if data ends behind
    /// the storage.
    pub(crate) fn trailing(self) -> usize {
        if self.writable() {
            let end = self.start().addr() + self.size();
            end.saturating_sub(self.data().addr() + self.len())
        } else {
            0
        }
    }

    /// Returns the bytes of the storage from the data's start on, whether they may be written or not.
    pub(crate) fn behind_data(self) -> usize {
        let end = self.start().addr() + self.size();
        end.saturating_sub(self.data().addr())
    }

    /// Makes the mbuf one without a packet header, after the header was moved away or dropped.
    pub(crate) fn lose_header(self) {
        self.set_flags(self.flags() - Flags::MOVED);
        if self.home().is_mini() && !self.has(Flags::EXT) {
            // the header had moved the data, and there is no data area that it could still be in
            self.set_data(self.start());
        }
    }

    /// Returns the bytes, if they can be read as a slice.
    ///
    /// # Safety
    /// Nothing writes them and the mbuf keeps its storage during `'a`.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(self) -> Option<&'a [u8]> {
        if !self.readable() {
            return None;
        }
        // SAFETY: data and length lie inside the storage, which is mapped and not volatile.
        Some(unsafe { std::slice::from_raw_parts(self.data(), self.len()) })
    }

    /// Returns the bytes for writing, if they belong to this mbuf alone.
    ///
    /// # Safety
    /// The rules of `bytes` hold, and nothing else reads them.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> Option<&'a mut [u8]> {
        if !self.writable() {
            return None;
        }
        // SAFETY: data and length lie inside the storage, which is this mbuf's alone.
        Some(unsafe { std::slice::from_raw_parts_mut(self.data(), self.len()) })
    }

    /// Copies bytes from `offset` on out, wherever they are.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn read(self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        assert!(
            offset + to.len() <= self.len(),
            "{} bytes at {offset} of {}",
            to.len(),
            self.len()
        );
        if to.is_empty() {
            return Ok(());
        }
        if let Some((fd, start)) = self.file() {
            return crate::file::read_exact(fd, start + offset as u64, to);
        }
        let from = self.data().wrapping_add(offset);
        if self.has(Flags::VOLATILE) {
            // SAFETY: inside the storage, which stays mapped; its writer may write it, which a view allows.
            let view = unsafe { View::new(from, to.len()) };
            return view
                .copy_to_slice(0, to)
                .map_err(|_: tranship_region::OutOfBounds| unreachable!("as long as the view"));
        }
        // SAFETY: inside the storage, which is not written while it is shared; `to` is the caller's own.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Copies `count` bytes from `offset` on behind the data of `to`, which has room for them; `to` keeps its length.
    pub(crate) fn read_into(
        self,
        offset: usize,
        to: Seg,
        to_offset: usize,
        count: usize,
    ) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        debug_assert!(to.writable());
        debug_assert!(
            to.data().addr() + to_offset + count <= to.start().addr() + to.size(),
            "room"
        );
        // SAFETY: inside the writable storage of `to`, another mbuf, to which there is no other reference.
        let room =
            unsafe { std::slice::from_raw_parts_mut(to.data().wrapping_add(to_offset), count) };
        self.read(offset, room)
    }

    /// Places data of `len` bytes as far back as possible, at a multiple of 8 (`m_align`). There must be none yet.
    pub(crate) fn align(self, len: usize) {
        debug_assert_eq!(self.len(), 0);
        let room = self.size() - len;
        self.set_data(self.start().wrapping_add(room & !7));
    }

    /// Adds to the packet's length, if the mbuf begins one.
    pub(crate) fn grow_packet(self, by: usize) {
        if self.has(Flags::PKTHDR) {
            self.set_pkt_len(self.pkt_len() + by);
        }
    }

    /// Returns this mbuf and all behind it.
    pub(crate) fn walk(self) -> impl Iterator<Item = Seg> {
        std::iter::successors(Some(self), |seg| seg.next())
    }

    /// Returns the bytes of this mbuf and all behind it (`m_length`).
    pub(crate) fn total(self) -> usize {
        self.walk().map(Seg::len).sum()
    }

    /// Returns the last mbuf of the chain (`m_last`).
    pub(crate) fn last(self) -> Seg {
        let mut at = self;
        while let Some(next) = at.next() {
            at = next;
        }
        at
    }
}
