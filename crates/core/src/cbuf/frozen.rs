//! The frozen buffer: read-only, shared, sendable.

use super::{CbufMut, Tag};
use crate::domain::DomainCore;
use crate::error::{Error, Kind};
use crate::pool::{ForeignPool, OwnPool, Pool};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use tranship_proto::{CbufId, PoolId};
use tranship_region::View;
use tranship_sys::map::Access;

/// Most bytes that `write_to` copies at a time.
const PART: usize = 64 << 10;

/// Whose pool a buffer lies in.
#[derive(Clone, Copy)]
pub(crate) enum Home {
    /// This domain's: the local reference is private.
    Own(NonNull<OwnPool>),
    /// Another's: the reference is counted in our `ref` page.
    Foreign(NonNull<ForeignPool>),
}

/// Where the bytes are, and whose: what both kinds of buffers consist of, in whole words (`tag.rs`), without what the end of one does.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    pub(crate) ptr: NonNull<u8>,
    pub(crate) len: usize,
    /// An `OwnPool`, or a `ForeignPool` if the tag says so.
    pool: NonNull<()>,
    pub(crate) tag: Tag,
}

impl Handle {
    #[inline(always)]
    pub(super) fn own(ptr: NonNull<u8>, len: usize, pool: NonNull<OwnPool>, tag: Tag) -> Handle {
        debug_assert!(!tag.has(Tag::FOREIGN));
        let pool = pool.cast();
        Handle {
            ptr,
            len,
            pool,
            tag,
        }
    }

    #[inline(always)]
    pub(super) fn foreign(
        ptr: NonNull<u8>,
        len: usize,
        pool: NonNull<ForeignPool>,
        tag: Tag,
    ) -> Handle {
        debug_assert!(tag.has(Tag::FOREIGN));
        let pool = pool.cast();
        Handle {
            ptr,
            len,
            pool,
            tag,
        }
    }

    #[inline(always)]
    pub(crate) fn home(self) -> Home {
        if self.tag.has(Tag::FOREIGN) {
            Home::Foreign(self.pool.cast())
        } else {
            Home::Own(self.pool.cast())
        }
    }

    /// What tells its pool from others.
    #[inline(always)]
    pub(crate) fn home_key(self) -> *const () {
        self.pool.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        self.tag.slot()
    }

    /// Whether this process forked after it got the buffer.
    pub(super) fn is_inherited(self) -> bool {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.domain.fork.is_child(),
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.domain.fork.is_child(),
        }
    }

    /// Whether its pool is this domain's, or one that this domain reads.
    pub(crate) fn is_of(self, domain: &DomainCore) -> bool {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.domain.is(domain),
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.domain.is(domain),
        }
    }

    /// The system-wide id; in a forked child, which cannot see the pool, one that names nothing.
    pub(super) fn id(self) -> CbufId {
        if self.is_inherited() {
            return CbufId::new(PoolId(0), self.slot(), self.tag.generation());
        }
        self.wire_id()
    }

    /// The id, for a process that did not inherit the buffer.
    #[inline]
    pub(crate) fn wire_id(self) -> CbufId {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.id_of(self.slot()),
            // SAFETY: as above.
            Home::Foreign(pool) => CbufId::new(
                unsafe { pool.as_ref() }.pool_id(),
                self.slot(),
                self.tag.generation(),
            ),
        }
    }

    /// Window offset of the first byte, and the serial of the chunks that it lies in.
    pub(crate) fn place(self) -> (u64, u32) {
        match self.home() {
            Home::Own(pool) => {
                // SAFETY: pools outlive their outstanding slots.
                let pool = unsafe { pool.as_ref() };
                let offset = pool.offset_of(self.ptr);
                (offset, pool.serial_of(offset, self.len as u64))
            }
            Home::Foreign(pool) => {
                // SAFETY: as above.
                let pool = unsafe { pool.as_ref() };
                let offset = pool.offset_of(self.ptr);
                (offset, pool.serial_of(offset, self.len as u64))
            }
        }
    }

    /// The bytes, if they may be had as a slice.
    ///
    /// # Safety
    /// The handle is not let go before `'a` ends, and it writes nothing until then.
    #[inline(always)]
    pub(super) unsafe fn bytes<'a>(self) -> Option<&'a [u8]> {
        if !self.tag.has(Tag::TRUSTED) {
            return None;
        }
        // SAFETY: in an own pool only this domain writes (the kernel, or `trust_others`, says so), and a frozen buffer is written by
        // nobody until the last handle is gone, a writable one by its only handle; in a trusted pool the user vouched for the same
        // (`trust_writer`). The range was checked against the window when the handle was made, and the window stays mapped.
        Some(unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) })
    }

    /// # Safety
    /// The handle is not let go before `'a` ends.
    #[inline(always)]
    pub(super) unsafe fn view<'a>(self) -> View<'a> {
        // SAFETY: inside the pool's window, which stays mapped while the handle lives; others may write it, which a view allows.
        unsafe { View::new(self.ptr.as_ptr(), self.len) }
    }

    /// # Safety
    /// The handle is not let go meanwhile, and it writes nothing.
    pub(super) unsafe fn write_to(self, to: &mut impl io::Write) -> io::Result<()> {
        // SAFETY: as the caller says.
        let (bytes, view) = unsafe { (self.bytes(), self.view()) };
        if let Some(bytes) = bytes {
            return to.write_all(bytes);
        }
        let mut part = vec![0; self.len.min(PART)];
        for at in (0..self.len).step_by(PART) {
            let n = PART.min(self.len - at);
            let _ = view.copy_to_slice(at, &mut part[..n]); // inside the view
            to.write_all(&part[..n])?;
        }
        Ok(())
    }
}

