//! Copies, of chains and of bytes.

use super::{
    EINVAL, EROFS, Mbuf, borrowed_whole, errno, given, int, length, or_null, stays_int, whole,
};
use crate::given::bytes;
use crate::status::quietly;
use facade::mbuf::Chain;
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::ptr::null_mut;

/// The longest chain that the calls can say.
const INT_MAX: usize = i32::MAX as usize;
/// As a length: to the end (M_COPYALL).
const M_COPYALL: i32 = 1_000_000_000;

fn range(chain: &Chain, off: i32, len: i32) -> Option<std::ops::Range<usize>> {
    let off = length(off)?;
    let end = match len {
        M_COPYALL => chain.len(),
        _ => off + length(len)?,
    };
    (off <= end).then_some(off..end)
}

/// A chain with the same bytes, `len` of them from `off` on (m_copym): clusters are shared, and neither chain can be written where they are
/// any more; bytes that lie inside mbufs are copied. From 0 on of a packet it is a packet, with the header and copies of the tags.
/// 1000000000 (M_COPYALL) is all that are left. NULL: there are not as many, or no memory.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_copym(m: *mut Mbuf, off: i32, len: i32, how: i32) -> *mut Mbuf {
    let _ = how;
    quietly(null_mut(), || {
        let Some(chain) = borrowed_whole(m) else {
            return null_mut();
        };
        range(&chain, off, len).map_or(null_mut(), |range| or_null(chain.copym(range)))
    })
}

/// A chain with copies of all bytes, header and tags, which may be written (m_dup). NULL: there was no memory.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_dup(m: *const Mbuf, how: i32) -> *mut Mbuf {
    let _ = how;
    quietly(null_mut(), || {
        borrowed_whole(m).map_or(null_mut(), |chain| or_null(chain.dup()))
    })
}

/// Copies `len` bytes from `off` on to `to` (m_copydata). 0, or an error's number: there are not as many, and nothing is copied.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_copydata(m: *const Mbuf, off: i32, len: i32, to: *mut c_void) -> i32 {
    let (Some(chain), Some(off), Some(len)) = (borrowed_whole(m), length(off), length(len)) else {
        return EINVAL;
    };
    if off + len > chain.len() || (to.is_null() && len > 0) {
        return EINVAL;
    }
    if len == 0 {
        return 0;
    }
    // SAFETY: the caller's word: room for so many bytes, which nobody else uses.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
    quietly(EINVAL, || errno(chain.copydata(off, to)))
}

/// Writes `len` bytes into the chain from `off` on, which grows if they reach beyond its end (m_copyback); what is
/// between its end and `off` becomes zeros. 0, or an error's number, and then nothing is written: EROFS if other mbufs
/// share the bytes that would be written over (tranship_m_copyback_cow); EINVAL where the chain would be longer than
/// INT_MAX bytes.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_copyback(
    m: *mut Mbuf,
    off: i32,
    len: i32,
    from: *const c_void,
) -> i32 {
    let (Some(mut chain), Some(off), Some(len)) = (borrowed_whole(m), length(off), length(len))
    else {
        return EINVAL;
    };
    let Ok(from) = bytes(from, len, "from") else {
        return EINVAL;
    };
    if off + len > INT_MAX {
        return EINVAL;
    }
    quietly(EINVAL, || {
        let mut begins = 0;
        let written_over = |mbuf: facade::mbuf::Mbuf<'_>| {
            let (begin, end) = (begins, begins + mbuf.len());
            begins = end;
            begin < off + len && off < end && !mbuf.is_writable()
        };
        // Replacing them would take mbufs away to which the caller has pointers.
        if len > 0 && chain.iter().any(written_over) {
            return EROFS;
        }
        errno(chain.copyback(off, from))
    })
}

/// Writes `len` bytes into the chain from `off` on; bytes that other mbufs share are copied before (NetBSD's
/// m_copyback_cow). Returns the chain. NULL: there was no memory, or it would be longer than INT_MAX bytes, and the
/// chain is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_copyback_cow(
    m: *mut Mbuf,
    off: i32,
    len: i32,
    from: *const c_void,
    how: i32,
) -> *mut Mbuf {
    let _ = how;
    quietly(null_mut(), || {
        let (Some(mut chain), Some(off), Some(len)) = (whole(m), length(off), length(len)) else {
            return null_mut();
        };
        if off + len > INT_MAX {
            return null_mut();
        }
        let written = bytes(from, len, "from").map(|from| chain.copyback(off, from));
        match written {
            Ok(Ok(())) => given(chain),
            _ => null_mut(),
        }
    })
}

/// Adds bytes at the end (m_append). 1, or 0: there was no memory, or the chain would be longer than INT_MAX bytes, and nothing is added.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_append(m: *mut Mbuf, len: i32, from: *const c_void) -> i32 {
    let (Some(mut chain), Some(len)) = (borrowed_whole(m), length(len)) else {
        return 0;
    };
    let Ok(from) = bytes(from, len, "from") else {
        return 0;
    };
    quietly(0, || {
        (stays_int(&chain, len) && chain.append(from).is_ok()).into()
    })
}

/// Function that tranship_m_apply calls.
pub type Each = Option<unsafe extern "C" fn(arg: *mut c_void, data: *mut c_void, len: u32) -> i32>;

/// Calls `each` with the bytes of a range, piece by piece, until it returns something else than 0, which is returned (m_apply). Bytes that
/// another process may change are copied first. -1: there are not as many.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_apply(
    m: *mut Mbuf,
    off: i32,
    len: i32,
    each: Each,
    arg: *mut c_void,
) -> i32 {
    let (Some(chain), Some(each)) = (borrowed_whole(m), each) else {
        return -1;
    };
    let Some(range) = range(&chain, off, len) else {
        return -1;
    };
    let called = quietly(None, || {
        let called = chain.apply(range, |bytes| {
            let data = bytes.as_ptr().cast_mut().cast();
            #[allow(clippy::cast_sign_loss)] // never less than 0
            let len = int(bytes.len()) as u32;
            // SAFETY: the caller's function, called as it was promised.
            match unsafe { each(arg, data, len) } {
                0 => ControlFlow::Continue(()),
                other => ControlFlow::Break(other),
            }
        });
        called.ok()
    });
    match called {
        Some(ControlFlow::Break(other)) => other,
        Some(ControlFlow::Continue(())) => 0,
        None => -1,
    }
}
