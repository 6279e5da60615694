//! The unique, writable buffer.

use super::{Cbuf, Tag};
use crate::pool::OwnPool;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use tranship_proto::{CbufId, PoolId};
use tranship_region::{OutOfBounds, View};

/// A buffer that is being filled: writable, unique, known to nobody else. Its first contents are whatever
/// the buffer held before. It can be used as a slice, unless others can write its pool ([`PoolOptions::trust`](crate::PoolOptions::trust)).
/// [`freeze`](CbufMut::freeze) makes it sendable; dropping it frees it.
///
/// Crash: if the process dies the whole pool goes with it.
pub struct CbufMut {
    ptr: NonNull<u8>,
    len: usize,
    pool: NonNull<OwnPool>,
    tag: Tag,
}

// SAFETY: the buffer is owned by this handle alone, and a pool may be used from any thread.
unsafe impl Send for CbufMut {}
// SAFETY: `&CbufMut` only reads the bytes, which nobody writes meanwhile.
unsafe impl Sync for CbufMut {}

impl CbufMut {
    /// # Safety
    /// `ptr..ptr+len` is the slot's memory in the pool's own mapping, the slot is live with one local
    /// reference that becomes this handle's, and `pool` outlives its outstanding slots.
    #[inline(always)]
    pub(crate) unsafe fn new(
        ptr: NonNull<u8>,
        len: usize,
        pool: NonNull<OwnPool>,
        tag: Tag,
    ) -> CbufMut {
        CbufMut {
            ptr,
            len,
            pool,
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

    /// The id under which it will be known once sent.
    pub fn id(&self) -> CbufId {
        if self.pool().domain.fork.is_child() {
            return CbufId::new(PoolId(0), self.tag.slot(), 0);
        }
        self.pool().id_of(self.tag.slot())
    }

    /// Shortens it; does nothing if it is shorter already. The memory stays with the buffer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The bytes as they are now.
    #[inline]
    pub fn view(&self) -> View<'_> {
        // SAFETY: the slot's memory, which stays mapped while the handle lives; others may write it, which a view allows.
        unsafe { View::new(self.ptr.as_ptr(), self.len) }
    }

    /// Copies bytes in, from `at` on; nothing if they reach beyond the end. At every level of trust.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.view().sub(at..at.saturating_add(bytes.len()))?;
        // SAFETY: in bounds, as just checked; `&mut self` means that no slice of it is there.
        unsafe { View::from_slice(bytes).copy_to(self.ptr.as_ptr().add(at)) };
        Ok(())
    }

    /// Copies in as much as there is room for.
    pub(crate) fn fill_from(&mut self, bytes: View<'_>) {
        let len = bytes.len().min(self.len);
        if let Ok(bytes) = bytes.sub(0..len) {
            // SAFETY: at most as long as this; a buffer that somebody fills is no part of another one.
            unsafe { bytes.copy_to(self.ptr.as_ptr()) };
        }
    }

    /// The bytes, if nobody else can write them; else [`view`](CbufMut::view) shows them.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: only this domain writes the pool's pages (sealed against all others, or `trust_others` says so), only this
        // handle knows the buffer, and the memory stays mapped while the slot is live.
        let bytes = || unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) };
        self.tag.has(Tag::TRUSTED).then(bytes)
    }

    /// The same for writing; else there is [`write`](CbufMut::write).
    #[inline]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as for `bytes`, and `&mut self` makes it unique.
        let bytes = || unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) };
        self.tag.has(Tag::TRUSTED).then(bytes)
    }

    /// Ends writing. The frozen buffer can be cloned, cut and sent.
    #[inline(always)]
    pub fn freeze(self) -> Cbuf {
        let this = std::mem::ManuallyDrop::new(self);
        if this.tag.has(Tag::GUARDED) {
            // Nothing writes it any more: `self` is gone, and with it all slices.
            this.pool().close_slot(this.tag.slot());
        }
        this.pool().begin_sharing(this.tag.slot());
        // SAFETY: the one reference just counted is the frozen handle's, and the memory goes over to it.
        unsafe { Cbuf::own(this.ptr, this.len, this.pool, this.tag) }
    }

    #[inline]
    fn pool(&self) -> &OwnPool {
        // SAFETY: a pool outlives its outstanding slots (`OwnPool` is freed only at zero of them).
        unsafe { self.pool.as_ref() }
    }
}

impl Drop for CbufMut {
    #[inline(always)]
    fn drop(&mut self) {
        self.pool().free_unfrozen(self.tag.slot(), self.tag.class());
    }
}

/// Panics where there is no slice: if others can write the pool, and
/// [`PoolOptions::trust_others`](crate::PoolOptions::trust_others) was not said.
impl Deref for CbufMut {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes().unwrap_or_else(|| no_slice())
    }
}

impl DerefMut for CbufMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes_mut().unwrap_or_else(|| no_slice())
    }
}

#[cold]
fn no_slice() -> ! {
    panic!(
        "other domains can write this pool: use CbufMut::write and view, or say PoolOptions::trust_others"
    )
}

impl fmt::Debug for CbufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CbufMut")
            .field("id", &self.id())
            .field("len", &self.len)
            .finish()
    }
}
