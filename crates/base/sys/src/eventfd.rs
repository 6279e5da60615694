//! Event descriptors: one bit that poll can see.

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Makes an unset, non-blocking event descriptor.
pub fn create() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(
        0,
        EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
    )?)
}

/// Makes it readable.
pub fn signal(fd: impl AsFd) -> io::Result<()> {
    match rustix::io::write(fd, &1u64.to_ne_bytes()) {
        // AGAIN: the count is at its maximum, so it is readable.
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes it unreadable; returns whether it was readable.
pub fn drain(fd: impl AsFd) -> io::Result<bool> {
    match rustix::io::read(fd, &mut [0u8; 8]) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn signals_merge() {
        let fd = super::create().expect("eventfd");
        assert!(!super::drain(&fd).expect("drain"));
        super::signal(&fd).expect("signal");
        super::signal(&fd).expect("signal");
        assert!(super::drain(&fd).expect("drain"));
        assert!(!super::drain(&fd).expect("drain"));
    }
}
