//! A pool that another domain writes and this one reads.

use super::guard::Guard;
use super::pins::Pins;
use super::tag::Tag;
use crate::base::{lock, visits};
use crate::domain::{DomainCore, Offer, Subject};
use crate::error::{self, Error, Violation};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tranship_ledger::{Bias, StaleReference};
use tranship_proto::{BufferId, PoolId, Request, Trust};
use tranship_region::layout::trace::What;
use tranship_region::layout::{RefsRw, TableRo};
use tranship_region::{VerifyError, Window, WindowError};
use tranship_sync::Mark;
use tranship_sys::map::Access;
use tranship_sys::{ForkGuard, futex, membarrier};

/// The reader's side of a pool: the window with the chunks shown so far, the writer's slot table, and our
/// own reference counters.
///
/// The window shows zeros wherever no chunk is attached, so that whatever a lying peer names, reading it is a
/// wrong answer at worst, never a fault. Aligned as handles need it.
#[repr(align(128))]
pub(crate) struct ForeignPool {
    pub(crate) domain: DomainCore,
    /// A copy of the domain's fork guard, at hand.
    pub(super) fork: ForkGuard,
    pub(crate) shape: Offer,
    /// The writer's process.
    process: OwnedFd,
    window: Window,
    /// The chunk size, as a shift; and [`TRACED`], if operations on the pool's buffers are recorded.
    chunk_shift: AtomicU32,
    table: TableRo,
    pub(crate) table_inode: u64,
    refs: RefsRw,
    /// The thread that counts in `refs` without locked instructions.
    bias: Bias,
    refs_fd: OwnedFd,
    /// At level `half`.
    guard: Option<Guard>,
    /// Serial of the chunk at each window index; 0: none.
    serials: Box<[AtomicU32]>,
    /// At the levels at which other domains write: the chunks' files, to see whether their memory is still there.
    files: Mutex<BTreeMap<u32, OwnedFd>>,
    /// Pins that keep chunks. Locked while chunks come and go.
    changing: Mutex<Pins>,
    /// Whether the present manager has named the pool.
    spoken_of: AtomicBool,
    /// Whether this domain has told the manager that it maps and holds nothing of the pool, and waits for the answer.
    given_up: AtomicBool,
}

/// Flag beside the shift in `chunk_shift`, a word that the fast path reads anyway.
const TRACED: u32 = 1 << 31;

/// Bytes of which a chunk is not attached here (yet), as a line names them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    /// Index of the first chunk.
    pub(crate) index: u32,
    offset: u64,
    length: u64,
    pub(crate) serial: u32,
}

impl ForeignPool {
    pub(crate) fn open(
        domain: &DomainCore,
        shape: Offer,
        table: OwnedFd,
        process: OwnedFd,
    ) -> Result<ForeignPool, Error> {
        let table_inode = crate::base::inode(&table);
        let table = TableRo::open(&table, shape.slots, shape.max_bytes, shape.chunk_bytes)?;
        let window = super::reserve(shape.max_bytes, shape.chunk_bytes)?;
        let chunks = shape.max_bytes / shape.chunk_bytes;
        let guard = (shape.trust == Trust::Half)
            .then(|| Guard::new(shape.slots, chunks))
            .transpose()?;
        let (refs_fd, refs) = RefsRw::create(shape.slots)?;
        let bias = match guard.is_none() && membarrier::private_expedited() {
            true => Bias::new(),
            false => Bias::never(),
        };
        Ok(ForeignPool {
            domain: domain.clone(),
            fork: domain.fork,
            shape,
            process,
            window,
            chunk_shift: AtomicU32::new(shape.chunk_bytes.trailing_zeros()),
            table,
            table_inode,
            refs,
            bias,
            refs_fd,
            guard,
            serials: (0..chunks).map(|_| AtomicU32::new(0)).collect(),
            files: Mutex::default(),
            changing: Mutex::default(),
            spoken_of: AtomicBool::new(true),
            given_up: AtomicBool::new(false),
        })
    }

    #[inline]
    pub(crate) fn pool_id(&self) -> PoolId {
        self.shape.pool
    }

