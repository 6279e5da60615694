//! Alloc and free of a pool's buffers, out of the thread's cache.

use anyhow::Result;
use tranship_core::{BufferMut, Domain, Pool, PoolOptions};
use tranship_manager::Config;

use crate::systems::allocators::Allocator;

/// Chunks of 1 MiB, so that every size of the bench is in a class.
const POOL: u64 = 256 << 20;

pub struct Zones {
    pool: Pool,
    bytes: usize,
    _domain: Domain,
}

impl Zones {
    /// Makes handles of one pool, of `most` bytes.
    pub fn shared(bytes: usize, handles: usize, most: Option<u64>) -> Result<Vec<Self>> {
        let domain = Domain::embedded()?;
        let pool = domain.create_pool(PoolOptions::new(most.unwrap_or(POOL)))?;
        let handle = |_| Self {
            pool: pool.clone(),
            bytes,
            _domain: domain.clone(),
        };
        Ok((0..handles).map(handle).collect())
    }

    /// Makes a pool for each handle. With `most` all have one quota of that many bytes, which the policy divides.
    pub fn each(bytes: usize, handles: usize, most: Option<u64>) -> Result<Vec<Self>> {
        let rules = most.map(|most| {
            format!(
                "policy = \"throughput\"\npolicy_period = \"100ms\"\n\
                 [[pool]]\nname = \"thread *\"\ngroup = \"threads\"\ngroup_max = {most}\n"
            )
        });
        let config = Config::parse(&rules.unwrap_or_default())?;
        let domain = Domain::builder().config(config).embedded()?;
        let handle = |number| {
            let options = PoolOptions::new(most.unwrap_or(POOL));
            Ok(Self {
                pool: domain.create_pool(options.name(&format!("thread {number}")))?,
                bytes,
                _domain: domain.clone(),
            })
        };
        (0..handles).map(handle).collect()
    }
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
