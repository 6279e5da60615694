//! Receipt of a topic's messages: the lines are another ring's, the pool and the counting are this channel's.

use super::Receiver;
use super::ahead::{Awaits, Due, Untaken};
use super::pending::Fetched;
use crate::buffer::Buffer;
use crate::domain::ROUND;
use crate::error::Error;
use crate::link::descriptor::Reference;
use crate::link::shared::{Assigned, Gone, LinkShared};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;
use tranship_proto::PoolId;

/// Result of a look for the buffers that a line names.
#[derive(Debug)]
pub enum Taken<T> {
    /// All of it is here.
    Here(T),
    /// The manager has still to show the memory.
    Later(Due),
    /// The memory went with its writer.
    Lost,
}

impl<T> Taken<T> {
    /// Converts the content of `Here`.
    #[inline]
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Taken<U> {
        match self {
            Taken::Here(here) => Taken::Here(make(here)),
            Taken::Later(due) => Taken::Later(due),
            Taken::Lost => Taken::Lost,
        }
    }
}

impl Receiver {
    pub(crate) fn link(&self) -> &LinkShared {
        &self.link
    }

    pub(crate) fn link_arc(&self) -> &Arc<LinkShared> {
        &self.link
    }

    /// Says whether the manager may still open a pool of which the writer has spoken: it has then to put this domain's
    /// counters on the writer's reader set, and buffers of the pool cannot be received yet. This news may come later
    /// than the writer's word, and later than the writer's end. News of that end come after it.
    #[doc(hidden)]
    pub fn topic_awaits(&mut self, pool: PoolId) -> bool {
        if !matches!(self.find(pool), Err(Untaken::NotOpen(_))) {
            return false;
        }
        self.link.domain.turn_quietly();
        if self.is_open(pool) {
            self.link.open_pool(pool);
            return false;
        }
        !self.link.is_reported_gone()
    }

    /// Takes the buffer that a line names, and counts it in this domain's references. Does not wait.
    ///
    /// # Errors
    /// `PeerViolation` for a line that names what the pool cannot have; it ends the channel. `ChunkPending` if no manager
    /// can be reached that could show the memory; the buffer can be asked for again.
    #[doc(hidden)]
    #[inline(always)]
    pub fn topic_take(&mut self, of: Reference) -> Result<Taken<Buffer>, Error> {
        match self.take_uncounted(&of) {
            Some(buffer) => Ok(Taken::Here(buffer)),
            None => self.take_line(of),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_line(&mut self, of: Reference) -> Result<Taken<Buffer>, Error> {
        match self.take_shared(of) {
            Ok(buffer) => Ok(Taken::Here(buffer)),
            Err(untaken) => self.fetch_line(of, untaken),
        }
    }

    /// Waits for memory that the manager has still to show, or for its answer, at most 100 ms. False: there is none.
    #[doc(hidden)]
    pub fn topic_await(&self, due: &Due) -> bool {
        self.wait_due(due, Some(Instant::now() + ROUND))
    }

    fn take_shared(&mut self, of: Reference) -> Result<Buffer, Untaken> {
        let at = self.find(of.id.pool())?;
        self.shared(at, of)
    }

    /// Handles a line whose memory has still to be shown to this domain, or went with its dead writer.
    #[cold]
    fn fetch_line(&mut self, of: Reference, untaken: Untaken) -> Result<Taken<Buffer>, Error> {
        let (pool, missing) = match untaken {
            Untaken::Violation(violation) => return Err(self.violated(violation)),
            Untaken::Missing(pool, missing) => (pool, missing),
            // A topic's reader begins when the pool is open, and copies nothing.
            Untaken::NotOpen(_) | Untaken::NoRoom(..) => return Ok(Taken::Lost),
        };
        match self.fetch(pool, missing) {
            Fetched::Here => match self.take_shared(of) {
                Ok(buffer) => Ok(Taken::Here(buffer)),
                Err(Untaken::Violation(violation)) => Err(self.violated(violation)),
                Err(_) => Ok(Taken::Lost),
            },
            Fetched::Later => {
                let awaits = Awaits::Chunk(pool, missing);
                self.is_shown_by_nobody(awaits)
                    .map_or_else(|| Ok(Taken::Later(Due::of(awaits))), Err)
            }
            Fetched::Lost | Fetched::Never => Ok(Taken::Lost),
        }
    }

    /// Returns this domain's references of the pool's slots.
    pub(crate) fn refs(&mut self, pool: PoolId) -> Option<&[AtomicU32]> {
        let at = self.find(pool).ok()?;
        match &self.ins.get(at)?.assignment.side {
            Assigned::Foreign(foreign) => Some(foreign.refs()),
            Assigned::Own(_) => None,
        }
    }

    /// Returns the state of the other end, as far as it or the manager says so.
    pub(crate) fn peer_gone(&self) -> Gone {
        self.link.domain.catch_up();
        if self.link.gone() == Gone::No && self.link.their_closed() {
            self.link.peer_gone(Gone::Closed);
        }
        self.link.gone()
    }
}
