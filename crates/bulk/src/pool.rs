//! A pool's handle, and its allocator.

use crate::domain::Shared;
use crate::{Buffer, Error, PoolInfo};
use std::sync::Arc;

/// A pool that this domain created: equal buffers in one contiguous range.
///
/// Dropping it forgets the handle, not the pool, which ends with [`Pool::destroy`] or with its domain.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) domain: Arc<Shared>,
    pub(crate) info: PoolInfo,
}

impl Pool {
    /// What is said about it to others.
    #[must_use]
    pub fn info(&self) -> PoolInfo {
        self.info
    }

    /// A free buffer, with whatever was in it. [`Kind::AllocCount`] if none is free.
    pub fn alloc(&self) -> Result<Buffer, Error> {
        let (index, memory) = self.domain.alloc(self.info.id)?;
        let at = (self.info.id, index);
        Ok(Buffer::new(&self.domain, at, Some(memory)))
    }

    /// This buffer, if it is free: one that came back by itself when its holder died, with what was in it when it was
    /// sent. [`Kind::AllocCount`] if it is not free.
    pub fn take(&self, index: u32) -> Result<Buffer, Error> {
        let memory = self.domain.alloc_at(self.info.id, index)?;
        let at = (self.info.id, index);
        Ok(Buffer::new(&self.domain, at, Some(memory)))
    }

    /// How many buffers are free.
    #[must_use]
    pub fn free(&self) -> usize {
        let state = self.domain.lock();
        let pool = state.pools.get(&self.info.id);
        pool.map_or(0, |pool| pool.free.len())
    }

    /// Ends it, if it is on no open channel ([`Kind::PoolInUse`]). Buffers that are still held are gone.
    pub fn destroy(self) -> Result<(), Error> {
        self.domain.destroy_pool(self.info.id)
    }
}