    pub(crate) fn trust(&self) -> Trust {
        self.shape.trust
    }

    /// Whether the writer's process has ended: then no domain can tell the manager more about the pool.
    pub(crate) fn writer_is_dead(&self) -> bool {
        tranship_sys::pidfd::is_dead(&self.process).unwrap_or(false)
    }

    pub(crate) fn refs_fd(&self) -> &OwnedFd {
        &self.refs_fd
    }

    /// Maps a chunk that the manager passed on, after checking it.
    pub(crate) fn attach(&self, index: u32, serial: u32, fd: OwnedFd) -> Result<(), Error> {
        let pins = lock(&self.changing);
        let Some(known) = self.serials.get(index as usize) else {
            return Err(error::protocol(format!(
                "chunk index {index} of {}",
                self.serials.len()
            )));
        };
        let here = known.load(Ordering::Relaxed);
        if here >= serial {
            return Ok(()); // a resync repeats what is here
        }
        if here != 0 && pins.keeps(index) {
            return Err(error::protocol(format!(
                "chunk {index} is another one now, and what this domain holds lies in the one before"
            )));
        }
        if here != 0 {
            // The news that the older chunk went is still to come, perhaps from a manager that does not know yet that
            // it is mapped here. If the younger chunk were refused, its buffers would be taken for lies of their
            // writer.
            self.empty(index, known);
        }
        let bytes = self.shape.chunk_bytes;
        match (&self.guard, self.shape.trust.all_write()) {
            (Some(guard), _) => guard.attach(&self.window, index, bytes, &fd)?,
            (None, true) => self.window.attach_shared(index, &fd, Access::ReadWrite)?,
            (None, false) => match self.shape.trust {
                Trust::None => attach_unwritable(&self.window, index, &fd)?,
                _ => self.window.attach_ro(index, &fd)?,
            },
        }
        if self.shape.trust.all_write() {
            lock(&self.files).insert(index, fd);
        }
        // Ordering: Release pairs with the Acquire in `check`: a thread that sees the serial sees the mapping.
        known.store(serial, Ordering::Release);
        Ok(())
    }

    /// Unmaps a chunk in which all buffers are dead, if it has this serial. `false`: this is put off, because a pinned
    /// buffer lies in it; the manager is told when it is done.
    pub(crate) fn detach(&self, index: u32, serial: u32) -> bool {
        let mut pins = lock(&self.changing);
        if let Some(known) = self.serials.get(index as usize)
            && known.load(Ordering::Relaxed) == serial
        {
            if pins.keeps(index) {
                pins.put_off(index, serial);
                return false;
            }
            self.empty(index, known);
        }
        true
    }

    /// Whether bytes lie in chunks that nobody can write any more, or in some that are not here yet.
    pub(crate) fn may_be_sealed(&self, offset: u64, length: u64, serial: u32) -> bool {
        match self.check(offset, length, serial) {
            Ok(None) => self.is_sealed(offset, length),
            Ok(Some(_)) => true,
            Err(_) => false,
        }
    }

    fn is_sealed(&self, offset: u64, length: u64) -> bool {
        let (first, last) = super::chunks_of(offset, length, self.chunk_shift());
        let mut chunks = (0u32..).zip(first..=last);
        #[allow(clippy::cast_possible_truncation)] // as `check` found
        let first = first as u32;
        length > 0 && chunks.all(|(n, _)| self.window.is_sealed(first + n))
    }

    /// Pins the chunks of these bytes, if no domain can write them: for a handle with [`Tag::SEALED`], which was
    /// counted.
    pub(crate) fn pin(&self, slot: u32, offset: u64, length: u64, serial: u32) -> bool {
        let mut pins = lock(&self.changing);
        // The second check: from here on nothing changes.
        let here = matches!(self.check(offset, length, serial), Ok(None));
        if !here || !self.is_sealed(offset, length) {
            return false;
        }
        pins.add(slot, super::chunks_of(offset, length, self.chunk_shift()));
        true
    }

