//! A queued message to a client.

use super::keep::Kept;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use tranship_sys::socket;

/// Messages sent to a client in one task.
pub(super) const TURN: usize = 32;

/// A queued message, with its own hold on its descriptors.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub bytes: Vec<u8>,
    pub fds: Vec<Rc<Kept>>,
}

impl Outgoing {
    pub fn send(&self, to: impl AsFd) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = self.fds.iter().map(|f| f.as_fd()).collect();
        socket::sendmsg(to, &self.bytes, &fds, true)
    }
}
