//! The writing end as programs see it.

use crate::options::TopicOptions;
use crate::status::PublisherStatus;
use crate::writing::Writing;
use std::time::{Duration, Instant};
use tranship_core::error::{Awaited, TimedOut};
use tranship_core::topics;
use tranship_core::{BufferMut, Domain, Error, Outcome, Pool, SendError};
use tranship_readers::{Idle, Payload as Publish, Waits, Writes, waiting};
use tranship_sync::Owned;

/// Publishes a topic's messages. Subscribers come and go by themselves.
///
/// One thread at a time publishes. A publish writes one line, whatever the number of subscribers: no locked
/// instruction, and no system call within a burst. After a pause of 20 µs or more a publish makes one system call for
/// each user that has subscribers, and one for each subscriber that sleeps on its descriptor. From time to time a
/// publish also takes new subscribers in. While the publisher is idle, the domain's helper thread does that, and takes
/// memory back; the first publisher of a domain starts that thread.
///
/// Crash-safe: when the publisher's process dies, subscribers take the messages that the ring still has, and are told
/// of the death. Subscribers that wait find a later publisher of the same name.
pub struct Publisher {
    domain: Domain,
    name: String,
    pool: Pool,
    writing: Owned<Writing>,
}

impl Publisher {
    pub(crate) fn new(
        domain: &Domain,
        name: &str,
        options: TopicOptions,
    ) -> Result<Publisher, Error> {
        let writing = Writing::new(domain, name, options)?;
        let pool = writing.pool().clone();
        let writing = Owned::new(writing);
        Idle::tend(&writing, domain);
        Ok(Publisher {
            domain: domain.clone(),
            name: name.into(),
            pool,
            writing,
        })
    }

    /// Returns the topic's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many subscribers have joined and not left.
    pub fn subscribers(&self) -> usize {
        self.with(Writing::subscribers).unwrap_or(0)
    }

    /// Looks at the state. Returns `None` in a forked child, which has no state.
    fn with<T>(&self, look: impl FnOnce(&Writing) -> T) -> Option<T> {
        topics::check_fork(&self.domain).ok()?;
        Some(look(&self.writing.look()))
    }

    /// Allocates a buffer of `len` bytes from the topic's own pool, which only its subscribers can read. If no buffer
    /// is free, the function withdraws the oldest messages, and subscribers then miss them. It waits for buffers that
    /// subscribers hold, and for messages that reliable subscribers have not yet taken.
    ///
    /// With [`WhenBehind::Wait`](crate::WhenBehind::Wait) reliable subscribers that keep memory for longer than that
    /// time are no longer reliable. With [`WhenBehind::DropNew`](crate::WhenBehind::DropNew) the wait for reliable
    /// subscribers has no limit: [`try_alloc`](Publisher::try_alloc) does not wait.
    ///
    /// # Errors
    /// As [`Pool::alloc`].
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Result<BufferMut, Error> {
        self.alloc_by(len, || None)
    }

    /// Allocates a buffer of `len` bytes from the topic's own pool, as [`alloc`](Publisher::alloc) does, without waiting for subscribers.
    ///
    /// # Errors
    /// As [`Pool::alloc`], and `OutOfMemory`, whose text names the subscribers that hold buffers: their processes and
    /// domains, and for how long they hold the buffers.
    pub fn try_alloc(&mut self, len: usize) -> Result<BufferMut, Error> {
        self.alloc_by(len, || Some(Instant::now()))
    }

    /// Allocates a buffer of `len` bytes from the topic's own pool, as [`alloc`](Publisher::alloc) does, or fails with `OutOfMemory` after `timeout`.
    ///
    /// # Errors
    /// As [`try_alloc`](Publisher::try_alloc).
    pub fn alloc_timeout(&mut self, len: usize, timeout: Duration) -> Result<BufferMut, Error> {
        self.alloc_by(len, || Instant::now().checked_add(timeout))
    }

    #[inline(always)]
    fn alloc_by(
        &mut self,
        len: usize,
        deadline: impl FnOnce() -> Option<Instant>,
    ) -> Result<BufferMut, Error> {
        if let Some(buffer) = topics::alloc_now(&self.pool, len) {
            return Ok(buffer);
        }
        std::hint::cold_path();
        // Boxed, so that the fast path's result stays in registers where the two meet.
        self.alloc_long(len, deadline()).map(|buffer| *buffer)
    }

