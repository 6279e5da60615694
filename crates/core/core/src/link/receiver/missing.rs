//! Messages that can never be taken: their memory is gone, or they are lies.

use super::Receiver;
use super::ahead::Over;
use super::pools::In;
use crate::error::{Error, Violation};
use crate::link::shared::Gone;
use tranship_proto::{PoolId, RefusalCode, Request};

impl Receiver {
    #[cold]
    pub(super) fn violated(&mut self, violation: Violation) -> Error {
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

    pub(super) fn writer_is_dead(&self, pool: PoolId) -> bool {
        let dead = |i: &In| i.pool == pool && i.assignment.side.writer_is_dead();
        self.ins.iter().any(dead)
    }

    pub(super) fn source_is_gone(&self) -> bool {
        self.link.look_for_death();
        matches!(self.link.gone(), Gone::Closed | Gone::Died)
    }

    /// The manager refuses to show us a pool. Its writer may be on its way back to a manager that was restarted, however
    /// long that takes; only if it was dead before we asked nobody has the chunk any more, and nobody lied.
    pub(super) fn never_comes(&self, dead: bool, why: RefusalCode) -> bool {
        match why {
            RefusalCode::NoSuchId | RefusalCode::NotYours if dead => true,
            // It knows the pool, and no domain is left that would make us a reader of it.
            RefusalCode::NotYours => !self.link.domain.is_just_back() && self.source_is_gone(),
            _ => false,
        }
    }

    /// Memory of what comes next went with the domain that wrote it: the link ends here, with what else is on its way.
    #[cold]
    pub(super) fn lost(&mut self) -> Error {
        if !self.source_is_gone() {
            self.hang_up();
            return self.end(Over::Lost);
        }
        self.drained(Over::Lost)
    }
}
