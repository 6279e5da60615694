//! What is done about a message that cannot be taken: not yet, never, or a lie.

use super::Receiver;
use super::over::{Ahead, Over};
use super::take::In;
use crate::error::{DomainError, RecvError, Violation};
use crate::link::message::Message;
use crate::link::shared::{Assigned, Gone};
use crate::pool::Missing;
use std::sync::atomic::Ordering;
use tranship_proto::{PoolId, RefusalCode, Request};

impl Receiver {
    #[cold]
    pub(super) fn violated(&mut self, violation: Violation) -> RecvError {
        tracing::warn!(channel = %self.link.channel, peer = %self.link.peer, %violation, "the sender broke a rule");
        self.hang_up();
        self.end(Over::Violated(violation))
    }

    /// The source is told that nothing more is taken.
    fn hang_up(&mut self) {
        self.link.peer_gone(Gone::Violated);
        let _ = self.link.domain.tell(
            &Request::CloseChannel {
                channel: self.link.channel,
            },
            &[],
        );
    }

    /// The source sent before the manager told us that it may: honest ones do only when our news is on its way.
    #[cold]
    pub(super) fn await_open(
        &mut self,
        words: [u64; 8],
        pool: PoolId,
    ) -> Result<Option<Message>, RecvError> {
        let turned = self.link.domain.turn();
        if let Some(assignment) = self.link.find(pool) {
            // The news may have gone with its manager. Nobody collects for a dead writer, so there is no roster to be on.
            if assignment.side.writer_is_dead() {
                self.link.open_pool(pool);
            }
            if assignment.open.load(Ordering::Acquire) {
                return self.take(words);
            }
        }
        self.ahead = Ahead::Line(words);
        match turned {
            Ok(()) => Ok(None),
            Err(_) => Err(RecvError::ChunkPending { pool, index: 0 }),
        }
    }

    /// A chunk that we were not shown yet: take the manager's news, else ask it for what we missed.
    #[cold]
    pub(super) fn fetch_chunk(
        &mut self,
        words: [u64; 8],
        pool: PoolId,
        missing: Missing,
    ) -> Result<Option<Message>, RecvError> {
        let domain = self.link.domain;
        let away = |_| RecvError::ChunkPending {
            pool,
            index: missing.index,
        };
        for attempt in 0..2 {
            let asked = if attempt == 0 {
                domain.turn()
            } else {
                domain
                    .call_if_prompt(|req| Request::Resync { req, pool }, &[], None)
                    .map(|_| ())
            };
            match asked {
                Ok(()) => {}
                Err(DomainError::Refused(refusal)) if self.never_comes(pool, refusal.code) => {
                    return Err(self.lost());
                }
                Err(error) => {
                    self.ahead = Ahead::Line(words);
                    return Err(away(error));
                }
            }
            let here = self.ins.iter().find(|i| i.pool == pool).is_some_and(|i| {
                match &i.assignment.side {
                    Assigned::Foreign(foreign) => foreign.has(missing),
                    Assigned::Own(_) => true,
                }
            });
            if here {
                return self.take(words);
            }
        }
        // The manager has shown us all that the pool's writer has shown it, which is all that an honest one uses.
        Err(self.violated(Violation::Chunk {
            index: missing.index,
            serial: missing.serial,
        }))
    }

    pub(super) fn source_is_gone(&self) -> bool {
        self.link.look_for_death();
        matches!(self.link.gone(), Gone::Closed | Gone::Died)
    }

    /// The manager refuses to show us a pool. Its writer may be on its way back to a manager that was restarted, however
    /// long that takes; only if it is dead nobody has the chunk any more, and nobody lied.
    pub(super) fn never_comes(&self, pool: PoolId, why: RefusalCode) -> bool {
        let foreign = |i: &In| i.assignment.side.writer_is_dead();
        match why {
            RefusalCode::NoSuchId | RefusalCode::NotYours
                if self.ins.iter().any(|i| i.pool == pool && foreign(i)) =>
            {
                true
            }
            // It knows the pool, and there is nobody left who would make us a reader of it.
            RefusalCode::NotYours => !self.link.domain.is_just_back() && self.source_is_gone(),
            _ => false,
        }
    }

    /// Memory of what comes next went with the domain that wrote it: the link ends here, with what else is on its way.
    #[cold]
    fn lost(&mut self) -> RecvError {
        if !self.source_is_gone() {
            self.hang_up();
            return self.end(Over::Lost);
        }
        self.drained(Over::Lost)
    }
}
