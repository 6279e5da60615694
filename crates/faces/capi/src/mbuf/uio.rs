//! Bytes of the program's, in several pieces or in a device, into packets and out of them.

use super::alloc::{Mbufs, got};
use super::{EINVAL, Mbuf, borrowed_whole, flags, length};
use crate::given::{Iovec, bytes};
use crate::status::quietly;
use facade::mbuf::{Chain, Error, Flags, MHLEN, MLEN, Mbufs as From};
use std::ffi::c_void;
use std::io::{IoSlice, IoSliceMut};
use std::ptr::null_mut;

/// Bytes of the program's in several pieces (uio(9)). A call that copies some moves it on: `uio_resid` becomes less,
/// and `uio_iov` and its first piece begin behind the bytes that were copied.
#[repr(C)]
#[derive(Debug)]
pub struct Uio {
    /// The pieces.
    pub uio_iov: *mut Iovec,
    /// The number of pieces.
    pub uio_iovcnt: i32,
    /// 0.
    pub reserved: i32,
    /// The number of bytes to copy: at most those of all pieces.
    pub uio_resid: i64,
}

/// The most pieces, `IOV_MAX`.
const PIECES: usize = 1024;

impl Uio {
    /// Returns the parts of its pieces that are its next `most` bytes; `None` if a piece is NULL, or there are too few.
    fn next(&self, most: usize) -> Option<Vec<(*mut u8, usize)>> {
        let count = length(self.uio_iovcnt).filter(|count| *count <= PIECES)?;
        let pieces = match count {
            0 => &[],
            _ if self.uio_iov.is_null() => return None,
            // SAFETY: the caller promises so many pieces.
            _ => unsafe { std::slice::from_raw_parts(self.uio_iov, count) },
        };
        let mut left = most;
        let mut parts = Vec::with_capacity(count);
        for piece in pieces {
            let part = piece.iov_len.min(left);
            if part > 0 && piece.iov_base.is_null() {
                return None;
            }
            if part > 0 {
                parts.push((piece.iov_base.cast(), part));
            }
            left -= part;
        }
        (left == 0).then_some(parts)
    }

    /// Returns how many of its bytes are wanted: at most `len`, or all if `len` is 0.
    fn wanted(&self, len: i32) -> Option<usize> {
        let all = usize::try_from(self.uio_resid).ok()?;
        Some(match length(len)? {
            0 => all,
            len => all.min(len),
        })
    }

    fn move_on(&mut self, copied: usize) {
        let mut left = copied;
        while left > 0 && self.uio_iovcnt > 0 {
            // SAFETY: `next` has found these pieces.
            let piece = unsafe { &mut *self.uio_iov };
            let part = piece.iov_len.min(left);
            piece.iov_base = piece.iov_base.cast::<u8>().wrapping_add(part).cast();
            piece.iov_len -= part;
            left -= part;
            if piece.iov_len == 0 {
                self.uio_iov = self.uio_iov.wrapping_add(1);
                self.uio_iovcnt -= 1;
            }
        }
        self.uio_resid -= i64::try_from(copied).unwrap_or(self.uio_resid);
    }
}

/// Copies the next `len` bytes of `uio` into a new chain, all of them if `len` is 0 or there are fewer (m_uiotombuf).
/// Data begins `space` bytes from the start of the first mbuf, below its 208 bytes, 160 with M_PKTHDR. NULL: there was
/// no memory, or `uio` has not as many; then `uio` is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_uiotombuf(
    from: Option<&Mbufs>,
    uio: Option<&mut Uio>,
    how: i32,
    len: i32,
    space: i32,
    flag_bits: i32,
) -> *mut Mbuf {
    let flags = flags(flag_bits);
    let most = match flags.contains(Flags::PKTHDR) {
        true => MHLEN,
        false => MLEN,
    };
    let (Some(uio), Some(space)) = (uio, length(space).filter(|space| *space < most)) else {
        return null_mut();
    };
    let wanted = uio
        .wanted(len)
        .filter(|wanted| i32::try_from(*wanted).is_ok());
    let Some((wanted, parts)) = wanted.and_then(|wanted| Some((wanted, uio.next(wanted)?))) else {
        return null_mut();
    };
    let slices: Vec<IoSlice<'_>> = parts
        .iter()
        // SAFETY: the caller promises that the bytes are there, and that nobody writes them during the call.
        .map(|(at, len)| IoSlice::new(unsafe { std::slice::from_raw_parts(*at, *len) }))
        .collect();
    let made = got(from, how, |from| {
        let mut chain = from.from_slices(&slices, space.min(MHLEN))?;
        if !flags.contains(Flags::PKTHDR) {
            chain.demote();
        }
        if flags.contains(Flags::EOR) {
            chain.end_record();
        }
        Ok::<Chain, Error>(chain)
    });
    if !made.is_null() {
        uio.move_on(wanted);
    }
    made
}

