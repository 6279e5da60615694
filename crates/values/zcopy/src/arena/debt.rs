//! Whether protecting pays.
//!
//! A protected pageblock costs twice: it is mapped anew, and when what is in it is freed its pages are given back and fresh ones taken, as some of the old
//! ones may be under way. One that is not keeps its pages. So who frees a value owes a few times as many bytes, and as long as something is owed full pageblocks
//! are not protected; what is copied for want of that pays it off. Values that are overwritten about as often as they are sent are
//! copied, and their memory is used again at once; the first ones, and those of which few go, are protected at the next send.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes to be sent before protecting pays, for each that is freed: measured, fresh pages for a value cost what sending it four times by reference
/// saves, or, if it is small, sixteen times.
const fn each(bytes: u64) -> u64 {
    if bytes < 16 << 10 { 16 } else { 4 }
}

/// More is never owed, so that a cache that was emptied soon goes by reference again.
const MOST: u64 = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Debt(AtomicU64);

// All relaxed: a rule of thumb, of which an update may be lost.
impl Debt {
    /// So many bytes have been freed.
    pub(super) fn owe(&self, bytes: u64) {
        let debt = self.0.load(Ordering::Relaxed);
        let now = debt
            .saturating_add(bytes.saturating_mul(each(bytes)))
            .min(MOST);
        if now != debt {
            self.0.store(now, Ordering::Relaxed);
        }
    }

    /// So many have been copied that protected ones would not have been.
    pub(super) fn pay(&self, bytes: u64) {
        let debt = self.0.load(Ordering::Relaxed);
        if debt > 0 {
            self.0.store(debt.saturating_sub(bytes), Ordering::Relaxed);
        }
    }

    pub(super) fn is_paid(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}
