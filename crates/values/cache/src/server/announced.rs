//! Values that clients have announced and are still sending. They have memory before they are stored, so stored values
//! must not have to make way for all announced ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of announced values, of all connections.
#[derive(Debug)]
pub(super) struct Announced {
    bytes: Arc<AtomicU64>,
    most: u64,
}

/// Credit of an announced value, until it is stored or its client is gone.
#[derive(Debug)]
pub(super) struct Credit {
    bytes: Arc<AtomicU64>,
    own: u64,
}

impl Announced {
    /// Creates the credit of a store with `memory` bytes of memory. The credit is half of the arena's memory beyond
    /// that.
    pub(super) fn new(memory: u64) -> Announced {
        Announced {
            bytes: Arc::default(),
            most: crate::store::beyond(memory) / 2,
        }
    }

    /// Takes credit for a value of `len` bytes. Returns none if all values together would then have too many bytes. A
    /// single value is never too long.
    pub(super) fn take(&self, len: usize) -> Option<Credit> {
        let own = len as u64;
        // Relaxed: a sum. The credit is there first, so that it is given back whatever comes.
        let before = self.bytes.fetch_add(own, Ordering::Relaxed);
        let credit = Credit {
            bytes: Arc::clone(&self.bytes),
            own,
        };
        (before == 0 || before.saturating_add(own) <= self.most).then_some(credit)
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.own, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_announced_than_there_is_beside_what_is_stored() {
        let announced = Announced::new(0);
        let most = usize::try_from(announced.most).expect("64-bit");
        let whole = announced.take(most).expect("room for all of it");
        assert!(announced.take(1).is_none());
        drop(whole);
        let longer = announced.take(most * 2).expect("one at least");
        assert!(announced.take(1).is_none());
        drop(longer);
        let halves = [0; 2].map(|_| announced.take(most / 2).expect("room"));
        assert!(announced.take(2).is_none());
        drop(halves);
        assert!(announced.take(most).is_some());
    }
}
