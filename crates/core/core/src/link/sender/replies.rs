//! Replies of the receiver: messages, and buffers that it hands back.
//!
//! No counter counts a buffer on its way back. The receiver has taken its receipt back, so the buffer counts as sent
//! and not taken, until this end holds it and takes the send back, too (`tranship_ledger::order::PASS_BACK`).

use super::Out;
use crate::base::lock;
use crate::buffer::Buffer;
use crate::error::{Error, Violation};
use crate::link::descriptor::{self, Carries, Descriptor, Reference};
use crate::link::shared::{Assigned, Assignment, Gone, LinkShared, Replies, Reply};
use std::sync::atomic::{Ordering, fence};
use tranship_ledger::ReturnStep;
use tranship_proto::{BufferId, PoolId};
use tranship_sys::crash;

impl LinkShared {
    /// Takes the buffers that a queue's sink has passed back, before the queue leaves the reader set: only its counters
    /// keep them. The sink passes nothing any more.
    pub(crate) fn save_replies(&self) {
        let mut replies = lock(&self.replies);
        if replies.over {
            return;
        }
        // Ordering: release, partner `has_reply`; before lines are given back, so that a look that finds none of them
        // sees this.
        self.early_replies.store(true, Ordering::Release);
        // Limit: as many as the ring holds, whatever a liar goes on writing.
        for _ in 0..self.their_lines().count() {
            // The send is not taken back: only the Sender writes that counter.
            match self.take_reply(&mut replies, None) {
                Ok(None) => break,
                Ok(Some(reply)) => replies.early.push_back(Ok(reply)),
                Err(error) => replies.early.push_back(Err(error)),
            }
        }
    }

    /// Whether a reply may be there; false only if none is.
    #[inline]
    pub(super) fn has_reply(&self) -> bool {
        self.ring.has_line() || self.has_early_reply()
    }

    /// Whether there may be early replies, which another thread has taken off the ring.
    fn has_early_reply(&self) -> bool {
        // Ordering: acquire, after the load of our head in `has_line`: the thread that moved it has set this before.
        fence(Ordering::Acquire);
        self.early_replies.load(Ordering::Acquire)
    }

    /// Notes that there are no early replies; called under the lock of the replies.
    pub(super) fn no_early_reply(&self) {
        // Ordering: relaxed; only the holder of the lock writes it.
        self.early_replies.store(false, Ordering::Relaxed);
    }

    /// Takes the next reply. `outs`: the sender's pools; only the sender takes sends back.
    pub(super) fn take_reply(
        &self,
        replies: &mut Replies,
        outs: Option<&[Out]>,
    ) -> Result<Option<(u64, Reply)>, Error> {
        let Some(words) = replies.consumer.try_pop(self.their_lines()) else {
            return Ok(None);
        };
        let reply = match descriptor::parse(&words) {
            Ok(Descriptor::Inline(inline)) => Ok(Reply::Inline(inline)),
            Ok(Descriptor::Reference(Carries::Moved, reference)) => {
                self.returned(reference, outs).map(Reply::Returned)
            }
            Ok(Descriptor::Reference(..)) => Err(Violation::Operation { op: 2 }),
            Ok(Descriptor::Released(id)) => self.released(id, outs).map(Reply::Released),
            Ok(Descriptor::Removed(pool)) => self.removed(pool).map(Reply::Removed),
            Err(violation) => Err(violation),
        };
        // After the reference, as for data.
        self.ring.give_back(replies.consumer.head());
        Ok(Some((words[1], reply?)))
    }

    /// Whether a reply may be there, or none can come any more.
    pub(in crate::link) fn may_have_reply(&self) -> bool {
        self.has_reply() || self.gone() != Gone::No
    }

    /// Checks the id that the receiver says it has released: it must be that of a buffer that this end may have sent.
    fn released(
        &self,
        id: Option<BufferId>,
        outs: Option<&[Out]>,
    ) -> Result<Option<BufferId>, Violation> {
        let Some((id, pool)) = id.map(|id| (id, id.pool())) else {
            return Ok(None);
        };
        let known = outs.and_then(|outs| outs.iter().find(|out| out.assignment.pool == pool));
        let slots = match known {
            Some(out) => out.assignment.side.shape().1,
            None => match self.find(pool) {
                Some(found) => found.side.shape().1,
                // The buffer may have been the pool's last one.
                None if self.was_assigned(pool) => return Ok(Some(id)),
                None => return Err(Violation::NotAssigned { pool }),
            },
        };
        match id.slot() < slots {
            true => Ok(Some(id)),
            false => Err(Violation::Slot {
                slot: id.slot(),
                slots,
            }),
        }
    }

    /// Checks a pool that the receiver says it has removed: it must be assigned.
    fn removed(&self, pool: PoolId) -> Result<PoolId, Violation> {
        match self.find(pool).is_some() || self.was_assigned(pool) {
            true => Ok(pool),
            false => Err(Violation::NotAssigned { pool }),
        }
    }

    /// Takes an own buffer that is passed back.
    fn returned(&self, reference: Reference, outs: Option<&[Out]>) -> Result<Buffer, Violation> {
        let pool = reference.id.pool();
        let known = outs.and_then(|outs| outs.iter().find(|out| out.assignment.pool == pool));
        let counted = match outs {
            Some(_) => Counted::ByUs,
            None => Counted::ByTheSender,
        };
        match known {
            Some(out) => out.assignment.returned(reference, counted),
            None => {
                let found = self.find(pool).ok_or(Violation::NotAssigned { pool })?;
                found.returned(reference, counted)
            }
        }
    }
}

/// The end that writes the counter `sent`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    ByUs,
    ByTheSender,
}

impl Assignment {
    /// Takes a buffer of the pool that is passed back. Also takes the send back, if this end may do so.
    #[inline]
    pub(super) fn returned(
        &self,
        reference: Reference,
        counted: Counted,
    ) -> Result<Buffer, Violation> {
        let Reference {
            id, offset, length, ..
        } = reference;
        let Assigned::Own(own) = &self.side else {
            return Err(Violation::NotAssigned { pool: id.pool() });
        };
        let (slot, slots) = (id.slot(), own.slot_count());
        let sent = self.counts.counts().get(slot as usize);
        let sent = sent.ok_or(Violation::Slot { slot, slots })?;
        let hold = || Buffer::taken_back(own, id, offset, length);
        match counted {
            Counted::ByUs => tranship_ledger::take_return(sent, hold, reached),
            Counted::ByTheSender => hold(),
        }
    }
}

fn reached(step: ReturnStep) {
    match step {
        ReturnStep::Hold => crash::point("return.after_hold"),
        ReturnStep::Uncount => crash::point("return.after_uncount"),
    }
}