    /// Pins the same chunks once more, for a copy of such a handle.
    pub(crate) fn pin_again(&self, slot: u32) {
        lock(&self.changing).add_again(slot);
    }

    /// Ends the pin of such a handle.
    fn unpin(&self, slot: u32) {
        let mut pins = lock(&self.changing);
        let gone = pins.remove(slot);
        for (index, serial) in &gone {
            if let Some(known) = self.serials.get(*index as usize)
                && known.load(Ordering::Relaxed) == *serial
            {
                self.empty(*index, known);
            }
        }
        drop(pins);
        let pool = self.shape.pool;
        for (index, serial) in gone {
            let unmapped = Request::Unmapped {
                pool,
                index,
                serial,
            };
            let _ = self.domain.tell(&unmapped, &[]); // else the next manager hears what is mapped
        }
    }

    fn empty(&self, index: u32, known: &AtomicU32) {
        known.store(0, Ordering::Release);
        lock(&self.files).remove(&index);
        // SAFETY: the place shows zeros from here on, which any view of a buffer that a liar made us keep bears; where all write, these
        // zeros can be written, too.
        let _ = unsafe { self.window.detach(index) };
    }

    pub(crate) fn detach_all(&self) {
        for (index, serial) in (0u32..).zip(&self.serials) {
            let serial = serial.load(Ordering::Relaxed);
            if serial != 0 {
                self.detach(index, serial);
            }
        }
    }

    /// Notes whether the present manager has named the pool.
    pub(crate) fn set_spoken_of(&self, yes: bool) {
        self.spoken_of.store(yes, Ordering::Relaxed); // a hint for what `turn` looks at
        self.given_up.store(false, Ordering::Relaxed);
    }
    /// Notes that the pool is given up. Returns true the first time.
    pub(crate) fn give_up(&self) -> bool {
        !self.given_up.swap(true, Ordering::Relaxed)
    }
    pub(crate) fn is_spoken_of(&self) -> bool {
        self.spoken_of.load(Ordering::Relaxed)
    }

    /// Returns the mapped chunks, as (index, serial), for a restarted manager.
    pub(crate) fn mapped(&self) -> Vec<(u32, u32)> {
        (0u32..)
            .zip(&self.serials)
            .map(|(index, serial)| (index, serial.load(Ordering::Relaxed)))
            .filter(|(_, serial)| *serial != 0)
            .collect()
    }

    /// Whether a line's bytes lie in attached chunks whose serials have the sum that the line names. An attached chunk
    /// was at its place in the window at some time, so no serial is above the writer's: an equal sum means that each
    /// serial is equal.
    pub(crate) fn check(
        &self,
        offset: u64,
        length: u64,
        serial: u32,
    ) -> Result<Option<Missing>, Violation> {
        let range = Violation::Range {
            offset,
            length,
            max_bytes: self.shape.max_bytes,
        };
        let inside = |end: &u64| *end <= self.shape.max_bytes;
        let Some(_) = offset.checked_add(length).filter(inside) else {
            return Err(range);
        };
        let (first, last) = super::chunks_of(offset, length, self.chunk_shift());
        let Some(chunks) = self.serials.get(first..=last) else {
            return Err(range);
        };
        #[allow(clippy::cast_possible_truncation)]
        // an index into `serials`, whose length came as a u32
        let index = first as u32;
        if serial == 0 && first == last {
            return Err(Violation::Chunk { index, serial });
        }
        // Ordering: Acquire pairs with the Release in `attach`.
        let sum = chunks.iter().try_fold(0u32, |sum, known| {
            let known = known.load(Ordering::Acquire);
            (known != 0).then_some(sum.wrapping_add(known))
        });
        Ok((sum != Some(serial)).then_some(Missing {
            index,
            offset,
            length,
            serial,
        }))
    }

