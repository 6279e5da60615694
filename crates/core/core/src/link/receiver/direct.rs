//! The short way of a message: a plain buffer of the pool at hand, shared or moved, or inline bytes.
//! All others take the long way.

use super::Receiver;
use super::ahead::Ahead;
use crate::buffer::{Buffer, BufferMut, Tag};
use crate::link::descriptor::{self, Carries, Reference};
use crate::link::inline::Inline;
use crate::link::message::Body;
use crate::pool::ForeignPool;
use std::convert::Infallible;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use tranship_ledger::{ReceiptStep, hold, receive};
use tranship_ring::Line;
use tranship_sys::crash;

/// Result of the fast path, in plain words: moving them costs nothing, unlike a handle with a destructor.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) word: u64,
    pub(super) ptr: NonNull<u8>,
    pub(super) len: usize,
    pub(super) pool: NonNull<ForeignPool>,
    pub(super) tag: Tag,
}

impl Taken {
    /// # Safety
    /// Once per reference counted.
    #[inline(always)]
    pub(super) unsafe fn into_buffer(self) -> Buffer {
        // SAFETY: the caller counted the reference; the range was checked against the window.
        unsafe { Buffer::foreign(self.ptr, self.len, self.pool, self.tag) }
    }

    /// # Safety
    /// Once per reference counted, of a buffer that was moved.
    #[inline(always)]
    pub(super) unsafe fn into_moved(self) -> Body {
        match self.tag.has(Tag::LONG) {
            // SAFETY: as above; only pools that all write have this flag here, and they are mapped for writing.
            true => Body::BufferMut(unsafe {
                BufferMut::foreign(self.ptr, self.len, self.pool, self.tag)
            }),
            // SAFETY: as above.
            false => Body::Buffer(unsafe { self.into_buffer() }),
        }
    }
}

#[inline(always)]
fn reached(step: ReceiptStep) {
    match step {
        ReceiptStep::Hold => crash::point("recv.after_ref"),
        ReceiptStep::Fence | ReceiptStep::Check => {}
        ReceiptStep::Count => crash::point("recv.after_rcvd"),
    }
}

impl Receiver {
    /// Whether the next message is the next line's, and this process may take it.
    #[inline(always)]
    pub(super) fn looks_at_lines(&self) -> bool {
        matches!(self.ahead, Ahead::Nothing) && !self.fork.is_child()
    }

    /// Takes the bytes of the next line, which was peeked at, if it is an inline message. Called after
    /// `looks_at_lines`, like `take_direct`.
    #[inline(always)]
    pub(super) fn take_inline(&mut self, (first, line): (u64, &Line)) -> Option<(u64, Inline)> {
        let taken = descriptor::inline(first, line)?;
        self.consumer.advance();
        Some(taken)
    }

    /// Returns the flags of received handles.
    #[inline(always)]
    pub(super) fn flags(&self) -> u32 {
        if self.trusted { Tag::TRUSTED } else { 0 }
    }

    /// Returns the flags of handles of buffers that were moved here out of a pool that all domains write.
    pub(super) fn written_flags(&self) -> u32 {
        let slices = match self.trusted {
            false => 0,
            true => Tag::TRUSTED | Tag::SLICE_MUT,
        };
        slices | Tag::LONG | Tag::MOVED
    }

    /// Takes a plain buffer of the pool at hand, if the next line is one: no call, no lock, nothing but the checks.
    /// `None` leaves the line for the long way, which believes nothing of what was seen here.
    #[inline(always)]
    pub(super) fn take_direct(&mut self, line: (u64, &Line)) -> Option<Taken> {
        self.take_named(Carries::Buffer, line)
    }

    /// Takes such a buffer that is moved here. This is a call, so that the other two ways stay short.
    #[inline(never)]
    pub(super) fn take_moved_direct(&mut self, line: (u64, &Line)) -> Option<Taken> {
        self.take_named(Carries::Moved, line)
    }

    /// Prefetches the first line of a buffer: for writing if the buffer is moved here and may be written. First for
    /// reading and later for writing would be two ways there and back.
    #[inline(always)]
    fn ask_for(&self, carries: &Carries, line: *const u8) {
        if matches!(carries, Carries::Moved)
            && self.at_hand.as_ref().is_some_and(|pool| pool.written)
        {
            tranship_sync::prefetch_write(line);
        } else {
            tranship_sync::prefetch_read(line);
        }
    }

