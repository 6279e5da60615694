//! Waiting for memory, in FIFO order.
//!
//! Only the first in the queue waits on shared words; the others wait for it. While anybody waits, nobody passes:
//! allocation goes through the queue and frees go past the caches.

use super::grow::{Growth, PROMPT};
use super::own::OwnPool;
use super::raw::RawBuf;
use super::waiters::{Waiters, Wanting};
use crate::base::lock;
use crate::error::{Error, Kind, Limit, TooLarge};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_region::layout::RefsRo;
use tranship_ring::{Point, SETTLE, TIMED, Waited};

/// How long a caller is ready to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Instant),
    /// For ever.
    Forever,
}

impl Patience {
    /// How long each answer of the manager may take before the caller does something else.
    fn prompt(self) -> Duration {
        match self {
            Patience::Until(deadline) => {
                PROMPT.min(deadline.saturating_duration_since(Instant::now()))
            }
            Patience::None | Patience::Forever => PROMPT,
        }
    }
}

impl OwnPool {
    /// A buffer, the long way: collection, growth, reclaiming from other classes, waiting.
    pub(crate) fn alloc_slow(&self, len: usize, patience: Patience) -> Result<RawBuf, Error> {
        if self.domain.fork.is_child() {
            return Err(Kind::Forked.into());
        }
        let started = Instant::now();
        let need = self.need_bytes(len);
        self.check_need(need)?;
        self.domain.catch_up();
        let mut limit = Limit::Queue;
        if self.waiters.count() == 0 {
            match self.attempt(len, patience.prompt()) {
                Ok(buf) => {
                    self.say_use();
                    return Ok(buf);
                }
                Err(why) => limit = why,
            }
            self.domain.reclaim_from_carriers();
        }
        if patience == Patience::None {
            return Err(self.out_of_memory(need, limit, started));
        }
        let ticket = self.join_queue();
        let result = self.wait_in_queue(len, need, ticket, patience, started);
        self.leave_queue(ticket, started);
        result
    }

    /// The last place in the queue. Nobody passes who has one, until it [leaves](OwnPool::leave_queue).
    pub(crate) fn join_queue(&self) -> u64 {
        let ticket = self.waiters.next.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.waiters.lock_queue();
        queue.waited_ns(Instant::now());
        queue.tickets.push_back(ticket);
        drop(queue);
        self.domain.pressure.enter();
        self.set_contended(true);
        self.say_use();
        ticket
    }

    pub(crate) fn leave_queue(&self, ticket: u64, since: Instant) {
        let mut queue = self.waiters.lock_queue();
        queue.waited_ns(Instant::now());
        queue.tickets.retain(|t| *t != ticket);
        self.domain.pressure.leave();
        if queue.is_empty() {
            self.set_contended(false);
        }
        drop(queue);
        self.say_use();
        self.waiters.moved.notify_all();
        let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counters
            .blocked_ns
            .fetch_add(waited, Ordering::Relaxed);
    }

    /// One look of somebody who does not sleep here, with a place in the queue or before there is one. None: it is not its turn, or there is
    /// nothing yet.
    pub(crate) fn look_in_queue(
        &self,
        len: usize,
        ticket: Option<u64>,
    ) -> Result<Option<RawBuf>, Error> {
        if lock(&self.waiters.queue).front().copied() != ticket {
            return Ok(None);
        }
        Ok(self.first_in_queue(len, self.need_bytes(len))?.ok())
    }

    /// What the first in the queue can have now.
    fn first_in_queue(&self, len: usize, need: u64) -> Result<Result<RawBuf, Limit>, Error> {
        self.domain.catch_up();
        self.check_need(need)?;
        Ok(self.attempt(len, Duration::ZERO))
    }

    /// What can never be had is no reason to wait. Where quotas move by themselves, only what is beyond the pool's maximum cannot.
    fn check_need(&self, need_bytes: u64) -> Result<(), Error> {
        let scheduled = !self.domain.fork.is_child() && self.domain.control_page().is_scheduled();
        let quota_bytes = match scheduled {
            true => self.max_bytes,
            false => self.quota_bytes(),
        };
        if need_bytes > quota_bytes {
            return Err(TooLarge {
                need_bytes,
                quota_bytes,
            }
            .into());
        }
        Ok(())
    }

