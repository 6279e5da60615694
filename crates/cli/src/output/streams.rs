//! The standard streams that this program was started with. Rust opens `/dev/null` for those that were closed: data would go nowhere, and
//! nothing would be read, without an error.
#![allow(unsafe_code)] // a look before `main`, the only time at which a closed stream can be told

use anyhow::{Result, bail};
use rustix::fs::{OFlags, fcntl_getfl};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Bit n: descriptor n was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the C library calls what lies in this section before `main`, with arguments that a C function may leave alone.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for number in 0..3 {
        // SAFETY: only asked for its flags; what is not open is an error.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_getfd(fd).is_err() {
            // Ordering: relaxed; there is one thread.
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

fn was_closed(number: u8) -> bool {
    // Ordering: relaxed; written before `main`.
    CLOSED.load(Ordering::Relaxed) & (1 << number) != 0
}

fn mode(fd: impl AsFd) -> io::Result<OFlags> {
    Ok(fcntl_getfl(fd)? & OFlags::RWMODE)
}

/// For what reads its data there.
pub(crate) fn check_stdin() -> Result<()> {
    if was_closed(0) {
        bail!("standard input is closed: redirect it, or name a file");
    }
    if mode(io::stdin())? == OFlags::WRONLY {
        bail!("standard input is open for writing only: redirect it, or name a file");
    }
    Ok(())
}

/// For what writes its data there.
pub(crate) fn check_stdout() -> Result<()> {
    if was_closed(1) {
        bail!("standard output is closed: redirect it, to /dev/null if nothing is wanted");
    }
    if mode(io::stdout())? == OFlags::RDONLY {
        bail!(
            "standard output is open for reading only: redirect it, to /dev/null if nothing is wanted"
        );
    }
    Ok(())
}
