//! Heaps: which pageblocks threads take slots from.

use super::classes::CLASSES;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads beyond that many share heaps.
pub(super) const HEAPS: usize = 16;

/// A block as a heap remembers it: its number, and the number of its use.
pub(super) type Entry = (u32, u64);

#[derive(Debug)]
pub(super) struct Heap {
    /// Blocks with free slots, by main class. A block may be gone since, and its place be another block's.
    pub main: [VecDeque<Entry>; CLASSES],
    /// Blocks with free slots, by side class.
    pub side: [VecDeque<Entry>; CLASSES],
}

impl Default for Heap {
    fn default() -> Heap {
        Heap {
            main: std::array::from_fn(|_| VecDeque::new()),
            side: std::array::from_fn(|_| VecDeque::new()),
        }
    }
}

/// Returns the calling thread's heap.
pub(super) fn mine() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<Option<usize>> = const { Cell::new(None) });
    MINE.with(|mine| {
        mine.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % HEAPS;
            mine.set(Some(next));
            next
        })
    })
}
