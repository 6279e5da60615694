//! The domain's own descriptor, which any epoll loop can wait for.

use super::state::DomainCore;
use crate::base::lock;
use crate::error::{self, Error};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tranship_sys::epoll::Interest;

impl DomainCore {
    pub(super) fn poll_socket(&self) -> Result<(), Error> {
        let conn = lock(&self.conn);
        match conn.fd() {
            Some(fd) => self
                .poller
                .add(fd, 0, Interest::Read)
                .map_err(error::system("epoll_ctl")),
            None => Ok(()),
        }
    }

    pub(super) fn poll_manager(&self, fd: BorrowedFd<'_>) {
        // The old socket left the set when it was closed.
        let _ = self.poller.add(fd, 0, Interest::Read);
    }

    pub fn poll_also(&self, fd: &OwnedFd) -> Result<(), Error> {
        self.poller
            .add(fd, 1, Interest::Read)
            .map_err(error::system("epoll_ctl"))
    }

    /// Returns a descriptor that is readable when the manager has news.
    pub fn pollable(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    pub fn poll_no_more(&self, fd: &OwnedFd) {
        let _ = self.poller.remove(fd);
    }
}
