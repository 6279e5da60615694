//! External storage: memory of the program's own in an mbuf.

use super::{EINVAL, Mbuf, borrowed, flags};
use crate::status::quietly;
use facade::mbuf::{Chain, Counted, Error, Flags};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// Called when the last mbuf that refers to attached memory is gone, on whatever thread that is.
pub type ExtFree = Option<unsafe extern "C" fn(arg1: *mut c_void, arg2: *mut c_void)>;

/// The program's memory, until nobody refers to it.
struct Attached {
    at: *mut u8,
    len: usize,
    free: ExtFree,
    args: [*mut c_void; 2],
}

// SAFETY: the caller promises: the memory may be used, and freed, by any thread.
unsafe impl Send for Attached {}

impl AsRef<[u8]> for Attached {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller promises that `len` bytes are there until they are freed.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl AsMut<[u8]> for Attached {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and that nobody else writes them.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            let [arg1, arg2] = self.args;
            // SAFETY: the caller's function, called once, as it was promised.
            unsafe { free(arg1, arg2) };
        }
    }
}

/// Attaches memory of the program's own to an mbuf that has no data yet (m_extadd): `size` bytes from `buf` on, as its storage, of which
/// nothing is data until tranship_m_setlen. When nobody refers to it any more `free`, if it is not NULL, is called with both arguments.
/// With M_RDONLY in `flag_bits` it is never written. At most INT_MAX bytes. 0, or an error's number: nothing is attached, and nothing will be freed.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_extadd(
    m: *mut Mbuf,
    buf: *mut c_void,
    size: u32,
    free: ExtFree,
    arg1: *mut c_void,
    arg2: *mut c_void,
    flag_bits: i32,
) -> i32 {
    let Some(mut chain) = borrowed(m) else {
        return EINVAL;
    };
    if buf.is_null() || i32::try_from(size).is_err() {
        return EINVAL;
    }
    let attached = Attached {
        at: buf.cast(),
        len: size as usize,
        free,
        args: [arg1, arg2],
    };
    let read_only = flags(flag_bits).contains(Flags::RDONLY);
    quietly(EINVAL, || match attach(&mut chain, attached, read_only) {
        // A fresh mbuf has no data.
        Ok(()) => chain.set_first_len(0).map_or(EINVAL, |()| 0),
        Err(error) => error.errno(),
    })
}

/// Attaches memory whose references the program counts in `ref_cnt` (m_extaddref), as tranship_m_extadd does. Each mbuf
/// that refers to it counts one more. The call or program that makes it 0 frees the memory: an mbuf by `free`. It may be
/// written where it is while `ref_cnt` is 1. 0, or an error's number: nothing is attached, nor counted.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_extaddref(
    m: *mut Mbuf,
    buf: *mut c_void,
    size: u32,
    ref_cnt: *mut u32,
    free: ExtFree,
    arg1: *mut c_void,
    arg2: *mut c_void,
) -> i32 {
    let (Some(mut chain), Some(buf)) = (borrowed(m), NonNull::new(buf.cast::<u8>())) else {
        return EINVAL;
    };
    let Some(count) = NonNull::new(ref_cnt.cast::<AtomicU32>()).filter(|at| at.is_aligned()) else {
        return EINVAL;
    };
    if i32::try_from(size).is_err() {
        return EINVAL;
    }
    let counted = Counted {
        bytes: NonNull::slice_from_raw_parts(buf, size as usize),
        count,
        free,
        args: [arg1, arg2],
    };
    // SAFETY: the caller promises: memory and counter stay until the counter is 0, and any thread may use them.
    quietly(EINVAL, || match unsafe { chain.attach_counted(counted) } {
        Ok(()) => chain.set_first_len(0).map_or(EINVAL, |()| 0),
        Err(error) => error.errno(),
    })
}

fn attach(chain: &mut Chain, attached: Attached, read_only: bool) -> Result<(), Error> {
    let done = match read_only {
        true => chain.attach(attached),
        false => chain.attach_mut(attached),
    };
    done.map_err(|(error, attached)| {
        std::mem::forget(attached); // it stays the caller's
        error
    })
}
