//! Facts about an mbuf, and the fields that a program may set.

use super::{EINVAL, Mbuf, borrowed, borrowed_whole, errno, flags, inside, int, length};
use crate::status::quietly;
use facade::mbuf::{Flags, Mbuf as Seen};
use std::ffi::c_void;
use std::io::Write as _;
use std::ptr::null_mut;

/// Looks at one mbuf. Returns `otherwise` for NULL.
fn of<T>(m: *const Mbuf, otherwise: T, look: impl FnOnce(Seen<'_>) -> T) -> T {
    match borrowed(m) {
        Some(chain) => match chain.iter().next() {
            Some(mbuf) => look(mbuf),
            None => otherwise,
        },
        None => otherwise,
    }
}

/// Returns the address of its data (mtod). NULL if it is a piece of a file.
///
/// Write it only if tranship_m_writable returns 1. The writer of data from another process can change them at any time:
/// check a copy (tranship_m_copydata).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_data(m: *const Mbuf) -> *mut c_void {
    of(m, null_mut(), |mbuf| {
        mbuf.as_ptr()
            .map_or(null_mut(), |data| data.as_ptr().cast())
    })
}

/// Bytes of its data (m_len).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_len(m: *const Mbuf) -> i32 {
    of(m, 0, |mbuf| int(mbuf.len()))
}

/// Sets the number of data bytes of one mbuf (`m_len =`). 0, or EINVAL: its storage has fewer.
///
/// The packet's length follows if it is the packet's first mbuf; else tranship_m_fixhdr, or the next call with the
/// packet, corrects it.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_setlen(m: *mut Mbuf, len: i32) -> i32 {
    match (borrowed(m), length(len)) {
        (Some(mut chain), Some(len)) => errno(chain.set_first_len(len)),
        _ => EINVAL,
    }
}

/// The mbuf behind it (m_next).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_next(m: *const Mbuf) -> *mut Mbuf {
    borrowed(m).map_or(null_mut(), |chain| inside(chain.iter().nth(1)))
}

/// The last mbuf of the chain (m_last).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_last(m: *const Mbuf) -> *mut Mbuf {
    borrowed(m).map_or(null_mut(), |chain| inside(Some(chain.last())))
}

/// Returns the mbuf's flags (m_flags).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_flags(m: *const Mbuf) -> i32 {
    of(m, 0, |mbuf| mbuf.flags().bits().cast_signed())
}

/// Sets some of its flags and clears others (`m_flags |=`, `&= ~`). The flags of its storage (M_EXT, M_RDONLY, M_EXTPG)
/// and of a packet's begin stay as they are.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_setflags(m: *mut Mbuf, set: i32, clear: i32) {
    if let Some(mut chain) = borrowed(m) {
        chain.insert_flags(flags(set));
        chain.remove_flags(flags(clear));
    }
}

/// Clears the protocol's flags of all mbufs of the chain (m_clrprotoflags).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_clrprotoflags(m: *mut Mbuf) {
    if let Some(mut chain) = borrowed(m) {
        chain.clear_protocol_flags();
    }
}

/// Returns the mbuf's kind (m_type).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_type(m: *const Mbuf) -> i32 {
    of(m, 0, |mbuf| mbuf.kind().0.into())
}

/// Bytes of its storage (M_SIZE).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_size(m: *const Mbuf) -> i32 {
    of(m, 0, |mbuf| int(mbuf.size()))
}

/// Bytes in front of its data that may be written (M_LEADINGSPACE).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_leadingspace(m: *const Mbuf) -> i32 {
    of(m, 0, |mbuf| int(mbuf.leading_space()))
}

/// Bytes behind its data that may be written (M_TRAILINGSPACE).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_trailingspace(m: *const Mbuf) -> i32 {
    of(m, 0, |mbuf| int(mbuf.trailing_space()))
}

/// 1 if its data may be written in place (M_WRITABLE): no other mbuf refers to its storage.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_writable(m: *const Mbuf) -> i32 {
    of(m, 0, |mbuf| mbuf.is_writable().into())
}

/// How many mbufs refer to its storage; 1 of data inside it (m_extrefcnt).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_extrefcnt(m: *const Mbuf) -> i32 {
    of(m, 0, |mbuf| mbuf.references().cast_signed())
}

