//! Changes of a chain's shape that keep its bytes: room in front, in one piece, cut, joined.
//!
//! If FreeBSD's routine frees the chain on failure, the routine here does so too, since programs that were written for
//! it count on that.

use super::{EINVAL, Mbuf, borrowed_whole, given, inside, int, length, or_null, stays_int, whole};
use crate::status::quietly;
use facade::mbuf::{Chain, Error};
use std::hash::{BuildHasher as _, RandomState};
use std::ptr::null_mut;

/// Does `work` on a chain, and returns the chain. If the work fails, the chain is freed and NULL returned.
fn or_freed<T>(m: *mut Mbuf, work: impl FnOnce(&mut Chain) -> Result<T, Error>) -> *mut Mbuf {
    quietly(null_mut(), || {
        let Some(mut chain) = whole(m) else {
            return null_mut();
        };
        match work(&mut chain).is_ok() {
            true => given(chain),
            false => null_mut(),
        }
    })
}

/// Returns the error for a length less than 0.
fn bad() -> Error {
    Error::TooLong {
        wanted: usize::MAX,
        limit: i32::MAX as usize,
    }
}

/// Makes room for `len` bytes in front, zeroed: in place, or in a new mbuf (M_PREPEND). At most 160 bytes of a packet, 208 of another
/// chain, and INT_MAX of all. NULL: there was none, and the chain is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_prepend(m: *mut Mbuf, len: i32, how: i32) -> *mut Mbuf {
    let _ = how;
    or_freed(m, |chain| {
        let len = length(len).filter(|len| stays_int(chain, *len));
        chain.prepend(len.ok_or_else(bad)?).map(drop)
    })
}

/// The first `len` bytes in one piece, in the first mbuf; at most 160 (m_pullup). NULL: there are not as many, or no memory, and the chain
/// is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_pullup(m: *mut Mbuf, len: i32) -> *mut Mbuf {
    or_freed(m, |chain| {
        chain.pullup(length(len).ok_or_else(bad)?).map(drop)
    })
}

/// The first `len` bytes in one piece in a new mbuf, `dstoff` bytes from its start (m_copyup). Together at most 160. NULL: as tranship_m_pullup.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_copyup(m: *mut Mbuf, len: i32, dstoff: i32) -> *mut Mbuf {
    or_freed(m, |chain| {
        let (len, space) = (length(len), length(dstoff));
        let (len, space) = len.zip(space).ok_or_else(bad)?;
        chain.copyup(len, space).map(drop)
    })
}

/// `len` bytes from `off` on in one piece, which may be written; at most 2048 (m_pulldown). Returns the mbuf in which they are, and in
/// `offset` where in it; `m` stays the first. NULL: there are not as many, no memory, or `offset` is NULL, and the chain is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_pulldown(
    m: *mut Mbuf,
    off: i32,
    len: i32,
    offset: Option<&mut i32>,
) -> *mut Mbuf {
    quietly(null_mut(), || {
        let Some(mut chain) = whole(m) else {
            return null_mut();
        };
        let range = length(off)
            .zip(length(len))
            .map(|(off, len)| off..off + len);
        let (Some(range), Some(offset)) = (range, offset) else {
            return null_mut();
        };
        let from = range.start;
        if chain.pulldown(range).is_err() {
            return null_mut();
        }
        let Some((mbuf, at)) = chain.getptr(from) else {
            return null_mut();
        };
        *offset = int(at);
        let found = inside(Some(mbuf));
        given(chain);
        found
    })
}

/// Takes `count` bytes away from the front, or, less than 0, from the end; all, if there are not as many (m_adj).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_adj(m: *mut Mbuf, count: i32) {
    let Some(mut chain) = borrowed_whole(m) else {
        return;
    };
    quietly((), || match count {
        0.. => chain.trim_front(count.unsigned_abs() as usize),
        _ => chain.trim_back(count.unsigned_abs() as usize),
    });
}

