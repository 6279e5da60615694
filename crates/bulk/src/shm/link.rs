//! A ring, and the socket beside it by which an end that polls is woken.

use super::wire::Wire;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tranship_ring::{Ending, Ring, TIMED, doorbell};
use tranship_transport::Wait;

/// The ring, once both halves are known.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ring: Ring,
    /// Somebody slept a whole round for nothing: time to look at the socket.
    pub(super) suspect: AtomicBool,
    /// The other end is to tell news through the socket.
    pub(super) armed: AtomicBool,
    socket: Arc<Wire>,
}

impl Link {
    pub(super) fn new(ring: Ring, socket: Arc<Wire>) -> Link {
        Link {
            ring,
            suspect: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            socket,
        }
    }

    /// Wakes the other end if it sleeps, after a publish that fenced.
    #[inline]
    pub(super) fn notify(&self) {
        self.ring.notify(|| doorbell::press(&*self.socket));
    }

    /// Nothing more will be sent.
    pub(super) fn end(&self) {
        self.ring.end(Ending::Closed);
        self.ring
            .fence_then_notify(|| doorbell::press(&*self.socket));
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ring.their_ending() != Ending::Open
    }

    pub(super) fn disarm(&self) {
        self.ring.disarm();
        // Ordering: relaxed; words of our own.
        self.armed.store(false, Ordering::Relaxed);
        // What the socket said about it is to be taken.
        self.suspect.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) link: Arc<Link>,
    /// What the other end had taken when this was made.
    pub(super) head: u64,
}

impl Sleeper {
    fn has_news(&self) -> bool {
        let ring = &self.link.ring;
        ring.has_line() || ring.their_head() != self.head || self.link.has_ended()
    }
}

impl Wait for Sleeper {
    fn wait(&self, limit: Duration) {
        let mut points = [self.link.ring.point()];
        let news = || self.has_news().then_some(());
        let slept = tranship_ring::sleep_once(&TIMED, &mut points, limit, news);
        if !matches!(slept, Ok(Some(()))) {
            // Ordering: relaxed; a hint of our own.
            self.link.suspect.store(true, Ordering::Relaxed);
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.link.socket.as_fd())
    }

    fn arm(&self) -> bool {
        // Ordering: relaxed; a word of our own.
        self.link.armed.store(true, Ordering::Relaxed);
        self.link.ring.arm();
        !self.has_news()
    }

    fn disarm(&self) {
        self.link.disarm();
    }
}
