//! Who waits for memory of a pool: a queue of tickets, and what wakes the first of them.

use crate::base::lock;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;
use tranship_region::layout::TableRw;
use tranship_sys::futex;

/// Who waits for memory of a pool.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) queue: Mutex<WaitQueue>,
    pub(super) moved: Condvar,
    pub(super) next: AtomicU64,
    /// Raised when memory came back inside this process.
    pub(super) local: AtomicU32,
    pub(super) wanting: Mutex<Wanting>,
}

/// Why readers are to tell of releases (`relinquish`), and nothing is cached.
#[derive(Debug, Default)]
pub(super) struct Wanting {
    pub(super) shrinking: bool,
    pub(super) waiting: bool,
}

/// Tickets, first come first; and for how long they have waited.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    pub(super) tickets: VecDeque<u64>,
    pub(super) since: Option<Instant>,
    pub(super) waited_ns: u64,
}

impl WaitQueue {
    /// How long callers have waited up to now, those in the queue included, summed.
    pub(super) fn waited_ns(&mut self, now: Instant) -> u64 {
        let since = self
            .since
            .replace(now)
            .map(|since| now.saturating_duration_since(since));
        let ns = since.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        });
        let all = ns.saturating_mul(self.tickets.len() as u64);
        self.waited_ns = self.waited_ns.saturating_add(all);
        self.waited_ns
    }
}

impl Deref for WaitQueue {
    type Target = VecDeque<u64>;
    fn deref(&self) -> &VecDeque<u64> {
        &self.tickets
    }
}

impl Waiters {
    pub(super) fn lock_queue(&self) -> MutexGuard<'_, WaitQueue> {
        lock(&self.queue)
    }

    /// Memory came back inside this process, or the reader set changed.
    pub(super) fn memory_came_back(&self) {
        self.local.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.local, 1);
    }

    pub(super) fn set(table: &TableRw, wanted: bool) {
        if (table.relinquish().load(Ordering::Relaxed) != 0) != wanted {
            tranship_ledger::want_releases(table.relinquish(), wanted);
        }
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.queue).len()
    }
}
