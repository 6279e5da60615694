//! A bell that another thread of this process rings to end a [`poll`](super::poll()).

use crate::error::{self, Error};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_sys::{eventfd, futex};

/// A bell that a thread rings to end the wait of another thread of its process. The bell stays rung until it is
/// [taken](Bell::take).
///
/// It has a word, for waits on words, and a descriptor, for waits on descriptors.
#[derive(Debug)]
pub struct Bell {
    rung: AtomicU32,
    fd: OwnedFd,
}

impl Bell {
    /// Makes a bell that is not rung.
    ///
    /// # Errors
    /// `System`: there is no descriptor left.
    pub fn new() -> Result<Bell, Error> {
        Ok(Bell {
            rung: AtomicU32::new(0),
            fd: eventfd::create().map_err(error::system("eventfd"))?,
        })
    }

    /// Rings it.
    pub fn ring(&self) {
        // Ordering: release; partner: the acquire in `take`.
        if self.rung.swap(1, Ordering::Release) == 0 {
            // The word is no other process's, so no other waiter stands in its queue. A wake of a word that is mapped, and a
            // write to an eventfd, do not fail.
            let _ = futex::wake(&self.rung, 1);
            let _ = eventfd::signal(&self.fd);
        }
    }

    /// Returns whether it was rung, and ends that.
    pub fn take(&self) -> bool {
        // Ordering: acquire; partner: the release in `ring`.
        self.is_rung() && self.rung.swap(0, Ordering::Acquire) != 0
    }

    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed) != 0 // `take` acquires
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        &self.rung
    }

    /// Makes the descriptor unreadable: the word says whether the bell is rung.
    pub(super) fn hush(&self) {
        let _ = eventfd::drain(&self.fd); // readable once more: one more look
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
