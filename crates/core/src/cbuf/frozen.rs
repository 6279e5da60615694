//! The frozen buffer: read-only, shared, sendable.

use super::{CbufMut, Tag};
use crate::error::{Error, Kind};
use crate::pool::{ForeignPool, OwnPool, Pool};
use std::fmt;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use tranship_proto::{CbufId, PoolId};
use tranship_region::View;

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

/// A frozen buffer, or a part of one: read-only, cheap to clone and to cut, counted.
///
/// A buffer of a domain's own, or one received on a link with `trust_writer`, can be read as a slice
/// ([`bytes`](Cbuf::bytes)); any other received buffer as a volatile [`View`], for its writer could
/// still change it. Dropping the last handle lets the writer reuse the memory.
pub struct Cbuf {
    ptr: NonNull<u8>,
    len: usize,
    /// An `OwnPool`, or a `ForeignPool` if the tag says so.
    pool: NonNull<()>,
    tag: Tag,
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
        Cbuf {
            ptr,
            len,
            pool: pool.cast(),
            tag,
        }
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
        debug_assert!(tag.has(Tag::FOREIGN));
        Cbuf {
            ptr,
            len,
            pool: pool.cast(),
            tag,
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The system-wide id. In a forked child, which cannot see the pool, one that names nothing.
    pub fn id(&self) -> CbufId {
        if self.is_inherited() {
            return CbufId::new(PoolId(0), self.slot(), self.tag.generation());
        }
        self.wire_id()
    }

    /// Whether this process forked after it got the buffer.
    fn is_inherited(&self) -> bool {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => unsafe { pool.as_ref() }.domain.fork.is_child(),
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.domain.fork.is_child(),
        }
    }

    /// The id, for a process that did not inherit the buffer.
    #[inline]
    pub(crate) fn wire_id(&self) -> CbufId {
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

    /// The bytes, if nobody can change them: a buffer of this domain's own pools, or one received on a link
    /// whose writer is trusted. `None` for others; use [`view`](Cbuf::view).
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        if !self.tag.has(Tag::TRUSTED) {
            return None;
        }
        // SAFETY: in an own pool only this domain writes (the kernel, or `trust_others`, says so), and a frozen buffer is written by nobody until the
        // last handle is gone; in a trusted pool the user vouched for the same (`trust_writer`).
        // The range was checked against the window when the handle was made, and the window stays mapped.
        Some(unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) })
    }

    /// The bytes as the writer's memory shows them now.
    #[inline]
    pub fn view(&self) -> View<'_> {
        // SAFETY: inside the pool's window, which stays mapped while the handle lives; others may write
        // it, which a view allows.
        unsafe { View::new(self.ptr.as_ptr(), self.len) }
    }

    /// A private copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.view().to_vec()
    }

    /// Whether nobody else can know the bytes: a buffer of one's own, never sent, of which this is the only handle.
    /// Whoever has such a handle to himself may write the memory; in a forked child nobody may.
    #[inline]
    pub fn is_unique(&self) -> bool {
        let Home::Own(pool) = self.home() else {
            return false;
        };
        // SAFETY: pools outlive their outstanding slots.
        let pool = unsafe { pool.as_ref() };
        !self.is_inherited() && pool.is_private(self.slot())
    }

    /// Writes all bytes, copied piecemeal unless nobody can change them: however long the buffer says it is, this takes
    /// at most 64 KiB of private memory.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        if let Some(bytes) = self.bytes() {
            return to.write_all(bytes);
        }
        let mut part = vec![0; self.len.min(PART)];
        for at in (0..self.len).step_by(PART) {
            let n = PART.min(self.len - at);
            let _ = self.view().copy_to_slice(at, &mut part[..n]); // inside the view
            to.write_all(&part[..n])?;
        }
        Ok(())
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
            Bound::Unbounded => self.len,
        };
        assert!(
            start <= end && end <= self.len,
            "range {start}..{end} of a buffer of {} bytes",
            self.len
        );
        let mut part = self.clone();
        // No bytes stay where the buffer is: behind its end there may be nothing.
        if start < end {
            // SAFETY: start < len was just checked.
            part.ptr = unsafe { part.ptr.add(start) };
        }
        part.len = end - start;
        part
    }

    /// A writable buffer with the same bytes: in place if it is of `pool`, the only handle, and was
    /// never sent; else a fresh copy out of `pool`.
    pub fn make_mut(self, pool: &Pool) -> Result<CbufMut, Error> {
        if self.is_inherited() {
            return Err(Kind::Forked.into());
        }
        if let Home::Own(own) = self.home()
            && std::ptr::eq(own.as_ptr(), pool.own_ref())
            && pool.own_ref().is_private(self.slot())
        {
            let this = std::mem::ManuallyDrop::new(self);
            if this.tag.has(Tag::GUARDED) {
                pool.own_ref().open_slot(this.slot());
            }
            // SAFETY: the only local reference goes over, and nobody else knows the buffer.
            return Ok(unsafe {
                CbufMut::new(
                    this.ptr,
                    this.len,
                    own,
                    Tag::own(this.slot(), this.tag.class(), this.tag.pool_flags()),
                )
            });
        }
        let mut copy = pool.alloc(self.len)?;
        copy.fill_from(self.view());
        Ok(copy)
    }

    #[inline]
    pub(crate) fn home(&self) -> Home {
        if self.tag.has(Tag::FOREIGN) {
            Home::Foreign(self.pool.cast())
        } else {
            Home::Own(self.pool.cast())
        }
    }
    #[inline]
    pub(crate) fn slot(&self) -> u32 {
        self.tag.slot()
    }
    #[inline]
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }
}

impl Clone for Cbuf {
    fn clone(&self) -> Cbuf {
        match self.home() {
            // SAFETY: pools outlive their outstanding slots; our own reference keeps the slot live.
            Home::Own(pool) => unsafe { pool.as_ref() }.retain(self.slot()),
            Home::Foreign(pool) if !self.is_inherited() => {
                // SAFETY: as above.
                unsafe { pool.as_ref() }.retain(self.slot());
            }
            Home::Foreign(_) => {} // the counters are the parent's, and dropping does nothing either
        }
        Cbuf {
            ptr: self.ptr,
            len: self.len,
            pool: self.pool,
            tag: self.tag,
        }
    }
}

impl Drop for Cbuf {
    #[inline(always)]
    fn drop(&mut self) {
        match self.home() {
            Home::Own(pool) => {
                // SAFETY: pools outlive their outstanding slots.
                unsafe { pool.as_ref() }.release(self.slot(), self.tag.class());
            }
            Home::Foreign(pool) if self.tag.has(Tag::GUARDED) => {
                // SAFETY: as above.
                unsafe { pool.as_ref() }.release_guarded(self.slot());
            }
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.release(self.slot()),
        }
    }
}

impl fmt::Debug for Cbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cbuf")
            .field("id", &self.id())
            .field("len", &self.len)
            .finish()
    }
}
