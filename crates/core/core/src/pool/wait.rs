//! Waiting for memory, in FIFO order.
//!
//! Only the first in the queue waits on shared words; the others wait for it. While a caller waits, no other caller
//! passes: allocation goes through the queue and frees go past the caches.

use super::grow::{Growth, PROMPT};
use super::memory::Memory;
use super::own::OwnPool;
use super::raw::RawBuf;
use super::resizing::{Asks, What};
use crate::base::{lock, millis};
use crate::domain::PATIENCE;
use crate::error::{Error, ErrorKind, Limit, Shortage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_region::layout::RefsRo;
use tranship_ring::{Point, SETTLE, TIMED, Waited};

/// Time that a caller is ready to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until that time.
    Until(Instant),
    /// For ever.
    Forever,
}

impl Patience {
    /// Returns the time that each answer of the manager may take before the caller does something else.
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
    /// Allocates a buffer the long way: collection, growth, reclaiming from other classes, waiting.
    pub(crate) fn alloc_slow(&self, len: usize, patience: Patience) -> Result<RawBuf, Error> {
        if self.domain().fork.is_child() {
            return Err(ErrorKind::Forked.into());
        }
        let started = Instant::now();
        let need = self.memory.need_bytes(len);
        self.memory.check_need(need)?;
        self.domain().catch_up();
        let mut limit = Limit::Queue;
        if self.waiters.count() == 0 {
            match self.attempt(len, patience.prompt(), true) {
                Ok(buf) => {
                    self.say_use();
                    return Ok(buf);
                }
                Err(why) => limit = why,
            }
            self.domain().reclaim_from_carriers();
        }
        if patience == Patience::None {
            return Err(self.out_of_memory(need, limit, started));
        }
        let ticket = self.join_queue();
        let result = self.wait_in_queue(len, need, ticket, patience, started);
        self.leave_queue(ticket, started);
        result
    }

    /// Returns the last place in the queue. No caller passes one that has a place, until that one
    /// [leaves](OwnPool::leave_queue).
    pub(crate) fn join_queue(&self) -> u64 {
        // The caller has just asked.
        let quota = self.quota_bytes();
        lock(&self.memory.resizing).asks.begin(quota);
        let ticket = self.waiters.join();
        self.domain().pressure.enter();
        self.waiters.set_contended(&self.memory, true);
        self.say_use();
        ticket
    }

    pub(crate) fn leave_queue(&self, ticket: u64, since: Instant) {
        // The next caller in the queue asks at once.
        lock(&self.memory.resizing).asks = Asks::default();
        self.waiters.leave(ticket, since, |is_empty| {
            self.domain().pressure.leave();
            if is_empty {
                self.waiters.set_contended(&self.memory, false);
            }
        });
        self.say_use();
    }

    /// Makes one look for a caller that does not sleep here, with a place in the queue or without. `None`: it is not
    /// the caller's turn, or no memory is free yet.
    pub(crate) fn look_in_queue(
        &self,
        len: usize,
        ticket: Option<u64>,
    ) -> Result<Option<RawBuf>, Error> {
        if self.waiters.first() != ticket {
            return Ok(None);
        }
        Ok(self.first_in_queue(len, self.memory.need_bytes(len))?.ok())
    }

    /// Tries to allocate for the first caller in the queue.
    fn first_in_queue(&self, len: usize, need: u64) -> Result<Result<RawBuf, Limit>, Error> {
        self.domain().catch_up();
        self.memory.check_need(need)?;
        let quota = self.quota_bytes();
        let mut resizing = lock(&self.memory.resizing);
        let asks = resizing.asks.is_due(quota);
        if asks {
            resizing.asks.begin(quota);
        }
        drop(resizing);
        Ok(self.attempt(len, Duration::ZERO, asks))
    }

    /// Tries everything but waiting for a release of memory. `asks`: the manager may be asked for memory. Each answer may
    /// take `prompt`.
    fn attempt(&self, len: usize, prompt: Duration, asks: bool) -> Result<RawBuf, Limit> {
        if self.memory.sizes.is_large(len) {
            return self.attempt_large(len, prompt, asks);
        }
        if let Some(buf) = self.take(len) {
            return Ok(buf);
        }
        let pages = self.memory.pages_for(len);
        if self.memory.grow_for(pages, prompt, asks) == Growth::Fits
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
        let growth = self.memory.grow_for(pages, prompt, asks);
        match self.take(len) {
            Some(buf) => Ok(buf),
            // Dead buffers cannot be found before the manager has named all readers.
            None if !good => Err(Limit::Late),
            None => Err(self.memory.limit_of(growth)),
        }
    }

    /// Tries to allocate a large buffer of level `none`.
    fn attempt_large(&self, len: usize, prompt: Duration, asks: bool) -> Result<RawBuf, Limit> {
        let memory = &self.memory;
        // Dead buffers go first: they count against the quota.
        let _ = self.collector.collect_all(memory);
        memory.give_back_large();
        let pages = memory.pages_of_large(len);
        if memory.grow_large(pages, prompt, asks) == Growth::Fits
            && let Some(buf) = memory.take_large(pages, len)
        {
            return Ok(buf);
        }
        // Memory may sit in caches of other sizes, or in empty chunks.
        let good = self.reclaim_alone(prompt);
        memory.give_back_large();
        let one = lock(&memory.resizing);
        if self.domain().is_managed() {
            memory.return_free_chunks(0);
        }
        drop(one);
        let growth = memory.grow_large(pages, prompt, asks);
        match memory.take_large(pages, len) {
            Some(buf) => Ok(buf),
            None if !good => Err(Limit::Late),
            None => Err(memory.limit_of(growth)),
        }
    }

