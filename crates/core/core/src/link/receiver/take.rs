//! The long way of a message: from any pool, in pieces, checked step by step, with the reason if it cannot be taken.

use super::Receiver;
use super::ahead::Untaken;
use super::pools::{AtHand, FIRST, In, is_copied};
use crate::aggregate::{self, Aggregate};
use crate::aggregate_mut::AggregateMut;
use crate::base::lock;
use crate::buffer::{Buffer, BufferMut, Home, Tag};
use crate::domain::Subject;
use crate::error::{Error, Violation};
use crate::link::descriptor::{self, Carries, Descriptor, Reference};
use crate::link::message::{Body, Message};
use crate::link::shared::Assigned;
use crate::pool::ForeignPool;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_ledger::ReceiptStep;
use tranship_proto::PoolId;
use tranship_region::layout::trace::What;
use tranship_sys::crash;
use tranship_sys::map::Access;

impl Receiver {
    /// Turns a line into a message, the long way: references first, then `rcvd`, then the head.
    #[inline(never)]
    pub(super) fn take(&mut self, words: [u64; 8]) -> Result<Option<Message>, Error> {
        self.word = words[1];
        loop {
            let again = match self.take_body(&words) {
                Ok(body) => {
                    self.give_back_line();
                    let word = words[1];
                    return Ok(Some(Message { word, body }));
                }
                Err(Untaken::Violation(violation)) => return Err(self.violated(violation)),
                Err(Untaken::Missing(pool, missing)) => self.fetch_chunk(words, pool, missing)?,
                Err(Untaken::NotOpen(pool)) => self.await_open(words, pool)?,
                Err(Untaken::NoRoom(pool, error)) => self.await_room(words, pool, error)?,
            };
            if !again {
                return Ok(None);
            }
        }
    }

    fn take_body(&mut self, words: &[u64; 8]) -> Result<Body, Untaken> {
        if let Some(body) = self.take_inside(words) {
            return Ok(body);
        }
        match descriptor::parse(words)? {
            Descriptor::Inline(inline) => Ok(Body::Inline(inline)),
            Descriptor::Reference(carries, reference) => match carries {
                Carries::Buffer => self.take_buffer(reference).map(Body::Buffer),
                Carries::Aggregate => self.take_aggregate(reference).map(Body::Aggregate),
                Carries::Moved => self.take_moved(reference).map(Body::from),
                Carries::MovedAggregate => self.take_moved_all(reference),
            },
            Descriptor::Released(_) => Err(Violation::Operation { op: 6 }.into()),
            Descriptor::Removed(_) => Err(Violation::Operation { op: 7 }.into()),
        }
    }

    #[inline]
    fn take_buffer(&mut self, reference: Reference) -> Result<Buffer, Untaken> {
        self.take_one(reference, Receiver::shared)
    }

    #[inline(always)]
    fn take_one<T>(
        &mut self,
        reference: Reference,
        take: impl FnOnce(&Receiver, usize, Reference) -> Result<T, Untaken>,
    ) -> Result<T, Untaken> {
        let at = self.find(reference.id.pool())?;
        let at = self.bring_to_hand(at, reference.id.pool());
        let take = || {
            let taken = take(self, at, reference)?;
            crash::point("recv.after_ref");
            Ok(taken)
        };
        tranship_ledger::receive(take, self.rcvd(at, reference)?, reached)
    }

    /// Takes a shared buffer: by reference, or as a copy.
    #[inline]
    pub(super) fn shared(&self, at: usize, reference: Reference) -> Result<Buffer, Untaken> {
        let buf = self.reference(at, reference, false)?;
        self.or_copy(buf, reference).map(Given::freeze)
    }

    /// Returns the reference as it is, or a copy of its bytes.
    #[inline]
    fn or_copy(&self, buf: Buffer, reference: Reference) -> Result<Given, Untaken> {
        let Home::Foreign(pool) = buf.handle().home() else {
            return Ok(Given::Shared(buf));
        };
        // SAFETY: pools outlive their outstanding slots.
        let pool = unsafe { pool.as_ref() };
        if !is_copied(pool) {
            return Ok(Given::Shared(buf));
        }
        let Reference {
            id,
            offset,
            length,
            serial,
        } = reference;
        match pool.pin(id.slot(), offset, length, serial) {
            // No process can write the buffer any more, so it is as good as a copy.
            true => Ok(Given::Shared(buf.pinned())),
            false => self.snapshot(buf.view()).map(Given::Written),
        }
    }

    /// Takes a buffer that was given away to this end.
    fn take_moved(&mut self, reference: Reference) -> Result<Given, Untaken> {
        self.take_one(reference, Receiver::moved)
    }

