//! Buffers out of an own pool: the public ways to allocate one, to find one by its id, and to take one back.

use super::{Buffer, BufferMut};
use crate::error::{Error, Violation};
use crate::pool::{OwnPool, Patience, Pool};
use std::time::{Duration, Instant};
use tranship_proto::BufferId;
use tranship_region::View;

impl Pool {
    /// Allocates a buffer of `len` bytes. Blocks, first come first served, until there is memory within the quota. A
    /// quota below `len` is no error: the caller waits until it is raised. A request above the pool's maximum fails at
    /// once.
    ///
    /// # Errors
    /// `TooLarge` for more than the pool's maximum; `Forked`.
    #[inline(always)]
    pub fn alloc(&self, len: usize) -> Result<BufferMut, Error> {
        self.alloc_with(len, || Patience::Forever)
    }

    /// Allocates a buffer of `len` bytes without waiting for other domains to release memory. If the pool may have more
    /// memory, the manager is asked for it. A manager that does not answer at once costs 50 ms, once: its answer serves
    /// a later call. While the manager is away, an attempt to reach it may cost 20 ms, at most once in 50 ms.
    ///
    /// # Errors
    /// As [`alloc`](Pool::alloc), and `OutOfMemory`, which names each holder with its amount.
    #[inline(always)]
    pub fn try_alloc(&self, len: usize) -> Result<BufferMut, Error> {
        self.alloc_with(len, || Patience::None)
    }

    /// Allocates a buffer of `len` bytes, or fails with `OutOfMemory` after `timeout`.
    ///
    /// # Errors
    /// As [`alloc`](Pool::alloc), and `OutOfMemory` when the time is over.
    pub fn alloc_timeout(&self, len: usize, timeout: Duration) -> Result<BufferMut, Error> {
        self.alloc_with(len, || {
            Instant::now()
                .checked_add(timeout)
                .map_or(Patience::Forever, Patience::Until)
        })
    }

    #[inline(always)]
    fn alloc_with(
        &self,
        len: usize,
        patience: impl FnOnce() -> Patience,
    ) -> Result<BufferMut, Error> {
        if let Some(buf) = BufferMut::alloc_now(self.own_ref(), len) {
            return Ok(buf);
        }
        std::hint::cold_path();
        // Boxed, so that the fast path's result stays in registers where both paths join.
        self.alloc_long(len, patience()).map(|buf| *buf)
    }

    /// Allocates by the slow path, which may wait. It has a handle of its own: in C another thread may close the
    /// caller's handle meanwhile.
    #[cold]
    #[inline(never)]
    fn alloc_long(&self, len: usize, patience: Patience) -> Result<Box<BufferMut>, Error> {
        let held = self.clone();
        let own = held.own_ref();
        let raw = own.alloc_slow(len, patience)?;
        // SAFETY: just handed out by it.
        Ok(Box::new(unsafe { BufferMut::own(own, raw) }))
    }

    /// Allocates a buffer with a copy of these bytes.
    ///
    /// # Errors
    /// As [`alloc`](Pool::alloc). It blocks as that does.
    pub fn copy(&self, bytes: &[u8]) -> Result<BufferMut, Error> {
        let mut buf = self.alloc(bytes.len())?;
        buf.fill_from(View::from(bytes));
        Ok(buf)
    }

    /// Finds a sent buffer of this pool by its id, as long as it is not collected. It has all of the buffer's memory,
    /// of which the sender may have used a part. It does not block.
    ///
    /// # Errors
    /// `Stale` ([`StaleId`](crate::error::StaleId)): the id names no buffer any more, or not yet, or one of another
    /// pool. [`BufferInvalid`](crate::ErrorKind::BufferInvalid): the buffer was given away to be written.
    pub fn lookup(&self, id: BufferId) -> Result<Buffer, Error> {
        let raw = self.own_ref().lookup(id)?;
        // SAFETY: just counted by it, of a buffer that was sent.
        Ok(unsafe { Buffer::own(self.own_ref(), raw) })
    }
}

impl BufferMut {
    /// Allocates a buffer out of the caches, or of any memory that needs no answer of the manager.
    #[inline(always)]
    pub(crate) fn alloc_now(pool: &OwnPool, len: usize) -> Option<BufferMut> {
        let raw = pool.alloc_now(len)?;
        // SAFETY: just handed out by it.
        Some(unsafe { BufferMut::own(pool, raw) })
    }

    /// Makes one look for a caller that waits for memory elsewhere, like [`OwnPool::look_in_queue`].
    pub(crate) fn alloc_in_queue(
        pool: &OwnPool,
        len: usize,
        ticket: Option<u64>,
    ) -> Result<Option<BufferMut>, Error> {
        let raw = pool.look_in_queue(len, ticket)?;
        // SAFETY: just handed out by it.
        Ok(raw.map(|raw| unsafe { BufferMut::own(pool, raw) }))
    }
}

impl Buffer {
    /// Takes an own buffer that another domain sends back, like [`OwnPool::take_back`].
    pub(crate) fn taken_back(
        pool: &OwnPool,
        id: BufferId,
        offset: u64,
        length: u64,
    ) -> Result<Buffer, Violation> {
        let raw = pool.take_back(id, offset, length)?;
        // SAFETY: just counted by it, of a buffer that was sent.
        Ok(unsafe { Buffer::own(pool, raw) })
    }

    /// Makes another handle of an own frozen buffer, like [`OwnPool::hold_again`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn held_here(
        pool: &OwnPool,
        id: BufferId,
        offset: u64,
        length: u64,
    ) -> Result<Buffer, Violation> {
        // SAFETY: as the caller says.
        let raw = unsafe { pool.hold_again(id, offset, length) }?;
        // SAFETY: just counted by it, of a buffer that is frozen.
        Ok(unsafe { Buffer::own(pool, raw) })
    }
}