    /// Takes a buffer that a line of a topic's or queue's ring names, if it is one of the pool at hand. Counts its
    /// reference, and no receipt.
    #[inline(always)]
    pub(super) fn take_uncounted(&self, of: &Reference) -> Option<Buffer> {
        let at_hand = self.at_hand.as_ref();
        let at_hand = at_hand.filter(|pool| pool.has(of) && !pool.forwarded)?;
        let foreign = at_hand.foreign();
        foreign.receive(of.id.slot());
        let tag = Tag::foreign(of.id.slot(), of.id.generation(), self.flags());
        #[allow(clippy::cast_possible_truncation)] // below the window's length, a usize
        let len = of.length as usize;
        // SAFETY: the reference was just counted, and its range checked.
        Some(unsafe { Buffer::foreign(foreign.at(of.offset), len, at_hand.foreign, tag) })
    }

    #[inline(always)]
    fn take_named(&mut self, carries: Carries, (first, line): (u64, &Line)) -> Option<Taken> {
        // Needs nothing of the line, so it is under way before the line is here.
        self.ask_for(&carries, self.guess.next());
        let (word, reference) = descriptor::named(carries, first, line)?;
        let at_hand = self
            .at_hand
            .as_ref()
            .filter(|at_hand| at_hand.pool == reference.id.pool())?;
        let slot = reference.id.slot();
        // SAFETY: `ins` keeps the assignment, which keeps the pool.
        let foreign = unsafe { at_hand.foreign.as_ref() };
        if slot >= at_hand.slots
            || !foreign.is_here(reference.offset, reference.length, reference.serial)
        {
            return None;
        }
        let ptr = foreign.at(reference.offset);
        // The cache miss begins now; the locked instruction below would hold it up.
        self.ask_for(&carries, ptr.as_ptr());
        self.guess.saw(ptr.as_ptr());
        let generation = reference.id.generation();
        // SAFETY: `ins` keeps the counters, of which there are as many as slots.
        let rcvd = unsafe { at_hand.rcvd.add(slot as usize).as_ref() };
        if at_hand.forwarded {
            take_forwarded(foreign, &reference, rcvd)?;
        } else {
            let raise = || {
                foreign.receive(slot);
                Ok::<(), Infallible>(())
            };
            let Ok(()) = receive(|| hold(raise, UNCHECKED, || (), reached), rcvd, reached);
        }
        // The collector has read the counters since this thread last wrote them: they are prefetched before the next
        // write.
        if let Some(slot) = self.guess.next_block(slot) {
            let slot = slot as usize;
            tranship_sync::prefetch_write(at_hand.rcvd.as_ptr().wrapping_add(slot).cast());
            foreign.prefetch_count(slot);
        }
        #[allow(clippy::cast_possible_truncation)] // below the window's length, a usize
        let len = reference.length as usize;
        let pool = at_hand.foreign;
        let flags = match carries {
            Carries::Moved if at_hand.written => self.written_flags(),
            Carries::Moved => self.flags() | Tag::MOVED,
            _ => self.flags(),
        };
        self.consumer.advance();
        Some(Taken {
            word,
            ptr,
            len,
            pool,
            tag: Tag::foreign(slot, generation, flags),
        })
    }

    /// Gives the source the lines that were taken off the ring.
    #[inline(always)]
    pub(super) fn give_back_line(&self) {
        // `rcvd` was counted.
        // Crash: a death between `rcvd` and the head only takes the queue off the reader set.
        self.link.ring.give_back(self.consumer.head());
        crash::point("recv.after_head");
        // A source that sleeps on a full ring knows that this end does not fence here (Waker::Lazy).
        self.link.notify();
    }
}

/// A message of the pool's own writer needs no check of its generation.
const UNCHECKED: Option<fn() -> Result<(), Infallible>> = None;

/// Receives a buffer from a sender that is not the pool's writer. A call, so that the other way stays short.
#[inline(never)]
fn take_forwarded(foreign: &ForeignPool, of: &Reference, rcvd: &AtomicU32) -> Option<()> {
    let slot = of.id.slot();
    let raise = || {
        foreign.receive_shared(slot);
        Ok(())
    };
    let check = || {
        let good = foreign.is_alive(slot, of.id.generation()).is_ok()
            && foreign.owns(slot, of.offset, of.length);
        good.then_some(()).ok_or(())
    };
    let take = || hold(raise, Some(check), || foreign.release(slot), reached);
    receive(take, rcvd, reached).ok()
}
