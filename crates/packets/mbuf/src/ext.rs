//! External storage: attaching it, sharing it, letting it go.
//!
//! The count of references lies in the mbuf that attached the storage first, the holder. The others, the shadows, point
//! to it. A holder that is freed before its shadows stays behind without a header until the last of them goes; that one
//! frees the storage, once, and the holder with it.
//!
//! The holder of a single reference is the only one that can make another. Counting up from 1, and finding 1 when
//! freeing, therefore take no locked instruction.

use crate::flags::Flags;
use crate::header::Header;
use crate::inject;
use crate::layout::{Counted, Ext, ExtKind, OWNER_WORDS};
use crate::seg::Seg;
use crate::size::ClusterSize;
use std::mem::{align_of, size_of};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Fills in the external part, with one reference: this mbuf's.
///
/// # Safety
/// The mbuf belongs to the caller alone and has neither data nor storage; the storage becomes its own.
#[inline]
pub(crate) unsafe fn describe(seg: Seg, buf: *mut u8, size: u32, kind: ExtKind, fd: i32) {
    let ext = Ext {
        buf,
        size,
        kind,
        spare: 0,
        spare2: 0,
        count: AtomicU32::new(1),
        fd,
        holder: seg.raw(),
    };
    // SAFETY: the mbuf belongs to the caller alone, so the overwritten bytes have no reader, and nothing in it has a
    // destructor.
    unsafe { seg.ext().write(ext) };
}

/// Attaches storage that was described: from here on the mbuf has it, empty, beginning at its start.
///
/// # Safety
/// The external part is filled in.
#[inline]
pub(crate) unsafe fn attach(seg: Seg, storage: Flags) {
    seg.set_flags((seg.flags() - Flags::STORAGE) | Flags::EXT | storage);
    // SAFETY: filled in, as the caller promises.
    seg.set_data(unsafe { (*seg.ext()).buf });
    seg.set_len(0);
}

/// Room for an owner: in the mbuf if it is small enough, otherwise on the heap.
pub(crate) enum OwnerPlace<T> {
    Inside(T),
    Heap(Box<T>),
}

impl<T> OwnerPlace<T> {
    /// Makes room for an owner; `None` if there is no memory.
    pub(crate) fn new(value: T) -> OwnerPlace<T> {
        if size_of::<T>() <= OWNER_WORDS * 8 && align_of::<T>() <= 8 {
            OwnerPlace::Inside(value)
        } else {
            OwnerPlace::Heap(Box::new(value))
        }
    }
}

/// Moves an owner into the mbuf; returns where it is now, until it is dropped with the storage.
///
/// # Safety
/// The rules of [`describe`] hold; the caller does its other steps.
pub(crate) unsafe fn keep<T: Send + 'static>(seg: Seg, place: OwnerPlace<T>) -> NonNull<T> {
    /// # Safety
    /// `words` holds a `T`, which is not used again.
    unsafe fn drop_inside<T>(words: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { words.cast::<T>().drop_in_place() }
    }
    /// # Safety
    /// `words` holds the pointer of a `Box<T>`, which is not used again.
    unsafe fn drop_boxed<T>(words: *mut u8) {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(words.cast::<*mut T>().read()) });
    }
    // SAFETY: the owner's part is the caller's alone, aligned for 8, and large enough, see `OwnerPlace::new`.
    unsafe {
        let owner = seg.owner();
        let words = (&raw mut (*owner).words).cast::<u8>();
        match place {
            OwnerPlace::Inside(value) => {
                (*owner).drop = Some(drop_inside::<T>);
                words.cast::<T>().write(value);
                NonNull::new_unchecked(words.cast())
            }
            OwnerPlace::Heap(value) => {
                (*owner).drop = Some(drop_boxed::<T>);
                let value = Box::into_raw(value);
                words.cast::<*mut T>().write(value);
                NonNull::new_unchecked(value)
            }
        }
    }
}

/// Counts one reference away in the caller's counter; the last one frees the memory.
///
/// # Safety
/// The reference is one that was counted, and is not used again. The holder is live.
#[cold]
unsafe fn uncount(counted: Counted) {
    // Ordering: AcqRel, partner: the same in each other thread that counts away. All their uses come before `free`.
    if counted.counter().fetch_sub(1, Ordering::AcqRel) == 1
        && let Some(free) = counted.free
    {
        let [first, second] = counted.args;
        // SAFETY: the caller's function, called as the caller promised.
        unsafe { free(first, second) };
    }
}

