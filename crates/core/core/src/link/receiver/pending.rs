//! A message that cannot be taken yet: its chunk is not here, or the manager has not opened its pool. It stays the next
//! one. It is tried again when its memory or pool has come, or when the manager is back.

use super::Receiver;
use super::ahead::{Ahead, Awaits, Due, Pending, Resync};
use crate::error::{Error, ErrorKind, Violation};
use crate::link::shared::Assigned;
use crate::pool::Missing;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tranship_proto::{PoolId, Refusal, Request};

/// Result of a look for a chunk.
pub(super) enum Fetched {
    Here,
    /// The manager has still to answer, or is away.
    Later,
    /// The chunk went with its writer.
    Lost,
    /// The manager has shown all chunks that an honest writer uses.
    Never,
}

impl Receiver {
    fn put_aside(&mut self, words: [u64; 8], awaits: Awaits) {
        let due = Due::of(awaits);
        self.ahead = Ahead::Line(Pending { words, due });
    }

    // Each of the next returns whether the line can be taken now. If not, it was put aside.

    /// Handles a message whose copy has no room now, or never will have, as far as can be seen.
    #[cold]
    pub(super) fn await_room(
        &mut self,
        words: [u64; 8],
        pool: PoolId,
        error: Error,
    ) -> Result<bool, Error> {
        self.put_aside(words, Awaits::Room(pool));
        match error.kind() {
            ErrorKind::OutOfMemory | ErrorKind::ManagerAway => Ok(false),
            _ => Err(error.context("the next message cannot be copied")),
        }
    }

    fn keep(&mut self, words: [u64; 8], awaits: Awaits) -> Result<bool, Error> {
        self.put_aside(words, awaits);
        self.is_shown_by_nobody(awaits).map_or(Ok(false), Err)
    }

    /// Returns the error of a message whose memory no manager can be asked for.
    pub(super) fn is_shown_by_nobody(&self, awaits: Awaits) -> Option<Error> {
        let barrier = self.link.domain.cut_off()?;
        let pool = awaits.pool();
        let text = format!(
            "the next message is in memory of pool {pool} that was not shown to this process before the manager went, and no other can be reached"
        );
        Some(Error::because(ErrorKind::ChunkPending, text, barrier))
    }

    /// Handles a message that came before the manager's news that the source may send. An honest source sends only when
    /// this news is on its way.
    #[cold]
    pub(super) fn await_open(&mut self, words: [u64; 8], pool: PoolId) -> Result<bool, Error> {
        self.link.domain.turn_quietly();
        if self.is_open(pool) {
            self.link.open_pool(pool);
            return Ok(true);
        }
        self.keep(words, Awaits::Open(pool))
    }

    pub(super) fn is_open(&self, pool: PoolId) -> bool {
        self.link.find(pool).is_some_and(|assignment| {
            // The news may have gone with its manager. No domain collects for a dead writer, so no reader set has to
            // have this end.
            assignment.open.load(Ordering::Acquire) || assignment.side.writer_is_dead()
        })
    }

    /// Fetches a chunk that this domain was not shown yet.
    #[cold]
    pub(super) fn fetch_chunk(
        &mut self,
        words: [u64; 8],
        pool: PoolId,
        missing: Missing,
    ) -> Result<bool, Error> {
        match self.fetch(pool, missing) {
            Fetched::Here => Ok(true),
            Fetched::Later => self.keep(words, Awaits::Chunk(pool, missing)),
            Fetched::Lost => Err(self.lost()),
            Fetched::Never => Err(self.violated(Violation::Chunk {
                index: missing.index,
                serial: missing.serial,
            })),
        }
    }

    /// Takes the manager's news, else asks for the missed chunks. Does not wait for the answer.
    #[cold]
    pub(super) fn fetch(&mut self, pool: PoolId, missing: Missing) -> Fetched {
        let domain = &self.link.domain;
        domain.turn_quietly();
        if self.has(pool, missing) {
            return Fetched::Here;
        }
        let (asked, dead) = match self.resync.take_if(|resync| resync.pool == pool) {
            Some(resync) => (Ok(resync.asked), resync.dead),
            None => {
                let dead = self.writer_is_dead(pool);
                let asked = domain.ask_now(|req| Request::Resync { req, pool }, &[]);
                (asked, dead)
            }
        };
        let Ok(asked) = asked else {
            return Fetched::Later;
        };
        match domain.answer(asked, Some(Instant::now())) {
            Ok(None) => {
                self.forget_resync();
                self.resync = Some(Resync { pool, asked, dead });
                Fetched::Later
            }
            Ok(Some(_)) if self.has(pool, missing) => Fetched::Here,
            // The manager has shown all chunks that the pool's writer has shown it. A writer that died before may have
            // had more.
            Ok(Some(_)) if self.writer_is_dead(pool) => Fetched::Lost,
            // Else these are all chunks that an honest writer uses.
            Ok(Some(_)) => Fetched::Never,
            Err(error) => {
                let refusal = error.find::<Refusal>();
                match refusal.is_some_and(|refusal| self.never_comes(dead, refusal.code)) {
                    true => Fetched::Lost,
                    false => Fetched::Later,
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
    pub(crate) fn is_due(&self, due: &Due) -> bool {
        // To be told so.
        let is_room = matches!(due.awaits, Awaits::Room(_));
        if !is_room && self.link.domain.cut_off().is_some() {
            return true;
        }
        match due.awaits {
            // No news comes when there is room.
            Awaits::Room(_) => Instant::now() >= due.again,
            Awaits::Open(pool) => self.is_open(pool),
            Awaits::Chunk(pool, missing) => {
                let domain = &self.link.domain;
                self.has(pool, missing)
                    || match &self.resync {
                        Some(resync) => domain.is_answered(resync.asked),
                        None => domain.is_managed() && Instant::now() >= due.again,
                    }
            }
        }
    }

    /// Waits for a reason to try again; false if there is none by then.
    pub(super) fn wait_due(&self, due: &Due, deadline: Option<Instant>) -> bool {
        loop {
            if self.is_due(due) {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            self.link.domain.idle();
        }
    }

    pub(crate) fn forget_resync(&mut self) {
        if let Some(resync) = self.resync.take() {
            self.link.domain.forget(resync.asked);
        }
    }
}
