//! Allocators, allocation, and the end of it.

use super::{M_WAITOK, Mbuf, borrowed, flags, given, length, or_null, owned, stays_int, told};
use crate::given::{there, wrong};
use crate::open::closed;
use crate::options::{Grows, filled, grown};
use crate::pool::Pool;
use crate::status::{Error, Status, border, making, quietly};
use crate::uma::no_thread;
use facade::mbuf::{
    Chain, ClusterSize, Flags, Kind, Limits, MCLBYTES, MHLEN, MLEN, MbufOptions as Build,
    Mbufs as From,
};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// An allocator of mbufs. Any thread may use it, all at the same time. NULL is the process's own, in private memory.
#[derive(Debug)]
pub struct Mbufs(From);

/// Options of a new allocator of mbufs. Set `size` to `sizeof(tranship_mbuf_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MbufOptions {
    /// sizeof(tranship_mbuf_options)
    pub size: usize,
    /// Clusters are buffers of this pool, so that packets can be sent to other processes without a copy. NULL: of private memory.
    pub pool: *const Pool,
    /// Addresses that are reserved: no more memory than that can ever be used. 0: 16 GiB.
    pub window_bytes: u64,
    /// The most mbufs. 0, here and in the next fields: by the size of the machine's memory.
    pub mbufs: u64,
    /// The most clusters of 2 KiB.
    pub clusters: u64,
    /// The most clusters of a page.
    pub jumbo_page: u64,
    /// The most clusters of 9 KiB.
    pub jumbo9: u64,
    /// The most clusters of 16 KiB.
    pub jumbo16: u64,
}

// SAFETY: of integers and a pointer, the size first.
unsafe impl Grows for MbufOptions {
    const NAME: &str = "tranship_mbuf_options";
}

impl MbufOptions {
    fn build(self) -> Result<From, facade::Error> {
        no_thread();
        let mut options = Build::new().limits(self.limits(Limits::default()));
        if self.window_bytes != 0 {
            options = options.window_bytes(self.window_bytes);
        }
        // SAFETY: the caller promises: a pool, or NULL.
        if let Some(pool) = unsafe { self.pool.as_ref() } {
            options = options.over_pool(&pool.0);
        }
        options
            .build()
            .map_err(facade::error::system("reserving addresses for mbufs"))
    }
}

impl MbufOptions {
    /// Returns `limits` with those of these options that are not 0.
    fn limits(&self, mut limits: Limits) -> Limits {
        for (limit, wanted) in [
            (&mut limits.mbufs, self.mbufs),
            (&mut limits.clusters, self.clusters),
            (&mut limits.jumbo_page, self.jumbo_page),
            (&mut limits.jumbo9, self.jumbo9),
            (&mut limits.jumbo16, self.jumbo16),
        ] {
            if wanted != 0 {
                *limit = wanted;
            }
        }
        limits
    }
}

/// Makes an allocator of mbufs. `options` may be NULL.
///
/// Close it with tranship_mbufs_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufs_create(
    options: *const MbufOptions,
    out: Option<&mut MaybeUninit<Option<Box<Mbufs>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || Ok(Mbufs(grown(options)?.build()?)))
}

/// Gives the allocator up; its memory goes when its last mbuf has. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufs_close(mbufs: Option<Box<Mbufs>>) {
    quietly((), || drop(closed(mbufs, "tranship_mbufs_close")));
}

/// Gives back cached memory that is not in use. Returns the number of pages.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufs_reclaim(mbufs: Option<&Mbufs>) -> u64 {
    quietly(0, || those(mbufs).map_or(0, From::reclaim))
}

/// Changes the limits of an allocator at run time: those in `limits` that are not 0; `pool` and `window_bytes` are 0.
/// Mbufs and clusters above a limit stay until they are freed. Without a limit: UINT64_MAX.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufs_set_limits(
    mbufs: Option<&Mbufs>,
    limits: *const MbufOptions,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let mbufs = there(those(mbufs), "no addresses for mbufs: mbufs")?;
        let limits = grown(limits)?;
        if !limits.pool.is_null() || limits.window_bytes != 0 {
            return Err(wrong(
                "pool and window_bytes are fixed when an allocator is made: set both to 0",
            ));
        }
        let limits = limits.limits(mbufs.limits());
        mbufs.set_limits(limits).map_err(told)
    })
}

/// Writes the limits of an allocator into `out`, whose `size` is set; `pool` and `window_bytes` become 0. UINT64_MAX:
/// there is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufs_limits(
    mbufs: Option<&Mbufs>,
    out: *mut MbufOptions,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let mbufs = there(those(mbufs), "no addresses for mbufs: mbufs")?;
        let limits = mbufs.limits();
        filled(out, |size| MbufOptions {
            size,
            pool: std::ptr::null(),
            window_bytes: 0,
            mbufs: limits.mbufs,
            clusters: limits.clusters,
            jumbo_page: limits.jumbo_page,
            jumbo9: limits.jumbo9,
            jumbo16: limits.jumbo16,
        })
    })
}

/// The allocator, or the process's own.
#[inline(always)]
pub(super) fn those(given: Option<&Mbufs>) -> Option<&From> {
    static OWN: OnceLock<Option<From>> = OnceLock::new();
    #[cold]
    fn made() -> Option<From> {
        no_thread();
        From::new().ok()
    }
    match given {
        Some(mbufs) => Some(&mbufs.0),
        None => OWN.get_or_init(made).as_ref(),
    }
}