/// A frozen buffer, or a part of one: read-only, cheap to clone and to cut, counted.
///
/// A buffer of a domain's own, or one received on a link with `trust_writer`, can be read as a slice
/// ([`bytes`](Cbuf::bytes)); any other received buffer as a volatile [`View`], for its writer could
/// still change it. Dropping the last handle lets the writer reuse the memory.
pub struct Cbuf {
    handle: Handle,
}

const _: () = assert!(size_of::<Cbuf>() == 32 && size_of::<CbufMut>() == 32);

// SAFETY: the bytes are never written through a `Cbuf`; counting is atomic.
unsafe impl Send for Cbuf {}
// SAFETY: as above.
unsafe impl Sync for Cbuf {}

impl Cbuf {
    /// # Safety
    /// One local reference of the live slot becomes this handle's; the memory is the slot's. The tag says trusted only if nobody
    /// else writes the pool.
    #[inline(always)]
    pub(crate) unsafe fn own(
        ptr: NonNull<u8>,
        len: usize,
        pool: NonNull<OwnPool>,
        tag: Tag,
    ) -> Cbuf {
        let handle = Handle::own(ptr, len, pool, tag);
        Cbuf { handle }
    }

    /// # Safety
    /// One counted reference of the slot becomes this handle's; the memory is inside the pool's window; the tag says
    /// that it is a foreign one.
    #[inline(always)]
    pub(crate) unsafe fn foreign(
        ptr: NonNull<u8>,
        len: usize,
        pool: NonNull<ForeignPool>,
        tag: Tag,
    ) -> Cbuf {
        let handle = Handle::foreign(ptr, len, pool, tag);
        Cbuf { handle }
    }

    /// # Safety
    /// One counted reference of what the handle names becomes this one's.
    #[inline(always)]
    pub(super) unsafe fn of(handle: Handle) -> Cbuf {
        Cbuf { handle }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.handle.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.handle.len == 0
    }

    /// The system-wide id. In a forked child, which cannot see the pool, one that names nothing.
    pub fn id(&self) -> CbufId {
        self.handle.id()
    }

