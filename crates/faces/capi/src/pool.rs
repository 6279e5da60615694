//! Memory.

use crate::buf::{Buf, place};
use crate::domain::{self, Domain};
use crate::given::{FOREVER, nanoseconds, there};
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

/// Gives the pool up. It is taken down as soon as no domain holds a buffer of it. NULL is nothing.
///
/// Call it when no other call with this handle is under way or will begin; a thread that is to stop waits in turns, or by tranship_poll.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_pool_close(pool: Option<Box<Pool>>) {
    quietly((), || drop(closed(pool, "tranship_pool_close")));
}

/// Allocates a buffer of `len` bytes, in `buf`: `buf->ptr` may be written. It begins with the old contents of its
/// memory.
///
/// Waits for memory for `timeout_ns` nanoseconds: TRANSHIP_NOW (0) not at all, TRANSHIP_FOREVER (-1) without end. Any
/// other number below 0 is TRANSHIP_NOW: a deadline that has passed. A buffer that can never fit is an error at once.
/// `buf` need not be initialised; an old content is not released. On failure it holds nothing.
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
        // Not `held`: to count a handle up and down costs several times what an allocation does. A caller that waits for memory has one of its own by then.
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

/// Finds a sent buffer of this pool by its name (tranship_buf_id), as long as it is not reused: a shared one, in `out`.
/// TRANSHIP_ERR_STALE if the name is no buffer's any more.
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

/// It, for as long as the call takes: another thread may close the handle meanwhile.
pub(crate) fn held(pool: Option<&Pool>) -> Result<facade::Pool, facade::Error> {
    Ok(there(pool, "pool")?.0.clone())
}
