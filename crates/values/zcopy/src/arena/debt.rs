//! Decision whether protecting pays.
//!
//! A protected pageblock costs twice. It is mapped anew; and when its values are freed, its pages are given back and
//! fresh ones are taken, because some of the old ones may be under way. An unprotected block keeps its pages. Therefore
//! each freed value adds a debt of a few times its bytes. While there is a debt, full pageblocks are not protected;
//! values that are copied for that reason pay it off. Values that are overwritten about as often as they are sent are
//! copied, and their memory is used again at once. The first values, and values of which few go, are protected at the
//! next send.

use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the bytes to be sent, for each byte that is freed, before protecting pays. By measurement, fresh pages for a
/// value cost as much as four sends by reference save, or sixteen sends if the value is small.
const fn each(bytes: u64) -> u64 {
    if bytes < 16 << 10 { 16 } else { 4 }
}

/// Most debt, so that an emptied cache soon goes by reference again.
const MOST: u64 = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Debt(AtomicU64);

// All relaxed: a rule of thumb, of which an update may be lost.
impl Debt {
    /// Adds the debt for bytes that were freed.
    pub(super) fn owe(&self, bytes: u64) {
        let debt = self.0.load(Ordering::Relaxed);
        let now = debt
            .saturating_add(bytes.saturating_mul(each(bytes)))
            .min(MOST);
        if now != debt {
            self.0.store(now, Ordering::Relaxed);
        }
    }

    /// Pays off bytes that were copied and would not have been copied if they were protected.
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