    /// Bytes of chunks that must exist for such a buffer.
    fn need_bytes(&self, len: usize) -> u64 {
        (len as u64)
            .max(1)
            .checked_next_multiple_of(self.chunk_bytes())
            .unwrap_or(u64::MAX)
    }

    fn set_contended(&self, contended: bool) {
        self.contended.store(contended, Ordering::Relaxed);
        let mut wanting = lock(&self.waiters.wanting);
        wanting.waiting = contended;
        self.press(&wanting);
    }

    /// The pool is to have less than it uses, or not any more. What is freed meanwhile is not cached: its chunk may be one that is to go, which
    /// would stay for as long as somebody takes from the cache what he has just freed.
    ///
    /// Not under the lock of the slabs.
    pub(super) fn set_shrinking(&self, shrinking: bool) {
        let mut wanting = lock(&self.waiters.wanting);
        if wanting.shrinking != shrinking {
            wanting.shrinking = shrinking;
            self.press(&wanting);
        }
    }

    fn press(&self, wanting: &Wanting) {
        let wanted = wanting.shrinking || wanting.waiting;
        self.zones.iter().for_each(|zone| zone.set_pressure(wanted));
        Waiters::set(&self.table, wanted);
    }

    /// Everything short of waiting for memory to be released. Each answer of the manager may take so long.
    fn attempt(&self, len: usize, prompt: Duration) -> Result<RawBuf, Limit> {
        if self.is_large(len) {
            return self.attempt_large(len, prompt);
        }
        if let Some(buf) = self.take(len) {
            return Ok(buf);
        }
        let pages = self.pages_for(len);
        if self.grow_for(pages, prompt) == Growth::Fits
            && let Some(buf) = self.take(len)
        {
            return Ok(buf);
        }
        // Memory may sit in caches of other sizes, or be dead there.
        let good = self.reclaim_alone(prompt);
        if let Some(buf) = self.take(len) {
            return Ok(buf);
        }
        // Reclaiming may have freed whole chunks elsewhere in the window, but not one long enough hole.
        let growth = self.grow_for(pages, prompt);
        match self.take(len) {
            Some(buf) => Ok(buf),
            // What is dead cannot be told before the manager has said who counts.
            None if !good => Err(Limit::Late),
            None => Err(self.limit_of(growth)),
        }
    }

    /// Alone: what another thread has taken from one place and not yet put into the next cannot be found. The manager
    /// may have raised the epoch; then the change itself is in our socket, or about to be.
    /// False if it has not come.
    pub(super) fn reclaim_alone(&self, prompt: Duration) -> bool {
        let until = Instant::now() + prompt;
        loop {
            let seen = self.domain.wake();
            let mut one = lock(&self.resizing);
            if self.reclaim() {
                one.stale = false;
                return true;
            }
            let over = Instant::now() >= until;
            one.stale |= over && prompt == PROMPT;
            let last = over || one.stale;
            drop(one);
            self.domain.turn_quietly();
            if last {
                let _one = lock(&self.resizing);
                return self.reclaim();
            }
            self.domain.wait_news(seen, Some(until));
        }
    }

    fn pages_for(&self, len: usize) -> u32 {
        match self.kind_of(len) {
            Some(kind) => {
                lock(&self.store).kegs[usize::from(kind.class())]
                    .shape()
                    .pages
            }
            None => u32::try_from(self.rounded(len).div_ceil(4096)).unwrap_or(u32::MAX),
        }
    }

    fn take(&self, len: usize) -> Option<RawBuf> {
        match self.kind_of(len) {
            Some(kind) => {
                let slot = self.zones[usize::from(kind.class())].alloc();
                slot.map(|slot| self.hand_out(slot, kind, len))
            }
            None => self
                .alloc_huge(len)
                .or_else(|| {
                    // Dead ones first, as for all other sizes; more memory after that.
                    let _ = self.collect_all();
                    self.alloc_huge(len)
                })
                .map(|slot| self.hand_out_huge(slot, len)),
        }
    }

