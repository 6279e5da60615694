//! Memory of this server that untaken replies hold, of all clients together: their text, and values that are stored no
//! more.
//!
//! Stored values take no more memory for being in replies as well. Beyond the limit no client's next command is read
//! before its replies are taken. The slowest clients of all workers are closed, until the limit is kept again. A client
//! is closed by its own worker, which the other workers ring.

use crate::store::Store;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;
use tranship_sys::eventfd;

#[derive(Debug)]
pub(super) struct Waiting {
    all: Arc<All>,
    most: u64,
    /// Doorbell of each worker, which makes it check.
    doorbells: OnceLock<Vec<OwnedFd>>,
}

/// Memory that the clients of all workers hold.
#[derive(Debug, Default)]
struct All {
    /// Bytes of text, and of input that is not parsed yet.
    text: AtomicU64,
    /// Clients whose replies hold memory, the slowest first. Changed only when a client begins or ends to hold some, or
    /// its oldest reply is another one.
    slow: Mutex<BTreeSet<(Instant, Token)>>,
}

/// A client: number of its worker, and its token there.
pub(super) type Token = (usize, u64);

/// A client's part of what all clients hold.
#[derive(Debug)]
pub(super) struct Part {
    all: Arc<All>,
    client: Token,
    text: u64,
    since: Option<Instant>,
}

impl Waiting {
    /// Creates the limit of a store with `memory` bytes of memory. The limit is a quarter of the arena's memory beyond
    /// that.
    pub(super) fn new(memory: u64) -> Waiting {
        Waiting {
            all: Arc::default(),
            most: crate::store::beyond(memory) / 4,
            doorbells: OnceLock::new(),
        }
    }

    /// Sets the doorbells of the workers, in the order of their numbers.
    pub(super) fn ring_at(&self, doorbells: Vec<OwnedFd>) {
        let _ = self.doorbells.set(doorbells);
    }

    /// Returns the part of a client that has nothing waiting.
    pub(super) fn part(&self, client: Token) -> Part {
        Part {
            all: Arc::clone(&self.all),
            client,
            text: 0,
            since: None,
        }
    }

    /// Returns the client of all workers that has not taken its oldest reply for longest, if any replies hold memory.
    pub(super) fn slowest(&self) -> Option<Token> {
        self.all.slow().first().map(|(_, client)| *client)
    }

    /// Makes a worker check.
    pub(super) fn ring(&self, worker: usize) {
        let doorbells = self.doorbells.get();
        if let Some(doorbell) = doorbells.and_then(|all| all.get(worker)) {
            let _ = eventfd::signal(doorbell);
        }
    }

    /// Returns whether replies hold more than `most` bytes.
    fn is_more_than(&self, most: u64, store: &Store) -> bool {
        // Relaxed: a sum.
        let text = self.all.text.load(Ordering::Relaxed);
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

impl All {
    fn slow(&self) -> std::sync::MutexGuard<'_, BTreeSet<(Instant, Token)>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    /// Sets the number of bytes held.
    pub(super) fn set(&mut self, bytes: u64) {
        if bytes == self.text {
            return;
        }
        // Relaxed: a sum; it wraps around for less.
        let more = bytes.wrapping_sub(self.text);
        self.all.text.fetch_add(more, Ordering::Relaxed);
        self.text = bytes;
    }

    /// Sets since when replies of the client hold memory.
    pub(super) fn holds(&mut self, since: Option<Instant>) {
        if since == self.since {
            return;
        }
        let mut slow = self.all.slow();
        if let Some(before) = self.since {
            slow.remove(&(before, self.client));
        }
        if let Some(since) = since {
            slow.insert((since, self.client));
        }
        self.since = since;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
        self.holds(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_clients_hold_is_summed_up_and_goes_with_them() {
        let waiting = Waiting::new(0);
        let sum = || waiting.all.text.load(Ordering::Relaxed);
        let (mut one, mut two) = (waiting.part((0, 0)), waiting.part((0, 1)));
        one.set(100);
        two.set(10);
        one.set(30);
        assert_eq!(sum(), 40);
        drop(one);
        assert_eq!(sum(), 10);
        drop(two);
        assert_eq!(sum(), 0);
    }

    #[test]
    fn the_slowest_client_is_that_of_all_workers() {
        let waiting = Waiting::new(0);
        let (mut one, mut two) = (waiting.part((0, 7)), waiting.part((1, 3)));
        assert_eq!(waiting.slowest(), None);
        let begun = Instant::now();
        one.holds(Some(begun + Duration::from_secs(1)));
        assert_eq!(waiting.slowest(), Some((0, 7)));
        two.holds(Some(begun));
        assert_eq!(waiting.slowest(), Some((1, 3)));
        two.holds(Some(begun + Duration::from_secs(2)));
        assert_eq!(waiting.slowest(), Some((0, 7)));
        one.holds(None);
        assert_eq!(waiting.slowest(), Some((1, 3)));
        drop(two);
        assert_eq!(waiting.slowest(), None);
    }
}
