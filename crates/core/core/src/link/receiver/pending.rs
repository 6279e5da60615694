//! A message that cannot be taken yet: its chunk is not here, or the manager has not opened its pool. It stays the next one,
//! and is tried again when what it waits for has come, or the manager is back to be asked for it.

use super::Receiver;
use super::ahead::{Ahead, Awaits, Pending, Resync};
use crate::domain::POLL_INTERVAL;
use crate::error::{Error, ErrorKind, Violation};
use crate::link::message::Message;
use crate::link::shared::Assigned;
use crate::pool::Missing;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tranship_proto::{PoolId, Refusal, Request};

impl Receiver {
    pub(super) fn take_pending(&mut self, pending: &Pending) -> Result<Option<Message>, Error> {
        let taken = self.take(pending.words);
        // An answer says nothing of what was sent after the question.
        if !matches!(self.ahead, Ahead::Line(_)) {
            self.forget_resync();
        }
        taken
    }

    fn put_aside(&mut self, words: [u64; 8], awaits: Awaits) {
        self.ahead = Ahead::Line(Pending {
            words,
            awaits,
            again: Instant::now() + POLL_INTERVAL,
        });
    }

    /// There is no room for the message's copy now, or there never will be, as far as can be seen.
    #[cold]
    pub(super) fn await_room(
        &mut self,
        words: [u64; 8],
        pool: PoolId,
        error: Error,
    ) -> Result<Option<Message>, Error> {
        self.put_aside(words, Awaits::Room(pool));
        match error.kind() {
            ErrorKind::OutOfMemory | ErrorKind::ManagerAway => Ok(None),
            _ => Err(error.context("the next message cannot be copied")),
        }
    }

    fn keep(&mut self, words: [u64; 8], awaits: Awaits) -> Result<Option<Message>, Error> {
        self.put_aside(words, awaits);
        match self.link.domain.cut_off() {
            Some(barrier) => {
                let pool = awaits.pool();
                let text = format!(
                    "the next message is in memory of pool {pool} that was not shown to this process before the manager went, and no other can be reached"
                );
                Err(Error::because(ErrorKind::ChunkPending, text, barrier))
            }
            None => Ok(None),
        }
    }

    /// The source sent before the manager told us that it may: honest ones do only when our news is on its way.
    #[cold]
    pub(super) fn await_open(
        &mut self,
        words: [u64; 8],
        pool: PoolId,
    ) -> Result<Option<Message>, Error> {
        self.link.domain.turn_quietly();
        if self.is_open(pool) {
            self.link.open_pool(pool);
            return self.take(words);
        }
        self.keep(words, Awaits::Open(pool))
    }

    fn is_open(&self, pool: PoolId) -> bool {
        self.link.find(pool).is_some_and(|assignment| {
            // The news may have gone with its manager. Nobody collects for a dead writer, so there is no reader set to be on.
            assignment.open.load(Ordering::Acquire) || assignment.side.writer_is_dead()
        })
    }

    /// A chunk that we were not shown yet: take the manager's news, else ask it for what we missed.
    #[cold]
    pub(super) fn fetch_chunk(
        &mut self,
        words: [u64; 8],
        pool: PoolId,
        missing: Missing,
    ) -> Result<Option<Message>, Error> {
        let domain = &self.link.domain;
        domain.turn_quietly();
        if self.has(pool, missing) {
            return self.take(words);
        }
        let awaits = Awaits::Chunk(pool, missing);
        let (asked, dead) = match self.resync.take_if(|resync| resync.pool == pool) {
            Some(resync) => (Ok(resync.asked), resync.dead),
            None => {
                let dead = self.writer_is_dead(pool);
                let asked = domain.ask_now(|req| Request::Resync { req, pool }, &[]);
                (asked, dead)
            }
        };
        let Ok(asked) = asked else {
            return self.keep(words, awaits);
        };
        match domain.answer(asked, Some(Instant::now())) {
            Ok(None) => {
                self.forget_resync();
                self.resync = Some(Resync { pool, asked, dead });
                self.keep(words, awaits)
            }
            Ok(Some(_)) if self.has(pool, missing) => self.take(words),
            // The manager has shown us all that the pool's writer has shown it. That was not all if it died before it could.
            Ok(Some(_)) if self.writer_is_dead(pool) => Err(self.lost()),
            // Else it is all that an honest one uses.
            Ok(Some(_)) => Err(self.violated(Violation::Chunk {
                index: missing.index,
                serial: missing.serial,
            })),
            Err(error) => {
                let refusal = error.find::<Refusal>();
                match refusal.is_some_and(|refusal| self.never_comes(dead, refusal.code)) {
                    true => Err(self.lost()),
                    false => self.keep(words, awaits),
                }
            }
        }
    }

    fn has(&self, pool: PoolId, missing: Missing) -> bool {
        let entry = self.ins.iter().find(|i| i.pool == pool);
        entry.is_some_and(|i| match &i.assignment.side {
            Assigned::Foreign(foreign) => foreign.has(missing),
            Assigned::Own(_) => true,
        })
    }

    /// Whether there is a reason to try again.
    pub(super) fn is_due(&self, pending: &Pending) -> bool {
        // To be told so.
        let is_room = matches!(pending.awaits, Awaits::Room(_));
        if !is_room && self.link.domain.cut_off().is_some() {
            return true;
        }
        match pending.awaits {
            // Nobody tells us when there is.
            Awaits::Room(_) => Instant::now() >= pending.again,
            Awaits::Open(pool) => self.is_open(pool),
            Awaits::Chunk(pool, missing) => {
                let domain = &self.link.domain;
                self.has(pool, missing)
                    || match &self.resync {
                        Some(resync) => domain.is_answered(resync.asked),
                        None => domain.is_managed() && Instant::now() >= pending.again,
                    }
            }
        }
    }

    /// Waits for a reason to try again; false if there is none by then.
    pub(super) fn wait_pending(&self, pending: &Pending, deadline: Option<Instant>) -> bool {
        loop {
            if self.is_due(pending) {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            self.link.domain.idle();
        }
    }

    pub(super) fn forget_resync(&mut self) {
        if let Some(resync) = self.resync.take() {
            self.link.domain.forget(resync.asked);
        }
    }
}
