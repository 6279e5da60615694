//! Memory of this server that untaken replies hold, of all clients together: their text, and values that are stored no
//! more.
//!
//! Stored values take no more memory for being in replies as well. Beyond the limit no client's next command is read
//! before its replies are taken. The slowest clients are closed, until the limit is kept again.

use crate::store::Store;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tranship_sys::eventfd;

#[derive(Debug)]
pub(super) struct Waiting {
    /// Bytes of text, and of input that is not parsed yet.
    text: Arc<AtomicU64>,
    most: u64,
    /// Doorbells that make the workers check.
    doorbells: OnceLock<Vec<OwnedFd>>,
}

/// A client's part of the text.
#[derive(Debug)]
pub(super) struct Part {
    text: Arc<AtomicU64>,
    own: u64,
}

impl Waiting {
    /// Creates the limit of a store with so many bytes of memory: a quarter of the arena's memory beyond that.
    pub(super) fn new(memory: u64) -> Waiting {
        Waiting {
            text: Arc::default(),
            most: crate::store::beyond(memory) / 4,
            doorbells: OnceLock::new(),
        }
    }

    /// Sets the doorbells of the workers to wake.
    pub(super) fn ring_at(&self, doorbells: Vec<OwnedFd>) {
        let _ = self.doorbells.set(doorbells);
    }

    /// Returns the part of a client that has nothing waiting.
    pub(super) fn part(&self) -> Part {
        Part {
            text: Arc::clone(&self.text),
            own: 0,
        }
    }

    /// Makes all workers check.
    pub(super) fn ring(&self) {
        for doorbell in self.doorbells.get().into_iter().flatten() {
            let _ = eventfd::signal(doorbell);
        }
    }

    /// Returns whether replies hold more than so many bytes.
    fn is_more_than(&self, most: u64, store: &Store) -> bool {
        // Relaxed: a sum.
        let text = self.text.load(Ordering::Relaxed);
        text > most || store.left_bytes(most - text) > most - text
    }

    /// Returns whether replies hold so much that no client may add to its waiting replies.
    pub(super) fn is_much(&self, store: &Store) -> bool {
        self.is_more_than(self.most / 2, store)
    }

    /// Returns whether replies hold more than they may, or memory that stored values lack.
    pub(super) fn is_too_much(&self, store: &Store) -> bool {
        self.is_more_than(self.most, store) || store.is_short()
    }
}

impl Part {
    /// Sets the number of bytes held.
    pub(super) fn set(&mut self, bytes: u64) {
        if bytes == self.own {
            return;
        }
        // Relaxed: a sum; it wraps around for less.
        self.text
            .fetch_add(bytes.wrapping_sub(self.own), Ordering::Relaxed);
        self.own = bytes;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_hold_is_summed_up_and_goes_with_them() {
        let waiting = Waiting::new(0);
        let sum = || waiting.text.load(Ordering::Relaxed);
        let (mut one, mut two) = (waiting.part(), waiting.part());
        one.set(100);
        two.set(10);
        one.set(30);
        assert_eq!(sum(), 40);
        drop(one);
        assert_eq!(sum(), 10);
        drop(two);
        assert_eq!(sum(), 0);
    }
}
