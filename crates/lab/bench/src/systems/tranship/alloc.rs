//! Alloc and free of a pool's buffers, out of the thread's cache.

use anyhow::Result;
use tranship_core::{BufferMut, Domain, Pool, PoolOptions};

use crate::systems::allocators::Allocator;

/// Chunks of 1 MiB, so that every size of the bench is in a class.
const POOL: u64 = 256 << 20;

pub struct Zones {
    pool: Pool,
    bytes: usize,
    _domain: Domain,
}

impl Allocator for Zones {
    type Held = BufferMut;

    fn open(bytes: usize) -> Result<Self> {
        let domain = Domain::embedded()?;
        Ok(Self {
            pool: domain.create_pool(PoolOptions::new(POOL))?,
            bytes,
            _domain: domain,
        })
    }

    #[inline(always)]
    fn alloc(&mut self) -> Result<BufferMut> {
        Ok(self.pool.alloc(std::hint::black_box(self.bytes))?)
    }

    #[inline(always)]
    fn address(held: &mut BufferMut) -> *mut u8 {
        held.as_mut_ptr()
    }

    #[inline(always)]
    fn free(&mut self, held: BufferMut) -> Result<()> {
        drop(held);
        Ok(())
    }
}