    /// Checks that the chunks of a buffer that lies in several still have their memory, where others may write them. A
    /// hole that is punched later is not found: the check only bounds the cost of an accident or an old hole. Smaller
    /// buffers take the short way, without it.
    pub(crate) fn check_holes(&self, offset: u64, length: u64) -> Result<(), Violation> {
        let (first, last) = super::chunks_of(offset, length, self.chunk_shift());
        if first == last || !self.shape.trust.all_write() {
            return Ok(());
        }
        let files = lock(&self.files);
        #[allow(clippy::cast_possible_truncation)] // as `check` found
        for (index, file) in files.range(first as u32..=last as u32) {
            if let Err(VerifyError::Sparse {
                backed_bytes,
                size_bytes,
            }) = tranship_region::backed(file)
            {
                return Err(Violation::Holes {
                    index: *index,
                    backed_bytes,
                    chunk_bytes: size_bytes,
                });
            }
        }
        Ok(())
    }

    /// Whether the missing chunks are here now.
    pub(crate) fn has(&self, missing: Missing) -> bool {
        let now = self.check(missing.offset, missing.length, missing.serial);
        matches!(now, Ok(None))
    }

    /// The fast form of [`check`](ForeignPool::check): one chunk, attached, of that serial.
    #[inline(always)]
    pub(crate) fn is_here(&self, offset: u64, length: u64, serial: u32) -> bool {
        let Some(end) = offset.checked_add(length) else {
            return false;
        };
        // Relaxed: the shift stays what it is.
        let shift = self.chunk_shift.load(Ordering::Relaxed);
        if shift & TRACED != 0 {
            return false; // the long way, which records it
        }
        // Also refuses bytes past the window: `serials` has no such entry.
        let (first, last) = (offset >> shift, end.wrapping_sub(1) >> shift);
        if first != last {
            return false;
        }
        #[allow(clippy::cast_possible_truncation)] // 64-bit only
        let known = self.serials.get(first as usize);
        // Ordering: Acquire pairs with the Release in `attach`.
        known.is_some_and(|known| known.load(Ordering::Acquire) == serial && serial != 0)
    }

    /// Whether the slot is at this published generation, after a `retain`.
    #[inline(always)]
    pub(crate) fn is_alive(&self, slot: u32, generation: u32) -> Result<(), StaleReference> {
        tranship_ledger::still_names(generation, || self.generation(slot))
    }

    /// Counts a reference for another handle. The caller has one already.
    #[inline(always)]
    pub(crate) fn retain(&self, slot: u32) {
        tranship_ledger::raise(self.word(slot));
    }

    /// Counts a reference that was received. At level `half` the buffer's pages can be read from here on, or also written, if that is the
    /// access; on failure nothing is held.
    pub(crate) fn hold(
        &self,
        id: BufferId,
        (offset, length): (u64, u64),
        access: Access,
    ) -> Result<(), Violation> {
        let slot = id.slot();
        let raise = || self.receive_shared(slot);
        let Some(guard) = &self.guard else {
            raise();
            return Ok(());
        };
        // Ordering: Relaxed: what the writer says there is checked, and kept as it was read.
        let place = || {
            let entry = self.table.slot(slot)?;
            let (offset, length) = (entry.offset(), entry.length());
            Some((
                offset.load(Ordering::Relaxed),
                length.load(Ordering::Relaxed),
            ))
        };
        let held = guard.hold(&self.window, (id, offset, length), access, raise, place);
        held.inspect_err(|_| self.release_held(slot, Access::Read))
    }

    /// Freezes a buffer that was moved here. Returns its tag from here on.
    pub(crate) fn freeze_moved(&self, tag: Tag) -> Tag {
        if let Some(guard) = &self.guard
            && !self.fork.is_child()
        {
            guard.end_writing(&self.window, tag.slot());
        }
        let trusted = if tag.has(Tag::TRUSTED) {
            Tag::TRUSTED
        } else {
            0
        };
        Tag::foreign(tag.slot(), tag.generation(), trusted | self.flags())
    }

    /// Returns the flags of handles of its buffers.
    pub(crate) fn flags(&self) -> u32 {
        let traced = match self.is_traced() {
            true => Tag::TRACED,
            false => 0,
        };
        match self.guard {
            Some(_) => Tag::LONG | traced,
            None => traced,
        }
    }

    fn chunk_shift(&self) -> u32 {
        self.chunk_shift.load(Ordering::Relaxed) & !TRACED
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.chunk_shift.load(Ordering::Relaxed) & TRACED != 0
    }