/// Makes `to` a shadow of `from`: the same storage, data and length (`mb_dupcl`).
///
/// # Safety
/// `to` belongs to the caller alone and has no storage; `from` has some.
pub(crate) unsafe fn share(from: Seg, to: Seg) {
    let holder = from.holder();
    // SAFETY: `from` has storage, so its external part and its holder's are valid.
    let (buf, size, kind, fd, count) = unsafe {
        let ext = from.ext();
        (
            (*ext).buf,
            (*ext).size,
            (*ext).kind,
            (*ext).fd,
            &(*holder.ext()).count,
        )
    };
    // Relaxed: `from` has a reference, so the storage stays. A single reference belongs to `from`, whose chain belongs
    // to the calling thread: no other thread counts.
    if count.load(Ordering::Relaxed) == 1 {
        count.store(2, Ordering::Relaxed);
    } else {
        count.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(counted) = holder.counted() {
        // Relaxed: as above.
        counted.counter().fetch_add(1, Ordering::Relaxed);
    }
    let shadow = Ext {
        buf,
        size,
        kind,
        spare: 0,
        spare2: 0,
        count: AtomicU32::new(0),
        fd,
        holder: holder.raw(),
    };
    // SAFETY: `to` is the caller's alone.
    unsafe { to.ext().write(shadow) };
    to.set_flags((to.flags() - Flags::STORAGE) | from.flags() & Flags::STORAGE);
    to.set_data(from.data());
    to.set_len(from.len());
}

/// Frees one mbuf and returns the next (`m_free`).
///
/// # Safety
/// The mbuf is the caller's and not used again.
#[doc(alias = "m_free")]
#[inline]
pub(crate) unsafe fn free_one(seg: Seg) -> Option<Seg> {
    let (next, flags) = (seg.next(), seg.flags());
    if flags.contains(Flags::PKTHDR) {
        // SAFETY: with `PKTHDR` the header is valid; it is not used again.
        unsafe { drop_header(seg) };
    } else if seg.home().is_tagged() {
        new_header(seg); // its own header was moved or taken away, and data may be there
    }
    if flags.contains(Flags::EXT) {
        // SAFETY: as the caller promises.
        unsafe { let_go(seg) };
    } else {
        // SAFETY: as the caller promises; it has no storage, so it is no storage's holder.
        unsafe { seg.give_back() };
    }
    next
}

/// Frees an mbuf and all behind it (`m_freem`); fast in the common case: one packet with its own unshared cluster. For
/// such a packet it reads the first two cache lines of the mbuf.
///
/// # Safety
/// The rules of [`free_chain`] hold.
#[inline(never)]
pub(crate) unsafe fn free(first: Seg) {
    let raw = first.raw();
    // SAFETY: live; a header and an external part are looked at only behind the flags that say they are there.
    unsafe {
        let both = Flags::EXT | Flags::PKTHDR;
        if (*raw).next.is_null() && (*raw).flags & both == both {
            let (header, ext) = (&raw const (*raw).header, &raw const (*raw).ext);
            // Ordering: as in `let_go`. Only a holder's own count is not 0.
            if (*ext).kind == ExtKind::Packet
                && (*ext).count.load(Ordering::Acquire) == 1
                && (*header).is_bare()
            {
                return first.give_back();
            }
        }
        free_chain(first);
    }
}

/// Frees an mbuf and all behind it (`m_freem`).
///
/// # Safety
/// The rules of [`free_one`] hold for all of them.
#[cold]
#[inline(never)]
pub(crate) unsafe fn free_chain(first: Seg) {
    let mut at = Some(first);
    while let Some(seg) = at {
        // SAFETY: as the caller promises.
        at = unsafe { free_one(seg) };
    }
}

/// # Safety
/// The mbuf has a valid header, which is not used again.
#[inline]
pub(crate) unsafe fn drop_header(seg: Seg) {
    let header = seg.header();
    // SAFETY: valid, as the caller promises.
    unsafe {
        if !(*header).tags.is_empty() {
            seg.home().drop_tags(header);
        }
        if (*header).send_tag.is_some() {
            drop((*header).send_tag.take());
        }
    }
}

/// Drops a reference, and then everything without an owner.
///
/// # Safety
/// The mbuf has storage and is the caller's; neither is used again.
#[inline]
unsafe fn let_go(seg: Seg) {
    let holder = seg.holder();
    if let Some(counted) = holder.counted() {
        // SAFETY: this reference was counted. The holder stays until it is counted away below.
        unsafe { uncount(*counted) };
    }
    // SAFETY: the holder lives as long as this reference.
    let count = unsafe { &(*holder.ext()).count };
    // Ordering: Acquire, partner: the Release below. All other threads' uses of the storage come before it is freed.
    if count.load(Ordering::Acquire) == 1 {
        // SAFETY: ours was the last reference.
        unsafe { free_storage(seg, holder) };
        return;
    }
    inject::found_shared();
    // Ordering: as above.
    if count.fetch_sub(1, Ordering::AcqRel) == 1 {
        count.store(1, Ordering::Relaxed); // the count of a cached unit
        // SAFETY: ours was the last reference.
        unsafe { free_storage(seg, holder) };
    } else if holder != seg {
        // A holder stays; from the count on it belongs to the last shadow.
        // SAFETY: a shadow is no storage's holder.
        unsafe { seg.give_back() };
    }
}

/// # Safety
/// The last reference to the holder's storage was `seg`'s and is gone.
#[inline]
unsafe fn free_storage(seg: Seg, holder: Seg) {
    // SAFETY: all that is freed here belonged to the last reference.
    unsafe {
        if holder.home().is_unit() {
            // Storage and mbuf stay together.
        } else {
            free_apart(holder);
        }
        holder.give_back();
        if holder != seg {
            seg.give_back();
        }
    }
}

/// Frees the storage, not the mbuf.
///
/// # Safety
/// The last reference to the holder's storage is gone.
unsafe fn free_apart(holder: Seg) {
    // SAFETY: the holder describes the storage, which has no owner.
    unsafe {
        let ext = holder.ext();
        if (*ext).kind == ExtKind::Cluster {
            let size = ClusterSize::for_bytes((*ext).size as usize);
            if let (Some(size), Some(buf)) = (size, NonNull::new((*ext).buf)) {
                holder.home().inner().free_cluster(buf, size);
            }
        } else {
            drop_owner(holder);
        }
    }
}

/// # Safety
/// The mbuf has an owner of storage, which is not used again.
pub(crate) unsafe fn drop_owner(holder: Seg) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(drop) = (*holder.owner()).drop {
            drop((&raw mut (*holder.owner()).words).cast());
        }
    }
}

/// Gives the mbuf an empty header and nothing else.
#[inline(always)]
pub(crate) fn new_header(seg: Seg) {
    // SAFETY: the mbuf is the caller's, and the bytes there are no header, or one that was dropped.
    unsafe { ptr::write(seg.header(), Header::default()) };
}
