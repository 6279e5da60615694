//! Values that are no longer stored and whose memory is still in use by replies that clients have not taken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tranship_zcopy::{Mark, Value};

/// From this number of values on, a call searches for values whose memory is no longer in use.
const FEW: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Left {
    all: Mutex<All>,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct All {
    marks: Vec<(Mark, u64)>,
    sweep_at: usize,
}

impl Left {
    /// Adds a value that is stored no more.
    pub(super) fn add(&self, value: Value) {
        if !value.is_shared() {
            return;
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.marks.push((value.mark(), value.len() as u64));
        // Relaxed: a sum, which a sweep makes exact.
        self.bytes.fetch_add(value.len() as u64, Ordering::Relaxed);
        drop(value);
        if all.marks.len() >= all.sweep_at.max(FEW) {
            self.sweep_in(&mut all);
        }
    }

    /// Returns their bytes, at most.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns their bytes now.
    pub(super) fn sweep(&self) -> u64 {
        self.sweep_in(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sweep_in(&self, all: &mut All) -> u64 {
        all.marks.retain(|(mark, _)| !mark.is_over());
        all.sweep_at = all.marks.len() * 2;
        let bytes = all.marks.iter().map(|(_, bytes)| bytes).sum();
        self.bytes.store(bytes, Ordering::Relaxed);
        bytes
    }
}