    /// Switches the record of operations on buffers that are received from now on.
    pub(crate) fn set_traced(&self, on: bool) {
        match on {
            true => self.chunk_shift.fetch_or(TRACED, Ordering::Relaxed),
            false => self.chunk_shift.fetch_and(!TRACED, Ordering::Relaxed),
        };
    }

    /// Drops a handle the long way.
    #[cold]
    pub(crate) fn release_long(&self, tag: Tag, access: Access) {
        let slot = tag.slot();
        if tag.has(Tag::SEALED) && !self.fork.is_child() {
            self.unpin(slot);
        }
        if tag.has(Tag::TRACED) && !self.fork.is_child() {
            let entry = self.table.slot(slot);
            let [offset, length] = entry.map_or([0; 2], |e| {
                [e.offset(), e.length()].map(|w| w.load(Ordering::Relaxed))
            });
            let id = BufferId::new(self.shape.pool, slot, tag.generation());
            let subject = Subject { id, offset, length };
            self.domain.note(What::Released, subject);
        }
        self.release_held(slot, access);
    }

    /// Takes back a reference that was [held](ForeignPool::hold) with that access, like `release`.
    #[cold]
    pub(crate) fn release_held(&self, slot: u32, access: Access) {
        let Some(guard) = &self.guard else {
            return self.release(slot);
        };
        if self.fork.is_child() {
            return;
        }
        visits::visit(self, |mark| {
            // Only this domain writes the word, and raises it from 1 only under the guard's lock or by an existing
            // handle.
            let word = self.word(slot);
            guard.let_go(
                &self.window,
                slot,
                access,
                || word.load(Ordering::Acquire) == 1,
                || self.lower(mark, slot),
            );
        });
    }

    /// Prefetches the reference counter of a slot (or of none) for writing.
    #[inline(always)]
    pub(crate) fn prefetch_count(&self, slot: usize) {
        tranship_sync::prefetch_write(self.refs.refs().as_ptr().wrapping_add(slot).cast());
    }

    /// Our reference counters, one a slot.
    pub(crate) fn refs(&self) -> &[AtomicU32] {
        self.refs.refs()
    }

    /// Our reference counter of a slot.
    #[inline(always)]
    pub(crate) fn word(&self, slot: u32) -> &AtomicU32 {
        debug_assert!(slot < self.shape.slots);
        // SAFETY: `check_slot`, or the receiver's own check, found the slot below the number for which the counters
        // were made, before any handle of it was.
        unsafe { self.refs.refs().get_unchecked(slot as usize) }
    }

    /// Takes a reference back; wakes the writer if it waits for that.
    #[inline(always)]
    pub(crate) fn release(&self, slot: u32) {
        if self.fork.is_child() {
            return; // the counters belong to the parent and are not even mapped here
        }
        // After the last reference only this visit keeps the pool.
        visits::visit(self, |mark| self.lower(mark, slot));
    }

    #[inline(always)]
    fn lower(&self, mark: &Mark, slot: u32) {
        // Ordering: Relaxed: the fence before it orders it. A locked load of read-only memory is not possible.
        let is_wanted = || self.table.relinquish().load(Ordering::Relaxed) != 0;
        let alone = |refs: &AtomicU32| self.bias.release(mark, refs);
        let wake = self.refs.wake();
        tranship_ledger::release_and_tell(self.word(slot), alone, is_wanted, wake, || {
            self.wake_writer()
        });
    }

    #[cold]
    fn wake_writer(&self) {
        // A few: the pool's writer may have queued any number of waiters. Only one of its threads waits honestly, the
        // first in the queue for memory.
        let _ = futex::wake_some(self.refs.wake());
    }

