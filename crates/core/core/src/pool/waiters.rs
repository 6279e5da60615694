//! Callers that wait for memory of a pool: a queue of tickets, and the state while it is not empty.

use super::memory::Memory;
use crate::base::lock;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tranship_region::layout::table::Figures;

/// The callers that wait for memory of a pool.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    queue: Mutex<WaitQueue>,
    moved: Condvar,
    next: AtomicU64,
    /// Set while a caller waits: then no caller passes the queue.
    contended: AtomicBool,
    wanting: Mutex<Wanting>,
    blocked_ns: AtomicU64,
}

/// Reasons for which readers have to tell of releases (`relinquish`), and nothing is cached.
#[derive(Debug, Default)]
struct Wanting {
    shrinking: bool,
    waiting: bool,
}

impl Wanting {
    fn press(&self, memory: &Memory) {
        memory.press(self.shrinking || self.waiting);
    }
}

/// Tickets in the order of their arrival, and the time that they have waited.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    tickets: VecDeque<u64>,
    since: Option<Instant>,
    waited_ns: u64,
}

impl WaitQueue {
    /// Returns the sum of the times that callers have waited up to now, those in the queue included.
    fn waited_ns(&mut self, now: Instant) -> u64 {
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
    fn lock_queue(&self) -> MutexGuard<'_, WaitQueue> {
        lock(&self.queue)
    }

    /// Takes the last place in the queue.
    pub(super) fn join(&self) -> u64 {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.lock_queue();
        queue.waited_ns(Instant::now());
        queue.tickets.push_back(ticket);
        ticket
    }

    /// Takes a caller's place out of the queue; the caller has waited since `since`. Calls `left` under the queue's
    /// lock, with whether it is empty now.
    pub(super) fn leave(&self, ticket: u64, since: Instant, left: impl FnOnce(bool)) {
        let mut queue = self.lock_queue();
        queue.waited_ns(Instant::now());
        queue.tickets.retain(|t| *t != ticket);
        left(queue.is_empty());
        drop(queue);
        self.moved.notify_all();
        let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.blocked_ns.fetch_add(waited, Ordering::Relaxed);
    }

    /// Returns the ticket of the first caller in the queue.
    pub(super) fn first(&self) -> Option<u64> {
        self.lock_queue().front().copied()
    }

    pub(super) fn count(&self) -> usize {
        self.lock_queue().len()
    }

    /// Whether it is the ticket's turn. If not, and `longest` allows it, waits until the queue may have moved.
    pub(super) fn is_turn(&self, ticket: u64, longest: Duration) -> bool {
        let queue = self.lock_queue();
        let is_first = queue.front() == Some(&ticket);
        if !is_first && !longest.is_zero() {
            drop(self.moved.wait_timeout(queue, longest));
        }
        is_first
    }

    #[inline(always)]
    pub(super) fn is_contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed)
    }

    pub(super) fn set_contended(&self, memory: &Memory, contended: bool) {
        self.contended.store(contended, Ordering::Relaxed);
        let mut wanting = lock(&self.wanting);
        wanting.waiting = contended;
        wanting.press(memory);
    }

    /// Notes whether the pool has to shrink below its use. Memory that is freed meanwhile is not cached: its chunk may
    /// be one that has to go, and a thread that reuses its cache would keep it.
    ///
    /// Not under the lock of the slabs.
    pub(super) fn set_shrinking(&self, memory: &Memory, shrinking: bool) {
        let mut wanting = lock(&self.wanting);
        if wanting.shrinking != shrinking {
            wanting.shrinking = shrinking;
            wanting.press(memory);
        }
    }

    /// Returns the sum of the times that callers were blocked which wait no more.
    pub(super) fn blocked_ns(&self) -> u64 {
        self.blocked_ns.load(Ordering::Relaxed)
    }

    /// Reports the waiting callers and their time.
    pub(super) fn say(&self, words: &Figures) {
        let mut queue = self.lock_queue();
        let blocked = queue.waited_ns(Instant::now());
        // Ordering: Relaxed; statistics, each for itself. Under the queue's lock, so that time does not go back.
        words.blocked_ns.store(blocked, Ordering::Relaxed);
        words.waiters.store(queue.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_and_who_leaves_holds_up_nobody() {
        let waiters = Waiters::default();
        let [a, b, c] = [(); 3].map(|()| waiters.join());
        assert_eq!((waiters.first(), waiters.count()), (Some(a), 3));
        let now = Instant::now();
        waiters.leave(b, now, |is_empty| assert!(!is_empty));
        assert!(waiters.is_turn(a, Duration::ZERO) && !waiters.is_turn(c, Duration::ZERO));
        waiters.leave(a, now, |is_empty| assert!(!is_empty));
        assert!(waiters.is_turn(c, Duration::ZERO));
        waiters.leave(c, now, |is_empty| assert!(is_empty));
        assert_eq!((waiters.first(), waiters.count()), (None, 0));
    }

    #[test]
    fn time_counts_for_each_that_waits() {
        let mut queue = WaitQueue::default();
        let begin = Instant::now();
        assert_eq!(queue.waited_ns(begin), 0);
        queue.tickets.extend([0, 1, 2]);
        assert_eq!(queue.waited_ns(begin + Duration::from_nanos(10)), 30);
        queue.tickets.pop_front();
        assert_eq!(queue.waited_ns(begin + Duration::from_nanos(15)), 40);
        queue.tickets.clear();
        assert_eq!(queue.waited_ns(begin + Duration::from_secs(1)), 40);
    }
}
