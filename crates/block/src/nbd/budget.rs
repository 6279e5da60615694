//! Memory for requests under way, and for replies that their clients do not take. All connections together have one
//! limit.
//!
//! Each connection has a little memory of its own, whatever the others do, and goes on with that, piece by piece. It
//! borrows more from the memory that all share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a connection has of its own; also the longest piece.
pub(super) const OWN: usize = 1 << 20;
/// The most that a connection has.
pub(super) const MOST: usize = 64 << 20;
/// Bytes that all connections share beside their own.
const SHARED: usize = 256 << 20;

/// Rest of the bytes that all connections share.
#[derive(Debug)]
pub(super) struct Budget(AtomicUsize);

impl Default for Budget {
    fn default() -> Self {
        Budget(AtomicUsize::new(SHARED))
    }
}

/// Returns how many bytes a connection with this many under way has borrowed.
fn borrowed(bytes: usize) -> usize {
    bytes.saturating_sub(OWN)
}

impl Budget {
    /// Raises a connection's memory from `from` to `to`; returns whether that is allowed.
    pub(super) fn grow(&self, from: usize, to: usize) -> bool {
        let more = borrowed(to) - borrowed(from);
        // Ordering: relaxed everywhere; a count.
        let relaxed = Ordering::Relaxed;
        let take = |left: usize| left.checked_sub(more);
        to <= MOST && self.0.fetch_update(relaxed, relaxed, take).is_ok()
    }

    /// Lowers a connection's memory from `from` to `to`.
    pub(super) fn shrink(&self, from: usize, to: usize) {
        let less = borrowed(from) - borrowed(to);
        self.0.fetch_add(less, Ordering::Relaxed);
    }

    /// Returns whether nothing is borrowed.
    #[cfg(test)]
    pub(super) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SHARED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_and_all_share_the_rest() {
        let budget = Budget::default();
        let full = SHARED / borrowed(MOST);
        for _ in 0..full {
            assert!(budget.grow(0, MOST) && !budget.grow(MOST, MOST + 1));
        }
        let rest = SHARED - full * borrowed(MOST);
        assert!(budget.grow(OWN, OWN + rest));
        assert!(!budget.grow(OWN, OWN + 1) && budget.grow(0, OWN));
        budget.shrink(OWN, 0);
        budget.shrink(MOST, OWN + 1);
        assert!(budget.grow(0, MOST - 1) && !budget.grow(0, OWN + 1));
    }
}
