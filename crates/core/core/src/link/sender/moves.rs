//! Moves: a sent buffer is the receiver's from there on.
//!
//! For the counters a move is a send like any other: one reference goes along. The type ensures that the sender keeps
//! no handle. So the orders of sending (`tranship_ledger::order`) hold; only the operation in the line differs.

use super::publish::reached_of_piece;
use super::{FIRST, Sender};
use crate::aggregate_mut::AggregateMut;
use crate::buffer::{Buffer, BufferMut, Handle, Home, Tag};
use crate::error::{ErrorKind, SendError};
use crate::link::descriptor::Carries;
use crate::options::Outcome;
use crate::pool::OwnPool;
use std::ptr::NonNull;
use tranship_ring::Publish;

impl Sender {
    /// Gives a buffer away.
    #[inline(always)]
    pub(in crate::link) fn give(
        &mut self,
        buf: BufferMut,
        word: u64,
        how: Publish,
    ) -> Result<Outcome, SendError<BufferMut>> {
        match self.move_fresh(buf, word, how) {
            None => Ok(Outcome::Sent),
            Some(buf) => self.move_any(buf, word, how).map_err(|e| *e),
        }
    }

    /// Moves an own buffer that was never sent, from the pool that was used last, like `send_fresh`.
    #[inline(always)]
    fn move_fresh(&mut self, buf: BufferMut, word: u64, how: Publish) -> Option<BufferMut> {
        let handle = buf.handle();
        if handle.tag.has(Tag::LONG | Tag::TRACED) {
            return Some(buf);
        }
        let Home::Own(home) = handle.home() else {
            return Some(buf);
        };
        // A writable buffer that does not go the long way is private.
        if !self.ready_at_once(home, || true) {
            return Some(buf);
        }
        std::mem::forget(buf);
        // SAFETY: as was just found; the handle is given away.
        unsafe { self.publish_move(home, FIRST, handle, word, how) };
        None
    }

    #[inline(never)]
    fn move_any(
        &mut self,
        buf: BufferMut,
        word: u64,
        how: Publish,
    ) -> Result<Outcome, Box<SendError<BufferMut>>> {
        let handle = buf.handle();
        if self.store.is_some() {
            let ready = self.ready_inside(std::iter::once(handle));
            return Ok(self.put_inside(ready, buf, word, how)?);
        }
        let ready = self.ready_for(handle);
        let ready = ready.and_then(|()| self.make_room(1));
        if let Err(error) = ready.and_then(|()| self.seal(handle)) {
            return Ok(self.not_sent(error, buf)?);
        }
        let Some(at) = self.place_of(handle.home_key()) else {
            return Ok(self.not_sent(ErrorKind::PoolNotAssigned.into(), buf)?);
        };
        self.note(handle, true, word);
        match handle.home() {
            Home::Own(home) => {
                // SAFETY: pools outlive their outstanding slots.
                unsafe { home.as_ref() }.take_away(handle.slot());
                std::mem::forget(buf);
                // SAFETY: assigned and with room, and a writable buffer of our own was never sent.
                unsafe { self.publish_move(home, at, handle, word, how) };
            }
            // The buffer came by a move, and goes on by one.
            Home::Foreign(_) => {
                self.publish_again(handle, Carries::Moved, word, how, || drop(buf));
            }
        }
        Ok(Outcome::Sent)
    }

    /// Gives all pieces of an aggregate away as one message: all of them or none.
    pub(in crate::link) fn give_all(
        &mut self,
        aggregate: AggregateMut,
        word: u64,
        how: Publish,
    ) -> Result<Outcome, SendError<AggregateMut>> {
        if self.store.is_some() {
            let ready = self.ready_inside(aggregate.pieces().iter().map(BufferMut::handle));
            return self.put_inside(ready, aggregate, word, how);
        }
        let pieces = aggregate.pieces().iter().map(BufferMut::handle);
        let list = self.list_of(aggregate.list_pool.as_ref(), pieces.clone(), how);
        let list = match list {
            Ok(list) => list,
            Err(error) => return Err(SendError::new(error, aggregate)),
        };
        if let Err(error) = self.ready_for_all(pieces, list.handle()) {
            return self.not_sent(error, aggregate);
        }
        let pieces: Vec<Leaving> = aggregate
            .into_pieces()
            .into_iter()
            .map(Leaving::of)
            .collect();
        for piece in &pieces {
            self.note(piece.handle(), true, word);
        }
        let handles: Vec<Handle> = pieces.iter().map(Leaving::handle).collect();
        tranship_ledger::send_all(
            self,
            handles,
            Sender::words_of,
            |sender| sender.publish(list, Carries::MovedAggregate, word, how),
            |_| drop(pieces),
            reached_of_piece,
        );
        Ok(Outcome::Sent)
    }

    /// # Safety
    /// As for `publish_first`.
    #[inline(always)]
    unsafe fn publish_move(
        &mut self,
        home: NonNull<OwnPool>,
        at: usize,
        buf: Handle,
        word: u64,
        how: Publish,
    ) {
        // SAFETY: pools outlive their outstanding slots.
        leave(unsafe { home.as_ref() }, buf);
        // SAFETY: as the caller says.
        unsafe { self.publish_first(home, at, buf, Carries::Moved, word, how) };
    }
}

/// Notes that an own buffer that was never sent is about to be given away. If its receiver cannot write it, this shares
/// the only reference, and nothing is noted.
#[inline(always)]
fn leave(pool: &OwnPool, buf: Handle) {
    if !buf.tag.has(Tag::TRUSTED) {
        pool.leave(buf.slot());
    }
}

/// A piece that is about to be moved. Until the message is out it counts as a shared one.
enum Leaving {
    /// A piece of a pool of our own, which was never sent before.
    First(Buffer),
    /// A piece of any pool, which itself came by a move.
    Again(BufferMut),
}

impl Leaving {
    fn of(piece: BufferMut) -> Leaving {
        let handle = piece.handle();
        match handle.home() {
            Home::Own(home) => {
                let first = piece.freeze();
                // SAFETY: pools outlive their outstanding slots.
                let pool = unsafe { home.as_ref() };
                pool.take_away(handle.slot());
                leave(pool, handle);
                Leaving::First(first)
            }
            Home::Foreign(_) => Leaving::Again(piece),
        }
    }

    fn handle(&self) -> Handle {
        match self {
            Leaving::First(buf) => buf.handle(),
            Leaving::Again(buf) => buf.handle(),
        }
    }
}
