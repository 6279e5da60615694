//! The exclusive, writable buffer.

use super::frozen::Buffer;
use super::handle::{Handle, Home};
use crate::error::{Error, ErrorKind};
use crate::pool::{ForeignPool, OwnPool, RawBuf, Tag};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use tranship_proto::BufferId;
use tranship_region::View;
use tranship_sys::map::Access;

/// A writable buffer with one handle: it was allocated here, or another domain [gave it away](crate::Body::BufferMut).
///
/// An allocated buffer begins with the old contents of its memory. It can be used as a slice, unless other domains can
/// write its pool ([`PoolOptions::trust`](crate::PoolOptions::trust)). [`freeze`](BufferMut::freeze) makes a buffer
/// that can be shared; [`Sender::send`](crate::Sender::send) gives it away;
/// [`Receiver::send_back`](crate::Receiver::send_back) hands back a buffer that was given away. Dropping it frees it,
/// or lets its pool's writer have it again.
///
/// Only a large buffer of level [`None`](crate::Trust::None) whose send failed after the seal cannot be written any
/// more ([`PoolOptions::seal_from`](crate::PoolOptions::seal_from)): it can be sent again, read and dropped.
///
/// Crash: if the process dies the pool's writer has it again, unless that is this process: then the whole pool goes with it.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, PoolOptions};
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// let mut frame = pool.alloc(4096)?;
/// frame[..5].copy_from_slice(b"a fra");
/// frame.write(5, b"me")?; // at every level of trust
/// frame.truncate(7);
/// assert_eq!(frame.freeze().to_vec(), b"a frame");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BufferMut {
    handle: Handle,
}

const _: () = assert!(size_of::<BufferMut>() == 32);

// SAFETY: the buffer is owned by this handle alone, and a pool may be used from any thread.
unsafe impl Send for BufferMut {}
// SAFETY: `&BufferMut` only reads the bytes, which nobody writes meanwhile.
unsafe impl Sync for BufferMut {}

impl BufferMut {
    /// # Safety
    /// `raw` came out of this pool, and has no other handle: the slot is live with one local reference that becomes
    /// this handle's.
    #[inline(always)]
    pub(super) unsafe fn own(pool: &OwnPool, raw: RawBuf) -> BufferMut {
        let handle = Handle::own(pool, raw);
        BufferMut { handle }
    }

    /// # Safety
    /// One counted reference of the slot, with access for writing, becomes this handle's. Every domain writes the pool.
    /// The memory is inside the pool's window. The tag says whether slices are allowed; it has `Tag::MOVED` and
    /// `Tag::LONG`.
    pub(crate) unsafe fn foreign(
        ptr: NonNull<u8>,
        len: usize,
        pool: NonNull<ForeignPool>,
        tag: Tag,
    ) -> BufferMut {
        debug_assert!(tag.has(Tag::MOVED) && tag.has(Tag::LONG));
        let handle = Handle::foreign(ptr, len, pool, tag);
        BufferMut { handle }
    }

    /// # Safety
    /// The only reference of the named buffer, which was never sent, becomes this handle's.
    #[inline(always)]
    pub(super) unsafe fn of(handle: Handle) -> BufferMut {
        BufferMut { handle }
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

    /// Returns the id under which other domains know the buffer once it is sent.
    pub fn id(&self) -> BufferId {
        self.handle.id()
    }

    /// Shortens the buffer; does nothing if it is shorter already. The memory stays with the buffer.
    pub fn truncate(&mut self, len: usize) {
        self.handle.len = self.handle.len.min(len);
    }

    /// Returns a view of the bytes as they are now.
    #[inline]
    pub fn view(&self) -> View<'_> {
        // SAFETY: the handle is borrowed.
        unsafe { self.handle.view() }
    }