    /// The bytes, if nobody can change them: a buffer of this domain's own pools, or one received on a link
    /// whose writer is trusted. `None` for others; use [`view`](Cbuf::view).
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the handle is borrowed, and writes nothing.
        unsafe { self.handle.bytes() }
    }

    /// The bytes as the writer's memory shows them now.
    #[inline]
    pub fn view(&self) -> View<'_> {
        // SAFETY: the handle is borrowed.
        unsafe { self.handle.view() }
    }

    /// A private copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.view().to_vec()
    }

    /// Whether nobody else can know the bytes: a buffer of one's own, never sent, of which this is the only handle.
    /// Whoever has such a handle to himself may write the memory; in a forked child nobody may.
    #[inline]
    pub fn is_unique(&self) -> bool {
        let Home::Own(pool) = self.handle.home() else {
            return false;
        };
        // SAFETY: pools outlive their outstanding slots.
        let pool = unsafe { pool.as_ref() };
        !self.handle.is_inherited() && pool.is_private(self.handle.slot())
    }

    /// Writes all bytes, copied piecemeal unless nobody can change them: however long the buffer says it is, this takes
    /// at most 64 KiB of private memory.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        // SAFETY: the handle is borrowed, and writes nothing.
        unsafe { self.handle.write_to(to) }
    }

    /// A part of it, sharing the memory.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Cbuf {
        let start = match range.start_bound() {
            Bound::Included(n) => *n,
            Bound::Excluded(n) => *n + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(n) => *n + 1,
            Bound::Excluded(n) => *n,
            Bound::Unbounded => self.handle.len,
        };
        assert!(
            start <= end && end <= self.handle.len,
            "range {start}..{end} of a buffer of {} bytes",
            self.handle.len
        );
        let mut part = self.clone();
        // No bytes stay where the buffer is: behind its end there may be nothing.
        if start < end {
            // SAFETY: start < len was just checked.
            part.handle.ptr = unsafe { part.handle.ptr.add(start) };
        }
        part.handle.len = end - start;
        part
    }

    /// A writable buffer with the same bytes: in place if it is of `pool`, the only handle, and was
    /// never sent; else a fresh copy out of `pool`.
    pub fn make_mut(self, pool: &Pool) -> Result<CbufMut, Error> {
        if self.handle.is_inherited() {
            return Err(Kind::Forked.into());
        }
        let is_of_pool = matches!(self.handle.home(), Home::Own(own) if std::ptr::eq(own.as_ptr(), pool.own_ref()));
        let this = match is_of_pool {
            true => self.try_into_mut(),
            false => Err(self),
        };
        this.or_else(|this| {
            let mut copy = pool.alloc(this.len())?;
            copy.fill_from(this.view());
            Ok(copy)
        })
    }

    /// The same buffer, exclusive again, if it [`is_unique`](Cbuf::is_unique); else itself.
    pub fn try_into_mut(self) -> Result<CbufMut, Cbuf> {
        if !self.is_unique() {
            return Err(self);
        }
        let handle = ManuallyDrop::new(self).handle;
        if handle.tag.has(Tag::LONG)
            && let Home::Own(pool) = handle.home()
        {
            // SAFETY: pools outlive their outstanding slots.
            unsafe { pool.as_ref() }.open_again(handle.slot());
        }
        // SAFETY: the only local reference goes over, and nobody else knows the buffer.
        Ok(unsafe { CbufMut::of(handle) })
    }

    #[inline(always)]
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }
}

impl Clone for Cbuf {
    fn clone(&self) -> Cbuf {
        let handle = self.handle;
        match handle.home() {
            // SAFETY: pools outlive their outstanding slots; our own reference keeps the slot live.
            Home::Own(pool) => unsafe { pool.as_ref() }.retain(handle.slot()),
            Home::Foreign(pool) if !handle.is_inherited() => {
                // SAFETY: as above.
                unsafe { pool.as_ref() }.retain(handle.slot());
            }
            Home::Foreign(_) => {} // the counters are the parent's, and dropping does nothing either
        }
        Cbuf { handle }
    }
}

impl Drop for Cbuf {
    #[inline(always)]
    fn drop(&mut self) {
        let Handle { tag, .. } = self.handle;
        match self.handle.home() {
            Home::Own(pool) => {
                // SAFETY: pools outlive their outstanding slots.
                let pool = unsafe { pool.as_ref() };
                if tag.has(Tag::TRACED) {
                    pool.note_release(tag.slot());
                }
                pool.release(tag.slot(), tag.class());
            }
            Home::Foreign(pool) if tag.has(Tag::LONG | Tag::TRACED) => {
                // SAFETY: as above.
                unsafe { pool.as_ref() }.release_long(tag, Access::Read);
            }
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.release(tag.slot()),
        }
    }
}

impl fmt::Debug for Cbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cbuf")
            .field("id", &self.id())
            .field("len", &self.handle.len)
            .finish()
    }
}