/// Cuts the bytes from `len` on off and returns them (m_split). Storage at the cut is shared. NULL: there are not as many, or no memory,
/// and the chain is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_split(m: *mut Mbuf, len: i32, how: i32) -> *mut Mbuf {
    let _ = how;
    quietly(null_mut(), || match (borrowed_whole(m), length(len)) {
        (Some(mut chain), Some(len)) => or_null(chain.split_off(len)),
        _ => null_mut(),
    })
}

/// Puts the chain `n` behind `m`, whose packet length follows (m_catpkt; m_cat, too). 0, and `n` is not the caller's any more; or EINVAL, and both
/// chains are as before: one of them is NULL, or together they would be longer than INT_MAX bytes.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_catpkt(m: *mut Mbuf, n: *mut Mbuf) -> i32 {
    quietly(EINVAL, || {
        let (Some(mut chain), Some(other)) = (borrowed_whole(m), borrowed_whole(n)) else {
            return EINVAL;
        };
        if !stays_int(&chain, other.len()) {
            return EINVAL;
        }
        chain.cat(std::mem::ManuallyDrop::into_inner(other));
        0
    })
}

/// All bytes in as few mbufs as possible (m_defrag). NULL: there was no memory, and the chain is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_defrag(m: *mut Mbuf, how: i32) -> *mut Mbuf {
    let _ = how;
    quietly(null_mut(), || {
        let Some(mut chain) = borrowed_whole(m) else {
            return null_mut();
        };
        match chain.defrag() {
            Ok(()) => given(std::mem::ManuallyDrop::into_inner(chain)),
            Err(_) => null_mut(),
        }
    })
}

/// All bytes in at most `limit` mbufs, joining neighbours up to 2048 bytes (m_collapse). NULL: that cannot be, or there was no memory, and
/// the chain is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_collapse(m: *mut Mbuf, how: i32, limit: i32) -> *mut Mbuf {
    let _ = how;
    quietly(null_mut(), || {
        let (Some(chain), Some(limit)) = (borrowed_whole(m), length(limit)) else {
            return null_mut();
        };
        if chain.count() <= limit {
            return m;
        }
        // Works on a copy by reference, as a failure may leave the chain half done, with another first mbuf.
        let Ok(mut copy) = chain.copypacket() else {
            return null_mut();
        };
        if copy.collapse(limit).is_err() {
            return null_mut();
        }
        drop(std::mem::ManuallyDrop::into_inner(chain));
        given(copy)
    })
}

/// Cuts a packet into mbufs of `length` bytes each, at most 2048, to test what reads packets (m_fragment): -1 is a random
/// length up to 255, -2 one for each mbuf. The chain as it was: it is no packet, `length` is 0 or below -2, or there was
/// no memory.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_fragment(m: *mut Mbuf, how: i32, length: i32) -> *mut Mbuf {
    let _ = how;
    quietly(m, || {
        let Some(mut chain) = borrowed_whole(m) else {
            return null_mut();
        };
        if !chain.is_packet() || length == 0 || length < -2 {
            return m;
        }
        let hasher = RandomState::new();
        let mut made = 0u64;
        let mut random = || {
            made += 1;
            usize::try_from(hasher.hash_one(made) % 255 + 1).unwrap_or(1)
        };
        let cut = match super::length(length) {
            Some(size) => chain.fragment(size),
            None if length == -1 => chain.fragment(random()),
            None => chain.fragment_with(random),
        };
        match cut {
            Ok(()) => given(std::mem::ManuallyDrop::into_inner(chain)),
            Err(_) => m,
        }
    })
}

/// All bytes in mbufs that may be written: those whose storage others have, too, are replaced by copies (m_unshare). NULL: there was no
/// memory, and the chain is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_unshare(m: *mut Mbuf, how: i32) -> *mut Mbuf {
    let _ = how;
    or_freed(m, Chain::unshare)
}