    #[cold]
    #[inline(never)]
    fn alloc_long(
        &mut self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<Box<BufferMut>, Error> {
        topics::check_fork(&self.domain)?;
        waiting::alloc(&mut *self.writing.enter(), len, deadline).map(Box::new)
    }

    /// Allocates a buffer as [`alloc`](Publisher::alloc) does, for awaiting in any runtime.
    ///
    /// # Errors
    /// As [`alloc`](Publisher::alloc), and `System` if the thread that wakes tasks cannot be made.
    pub fn alloc_async(
        &mut self,
        len: usize,
    ) -> impl Future<Output = Result<BufferMut, Error>> + Send + Unpin {
        waiting::alloc_async(&mut self.writing, &self.domain, len)
    }

    /// Publishes a message: a buffer of the topic's own pool, an aggregate of such buffers, or a few bytes. A pair also
    /// sends a word.
    ///
    /// The function waits only for reliable subscribers, as [`WhenBehind`](crate::WhenBehind) says, and for the memory
    /// of an aggregate's list. `Dropped`: a reliable subscriber was behind, and the message was not published.
    ///
    /// # Errors
    /// `BufferInvalid` for a buffer of another pool; `TooLarge` for more bytes than a line holds, or more pieces than a message may have; `Forked`. The error gives the payload back.
    #[inline(always)]
    pub fn send<P: Publish>(&mut self, payload: P) -> Result<Outcome, SendError<P::Unsent>> {
        waiting::send(&mut self.writing, &self.domain, payload, Waits::Until(None))
    }

    /// Publishes a message as [`send`](Publisher::send) does, without waiting for subscribers, whatever
    /// [`WhenBehind`](crate::WhenBehind) says.
    ///
    /// # Errors
    /// As [`send`](Publisher::send), and `Full`, which names the reliable subscriber that is behind: process, domain, for how long.
    /// `OutOfMemory` if there is no memory for an aggregate's list.
    #[inline]
    pub fn try_send<P: Publish>(&mut self, payload: P) -> Result<Outcome, SendError<P::Unsent>> {
        waiting::send(&mut self.writing, &self.domain, payload, Waits::Not)
    }

    /// Publishes a message as [`send`](Publisher::send) does, or fails with `TimedOut` after `timeout`. It drops no message.
    ///
    /// # Errors
    /// As [`send`](Publisher::send), and `TimedOut`, which names the reliable subscriber that is behind.
    /// `OutOfMemory` if there is no memory for an aggregate's list in that time.
    pub fn send_timeout<P: Publish>(
        &mut self,
        payload: P,
        timeout: Duration,
    ) -> Result<Outcome, SendError<P::Unsent>> {
        let waits = Waits::Until(Instant::now().checked_add(timeout));
        waiting::send(&mut self.writing, &self.domain, payload, waits)
    }

    /// Publishes a message as [`send`](Publisher::send) does, for awaiting in any runtime. A future that is dropped before it is ready
    /// has published nothing.
    ///
    /// # Errors
    /// As [`send`](Publisher::send); `System` where the thread that wakes tasks cannot be had.
    pub fn send_async<P: Publish + Unpin>(
        &mut self,
        payload: P,
    ) -> impl Future<Output = Result<Outcome, SendError<P::Unsent>>> + Unpin {
        waiting::send_async(&mut self.writing, &self.domain, payload)
    }

    /// Takes new subscribers in, and removes those that are gone. A publish does this from time to time, and the
    /// domain's helper thread does it while the publisher is idle. The function does not block.
    ///
    /// # Errors
    /// `NameTaken` if another domain took the name while the manager restarted: nobody can join until that domain gives
    /// the name up and the manager restarts again. `Forked`. If the manager is away, this is not an error: the
    /// subscribers that have joined go on.
    pub fn tend(&mut self) -> Result<(), Error> {
        topics::check_fork(&self.domain)?;
        let mut writing = self.writing.enter();
        writing.tend();
        writing.check_name()
    }

    /// Waits until at least `subscribers` of them have joined, or fails with `TimedOut` after `timeout`. `None`: no
    /// limit.
    ///
    /// # Errors
    /// `TimedOut`; `Forked`.
    pub fn wait_for(
        &mut self,
        subscribers: usize,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), Error> {
        let (begun, timeout) = (Instant::now(), timeout.into());
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        loop {
            self.tend()?;
            let have = self.subscribers();
            if have >= subscribers {
                return Ok(());
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let awaited = Awaited::Subscribers {
                    topic: self.name.clone(),
                    have,
                    wanted: subscribers,
                };
                return Err(TimedOut::since(begun, awaited).into());
            }
            topics::idle(&self.domain, deadline);
        }
    }

    /// Returns what was published, and the present state of the subscribers. The function reads the desk of each.
    pub fn status(&self) -> PublisherStatus {
        self.with(Writing::status).unwrap_or_default()
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("name", &self.name)
            .field("published", &self.with(Writing::published))
            .field("subscribers", &self.subscribers())
            .finish_non_exhaustive()
    }
}

impl Drop for Publisher {
    /// Ends the topic in order: subscribers take the messages that the ring still has. A forked child does nothing,
    /// since the topic is the parent's.
    fn drop(&mut self) {
        if topics::check_fork(&self.domain).is_err() {
            self.writing.abandon();
        }
    }
}
