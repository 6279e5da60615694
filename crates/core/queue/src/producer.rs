//! The writing end as programs see it.

#[cfg(test)]
mod tests;

use crate::book::Lost;
use crate::options::QueueOptions;
use crate::status::ProducerStatus;
use crate::writing::Writing;
use std::time::{Duration, Instant};
use tranship_core::topics;
use tranship_core::{BufferMut, Domain, Error, ErrorKind, Pool, SendError};
use tranship_readers::{Idle, Payload as Enqueue, Waits, Writes, waiting};
use tranship_sync::Owned;

/// Sends a queue's items. Consumers come and go by themselves.
///
/// One thread at a time sends. From time to time a send takes new consumers in, and gives back the items of consumers
/// that have gone. While the producer is idle, the domain's helper thread does that; the first producer of a domain
/// starts that thread.
///
/// Crash-safe: when the producer's process dies, consumers take the items that still wait in its ring, and keep the
/// items that they had taken.
pub struct Producer {
    domain: Domain,
    name: String,
    pool: Pool,
    writing: Owned<Writing>,
}

impl Producer {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        options: QueueOptions,
    ) -> Result<Producer, Error> {
        let writing = Writing::new(domain, name, options)?;
        let pool = writing.pool().clone();
        let writing = Owned::new(writing);
        Idle::tend(&writing, domain);
        Ok(Producer {
            domain: domain.clone(),
            name: name.into(),
            pool,
            writing,
        })
    }

    /// Returns the queue's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many consumers have joined and not left.
    pub fn consumers(&self) -> usize {
        self.with(Writing::consumers).unwrap_or(0)
    }

    /// Looks at the state. Returns `None` in a forked child, which has no state.
    fn with<T>(&self, look: impl FnOnce(&Writing) -> T) -> Option<T> {
        topics::check_fork(&self.domain).ok()?;
        Some(look(&self.writing.look()))
    }

    /// Allocates a buffer of `len` bytes from the producer's own pool, which only its consumers can read. If no buffer
    /// is free, the function waits for consumers without limit. If consumers give none back, the oldest lost items that
    /// the program has not fetched are dropped.
    ///
    /// # Errors
    /// As [`Pool::alloc`].
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<BufferMut, Error> {
        self.alloc_by(len, None)
    }

    /// Allocates a buffer of `len` bytes from the producer's own pool, without waiting for consumers.
    ///
    /// # Errors
    /// As [`Pool::alloc`], and `OutOfMemory`, whose text says which consumers have how many items and buffers.
    pub fn try_alloc(&mut self, len: usize) -> Result<BufferMut, Error> {
        self.alloc_by(len, Some(Instant::now()))
    }

    /// Allocates a buffer of `len` bytes from the producer's own pool, or fails with `OutOfMemory` after `timeout`.
    ///
    /// # Errors
    /// As [`try_alloc`](Producer::try_alloc).
    pub fn alloc_timeout(&mut self, len: usize, timeout: Duration) -> Result<BufferMut, Error> {
        self.alloc_by(len, Instant::now().checked_add(timeout))
    }

    #[inline]
    fn alloc_by(&mut self, len: usize, deadline: Option<Instant>) -> Result<BufferMut, Error> {
        if let Some(buffer) = topics::alloc_now(&self.pool, len) {
            return Ok(buffer);
        }
        topics::check_fork(&self.domain)?;
        waiting::alloc(&mut *self.writing.enter(), len, deadline)
    }

    /// Allocates a buffer as [`alloc`](Producer::alloc) does, without blocking the thread, in any runtime. A task that
    /// waits looks again about once a millisecond.
    ///
    /// # Errors
    /// As [`alloc`](Producer::alloc), and `System` if the thread that wakes tasks cannot be made.
    pub fn alloc_async(
        &mut self,
        len: usize,
    ) -> impl Future<Output = Result<BufferMut, Error>> + Send + Unpin {
        waiting::alloc_async(&mut self.writing, &self.domain, len)
    }

    /// Sends an item: a buffer of the producer's own pool, or a few bytes. A pair also sends a word. The function waits
    /// for room without limit.
    ///
    /// # Errors
    /// `BufferInvalid` for a buffer of another pool; `TooLarge` for more bytes than a line holds; `Forked`. The error gives the buffer back.
    #[inline]
    pub fn send<P: Enqueue>(&mut self, payload: P) -> Result<(), SendError<P::Unsent>> {
        self.send_by(payload, Waits::Until(None))
    }

    /// Sends an item as [`send`](Producer::send) does, without waiting.
    ///
    /// # Errors
    /// As [`send`](Producer::send), and `Full`, whose text says how many items wait and which consumers have how many.
    #[inline]
    pub fn try_send<P: Enqueue>(&mut self, payload: P) -> Result<(), SendError<P::Unsent>> {
        self.send_by(payload, Waits::Not)
    }

    /// Sends an item as [`send`](Producer::send) does, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`send`](Producer::send), and `TimedOut`, whose text says how many items wait and which consumers have how
    /// many.
    pub fn send_timeout<P: Enqueue>(
        &mut self,
        payload: P,
        timeout: Duration,
    ) -> Result<(), SendError<P::Unsent>> {
        let deadline = Instant::now().checked_add(timeout);
        self.send_by(payload, Waits::Until(deadline))
    }

    #[inline]
    fn send_by<P: Enqueue>(
        &mut self,
        payload: P,
        waits: Waits,
    ) -> Result<(), SendError<P::Unsent>> {
        waiting::send(&mut self.writing, &self.domain, payload, waits)
    }

    /// Sends an item as [`send`](Producer::send) does, without blocking the thread, in any runtime. A future that is
    /// dropped before it is ready has sent nothing. A task that waits for room looks again about once a millisecond.
    ///
    /// # Errors
    /// As [`send`](Producer::send); `OutOfMemory` if there is no memory for an aggregate's list; `System` if the thread
    /// that wakes tasks cannot be made.
    pub fn send_async<P: Enqueue + Unpin>(
        &mut self,
        payload: P,
    ) -> impl Future<Output = Result<(), SendError<P::Unsent>>> + Unpin {
        waiting::send_async(&mut self.writing, &self.domain, payload)
    }

    /// Takes new consumers in, removes those that are gone, and gives their items back. A send does this from time to
    /// time, and the domain's helper thread does it while the producer is idle. The function does not block.
    ///
    /// # Errors
    /// `NameTaken` if another domain took the name while the manager restarted: nobody can join until that domain gives
    /// the name up and the manager restarts again. `Forked`. If the manager is away, this is not an error: the
    /// consumers that have joined go on.
    pub fn tend(&mut self) -> Result<(), Error> {
        topics::check_fork(&self.domain)?;
        let mut writing = self.writing.enter();
        writing.tend();
        writing.check_name()
    }

    /// Waits until at least `consumers` of them have joined, or fails with `TimedOut` after `timeout`. `None`: no
    /// limit.
    ///
    /// # Errors
    /// `TimedOut`; `NameTaken` as in [`tend`](Producer::tend); `Forked`.
    pub fn wait_for(
        &mut self,
        consumers: usize,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), Error> {
        let has = |writing: &Writing| match writing.consumers() >= consumers {
            true => Ok(true),
            false => writing.check_name().map(|()| false),
        };
        self.wait_until(timeout.into(), has, |writing| {
            let have = writing.consumers();
            format!("has {have} consumers, not {consumers}")
        })
    }

    /// Waits until every item was taken and acknowledged, lost or rejected, or fails with `TimedOut` after `timeout`. `None`: for ever.
    ///
    /// Items that a consumer gives back go to another one meanwhile.
    ///
    /// # Errors
    /// `TimedOut`, whose text says how many items wait and which consumers have how many; `Forked`.
    pub fn wait_done(&mut self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        let is_done = |writing: &Writing| Ok(writing.is_done());
        self.wait_until(timeout.into(), is_done, Writing::undone)
    }

    /// Waits until `done` returns true. `undone` gives the text of the error.
    fn wait_until(
        &mut self,
        timeout: Option<Duration>,
        done: impl Fn(&Writing) -> Result<bool, Error>,
        missing: impl Fn(&Writing) -> String,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        loop {
            topics::check_fork(&self.domain)?;
            let mut writing = self.writing.enter();
            writing.tend();
            if done(&writing)? {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let (name, waited) = (&self.name, begun.elapsed());
                let text = missing(&writing);
                let text = format!("queue {name}: after {waited:?} this producer {text}");
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            drop(writing);
            topics::idle(&self.domain, deadline);
        }
    }

    /// Takes the oldest lost item, which no consumer gets. Its consumer rejected it, or ended and the option is
    /// [`WhenLost::Report`](crate::WhenLost::Report). At most 1024 such items are kept: older ones are dropped. Some
    /// are dropped too if an allocation finds no other memory. [`status`](Producer::status) counts all.
    pub fn take_lost(&mut self) -> Option<Lost> {
        topics::check_fork(&self.domain).ok()?;
        self.writing.enter().take_lost()
    }

    /// Returns the status of the items, and the present state of the consumers. The function reads the desk of each. In
    /// a forked child, which sees no desk, the status is empty.
    pub fn status(&self) -> ProducerStatus {
        self.with(Writing::status).unwrap_or_default()
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("name", &self.name)
            .field("sent", &self.with(Writing::sent))
            .field("consumers", &self.consumers())
            .finish_non_exhaustive()
    }
}

impl Drop for Producer {
    /// Ends the producer's part in order: consumers take the items that still wait. A forked child does nothing, since
    /// the producer is the parent's.
    fn drop(&mut self) {
        if topics::check_fork(&self.domain).is_err() {
            self.writing.abandon();
        }
    }
}
