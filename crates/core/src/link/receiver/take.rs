//! The long way of a message: from any pool, in pieces, checked step by step, with the reason if it cannot be taken.

use super::Receiver;
use super::pools::{AtHand, In};
use crate::aggregate::{self, Aggregate};
use crate::cbuf::{Cbuf, Tag};
use crate::domain::lock;
use crate::error::{Error, Violation};
use crate::link::descriptor::{self, Descriptor, Reference};
use crate::link::message::{Body, Message};
use crate::link::shared::Assigned;
use crate::pool::{Missing, OwnPool};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tranship_proto::PoolId;
use tranship_sys::crash;

/// Why a reference could not be taken.
pub(super) enum Untaken {
    Violation(Violation),
    Missing(PoolId, Missing),
    /// The pool is assigned, but the manager has not said yet that our counters are on its writer's roster.
    NotOpen(PoolId),
}

impl From<Violation> for Untaken {
    fn from(violation: Violation) -> Untaken {
        Untaken::Violation(violation)
    }
}

impl Receiver {
    /// Turns a line into a message, the long way: references first, then `rcvd`, then the head.
    #[inline(never)]
    pub(super) fn take(&mut self, words: [u64; 8]) -> Result<Option<Message>, Error> {
        let meta = words[1];
        let outcome = match descriptor::parse(&words) {
            Ok(Descriptor::Inline(inline)) => Ok(Body::Inline(inline)),
            Ok(Descriptor::Buffer(reference)) => self.take_buffer(reference).map(Body::Buf),
            Ok(Descriptor::Aggregate(reference)) => {
                self.take_aggregate(reference).map(Body::Aggregate)
            }
            Err(violation) => Err(violation.into()),
        };
        match outcome {
            Ok(body) => {
                self.give_back_line();
                Ok(Some(Message { meta, body }))
            }
            Err(Untaken::Violation(violation)) => Err(self.violated(violation)),
            Err(Untaken::Missing(pool, missing)) => self.fetch_chunk(words, pool, missing),
            Err(Untaken::NotOpen(pool)) => self.await_open(words, pool),
        }
    }

    #[inline]
    fn take_buffer(&mut self, reference: Reference) -> Result<Cbuf, Untaken> {
        let at = self.find(reference.id.pool())?;
        let buf = self.reference(at, reference)?;
        crash::point("recv.after_ref");
        self.count(at, reference);
        Ok(buf)
    }

    /// The list is copied once and bounded; every piece is counted on its own.
    #[cold]
    fn take_aggregate(&mut self, reference: Reference) -> Result<Aggregate, Untaken> {
        let list_at = self.find(reference.id.pool())?;
        let list = self.reference(list_at, reference)?;
        let pieces = aggregate::parse_list(&list)?;
        let mut taken = Vec::with_capacity(pieces.len());
        let mut counts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let at = self.find(piece.id.pool())?;
            taken.push(self.reference(at, piece)?); // on failure all taken so far are released by drop
            counts.push((at, piece));
            crash::point("recv.between_pieces");
        }
        for (at, piece) in counts {
            self.count(at, piece);
        }
        self.count(list_at, reference);
        Ok(Aggregate::from_pieces(taken))
    }

    /// The assignment of a pool, as an index into `ins`.
    #[inline]
    fn find(&mut self, pool: PoolId) -> Result<usize, Untaken> {
        match self.ins.iter().position(|i| i.pool == pool) {
            Some(at) => Ok(at),
            None => self.refresh(pool),
        }
    }

    #[cold]
    fn refresh(&mut self, pool: PoolId) -> Result<usize, Untaken> {
        let version = self.link.assigned_version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            // Only appended: indices stay good while one message is taken.
            for assignment in lock(&self.link.assigned).iter() {
                let pool = assignment.pool;
                if !assignment.open.load(Ordering::Acquire)
                    || self.ins.iter().any(|i| i.pool == pool)
                {
                    continue;
                }
                let forwarded = match &assignment.side {
                    Assigned::Own(_) => true,
                    Assigned::Foreign(foreign) => foreign.shape.writer != self.link.peer,
                };
                self.ins.push(In {
                    pool,
                    forwarded,
                    assignment: assignment.clone(),
                });
            }
            self.at_hand = self.ins.first().and_then(AtHand::of);
        }
        match self.ins.iter().position(|i| i.pool == pool) {
            Some(at) => Ok(at),
            None if self.link.find(pool).is_some() => Err(Untaken::NotOpen(pool)),
            None => Err(Violation::NotAssigned { pool }.into()),
        }
    }

    /// Counts a reference and checks it. Ordering: `ref` first, then the generation, then (by the caller) `rcvd`.
    #[inline]
    fn reference(&self, at: usize, reference: Reference) -> Result<Cbuf, Untaken> {
        let Some(entry) = self.ins.get(at) else {
            return Err(Violation::NotAssigned {
                pool: reference.id.pool(),
            }
            .into());
        };
        let Reference {
            id,
            offset,
            length,
            serial,
        } = reference;
        let foreign = match &entry.assignment.side {
            Assigned::Foreign(foreign) => foreign,
            Assigned::Own(own) => return Ok(take_back(own, reference)?),
        };
        let slot = foreign.check_slot(id)?;
        if let Some(missing) = foreign.check(offset, length, serial)? {
            return Err(Untaken::Missing(id.pool(), missing));
        }
        if let Err(violation) = foreign.hold(id, offset, length) {
            foreign.release_guarded(slot);
            return Err(violation.into());
        }
        #[allow(clippy::cast_possible_truncation)] // below the window's length, a usize
        let len = length as usize;
        // SAFETY: the reference was just counted; `check` put the range inside the window.
        let buf = unsafe {
            Cbuf::foreign(
                foreign.at(offset),
                len,
                NonNull::from(&**foreign),
                Tag::foreign(slot, id.generation(), self.flags() | foreign.flags()),
            )
        };
        if entry.forwarded {
            // The generation after the reference: the collector bumps it, fences, and looks at references
            // again, so one of the two sees the other. `buf` gives the reference back on the way out.
            if let Err(stale) = foreign.is_alive(slot, id.generation()) {
                let now = stale.found;
                return Err(Violation::Dead { id, now }.into());
            }
            // It lives and stays so now, so its place is fixed: the reference must be what the bytes belong to.
            if !foreign.owns(slot, offset, length) {
                return Err(Violation::Elsewhere { id, offset, length }.into());
            }
        }
        Ok(buf)
    }

    #[inline]
    fn count(&self, at: usize, reference: Reference) {
        if let Some(entry) = self.ins.get(at) {
            let rcvd = &entry.assignment.counts.counts()[reference.id.slot() as usize];
            // The only writer is this Receiver; after the reference was counted.
            // Crash: dead between `ref` and here: both leave the roster with us.
            tranship_ledger::count(rcvd);
        }
        crash::point("recv.after_rcvd");
    }
}

/// A buffer of our own pool that another domain sends back to us.
#[cold]
fn take_back(own: &Arc<OwnPool>, reference: Reference) -> Result<Cbuf, Violation> {
    own.take_back(reference.id, reference.offset, reference.length)
}