#[inline(always)]
pub(super) fn got<E>(
    from: Option<&Mbufs>,
    how: i32,
    get: impl FnOnce(&From) -> Result<Chain, E>,
) -> *mut Mbuf {
    quietly(null_mut(), || match those(from) {
        Some(from) if how & M_WAITOK != 0 => or_null(get(&from.waiting())),
        Some(from) => or_null(get(from)),
        None => null_mut(),
    })
}

fn kind(kind: i32) -> Kind {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 8 bits of it are kept
    Kind(kind as u8)
}

/// An mbuf with room for 208 bytes (m_get).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_get(from: Option<&Mbufs>, how: i32, r#type: i32) -> *mut Mbuf {
    got(from, how, |from| from.get_with(kind(r#type), Flags::NONE))
}

/// An mbuf with a packet header and room for 160 bytes (m_gethdr).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_gethdr(from: Option<&Mbufs>, how: i32, r#type: i32) -> *mut Mbuf {
    got(from, how, |from| from.get_with(kind(r#type), Flags::PKTHDR))
}

/// An mbuf with a cluster of 2 KiB (m_getcl).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_getcl(
    from: Option<&Mbufs>,
    how: i32,
    r#type: i32,
    flag_bits: i32,
) -> *mut Mbuf {
    got(from, how, |from| {
        from.getcl_with(kind(r#type), flags(flag_bits))
    })
}

/// Returns the cluster that has exactly `size` bytes.
fn cluster(size: i32) -> Option<ClusterSize> {
    let wanted = length(size)?;
    ClusterSize::for_bytes(wanted).filter(|found| found.bytes() == wanted)
}

/// An mbuf with a cluster of 2048, 4096, 9216 or 16384 bytes (m_getjcl). NULL of any other size.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_getjcl(
    from: Option<&Mbufs>,
    how: i32,
    r#type: i32,
    flag_bits: i32,
    size: i32,
) -> *mut Mbuf {
    let Some(size) = cluster(size) else {
        return null_mut();
    };
    got(from, how, |from| {
        from.getjcl_with(size, kind(r#type), flags(flag_bits))
    })
}

/// One mbuf with room for `size` bytes, at most 16384 (m_get3; m_get2 gives at most 4096).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_get3(
    from: Option<&Mbufs>,
    size: i32,
    how: i32,
    r#type: i32,
    flag_bits: i32,
) -> *mut Mbuf {
    let (kind, flags) = (kind(r#type), flags(flag_bits));
    let inside = match flags.contains(Flags::PKTHDR) {
        true => MHLEN,
        false => MLEN,
    };
    let cluster = match length(size) {
        Some(size) if size <= inside => None,
        Some(size) => match ClusterSize::for_bytes(size) {
            Some(cluster) => Some(cluster),
            None => return null_mut(),
        },
        None => return null_mut(),
    };
    got(from, how, |from| match cluster {
        Some(cluster) => from.getjcl_with(cluster, kind, flags),
        None => from.get_with(kind, flags),
    })
}

/// As many mbufs as it takes for `len` bytes, all or none (m_getm2). If `m` is not NULL they are put behind its last one, and `m` is
/// returned; on failure, and where it could become longer than INT_MAX bytes, it is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_getm2(
    from: Option<&Mbufs>,
    m: *mut Mbuf,
    len: i32,
    how: i32,
    r#type: i32,
    flag_bits: i32,
) -> *mut Mbuf {
    let Some(len) = length(len) else {
        return null_mut();
    };
    let Some(mut chain) = borrowed(m) else {
        return got(from, how, |from| {
            from.getm2_with(len, kind(r#type), flags(flag_bits))
        });
    };
    quietly(null_mut(), || {
        match stays_int(&chain, len) && chain.reserve(len).is_ok() {
            true => m,
            false => null_mut(),
        }
    })
}

/// Attaches a cluster of 2048, 4096, 9216 or 16384 bytes to an mbuf that has no data yet: where its bytes are (m_cljget; m_clget says
/// whether there is one). NULL: there was none, and `m` is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_cljget(m: *mut Mbuf, how: i32, size: i32) -> *mut c_void {
    let _ = how; // what exists already does not wait
    quietly(null_mut(), || {
        let (Some(mut chain), Some(size)) = (borrowed(m), cluster(size)) else {
            return null_mut();
        };
        if chain.cljget(size).is_err() {
            return null_mut();
        }
        let at = chain.iter().next().and_then(|mbuf| mbuf.as_ptr());
        at.map_or(null_mut(), |at| at.as_ptr().cast())
    })
}

/// Frees one mbuf; the next one, or NULL (m_free).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_free(m: *mut Mbuf) -> *mut Mbuf {
    quietly(null_mut(), || {
        let rest = owned(m).and_then(Chain::free_first);
        rest.map_or(null_mut(), given)
    })
}

/// Frees a chain (m_freem). NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_freem(m: *mut Mbuf) {
    quietly((), || drop(owned(m)));
}

const _: () = assert!(MLEN == 208 && MHLEN == 160 && MCLBYTES == 2048); // as the header says