    /// Takes a moved buffer. A buffer of an own pool has come back, and is not written any more.
    fn moved(&self, at: usize, reference: Reference) -> Result<Given, Untaken> {
        let entry = self.entry(at, reference)?;
        let foreign = match &entry.assignment.side {
            Assigned::Foreign(foreign) if foreign.shape.trust.all_write() => foreign,
            _ => return self.or_copy(self.reference(at, reference, true)?, reference),
        };
        let Reference { id, offset, .. } = reference;
        let len = hold(foreign, entry.forwarded, reference, Access::ReadWrite)?;
        let flags = self.written_flags() | foreign.flags() & Tag::TRACED;
        let tag = Tag::foreign(id.slot(), id.generation(), flags);
        self.note(tag, reference, true);
        // SAFETY: the reference was just counted, with that access, and its range checked.
        let buf =
            unsafe { BufferMut::foreign(foreign.at(offset), len, NonNull::from(&**foreign), tag) };
        Ok(Given::Written(buf))
    }

    /// Takes an aggregate whose pieces were given to this domain.
    #[cold]
    fn take_moved_all(&mut self, reference: Reference) -> Result<Body, Untaken> {
        let mut back = Vec::new();
        let taken = self.take_pieces(reference, |receiver, at, piece| {
            let taken = receiver.moved(at, piece)?;
            if let Assigned::Own(own) = &receiver.entry(at, piece)?.assignment.side {
                back.push((own.clone(), piece.id));
            }
            Ok(taken)
        });
        if taken.is_err() {
            // They are on their way again.
            back.iter().for_each(|(own, id)| own.leave_again(*id));
        }
        taken.map(Given::all)
    }

    #[cold]
    fn take_aggregate(&mut self, reference: Reference) -> Result<Aggregate, Untaken> {
        let taken = self.take_pieces(reference, |receiver, at, piece| receiver.shared(at, piece));
        taken.map(Aggregate::from_pieces)
    }

    /// The list is copied once and bounded; every piece is counted on its own.
    fn take_pieces<T>(
        &mut self,
        reference: Reference,
        mut take: impl FnMut(&Receiver, usize, Reference) -> Result<T, Untaken>,
    ) -> Result<Vec<T>, Untaken> {
        let list_at = self.find(reference.id.pool())?;
        let list = self.reference(list_at, reference, false)?;
        let pieces = aggregate::parse_list(&list)?;
        for piece in &pieces {
            self.find(piece.id.pool())?;
        }
        self.could_hold(&pieces)?;
        let pieces = pieces.into_iter().map(|piece| {
            let at = self.known(piece.id.pool())?;
            let rcvd = self.rcvd(at, piece)?;
            let taken = take(self, at, piece)?;
            crash::point("recv.between_pieces");
            Ok((taken, rcvd))
        });
        tranship_ledger::receive_all(pieces, self.rcvd(list_at, reference)?, reached)
    }

    /// Returns the assignment of a pool, as an index into `ins`, and asks the manager about an unknown pool.
    #[inline]
    pub(super) fn find(&mut self, pool: PoolId) -> Result<usize, Untaken> {
        match self.known(pool) {
            Ok(at) => Ok(at),
            Err(_) => self.refresh(pool),
        }
    }

    /// Makes a pool the one at hand if the last buffer that took the long way was of it, too. Returns its new index.
    fn bring_to_hand(&mut self, at: usize, pool: PoolId) -> usize {
        // One buffer of another pool in between changes nothing.
        if std::mem::replace(&mut self.long_way, pool) != pool || at == FIRST {
            return at;
        }
        let Some(at_hand) = self.ins.get(at).and_then(AtHand::of) else {
            return at;
        };
        self.at_hand = Some(at_hand);
        self.ins.swap(FIRST, at);
        FIRST
    }

