//! Handing back: a buffer that was given to this receiver goes to the pool's writer, over the control ring.
//!
//! The receipt is taken back, so the buffer counts as on its way until the writer has it
//! (`tranship_ledger::order::PASS_BACK`): the way back needs no counters of its own, and no caller has to wait for the
//! writer.

use super::Receiver;
use super::ahead::Untaken;
use super::pools::FIRST;
use crate::buffer::{Buffer, BufferMut, Handle, Home, Tag};
use crate::error::{Error, ErrorKind, RingFull, SendError, Violation};
use crate::link::descriptor::{self, Carries};
use crate::link::shared::{Assigned, Gone};
use crate::link::store::OP_INSIDE;
use std::ptr;
use std::sync::Arc;
use tranship_ledger::PassStep;
use tranship_proto::PoolId;
use tranship_ring::Publish;
use tranship_sys::crash;

impl Receiver {
    /// Hands back a buffer that can be written here.
    #[inline(always)]
    pub(in crate::link) fn hand_back(
        &mut self,
        buf: BufferMut,
        word: u64,
    ) -> Result<(), SendError<BufferMut>> {
        match self.store {
            Some(_) => self.pass_inside(buf, word),
            None => self.return_receipt(buf.handle(), buf, word),
        }
    }

    /// Passes a buffer back to a sender of this process.
    fn pass_inside(&mut self, buf: BufferMut, word: u64) -> Result<(), SendError<BufferMut>> {
        let store = match &self.store {
            Some(store) if !store.carried => Arc::clone(store),
            _ => {
                let text = "the bytes of this buffer were carried here, and are in a pool of this domain: drop it, there is nothing to give back";
                return Err(SendError::new(
                    Error::new(ErrorKind::BufferNotOwned, text),
                    buf,
                ));
            }
        };
        if let Err(error) = self.sender_is_there().and_then(|()| self.control_room()) {
            return Err(SendError::new(error, buf));
        }
        store.put_back(buf);
        let line = [OP_INSIDE, word, 0, 0, 0, 0, 0, 0];
        let _ = self.control.push(self.control_lines, Publish::SeqCst, line);
        self.link.notify();
        Ok(())
    }

    /// Hands back a buffer that cannot be written here: it was given to this receiver, and this is the handle that
    /// arrived.
    #[inline(always)]
    pub(in crate::link) fn hand_back_shared(
        &mut self,
        buf: Buffer,
        word: u64,
    ) -> Result<(), SendError<Buffer>> {
        match self.store.is_none() && buf.handle().tag.has(Tag::MOVED) {
            true => self.return_receipt(buf.handle(), buf, word),
            false => Err(SendError::new(self.not_given(), buf)),
        }
    }

    #[cold]
    fn not_given(&self) -> Error {
        let text = "the buffer was shared with this receiver, or is a clone of one that was given to it: drop it, or send back Released";
        let error = Error::new(ErrorKind::BufferNotOwned, text);
        self.link.domain.check_fork().err().unwrap_or(error)
    }

    /// Takes the receipt of a buffer back, and hands the buffer to the sender, whose pool it is of. `buf` keeps it here
    /// meanwhile.
    #[inline(always)]
    fn return_receipt<B>(&mut self, handle: Handle, buf: B, word: u64) -> Result<(), SendError<B>> {
        let at = match self.is_at_hand(handle) {
            true => FIRST,
            false => match self.look_for_way_back(handle) {
                Ok(at) => at,
                Err(error) => return Err(SendError::new(error, buf)),
            },
        };
        let line = descriptor::reference_line(handle.reference(), Carries::Moved, word);
        let rcvd = &self.ins[at].assignment.counts.counts()[handle.slot() as usize];
        let (control, lines) = (&mut self.control, self.control_lines);
        let publish = || _ = control.push(lines, Publish::SeqCst, line);
        tranship_ledger::pass_back(rcvd, publish, || drop(buf), reached);
        self.link.notify();
        Ok(())
    }

