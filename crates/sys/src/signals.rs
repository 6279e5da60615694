//! Blocking signals around the start of a thread.

use std::io;
use std::mem::MaybeUninit;

/// A thread's signal mask.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

/// Blocks all signals for this thread (and threads it starts); returns what was blocked before.
pub fn block_all() -> io::Result<Mask> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both point to locals of the right type; sigfillset initialises the first, pthread_sigmask the second.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let error = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Mask(before.assume_init()))
    }
}

/// Goes back to a mask.
pub fn restore(mask: &Mask) {
    // SAFETY: the mask was filled by the kernel.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut()) };
}