/// Bytes of the chain; where `last` is not NULL, its last mbuf goes there (m_length).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_length(m: *const Mbuf, last: Option<&mut *mut Mbuf>) -> i32 {
    let chain = borrowed(m);
    if let Some(last) = last {
        *last = (chain.as_ref()).map_or(null_mut(), |chain| inside(Some(chain.last())));
    }
    chain.map_or(0, |chain| int(chain.iter().map(|mbuf| mbuf.len()).sum()))
}

/// Makes the packet's length that of its mbufs, and returns it (m_fixhdr; m_pktlen, too).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_fixhdr(m: *mut Mbuf) -> i32 {
    borrowed(m).map_or(0, |mut chain| int(chain.fix_header()))
}

/// The mbuf in which a byte lies, and in `offset` where in it; for the chain's length the end of its last mbuf; NULL beyond (m_getptr).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_getptr(m: *mut Mbuf, at: i32, offset: Option<&mut i32>) -> *mut Mbuf {
    let (Some(chain), Some(at)) = (borrowed(m), length(at)) else {
        return null_mut();
    };
    let Some((mbuf, within)) = chain.getptr(at) else {
        return null_mut();
    };
    if let Some(offset) = offset {
        *offset = int(within);
    }
    inside(Some(mbuf))
}

/// Reserves `len` bytes for data as far back as possible in an empty mbuf, at a multiple of 8 (m_align). 0, or an
/// error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_align(m: *mut Mbuf, len: i32) -> i32 {
    match (borrowed(m), length(len)) {
        (Some(mut chain), Some(len)) => errno(chain.align(len)),
        _ => EINVAL,
    }
}

/// Leaves `len` bytes free at the start of an empty mbuf, for headers in front of its data (`m_data +=`). 0, or an
/// error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_reserve(m: *mut Mbuf, len: i32) -> i32 {
    match (borrowed(m), length(len)) {
        (Some(mut chain), Some(len)) => errno(chain.reserve_front(len)),
        _ => EINVAL,
    }
}

/// 1 if a chain is consistent, 0 if not, or it is NULL (m_sanity). What is wrong goes to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_sanity(m: *const Mbuf) -> i32 {
    quietly(0, || match borrowed(m).map(|chain| chain.sanity()) {
        Some(Ok(())) => 1,
        Some(Err(insane)) => {
            let _ = writeln!(std::io::stderr(), "tranship: mbuf {m:p}: {insane}");
            0
        }
        None => 0,
    })
}

/// Writes a chain to standard error, mbuf by mbuf, with its first `maxlen` bytes; -1: all (m_print).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_print(m: *const Mbuf, maxlen: i32) {
    if let Some(chain) = borrowed(m) {
        let most = length(maxlen).unwrap_or(usize::MAX);
        quietly((), || {
            let _ = write!(std::io::stderr(), "{}", chain.print(most));
        });
    }
}

/// Takes the packet header away, tags and all (m_demote_pkthdr).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_demote_pkthdr(m: *mut Mbuf) {
    if let Some(mut chain) = borrowed(m) {
        quietly((), || chain.demote());
    }
}

/// Gives a packet's header to another packet, tags and all; `from` is none any more (m_move_pkthdr). 0, or EINVAL: one of them is no packet.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_move_pkthdr(to: *mut Mbuf, from: *mut Mbuf) -> i32 {
    let (Some(mut from), Some(mut to)) = (packet(from), packet(to)) else {
        return EINVAL;
    };
    quietly(EINVAL, || errno(from.move_header(&mut to)))
}

/// Gives a copy of a packet's header to another packet, tags and all (m_dup_pkthdr). 1, or 0: there was no memory, or one of them is no packet.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_dup_pkthdr(to: *mut Mbuf, from: *const Mbuf, how: i32) -> i32 {
    let _ = how;
    let (Some(from), Some(mut to)) = (packet(from), packet(to)) else {
        return 0;
    };
    quietly(0, || from.dup_header(&mut to).is_ok().into())
}

/// Returns the chain if it is a packet. The first mbuf of any other chain could change.
fn packet(m: *const Mbuf) -> Option<std::mem::ManuallyDrop<facade::mbuf::Chain>> {
    borrowed_whole(m).filter(|chain| chain.flags().contains(Flags::PKTHDR))
}