    /// Whether the buffer is of the pool at hand, which the sender writes, and can go back at once.
    #[inline(always)]
    fn is_at_hand(&self, buf: Handle) -> bool {
        let is_home = self.at_hand.as_ref().is_some_and(|pool| {
            !pool.forwarded && ptr::eq(buf.home_key(), pool.foreign.as_ptr().cast())
        });
        is_home
            && self.control.known_room(self.control_lines) > 0
            && !self.fork.is_child()
            && !self.link.their_closed()
            && self.link.gone() == Gone::No
    }

    /// Returns the assignment by which the buffer can go back, if there is room for its line.
    #[inline(never)]
    fn look_for_way_back(&mut self, buf: Handle) -> Result<usize, Error> {
        let at = self.way_back(buf)?;
        self.control_room()?;
        Ok(at)
    }

    pub(in crate::link) fn sender_is_there(&self) -> Result<(), Error> {
        self.link.domain.check_fork()?;
        if self.link.their_closed() || self.link.gone() != Gone::No {
            let text = format!("the sender of channel {} is gone", self.link.channel);
            return Err(Error::new(ErrorKind::PeerGone, text));
        }
        Ok(())
    }

    /// Returns the assignment by which the buffer can go back.
    fn way_back(&mut self, buf: Handle) -> Result<usize, Error> {
        self.link.domain.check_fork()?;
        let Home::Foreign(home) = buf.home() else {
            let text = "the buffer is of a pool of this domain, not of the sender's: drop it, there is nothing to give back";
            return Err(Error::new(ErrorKind::BufferNotOwned, text));
        };
        // SAFETY: pools outlive their outstanding slots, and `buf` is one.
        let foreign = unsafe { home.as_ref() };
        if !foreign.domain.is(&self.link.domain) {
            let text = "the buffer belongs to another domain of this process, and only that one may pass it back";
            return Err(Error::new(ErrorKind::BufferNotOwned, text));
        }
        self.sender_is_there()?;
        let pool = buf.wire_id().pool();
        // A pool that the sender only forwards never becomes its own.
        let found = match foreign.shape.writer == self.link.peer {
            true => self.assigned(pool)?,
            false => None,
        };
        let is_home = |at: &usize| match &self.ins[*at].assignment.side {
            Assigned::Foreign(foreign) => ptr::eq(Arc::as_ptr(foreign), home.as_ptr()),
            Assigned::Own(_) => false,
        };
        found.filter(is_home).ok_or_else(|| {
            let peer = self.link.peer;
            let text = format!(
                "pool {pool} is not assigned to this channel by its writer, as its sender is domain {peer}: drop the buffer, or move it on"
            );
            Error::new(ErrorKind::PoolNotAssigned, text)
        })
    }

    /// Returns the place of a pool among the assigned ones, if it is assigned.
    pub(super) fn assigned(&mut self, pool: PoolId) -> Result<Option<usize>, Error> {
        let found = match self.find(pool) {
            Err(Untaken::NotOpen(_)) => {
                // The news may still wait in the socket. Before it the writer may not look at this end's counters.
                self.link.domain.turn_quietly();
                self.find(pool)
            }
            found => found,
        };
        if let Err(Untaken::NotOpen(_)) = found {
            let text = format!(
                "the manager has not confirmed yet that pool {pool} is assigned to this channel: hand the buffer back later"
            );
            return Err(Error::new(ErrorKind::PoolPending, text));
        }
        Ok(found.ok())
    }

    /// Makes room for a line to the sender.
    pub(super) fn control_room(&mut self) -> Result<(), Error> {
        let (lines, ring) = (self.control_lines, &self.link.ring);
        match self.control.room(lines, 1, || ring.their_head()) {
            Ok(0) => {
                let (lines, waited_ms) = (lines.count(), 0);
                Err(RingFull { lines, waited_ms }.into())
            }
            Ok(_) => Ok(()),
            Err(lie) => {
                let (head, min, max) = (lie.head, lie.before, lie.tail);
                Err(Violation::Head { head, min, max }.into())
            }
        }
    }
}

fn reached(step: PassStep) {
    match step {
        PassStep::Uncount => crash::point("pass.after_uncount"),
        PassStep::Publish => crash::point("pass.after_publish"),
        PassStep::Release => {}
    }
}

#[cfg(test)]
mod tests;
