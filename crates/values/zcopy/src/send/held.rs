//! Buffers of shared pools that the kernel may still read. Each send with MSG_ZEROCOPY keeps handles of its buffers
//! until its notification has come. The notification comes when nothing in the kernel refers to their pages any more:
//! they were acknowledged, or the connection is gone.
//!
//! That is why these buffers go by no other way without a copy. vmsplice(2) and sendfile(2) report nothing of that
//! kind. A socket's empty queue does not prove it either, because a reader on the same machine may still have the
//! pages. Values of an arena need none of this: their pages are never written again.

use crate::kernel::scatter::{self, Done};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tranship_core::Buffer;

/// Handles that are kept for one socket.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Sends by their numbers, oldest first.
    sends: VecDeque<Kept>,
    bytes: usize,
    stays: Option<Stays>,
}

#[derive(Debug)]
struct Kept {
    /// The kernel's number of the send.
    number: u32,
    bytes: usize,
    _buffers: Vec<Buffer>,
}

/// The socket, as long as something is kept.
#[derive(Debug)]
struct Stays {
    /// Our own descriptor: notifications come also when the program has closed its own.
    fd: OwnedFd,
    /// Linger time that the program set for closing it.
    linger: Option<Duration>,
}

impl Held {
    /// Begins a send by reference.
    pub(super) fn begin(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.stays.is_some() {
            return Ok(());
        }
        let own = fd.try_clone_to_owned()?;
        let linger = sockopt::socket_linger(fd)?;
        // Crash: nothing keeps our buffers when we die, and their pages are used again. With this the kernel does not
        // go on sending them then: it resets the connection when it closes our descriptors, which is before other
        // processes learn of the death.
        sockopt::set_socket_linger(fd, Some(Duration::ZERO))?;
        self.stays = Some(Stays { fd: own, linger });
        Ok(())
    }

    /// Keeps these buffers of a send that went until its notification comes.
    pub(super) fn keep(&mut self, number: u32, bytes: usize, buffers: Vec<Buffer>) {
        self.bytes += bytes;
        self.sends.push_back(Kept {
            number,
            bytes,
            _buffers: buffers,
        });
    }

    /// Releases the buffers of sends that the kernel is done with.
    pub(super) fn release(&mut self, done: &Done) {
        let bytes = &mut self.bytes;
        self.sends.retain(|kept| {
            let over = kept.number.wrapping_sub(done.first) < done.count;
            *bytes -= if over { kept.bytes } else { 0 };
            !over
        });
        self.end_if_empty();
    }

    /// Restores the socket's own linger time when nothing is kept.
    pub(super) fn end_if_empty(&mut self) {
        if self.sends.is_empty()
            && let Some(stays) = self.stays.take()
        {
            // Only a descriptor that is no socket any more refuses it.
            let _ = sockopt::set_socket_linger(&stays.fd, stays.linger);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the descriptor to wait for: notifications show as an error that was not asked for (poll(2)).
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let stays = self.stays.as_ref()?;
        Some(PollFd::new(&stays.fd, PollFlags::empty()))
    }

    /// Takes the notifications that have come; true if one has.
    pub(super) fn reap(&mut self) -> io::Result<bool> {
        let mut any = false;
        while let Some(stays) = &self.stays
            && let Some(done) = scatter::notification(&stays.fd)?
        {
            any = true;
            self.release(&done);
        }
        Ok(any)
    }

    /// Does the work of [`super::Socket::finish`].
    pub(super) fn finish(&mut self, limit: Duration) -> io::Result<bool> {
        let begin = Instant::now();
        loop {
            self.reap()?;
            let left = limit.saturating_sub(begin.elapsed());
            if self.is_empty() || left.is_zero() {
                return Ok(self.is_empty());
            }
            let ready = match self.poll_fd() {
                Some(fd) => wait(&mut [fd], left)?,
                None => 0,
            };
            if ready > 0 && !self.reap()? {
                // A connection that is over is ready for ever, and a device may still have its last pages.
                std::thread::sleep(left.min(AGAIN));
            }
        }
    }

    /// Does the work of [`super::Socket::abort`].
    pub(super) fn abort(&mut self) -> io::Result<()> {
        if let Some(stays) = &self.stays {
            rustix::net::connect_unspec(&stays.fd)?;
            self.reap()?;
        }
        Ok(())
    }
}

/// Pause of a thread that is told at once that there is something, and finds nothing.
pub(super) const AGAIN: Duration = Duration::from_millis(10);

/// Waits for any of them, at most that long.
pub(super) fn wait(all: &mut [PollFd<'_>], limit: Duration) -> io::Result<usize> {
    let limit = rustix::time::Timespec::try_from(limit).unwrap_or(rustix::time::Timespec {
        tv_sec: 3600,
        tv_nsec: 0,
    });
    match rustix::event::poll(all, Some(&limit)) {
        Err(rustix::io::Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}