/// Copies the first `len` bytes of a chain to the next bytes of `uio`, all of them if `len` is 0 or there are fewer
/// (m_mbuftouio). 0, or an error's number, and then `uio` is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_mbuftouio(uio: Option<&mut Uio>, m: *const Mbuf, len: i32) -> i32 {
    let (Some(uio), Some(chain)) = (uio, borrowed_whole(m)) else {
        return EINVAL;
    };
    let wanted = uio.wanted(len).map(|wanted| wanted.min(chain.len()));
    let Some((wanted, parts)) = wanted.and_then(|wanted| Some((wanted, uio.next(wanted)?))) else {
        return EINVAL;
    };
    let mut slices: Vec<IoSliceMut<'_>> = parts
        .iter()
        // SAFETY: the caller promises room for the bytes, which nobody else uses.
        .map(|(at, len)| IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(*at, *len) }))
        .collect();
    quietly(EINVAL, || match chain.to_slices(0, &mut slices) {
        Ok(_) => {
            uio.move_on(wanted);
            0
        }
        Err(error) => error.errno(),
    })
}

/// Function that copies bytes out of a device: `len` bytes from `from` to `to`.
pub type Copy = Option<unsafe extern "C" fn(from: *const c_void, to: *mut c_void, len: u32)>;

/// Makes a packet with copies of `len` bytes of a device, `off` bytes from the start of its first mbuf (m_devget). `rcvif`
/// is the interface in its header. `copy` copies them, piece by piece; NULL: they are ordinary memory. NULL: there was
/// no memory, or `off` is more than 160.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_devget(
    from: Option<&Mbufs>,
    buf: *const c_void,
    len: i32,
    off: i32,
    rcvif: u32,
    copy: Copy,
) -> *mut Mbuf {
    let (Some(len), Some(off)) = (length(len), length(off)) else {
        return null_mut();
    };
    if buf.is_null() && len > 0 {
        return null_mut();
    }
    got(from, 0, |from| {
        let mut chain = match copy {
            Some(copy) => copied(from, buf, len, off, copy)?,
            None => {
                let no_bytes = |_: facade::Error| Error::TooLong {
                    wanted: len,
                    limit: 0,
                };
                from.devget(bytes(buf, len, "buf").map_err(no_bytes)?, off)?
            }
        };
        if let Some(header) = chain.header_mut() {
            header.interface = rcvif;
        }
        Ok::<Chain, Error>(chain)
    })
}

fn copied(
    from: &From,
    buf: *const c_void,
    len: usize,
    off: usize,
    copy: unsafe extern "C" fn(*const c_void, *mut c_void, u32),
) -> Result<Chain, Error> {
    let mut chain = from.getm2(len + off)?;
    chain.reserve_front(off)?;
    let filled = chain.fill_with(|slices| {
        let mut at = 0;
        for slice in slices {
            let part = slice.len().min(len - at);
            let count = u32::try_from(part).unwrap_or(u32::MAX);
            if part > 0 {
                let from = buf.cast::<u8>().wrapping_add(at);
                // SAFETY: the caller's function, called as it was promised.
                unsafe { copy(from.cast(), slice.as_mut_ptr().cast(), count) };
            }
            at += part;
        }
        Ok(at)
    });
    match filled {
        Ok(filled) if filled == len => Ok(chain),
        _ => Err(Error::TooLong {
            wanted: len,
            limit: chain.len(),
        }),
    }
}
