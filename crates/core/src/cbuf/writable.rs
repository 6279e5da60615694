//! The unique, writable buffer.

use super::{Cbuf, Tag};
use crate::pool::OwnPool;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use tranship_proto::{CbufId, PoolId};

/// A buffer that is being filled: writable, unique, known to nobody else. Its first contents are whatever
/// the buffer held before. [`freeze`](CbufMut::freeze) makes it sendable; dropping it frees it.
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

    /// Ends writing. The frozen buffer can be cloned, cut and sent.
    #[inline(always)]
    pub fn freeze(self) -> Cbuf {
        let this = std::mem::ManuallyDrop::new(self);
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

impl Deref for CbufMut {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: only this domain can write the pool's pages (sealed against all others), only this handle
        // knows the buffer, and the memory stays mapped while the slot is live.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for CbufMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes it unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl fmt::Debug for CbufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CbufMut")
            .field("id", &self.id())
            .field("len", &self.len)
            .finish()
    }
}