    /// Makes the pool's first memory (`PoolOptions::preallocate`).
    pub(super) fn preallocate(&self) -> Result<(), Error> {
        let bytes = self.memory.registration.options.preallocated_bytes;
        let chunks = bytes.div_ceil(self.chunk_bytes());
        let plan = |memory: &Memory| {
            let runs = &lock(&memory.store).runs;
            let missing = chunks.saturating_sub(runs.present().into());
            let places = 0..memory.chunks.most();
            let absent = places.filter(|index| !runs.has_chunk(*index));
            Ok(absent
                .take(usize::try_from(missing).unwrap_or(usize::MAX))
                .collect())
        };
        let begun = Instant::now();
        loop {
            let seen = self.domain().wake();
            let limit = match self.memory.grow_until(PROMPT, true, What::All, plan) {
                Growth::Fits => return Ok(()),
                Growth::Late if begun.elapsed() < PATIENCE => {
                    self.domain().wait_news(seen, None);
                    continue;
                }
                Growth::No(Limit::Away) => return Err(ErrorKind::ManagerAway.into()),
                growth => self.memory.limit_of(growth),
            };
            let error = self.out_of_memory(bytes, limit, begun);
            return Err(error.context("the pool cannot begin with what it is to have"));
        }
    }

    /// Reclaims alone, because memory that another thread has taken from one place and not yet put into the next cannot
    /// be found. The manager may have raised the epoch; then the change itself is in our socket, or about to be. False
    /// if it has not come.
    pub(super) fn reclaim_alone(&self, prompt: Duration) -> bool {
        let until = Instant::now() + prompt;
        loop {
            let seen = self.domain().wake();
            let mut one = lock(&self.memory.resizing);
            if self.collector.reclaim(&self.memory) {
                one.stale = false;
                return true;
            }
            let over = Instant::now() >= until;
            one.stale |= over && prompt == PROMPT;
            let last = over || one.stale;
            drop(one);
            self.domain().turn_quietly();
            if last {
                let _one = lock(&self.memory.resizing);
                return self.collector.reclaim(&self.memory);
            }
            self.domain().wait_news(seen, Some(until));
        }
    }

    fn take(&self, len: usize) -> Option<RawBuf> {
        let memory = &self.memory;
        match memory.sizes.kind_of(len) {
            Some(kind) => memory.take(kind, len),
            None => memory.take_huge(len).or_else(|| {
                // Dead ones first, as for all other sizes; more memory after that.
                let _ = self.collector.collect_all(memory);
                memory.take_huge(len)
            }),
        }
    }

    fn out_of_memory(&self, need_bytes: u64, limit: Limit, started: Instant) -> Error {
        Error::from(Shortage {
            need_bytes,
            limit,
            live_bytes: self.memory.bytes_present(),
            quota_bytes: self.quota_bytes(),
            holder: self.collector.holder(&self.memory),
            waited_ms: millis(started.elapsed()),
        })
    }

    fn wait_in_queue(
        &self,
        len: usize,
        need: u64,
        ticket: u64,
        patience: Patience,
        started: Instant,
    ) -> Result<RawBuf, Error> {
        // A reader that let go before it could see a waiting caller, and did not fence, wakes no caller. Its store is
        // visible after this time.
        let settled_at = Instant::now() + SETTLE;
        loop {
            if self.domain().fork.is_child() {
                return Err(ErrorKind::Forked.into());
            }
            let left = match patience {
                Patience::Until(deadline) => deadline.saturating_duration_since(Instant::now()),
                _ => Duration::MAX,
            };
            // The callers before this one move the queue, so this caller does not poll.
            if !self
                .waiters
                .is_turn(ticket, left.min(Duration::from_secs(1)))
            {
                if left.is_zero() {
                    return Err(self.out_of_memory(need, Limit::Queue, started));
                }
                continue;
            }
            let longest = match Instant::now() < settled_at {
                true => SETTLE,
                false => Duration::from_millis(100),
            };
            let local = self.memory.returned.0.load(Ordering::Acquire);
            let seen = self.collector.reader_words();
            let limit = match self.first_in_queue(len, need)? {
                Ok(buf) => return Ok(buf),
                Err(limit) => limit,
            };
            if left.is_zero() {
                return Err(self.out_of_memory(need, limit, started));
            }
            self.say_use();
            let asks_in = lock(&self.memory.resizing).asks.left();
            self.wait_for_release(local, &seen, left.min(longest).min(asks_in));
        }
    }

    /// Waits for a release by any reader, inside this process, or news of the manager; one bounded round.
    fn wait_for_release(&self, local: u32, readers: &[(Arc<RefsRo>, u32)], round: Duration) {
        let mut points = vec![
            Point::seen(&self.memory.returned.0, local),
            Point::seen(self.domain().wake_word(), self.domain().seen()),
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
            // Perhaps no manager is there to tell of deaths, or a new one is back.
            Ok(Waited::TimedOut) => self.domain().turn_quietly(),
            _ => self.domain().catch_up(),
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
        let asks = || own.memory.slots.shared.relinquish().load(Ordering::Relaxed) != 0;
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