    /// The generation that the writer shows for a slot now, or a violation if there is no such slot.
    #[inline(always)]
    pub(crate) fn generation(&self, slot: u32) -> u32 {
        self.table
            .slot(slot)
            .map_or(0, |s| s.generation().load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn check_slot(&self, id: BufferId) -> Result<u32, Violation> {
        let slot = id.slot();
        if slot < self.shape.slots {
            Ok(slot)
        } else {
            Err(Violation::Slot {
                slot,
                slots: self.shape.slots,
            })
        }
    }

    /// Where in the window an offset that `check` passed lies.
    #[inline(always)]
    pub(crate) fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset <= self.shape.max_bytes);
        // SAFETY: `check` found offset <= max_bytes, the window's length; the window is mapped as long
        // as self lives.
        #[allow(clippy::cast_possible_truncation)]
        unsafe {
            super::base(&self.window).add(offset as usize)
        }
    }

    /// Window offset of a pointer into the window.
    #[inline(always)]
    pub(crate) fn offset_of(&self, ptr: NonNull<u8>) -> u64 {
        (ptr.as_ptr().addr() - self.window.base().addr()) as u64
    }

    /// Returns the serial that a line names for these bytes.
    #[inline(always)]
    pub(crate) fn serial_of(&self, offset: u64, length: u64) -> u32 {
        super::serial_of(&self.serials, offset, length, self.chunk_shift())
    }

    /// Whether bytes belong to a slot, as its writer says. Fixed while the slot is alive and counted here.
    #[inline]
    pub(crate) fn owns(&self, slot: u32, offset: u64, length: u64) -> bool {
        // Ordering: the caller's Acquire of the generation pairs with the writer's Release of it, before which the
        // place was written.
        self.table.slot(slot).is_some_and(|s| {
            offset
                .checked_sub(s.offset().load(Ordering::Relaxed))
                .and_then(|at| at.checked_add(length))
                .is_some_and(|end| end <= s.length().load(Ordering::Relaxed))
        })
    }

    /// Returns the buffers that this domain holds: slot, number of handles, generation and length.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u32, u32, u32, u64)> + '_ {
        let refs = (0u32..).zip(self.refs.refs());
        let refs = refs.map(|(slot, refs)| (slot, refs.load(Ordering::Relaxed)));
        refs.filter(|(_, refs)| *refs > 0).map(|(slot, refs)| {
            let entry = self.table.slot(slot);
            let bytes = entry.map_or(0, |s| s.length().load(Ordering::Relaxed));
            (slot, refs, self.generation(slot), bytes)
        })
    }

    /// Whether this domain holds no buffer of it.
    pub(crate) fn nothing_held(&self) -> bool {
        (0..self.shape.slots)
            .all(|slot| self.refs.refs()[slot as usize].load(Ordering::Acquire) == 0)
    }
}

// Receipts are counted by plain stores as long as one thread receives ([`Bias`]).
impl ForeignPool {
    /// Counts a reference that is received, before `rcvd`, whose release publishes it. Without a locked instruction, if this thread alone
    /// receives out of the pool and has no other handle of the buffer.
    #[inline(always)]
    pub(crate) fn receive(&self, slot: u32) {
        let shared = || self.receive_shared(slot);
        self.bias
            .receive(visits::mark(), self.place(), self.word(slot), shared);
    }

    /// Counts by a locked instruction.
    #[inline(never)]
    pub(crate) fn receive_shared(&self, slot: u32) {
        if visits::mark().is_none() {
            visits::visit(self, |_| {}); // from here on there is one, unless the thread is about to end
        }
        let (mark, marks, refs) = (visits::mark(), visits::marks(), self.word(slot));
        self.bias
            .receive_shared(mark, marks, self.place(), refs, || {
                if !membarrier::private_expedited() {
                    // membarrier is not available any more. The pause is many times as long as a store takes to become
                    // visible.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
    }

    /// Returns the address that marks visits to this pool.
    #[inline(always)]
    fn place(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }
}

/// At level `none`: a large buffer's chunk, which nobody writes any more, or one that its writer alone writes.
fn attach_unwritable(window: &Window, index: u32, fd: &OwnedFd) -> Result<(), WindowError> {
    match window.attach_sealed(index, fd) {
        Err(WindowError::NotAChunk { .. }) => window.attach_ro(index, fd),
        attached => attached,
    }
}

#[cfg(test)]
mod tests;