    /// Returns a private copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.view().to_vec()
    }

    /// Writes all bytes; see [`Buffer::write_to`].
    pub(crate) fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        // SAFETY: the handle is borrowed, and so writes nothing.
        unsafe { self.handle.write_to(to) }
    }

    /// Whether the buffer is not sealed.
    #[inline]
    fn is_open(&self) -> bool {
        !self.handle.tag.has(Tag::SEALED) || self.is_not_sealed_yet()
    }

    #[cold]
    fn is_not_sealed_yet(&self) -> bool {
        match self.handle.home() {
            // SAFETY: pools outlive their outstanding slots.
            Home::Own(pool) => !unsafe { pool.as_ref() }.is_sealed(self.handle.slot()),
            Home::Foreign(_) => false,
        }
    }

    /// Returns whether a send makes the buffer's memory unwritable for all processes, this one included
    /// ([`PoolOptions::seal_from`](crate::PoolOptions::seal_from)): a later write through an old pointer ends the
    /// process by a signal.
    #[doc(hidden)]
    pub fn seals(&self) -> bool {
        self.handle.tag.has(Tag::SEALED) && !self.handle.tag.has(Tag::FOREIGN)
    }

    /// Copies bytes in, from `at` on, at every level of trust.
    ///
    /// # Errors
    /// An error with the buffer's length, if the bytes reach beyond the end; [`ErrorKind::BufferState`] if the buffer
    /// was sealed for a send that failed. Nothing is written then.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Error> {
        if !self.is_open() {
            let text = "the buffer was sealed for a send that failed: nobody can write it any more; send it again, or copy it";
            return Err(Error::new(ErrorKind::BufferState, text));
        }
        self.view().sub(at..at.saturating_add(bytes.len()))?;
        // SAFETY: in bounds, as just checked, of memory that is mapped for writing; `&mut self` means that no slice of it is there.
        unsafe { View::from(bytes).copy_to(self.handle.ptr.as_ptr().add(at)) };
        Ok(())
    }

    /// Copies in as many bytes as have room.
    pub(crate) fn fill_from(&mut self, bytes: View<'_>) {
        let len = bytes.len().min(self.len());
        if let Ok(bytes) = bytes.sub(0..len) {
            // SAFETY: at most as long as this; a buffer that somebody fills is no part of another one.
            unsafe { bytes.copy_to(self.handle.ptr.as_ptr()) };
        }
    }

    /// Returns the bytes, if no other domain can write them; else [`view`](BufferMut::view) shows them.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the handle is borrowed, and so writes nothing.
        unsafe { self.handle.bytes() }
    }

    /// Returns the bytes for writing, if no other domain can write them; else use [`write`](BufferMut::write).
    #[inline]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as for `Handle::bytes`; `&mut self` makes it unique, and the tag says that the memory is mapped for writing.
        let bytes =
            || unsafe { std::slice::from_raw_parts_mut(self.handle.ptr.as_ptr(), self.handle.len) };
        let writable = self.handle.tag.has(Tag::SLICE_MUT)
            || (self.handle.tag.has(Tag::SEALED) && self.is_not_sealed_yet());
        writable.then(bytes)
    }

    /// Returns the address of the bytes, to be written in place at every level of trust: by volatile stores, or by the
    /// kernel. `None` if the buffer was sealed for a send that failed. The pointer is valid for `len` bytes until the
    /// buffer is frozen, sent or dropped.
    ///
    /// Make no slice of it if other domains can write the pool ([`bytes_mut`](BufferMut::bytes_mut) gives no slice
    /// there).
    ///
    /// ```
    /// # use tranship_core::{Domain, PoolOptions, Trust};
    /// # let domain = Domain::embedded()?;
    /// let pool = domain.create_pool(PoolOptions::new(1 << 20).trust(Trust::Full))?;
    /// let mut counters = pool.alloc(64)?;
    /// let first = counters.writable_ptr().expect("it is ours to write").cast::<u64>();
    /// for at in 0..8 {
    ///     // SAFETY: eight words that are mapped for writing; buffers begin at multiples of 64 bytes.
    ///     unsafe { first.add(at).write_volatile(at as u64) };
    /// }
    /// assert_eq!(counters.view().read::<u64>(56)?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn writable_ptr(&mut self) -> Option<*mut u8> {
        self.is_open().then_some(self.handle.ptr.as_ptr())
    }

    /// Ends writing. The frozen buffer can be cloned, cut and sent.
    #[inline(always)]
    pub fn freeze(self) -> Buffer {
        let mut handle = ManuallyDrop::new(self).handle;
        if handle.tag.has(Tag::LONG) {
            handle.tag = freeze_long(handle.home(), handle.tag);
        } else {
            Self::pool(handle).begin_sharing(handle.slot());
        }
        // SAFETY: the one reference counted is the frozen handle's, and the memory goes over to it.
        unsafe { Buffer::of(handle) }
    }

    #[inline(always)]
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the own pool of a handle without the tag `LONG`.
    #[inline(always)]
    fn pool<'a>(handle: Handle) -> &'a OwnPool {
        debug_assert!(!handle.tag.has(Tag::LONG) && !handle.tag.has(Tag::FOREIGN));
        // SAFETY: what does not go the long way is of an own pool, which outlives its outstanding slots.
        unsafe { &*handle.home_key().cast() }
    }
}

/// Freezes a buffer that goes the long way. Returns its tag. The writable handle is gone, and with it all slices.
#[cold]
fn freeze_long(home: Home, tag: Tag) -> Tag {
    match home {
        // SAFETY: pools outlive their outstanding slots.
        Home::Own(pool) => unsafe { pool.as_ref() }.freeze_long(tag),
        // SAFETY: as above.
        Home::Foreign(pool) => unsafe { pool.as_ref() }.freeze_moved(tag),
    }
}

#[cold]
fn drop_long(home: Home, tag: Tag) {
    match home {
        // SAFETY: pools outlive their outstanding slots.
        Home::Own(pool) => unsafe { pool.as_ref() }.release_long(tag),
        // SAFETY: as above.
        Home::Foreign(pool) => unsafe { pool.as_ref() }.release_long(tag, Access::ReadWrite),
    }
}

impl Drop for BufferMut {
    #[inline(always)]
    fn drop(&mut self) {
        let handle = self.handle;
        if handle.tag.has(Tag::LONG | Tag::TRACED) {
            return drop_long(handle.home(), handle.tag);
        }
        // SAFETY: without `LONG` the class is one of the pool's, as the maker of the handle promised.
        unsafe { Self::pool(handle).free_unfrozen(handle.cache_place(), handle.tag) };
    }
}

/// Panics if other domains can write the pool: then there is no slice.
impl Deref for BufferMut {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes().unwrap_or_else(|| no_slice())
    }
}

/// Panics if other domains can write the pool, or if the buffer was sealed for a send that failed: then there is no
/// slice to write.
impl DerefMut for BufferMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes_mut().unwrap_or_else(|| no_slice())
    }
}

#[cold]
fn no_slice() -> ! {
    panic!(
        "no slice of this buffer can be had, as others can write its pool, or it is sealed: use BufferMut::write and view, or say Receiver::trust_writer"
    )
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferMut")
            .field("id", &self.id())
            .field("len", &self.len())
            .finish()
    }
}
