//! An operator's questions: `include/tranship/admin.h`. Ordinary programs need none of them.

use crate::domain::Domain;
use crate::options::{Grows, filled};
use crate::pool::{self, Pool};
use crate::status::{Error, Status, border, quietly};

/// 1 if a manager is there now, 0 if not. Existing channels go on without one.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_admin_is_managed(domain: Option<&Domain>) -> i32 {
    quietly(0, || {
        domain
            .is_some_and(|domain| domain.0.admin().is_managed())
            .into()
    })
}

/// Figures of a pool. Set `size` to `sizeof(tranship_pool_stats)` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolStats {
    /// sizeof(tranship_pool_stats)
    pub size: usize,
    /// Buffers handed out so far.
    pub allocs: u64,
    /// Buffers that came back so far: released without being sent, or found dead.
    pub frees: u64,
    /// Buffers in this process's caches.
    pub cached: u64,
    /// Bytes that the pool has now.
    pub present_bytes: u64,
    /// Quota: bytes that the pool may have now.
    pub quota_bytes: u64,
    /// The pool's maximum, bytes.
    pub max_bytes: u64,
    /// Sent buffers found dead so far.
    pub collected: u64,
    /// Collections so far.
    pub collections: u64,
    /// Nanoseconds spent in collections.
    pub collect_ns: u64,
    /// Nanoseconds that callers waited for memory.
    pub blocked_ns: u64,
    /// Callers that wait now.
    pub waiting: u64,
}

// SAFETY: of integers, the size first.
unsafe impl Grows for PoolStats {
    const NAME: &str = "tranship_pool_stats";
}

/// Fills in the figures of a pool: as many as fit into `out->size` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_admin_pool_stats(
    pool: Option<&Pool>,
    out: *mut PoolStats,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let pool = pool::held(pool)?;
        let stats = pool.stats();
        filled(out, |size| PoolStats {
            size,
            allocs: stats.allocs,
            frees: stats.frees,
            cached: stats.cached,
            present_bytes: stats.chunk_bytes_present,
            quota_bytes: stats.quota_bytes,
            max_bytes: pool.max_bytes(),
            collected: stats.collected,
            collections: stats.collections,
            collect_ns: stats.collect_ns,
            blocked_ns: stats.blocked_ns,
            waiting: stats.waiting as u64,
        })
    })
}
