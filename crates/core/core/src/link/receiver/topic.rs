//! What a topic's subscriber takes: the lines are another ring's, the pool and the counting are this channel's.

use super::Receiver;
use super::take::Untaken;
use crate::buffer::Buffer;
use crate::domain::ROUND;
use crate::error::Error;
use crate::link::descriptor::Reference;
use crate::link::shared::{Assigned, Gone, LinkShared};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tranship_proto::{PoolId, Request};

impl Receiver {
    pub(crate) fn link(&self) -> &LinkShared {
        &self.link
    }

    /// Whether the pool can be received from.
    pub(crate) fn has_pool(&mut self, pool: PoolId) -> bool {
        self.find(pool).is_ok()
    }

    /// Takes what a line of the topic's ring names, and counts it in `ref`. None: its memory is not here.
    pub(crate) fn take_line(&mut self, of: Reference) -> Result<Option<Buffer>, Error> {
        let taken = self.take_shared(of);
        match taken {
            Ok(buffer) => Ok(Some(buffer)),
            Err(Untaken::Violation(violation)) => Err(self.violated(violation)),
            Err(_) => self.fetch_named(of),
        }
    }

    fn take_shared(&mut self, of: Reference) -> Result<Buffer, Untaken> {
        let at = self.find(of.id.pool())?;
        self.shared(at, of)
    }

    /// The memory of a line has still to be shown to us, or was taken from us with its dead writer. The manager is asked once, for a bounded time.
    #[cold]
    fn fetch_named(&mut self, of: Reference) -> Result<Option<Buffer>, Error> {
        let pool = of.id.pool();
        self.link.domain.turn_quietly();
        if let Ok(buffer) = self.take_shared(of) {
            return Ok(Some(buffer));
        }
        let asked = self
            .link
            .domain
            .ask_now(|req| Request::Resync { req, pool }, &[]);
        if let Ok(asked) = asked
            && !matches!(
                self.link.domain.answer(asked, Some(Instant::now() + ROUND)),
                Ok(Some(_))
            )
        {
            self.link.domain.forget(asked);
        }
        Ok(self.take_shared(of).ok())
    }

    /// This domain's references of the pool's slots.
    pub(crate) fn refs(&mut self, pool: PoolId) -> Option<&[AtomicU32]> {
        let at = self.find(pool).ok()?;
        match &self.ins.get(at)?.assignment.side {
            Assigned::Foreign(foreign) => Some(foreign.refs()),
            Assigned::Own(_) => None,
        }
    }

    /// Has the manager take nothing of the pool for dead before this end has left, should the pool's writer die: as long as `rcvd` and `sent` differ,
    /// something is on its way. A topic counts neither of them.
    pub(crate) fn await_all(&mut self, pool: PoolId) {
        if let Ok(at) = self.find(pool)
            && let Some(entry) = self.ins.get(at)
        {
            let counts = entry.assignment.counts.counts();
            // Relaxed: the manager reads them when the writer is dead.
            counts
                .iter()
                .for_each(|count| count.store(1, Ordering::Relaxed));
        }
    }

    /// What has become of the other end, as far as it or the manager says so.
    pub(crate) fn peer_gone(&self) -> Gone {
        self.link.domain.catch_up();
        if self.link.gone() == Gone::No && self.link.their_closed() {
            self.link.peer_gone(Gone::Closed);
        }
        self.link.gone()
    }
}