    fn wait_in_queue(
        &self,
        len: usize,
        need: u64,
        ticket: u64,
        patience: Patience,
        started: Instant,
    ) -> Result<RawBuf, Error> {
        // A reader that let go before it could see that somebody waits, and did not fence, tells nobody: what it did is seen after that.
        let settled_at = Instant::now() + SETTLE;
        loop {
            if self.domain.fork.is_child() {
                return Err(Kind::Forked.into());
            }
            let left = match patience {
                Patience::Until(deadline) => deadline.saturating_duration_since(Instant::now()),
                _ => Duration::MAX,
            };
            let queue = lock(&self.waiters.queue);
            if queue.front() != Some(&ticket) {
                if left.is_zero() {
                    drop(queue);
                    return Err(self.out_of_memory(need, Limit::Queue, started));
                }
                // Others move the queue; nothing is polled here.
                let round = left.min(Duration::from_secs(1));
                drop(self.waiters.moved.wait_timeout(queue, round));
                continue;
            }
            drop(queue);
            let longest = match Instant::now() < settled_at {
                true => SETTLE,
                false => Duration::from_millis(100),
            };
            let local = self.waiters.local.load(Ordering::Acquire);
            let seen = self.reader_words();
            let limit = match self.first_in_queue(len, need)? {
                Ok(buf) => return Ok(buf),
                Err(limit) => limit,
            };
            if left.is_zero() {
                return Err(self.out_of_memory(need, limit, started));
            }
            self.say_use();
            self.wait_for_release(local, &seen, left.min(longest));
        }
    }

    /// The readers' pages, with their wake words as they are before the look.
    fn reader_words(&self) -> Vec<(Arc<RefsRo>, u32)> {
        let gc = lock(&self.gc);
        let pages = gc
            .reader_set
            .readers()
            .iter()
            .filter_map(|reader| reader.refs.page.clone());
        // Ordering: Acquire pairs with a reader's Release after its reference went (`release_and_tell`).
        pages
            .map(|page| (page.wake().load(Ordering::Acquire), page))
            .map(|(seen, page)| (page, seen))
            .collect()
    }

    /// Waits for a release by any reader, inside this process, or news of the manager; one bounded round.
    fn wait_for_release(&self, local: u32, readers: &[(Arc<RefsRo>, u32)], round: Duration) {
        let mut points = vec![
            Point::seen(&self.waiters.local, local),
            Point::seen(self.domain.wake_word(), self.domain.seen()),
        ];
        points.extend(readers.iter().map(|(page, seen)| {
            // SAFETY: the page is mapped as long as we hold its Arc; its reader writes the word, we only load it.
            Point::seen(unsafe { &*page.wake_ptr() }, *seen)
        }));
        // More than one system call takes: look often instead.
        let many = points.len() > tranship_ring::MAX_WORDS;
        points.truncate(tranship_ring::MAX_WORDS);
        let round = if many {
            round.min(Duration::from_millis(1))
        } else {
            round
        };
        match tranship_ring::Futex::wait_any(&TIMED, &points, round) {
            // Nobody may be there to tell us of deaths, or of a manager that is back.
            Ok(Waited::TimedOut) => self.domain.turn_quietly(),
            _ => self.domain.catch_up(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Domain, PoolOptions};
    use std::sync::atomic::Ordering;

    #[test]
    fn readers_are_asked_to_tell_of_releases_as_long_as_somebody_waits() {
        const CHUNK: usize = 64 << 10;
        let _dog = tranship_testkit::Watchdog::new();
        let domain = Domain::embedded().expect("a domain");
        let options = PoolOptions::new(CHUNK as u64).chunk_bytes(CHUNK as u64);
        let pool = domain.create_pool(options).expect("a pool");
        let own = pool.own_arc();
        let asks = || own.table.relinquish().load(Ordering::Relaxed) != 0;
        let held = pool.alloc(CHUNK).expect("room");
        assert!(!asks());
        std::thread::scope(|s| {
            let waits = s.spawn(|| pool.alloc(CHUNK).expect("room"));
            while !asks() {
                std::thread::yield_now();
            }
            drop(held);
            drop(waits.join().expect("no panic"));
        });
        assert!(!asks());
    }
}
