//! The standard streams that this program was started with. Rust opens `/dev/null` for those that were closed: data
//! would go nowhere, and nothing would be read, without an error.

use anyhow::{Result, bail};
use rustix::fs::{OFlags, fcntl_getfl};
use std::io;
use std::os::fd::AsFd;
use tranship_sys::inherit::was_closed;

fn mode(fd: impl AsFd) -> io::Result<OFlags> {
    Ok(fcntl_getfl(fd)? & OFlags::RWMODE)
}

/// Checks standard input for a command that reads its data there.
pub(crate) fn check_stdin() -> Result<()> {
    if was_closed(0) {
        bail!("standard input is closed: redirect it, or name a file");
    }
    if mode(io::stdin())? == OFlags::WRONLY {
        bail!("standard input is open for writing only: redirect it, or name a file");
    }
    Ok(())
}

/// Checks standard output for a command that writes its data there.
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
