//! Memory.

use crate::buf::{Buf, place};
use crate::domain::{self, Domain};
use crate::given::{FOREVER, nanoseconds, there, wrong};
use crate::open::closed;
use crate::options::{PoolOptions, grown};
use crate::status::{Error, Status, border, making, quietly};
use facade::{BufferId, DomainId};
use std::mem::MaybeUninit;

/// Memory of this domain's, out of which it allocates buffers. Any thread may use it, all at the same time; see tranship_pool_close for its
/// end.
#[derive(Debug)]
pub struct Pool(pub(crate) facade::Pool);

/// Makes a pool of at most `max_bytes`. Memory comes and goes with use, within what the manager admits. `options` may be NULL.
///
/// Close it with tranship_pool_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_pool_create(
    domain: Option<&Domain>,
    max_bytes: u64,
    options: *const PoolOptions,
    out: Option<&mut MaybeUninit<Option<Box<Pool>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let domain = domain::held(domain)?;
        let options = grown(options)?.create(max_bytes)?;
        Ok(Pool(domain.create_pool(options)?))
    })
}

/// Gives the pool up. It is taken down as soon as nobody holds a buffer of it. NULL is nothing.
///
/// Call it when no other call with this handle is under way or will begin; a thread that is to stop waits in turns, or by tranship_poll.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_pool_close(pool: Option<Box<Pool>>) {
    quietly((), || drop(closed(pool, "tranship_pool_close")));
}

/// A buffer of `len` bytes, which nobody else has, in `buf`: `buf->ptr` may be written. What is in it at first is whatever it held before.
///
/// Waits for memory for `timeout_ns` nanoseconds: TRANSHIP_NOW (0) not at all, TRANSHIP_FOREVER (-1) without end. Any other
/// number below 0 is TRANSHIP_NOW: the time that is left until a deadline that has passed. What can never be had is an error at once. `buf` need not be initialised; what was in it is not released. On failure it holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_alloc(
    pool: Option<&Pool>,
    len: usize,
    timeout_ns: i64,
    buf: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = place(buf, "buf")?;
        // Not `held`: to count a handle up and down costs several times what an allocation does. Who waits for memory has one of its own by then.
        let pool = &there(pool, "pool")?.0;
        let got = match timeout_ns {
            FOREVER => pool.alloc(len)?,
            ..=0 => pool.try_alloc(len)?,
            _ => pool.alloc_timeout(len, nanoseconds(timeout_ns))?,
        };
        buf.put_exclusive(got);
        Ok(())
    })
}

/// The pool's number, the same in every process. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_pool_id(pool: Option<&Pool>) -> u32 {
    quietly(0, || pool.map_or(0, |pool| pool.0.id().0))
}

/// A buffer of this pool that was sent and that somebody may still hold, by its name (tranship_buf_id), as a shared one in `out`.
/// TRANSHIP_ERR_STALE if it names nothing any more.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_pool_lookup(
    pool: Option<&Pool>,
    id: u64,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        out.put_shared(held(pool)?.lookup(BufferId(id))?);
        Ok(())
    })
}

/// Lets another domain (tranship_sender_peer) send buffers of this pool on.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_pool_allow_forward(
    pool: Option<&Pool>,
    domain_id: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || held(pool)?.allow_forward(DomainId(domain_id)))
}

/// What a pool has done and has. Set `size` to `sizeof(tranship_pool_stats)` before the call.
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
    /// Bytes that it may have now.
    pub quota_bytes: u64,
    /// The most that it may ever have.
    pub max_bytes: u64,
    /// Sent buffers found dead so far.
    pub collected: u64,
    /// How often they were looked for.
    pub collections: u64,
    /// Nanoseconds that this took.
    pub collect_ns: u64,
    /// Nanoseconds that callers waited for memory.
    pub blocked_ns: u64,
    /// Callers that wait now.
    pub waiting: u64,
}

/// Fills in what the pool has done and has: as much of it as `out->size` says that there is room for.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_pool_stat(
    pool: Option<&Pool>,
    out: *mut PoolStats,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let pool = held(pool)?;
        if out.is_null() {
            return Err(wrong("out is NULL"));
        }
        // SAFETY: the caller's word: one of these, of whatever version, and all begin with their size.
        let size = unsafe { out.cast::<usize>().read_unaligned() };
        let here = size_of::<PoolStats>();
        if !(size_of::<usize>()..=4096).contains(&size) {
            return Err(wrong(format!(
                "size of tranship_pool_stats is {size}: set it to sizeof(tranship_pool_stats), {here} here"
            )));
        }
        let stats = pool.stats();
        let filled = PoolStats {
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
        };
        let (to, known) = (out.cast::<u8>(), size.min(here));
        // SAFETY: as above: there are `size` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const filled).cast(), to, known);
            to.add(known).write_bytes(0, size - known);
        }
        Ok(())
    })
}

/// It, for as long as the call takes: another thread may close the handle meanwhile.
pub(crate) fn held(pool: Option<&Pool>) -> Result<facade::Pool, facade::Error> {
    Ok(there(pool, "pool")?.0.clone())
}
