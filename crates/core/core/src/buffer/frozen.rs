//! The frozen buffer: read-only, shared, sendable.

use super::handle::{Handle, Home};
use crate::pool::{ForeignPool, OwnPool, RawBuf, Tag};
use std::fmt;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use tranship_proto::{BufferId, DomainId, Trust};
use tranship_region::View;
use tranship_sys::map::Access;

/// A frozen buffer, or a part of one: read-only, cheap to clone and to cut, counted.
///
/// A buffer of a domain's own, or one received on a channel with `trust_writer`, can be read as a slice
/// ([`bytes`](Buffer::bytes)); any other received buffer as a volatile [`View`], because its writer could still change
/// it. Dropping the last handle lets the writer reuse the memory.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, PoolOptions};
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// let whole = pool.copy(b"header, body")?.freeze();
/// let body = whole.slice(8..); // the same memory
/// assert_eq!(body.bytes(), Some(&b"body"[..])); // of this domain's own; what was received has a `view`
/// assert!(!whole.is_unique());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Buffer {
    handle: Handle,
}

const _: () = assert!(size_of::<Buffer>() == 32);

// SAFETY: the bytes are never written through a `Buffer`; counting is atomic.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// # Safety
    /// `raw` came out of this pool, of a buffer that is frozen; its reference becomes this handle's. The tag says
    /// trusted only if no other domain writes the pool.
    #[inline(always)]
    pub(super) unsafe fn own(pool: &OwnPool, raw: RawBuf) -> Buffer {
        let handle = Handle::own(pool, raw);
        Buffer { handle }
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
    ) -> Buffer {
        let handle = Handle::foreign(ptr, len, pool, tag);
        Buffer { handle }
    }

    /// # Safety
    /// One counted reference of the named buffer becomes this handle's.
    #[inline(always)]
    pub(super) unsafe fn of(handle: Handle) -> Buffer {
        Buffer { handle }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.handle.len
    }

    /// Returns whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.handle.len == 0
    }

    /// Returns the system-wide id. In a forked child, which cannot see the pool, it names no buffer.
    pub fn id(&self) -> BufferId {
        self.handle.id()
    }

    /// Returns the trust level of its pool: which domains can write the buffer.
    pub fn trust(&self) -> Trust {
        self.handle.trust()
    }

    /// Returns the bytes, if no other domain can change them: a buffer of this domain's own pools, one that the kernel
    /// lets no process write ([`PoolOptions::seal_from`](crate::PoolOptions::seal_from)), or one received on a channel
    /// whose writer is trusted. `None` for other buffers: use [`view`](Buffer::view).
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the handle is borrowed, and writes nothing.
        unsafe { self.handle.bytes() }
    }

    /// Returns a view of the bytes as the writer's memory shows them now.
    #[inline]
    pub fn view(&self) -> View<'_> {
        // SAFETY: the handle is borrowed.
        unsafe { self.handle.view() }
    }

    /// Returns a private copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.view().to_vec()
    }

    /// Returns whether this is the only handle of a buffer of this domain's own that was never sent. The holder of such
    /// a handle may write the memory, except in a forked child.
    #[inline]
    pub fn is_unique(&self) -> bool {
        let Home::Own(pool) = self.handle.home() else {
            return false;
        };
        // SAFETY: pools outlive their outstanding slots.
        let pool = unsafe { pool.as_ref() };
        !self.handle.is_inherited() && pool.is_private(self.handle.slot())
    }

    /// Returns whether another domain holds this own buffer, or has not taken a message with it, by the counters of
    /// this moment. A domain that counts less than it holds sees the memory used again. `false` for buffers of other
    /// domains. Takes the lock of the pool's collector. The cache uses it to limit the values that each reader holds.
    #[doc(hidden)]
    pub fn is_held_by(&self, domain: DomainId) -> bool {
        let Home::Own(pool) = self.handle.home() else {
            return false;
        };
        // SAFETY: pools outlive their outstanding slots.
        let pool = unsafe { pool.as_ref() };
        !self.handle.is_inherited() && pool.is_held_by(self.handle.slot(), domain)
    }

    /// Writes all bytes. Bytes that another domain can change are copied first, piece by piece: this takes at most 64
    /// KiB of private memory, whatever the buffer's length is.
    ///
    /// # Errors
    /// An error of `to`. It blocks as long as `to` does.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        // SAFETY: the handle is borrowed, and writes nothing.
        unsafe { self.handle.write_to(to) }
    }

    /// Returns a part of the buffer, which shares the memory.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Buffer {
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
        // An empty part stays at the buffer's beginning: behind its end there may be no memory.
        if start < end {
            // SAFETY: start < len was just checked.
            part.handle.ptr = unsafe { part.handle.ptr.add(start) };
        }
        part.handle.len = end - start;
        part
    }

    /// Pins a received buffer, so that it can be read as a slice whatever its writer does.
    pub(crate) fn pinned(mut self) -> Buffer {
        let Handle { tag, .. } = self.handle;
        debug_assert!(tag.has(Tag::FOREIGN));
        self.handle.tag = tag.with(Tag::SEALED | Tag::LONG | Tag::TRUSTED);
        self
    }

    #[inline(always)]
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        let handle = self.handle;
        match handle.home() {
            // SAFETY: pools outlive their outstanding slots; our own reference keeps the slot live.
            Home::Own(pool) => unsafe { pool.as_ref() }.retain(handle.slot()),
            Home::Foreign(pool) if !handle.is_inherited() => {
                // SAFETY: as above.
                let pool = unsafe { pool.as_ref() };
                if handle.tag.has(Tag::SEALED) {
                    pool.pin_again(handle.slot());
                }
                pool.retain(handle.slot());
            }
            Home::Foreign(_) => {} // the counters are the parent's, and dropping does nothing either
        }
        // One receipt is handed back once.
        let tag = handle.tag.without(Tag::MOVED);
        Buffer {
            handle: handle.with_tag(tag),
        }
    }
}

impl Drop for Buffer {
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

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("id", &self.id())
            .field("len", &self.handle.len)
            .finish()
    }
}
