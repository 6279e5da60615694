//! Living forked children, and the memory that waits for them.

use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use tranship_sys::{epoll, process};

/// Children that may still see this arena's pages, and the memory that they keep from being used again.
#[derive(Debug, Default)]
pub(super) struct Children {
    /// Pipes that are readable at their end: the children of one fork, and theirs, are gone.
    pub alive: Vec<End>,
    /// Runs of empty blocks: first, count, bytes.
    pub kept: Vec<(u32, u32, u64)>,
}

/// A pipe's end that is closed with its children, and the file that its descriptor stands for: a program may have
/// closed it, and have another file under its number.
#[derive(Debug)]
pub(super) struct End {
    fd: ManuallyDrop<OwnedFd>,
    identity: (u64, u64),
}

impl End {
    pub(super) fn new(fd: OwnedFd) -> End {
        End {
            identity: process::identity(&fd).unwrap_or_default(),
            fd: ManuallyDrop::new(fd),
        }
    }

    /// Returns whether the child is gone. A child whose pipe was closed is not known to be gone: it may live.
    fn is_over(&self) -> bool {
        self.is_own()
            && epoll::wait_readable(&*self.fd, Some(std::time::Duration::ZERO)).unwrap_or(false)
    }

    fn is_own(&self) -> bool {
        process::identity(&*self.fd).is_ok_and(|now| now == self.identity)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

impl Children {
    pub(super) fn any(&mut self) -> bool {
        self.alive.retain(|end| !end.is_over());
        !self.alive.is_empty()
    }

    /// Returns the bytes that wait for children.
    pub(super) fn waiting(&self) -> u64 {
        self.kept.iter().map(|(_, _, bytes)| bytes).sum()
    }
}