    /// Returns the assignment of a known pool, as an index into `ins`.
    #[inline]
    fn known(&self, pool: PoolId) -> Result<usize, Violation> {
        let at = self.ins.iter().position(|i| i.pool == pool);
        at.ok_or(Violation::NotAssigned { pool })
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

    /// Gives back the assignments of pools that are gone. The ring is empty, so no line names them. After a restart of
    /// the manager a line that was sent before may, although the pool was judged dead.
    #[inline]
    pub(super) fn give_back_assignments(&mut self) {
        if self.link.drop_over() {
            self.ins.retain(|entry| !entry.assignment.is_over());
            self.at_hand = self.ins.first().and_then(AtHand::of);
        }
    }

    fn entry(&self, at: usize, reference: Reference) -> Result<&In, Untaken> {
        let pool = reference.id.pool();
        (self.ins.get(at)).ok_or(Violation::NotAssigned { pool }.into())
    }

    /// Takes a reference to a buffer that is only read here: counts and checks it. The caller counts `rcvd`.
    #[inline]
    fn reference(&self, at: usize, reference: Reference, moved: bool) -> Result<Buffer, Untaken> {
        let entry = self.entry(at, reference)?;
        let Reference {
            id, offset, length, ..
        } = reference;
        let foreign = match &entry.assignment.side {
            Assigned::Foreign(foreign) => foreign,
            Assigned::Own(own) => {
                let buf = match &self.store {
                    // A buffer of an own pool, which another domain sends back.
                    None => Buffer::taken_back(own, id, offset, length)?,
                    // SAFETY: only a topic's channel within this process has the pool assigned so. A line of that topic
                    // names the buffer, and the reader's desk covers the line. As long as it does, the publisher keeps
                    // a handle, which is in this process.
                    Some(_) => unsafe { Buffer::held_here(own, id, offset, length)? },
                };
                self.note(buf.handle().tag, reference, moved);
                return Ok(buf);
            }
        };
        let len = hold(foreign, entry.forwarded, reference, Access::Read)?;
        let given = if moved { Tag::MOVED } else { 0 };
        let flags = self.flags() | foreign.flags() | given;
        let tag = Tag::foreign(id.slot(), id.generation(), flags);
        self.note(tag, reference, moved);
        // SAFETY: the reference was just counted, and its range checked.
        Ok(unsafe { Buffer::foreign(foreign.at(offset), len, NonNull::from(&**foreign), tag) })
    }

    /// Notes the channel and the time of a received buffer, if leaks are noted, and records the receipt, if the pool is
    /// traced.
    #[inline]
    fn note(&self, tag: Tag, reference: Reference, moved: bool) {
        let Reference {
            id, offset, length, ..
        } = reference;
        if let Some(notes) = &self.link.domain.leaks {
            let channel = (self.link.channel, self.link.name.as_str());
            notes.got(id.pool(), id.slot(), Some(channel));
        }
        if tag.has(Tag::TRACED) {
            let of = Subject { id, offset, length };
            let over = (self.link.channel, self.link.peer);
            self.link
                .domain
                .note_on(What::Received, of, over, (moved, self.word));
        }
    }

    /// Returns the counter of receipts out of the slot, which this Receiver writes.
    #[inline]
    fn rcvd(&self, at: usize, reference: Reference) -> Result<&AtomicU32, Untaken> {
        let assignment = &self.entry(at, reference)?.assignment;
        let slot = reference.id.slot();
        let rcvd = assignment.counts.counts().get(slot as usize);
        let slots = assignment.side.shape().1;
        Ok(rcvd.ok_or(Violation::Slot { slot, slots })?)
    }
}

/// A buffer that was given to us.
enum Given {
    /// A buffer that this domain cannot write.
    Shared(Buffer),
    /// A buffer that this domain may write.
    Written(BufferMut),
}

impl Given {
    fn freeze(self) -> Buffer {
        match self {
            Given::Shared(buf) => buf,
            Given::Written(buf) => buf.freeze(),
        }
    }

    /// Makes the body of given pieces: they arrive to be written only if all can be written.
    fn all(pieces: Vec<Given>) -> Body {
        match pieces
            .iter()
            .all(|piece| matches!(piece, Given::Written(_)))
        {
            true => {
                let written = |piece| match piece {
                    Given::Written(buf) => Some(buf),
                    Given::Shared(_) => None,
                };
                let pieces = pieces.into_iter().filter_map(written).collect();
                Body::AggregateMut(AggregateMut::from_pieces(pieces))
            }
            false => {
                let pieces = pieces.into_iter().map(Given::freeze).collect();
                Body::Aggregate(Aggregate::from_pieces(pieces))
            }
        }
    }
}

impl From<Given> for Body {
    fn from(given: Given) -> Body {
        match given {
            Given::Shared(buf) => Body::Buffer(buf),
            Given::Written(buf) => Body::BufferMut(buf),
        }
    }
}

#[inline]
fn reached(step: ReceiptStep) {
    if step == ReceiptStep::Count {
        crash::point("recv.after_rcvd");
    }
}

/// Counts a reference to a buffer of a foreign pool, with that access, and checks it. Returns its length. Ordering:
/// `ref` first, then the generation, then (by the caller) `rcvd`.
#[inline]
fn hold(
    foreign: &ForeignPool,
    forwarded: bool,
    reference: Reference,
    access: Access,
) -> Result<usize, Untaken> {
    let Reference {
        id,
        offset,
        length,
        serial,
    } = reference;
    let slot = foreign.check_slot(id)?;
    if let Some(missing) = foreign.check(offset, length, serial)? {
        return Err(Untaken::Missing(id.pool(), missing));
    }
    foreign.check_holes(offset, length)?;
    // The generation after the reference: the collector bumps it, fences, and looks at references
    // again, so one of the two sees the other.
    let check = || match foreign.is_alive(slot, id.generation()) {
        Err(stale) => Err(Violation::Dead {
            id,
            now: stale.found,
        }),
        // The buffer is alive and stays so, so its place is fixed: the named bytes must belong to the slot.
        Ok(()) if !foreign.owns(slot, offset, length) => {
            Err(Violation::Elsewhere { id, offset, length })
        }
        Ok(()) => Ok(()),
    };
    tranship_ledger::hold(
        || foreign.hold(id, (offset, length), access),
        forwarded.then_some(check),
        || foreign.release_held(slot, access),
        |_| {},
    )?;
    #[allow(clippy::cast_possible_truncation)] // below the window's length, a usize
    Ok(length as usize)
}
