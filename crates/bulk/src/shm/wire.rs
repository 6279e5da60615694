//! The socket beside the rings: what comes out of it may be anything.
//!
//! Only memory is taken, which the kernel can tell from anything else without asking anybody else. The rest, and what nobody
//! has taken when the socket is closed, is closed by another process, as that may take for ever (`sys::aside`). Who makes us do
//! that again and again finds nobody here any more.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use tranship_sys::aside::{self, Closing};
use tranship_sys::memfd;
use tranship_sys::socket::{self, Received, ToStranger};

/// So many of a user's may take for ever.
const MOST: usize = 4;

/// What is being closed that came from each user.
static CLOSING: Mutex<BTreeMap<u32, Vec<Closing>>> = Mutex::new(BTreeMap::new());

/// One end.
#[derive(Debug)]
pub(super) struct Wire {
    socket: ToStranger,
    /// Of the other end.
    uid: u32,
}

/// What came with a message.
pub(super) enum Brought {
    Memory,
    /// At least one was something else; it is closed.
    Other,
}

impl Wire {
    pub(super) fn new(socket: OwnedFd, uid: u32) -> Wire {
        Wire {
            socket: socket.into(),
            uid,
        }
    }

    /// The user at the other end.
    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    /// The next message.
    pub(super) fn recv(&self, bytes: &mut [u8]) -> io::Result<(Received, Brought)> {
        let mut got = socket::recvmsg_all(&self.socket, bytes, true)?;
        if got.fds.iter().all(memfd::has_seals) {
            return Ok((got, Brought::Memory));
        }
        let closing = aside::close(std::mem::take(&mut got.fds));
        let mut all = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(self.uid).or_default().push(closing);
        Ok((got, Brought::Other))
    }
}

/// Is too much of what came from that user still being closed?
pub(super) fn is_shunned(uid: u32) -> bool {
    let mut all = CLOSING.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, closing| {
        closing.retain(|closing| !closing.is_over());
        !closing.is_empty()
    });
    all.get(&uid).is_some_and(|closing| closing.len() >= MOST)
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
