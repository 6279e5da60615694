//! Messages that can never be taken: their memory is gone, or they are lies.

use super::Receiver;
use super::ahead::Over;
use super::pools::In;
use crate::error::{Error, Violation};
use crate::link::shared::Gone;
use tranship_proto::{PoolId, RefusalCode};

impl Receiver {
    #[cold]
    pub(super) fn violated(&mut self, violation: Violation) -> Error {
        tracing::warn!(channel = %self.link.channel, peer = %self.link.peer, %violation, "the sender broke a rule");
        self.link.hang_up();
        self.end(Over::Violated(violation))
    }

    pub(super) fn writer_is_dead(&self, pool: PoolId) -> bool {
        let dead = |i: &In| i.pool == pool && i.assignment.side.writer_is_dead();
        self.ins.iter().any(dead)
    }

    pub(super) fn source_is_gone(&self) -> bool {
        self.link.look_for_death();
        matches!(self.link.gone(), Gone::Closed | Gone::Died)
    }

    /// Whether a pool that the manager refuses to show never comes. Its writer may still be on its way back to a
    /// restarted manager. If the writer was dead before the request, no domain has the chunk any more, and no domain
    /// lied.
    pub(super) fn never_comes(&self, dead: bool, why: RefusalCode) -> bool {
        match why {
            RefusalCode::NoSuchId | RefusalCode::NotYours if dead => true,
            // The manager knows the pool, and no domain is left that would make this domain a reader of it.
            RefusalCode::NotYours => !self.link.domain.is_just_back() && self.source_is_gone(),
            _ => false,
        }
    }

    /// Ends the link: the memory of the next message went with its writer. All other messages on their way are lost,
    /// too.
    #[cold]
    pub(super) fn lost(&mut self) -> Error {
        if !self.source_is_gone() {
            self.link.hang_up();
            return self.end(Over::Lost);
        }
        self.drained(Over::Lost)
    }
}
