//! Parts of an arena, and the place of an address in it.

use super::block::{Block, GROUP, Kind, State, States};
use super::children::Children;
use super::classes::{Class, PAGE};
use super::debt::Debt;
use super::epochs::Epochs;
use super::heap::{HEAPS, Heap};
use super::opened::Opened;
use super::runs::Runs;
use super::stats::{Counters, Stats};
use super::view::View;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tranship_core::Account;
use tranship_sys::ForkGuard;

/// A group of blocks, each with a lock of its own. Its memory is made when it is first needed.
type Group = OnceLock<Box<[Mutex<Block>]>>;

#[derive(Debug)]
pub(crate) struct Inner {
    pub(super) view: View,
    pub(super) states: States,
    pub(super) opened: Opened,
    pub(super) epochs: Arc<Epochs>,
    pub(super) groups: Box<[Group]>,
    pub(super) heaps: [Mutex<Heap>; HEAPS],
    pub(super) room: Mutex<Room>,
    /// Full blocks that wait for the next send.
    pub(super) queue: Mutex<Vec<u32>>,
    pub(super) queued: AtomicUsize,
    /// Whether it pays to freeze them.
    pub(super) debt: Debt,
    /// Number of times that a block was cut.
    pub(super) births: AtomicU64,
    /// Held while mappings are exchanged; a fork holds it.
    pub(super) exchange: Mutex<()>,
    pub(super) guard: ForkGuard,
    pub(super) block_bytes: usize,
    pub(super) large: usize,
    pub(super) max: u64,
    pub(super) counters: Counters,
    /// The file is another process's now.
    pub(super) given: AtomicBool,
    /// Whether some of the memory is a program's, which this process may never touch.
    pub(super) has_raw: AtomicBool,
    /// Account that pays for all of it.
    pub(super) account: Option<Account>,
}

/// Record of the taken addresses and memory.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) runs: Runs,
    /// Bytes of pageblocks and of large values.
    pub(super) used: u64,
    pub(super) children: Children,
    /// Runs of empty blocks whose pages were given to no one: they can be used again as they are.
    pub(super) warm: Vec<Warm>,
}

/// An empty run of blocks with pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warm {
    pub(super) first: u32,
    pub(super) blocks: u32,
    /// Bytes of pages, from its start.
    pub(super) bytes: u64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks is a double free; the protected data is whole all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    pub(crate) fn is_inherited(&self) -> bool {
        self.guard.is_child()
    }

    /// Returns whether the file is another process's to write.
    pub(super) fn is_closed(&self) -> bool {
        // Ordering: acquire, partner of the release in `give_away`.
        self.guard.is_child() || self.given.load(Ordering::Acquire)
    }

    /// Returns the longest length of the value that begins at an address. Takes no lock.
    pub(crate) fn len_of(&self, at: NonNull<u8>) -> Option<usize> {
        let (number, within) = self.find(at.as_ptr())?;
        match self.states.kind(number) {
            Kind::Cut(class) => {
                let cut = Class::numbered(class)?.cut(self.block_bytes / PAGE);
                cut.slot_at(within).map(|slot| cut.slot_bytes(slot))
            }
            Kind::Large(pages) if within == 0 => Some(pages as usize * PAGE),
            _ => None,
        }
    }

    /// Returns the place of bytes in the file, if its pages there no longer change: such bytes may be sent by
    /// reference.
    pub(crate) fn frozen(&self, from: *const u8, len: usize) -> Option<usize> {
        let offset = self.view.offset_of(from)?;
        let last = offset.checked_add(len.max(1) - 1)?;
        let (first, last) = (self.block_at(offset), self.block_at(last));
        let all = (first..=last).all(|block| {
            u32::try_from(block).is_ok_and(|block| {
                block < self.block_count() && self.states.get(block) == State::Frozen
            })
        });
        all.then_some(offset)
    }

    /// Address of the file's pages, for the kernel's eyes only.
    pub(crate) fn pages_at(&self, offset: usize) -> NonNull<u8> {
        self.view.pages_at(offset)
    }

    /// Returns [`View::file`].
    pub(crate) fn file(&self) -> (BorrowedFd<'_>, (u64, u64)) {
        self.view.file()
    }

    /// Returns whether the address is one of this arena's.
    pub(crate) fn owns(&self, at: *const u8) -> bool {
        self.view.offset_of(at).is_some()
    }

    /// Returns the program's address of an offset in the file.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        self.view.window_at(offset)
    }

    pub(super) fn find(&self, at: *const u8) -> Option<(u32, usize)> {
        let offset = self.view.offset_of(at)?;
        let block = u32::try_from(offset / self.block_bytes).ok()?;
        Some((block, offset % self.block_bytes))
    }

    pub(super) fn place(&self, at: NonNull<u8>) -> (u32, usize) {
        self.find(at.as_ptr()).expect("an address of this arena")
    }

    pub(crate) fn block_of(&self, at: NonNull<u8>) -> u32 {
        self.place(at).0
    }

    /// Returns the bytes of a large value's own pages; none for a value that shares a pageblock.
    pub(crate) fn own_pages(&self, at: NonNull<u8>) -> Option<usize> {
        match self.states.kind(self.block_of(at)) {
            Kind::Large(pages) => Some(pages as usize * PAGE),
            Kind::Cut(_) | Kind::Free => None,
        }
    }

    pub(super) fn address(&self, block: u32) -> NonNull<u8> {
        self.view.window_at(block as usize * self.block_bytes)
    }

    pub(super) fn span(&self, first: u32, blocks: u32) -> (usize, usize) {
        (
            first as usize * self.block_bytes,
            blocks as usize * self.block_bytes,
        )
    }

    /// Returns the number of the pageblock of an offset. Its bytes are a power of two, and dividing by them would take
    /// long.
    fn block_at(&self, offset: usize) -> usize {
        offset >> self.block_bytes.trailing_zeros()
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    pub(crate) fn epochs(&self) -> &Arc<Epochs> {
        &self.epochs
    }

    /// Returns the first block from which on none was ever taken.
    pub(super) fn frontier(&self) -> u32 {
        lock(&self.room).runs.frontier()
    }

    pub(super) fn block_count(&self) -> u32 {
        u32::try_from(self.groups.len()).expect("fewer than 2^32") * GROUP
    }

    pub(super) fn block(&self, number: u32) -> MutexGuard<'_, Block> {
        let group = self.groups[(number / GROUP) as usize]
            .get_or_init(|| (0..GROUP).map(|_| Mutex::default()).collect());
        lock(&group[(number % GROUP) as usize])
    }

    pub(super) fn enqueue(&self, block: u32) {
        if self.states.wait(block) {
            lock(&self.queue).push(block);
            // Relaxed: a send that misses it copies, and the next one does not.
            self.queued.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that the kernel is about to be given the pages of these bytes, if they are frozen.
    pub(crate) fn lend(&self, from: *const u8, len: usize) {
        if let Some(offset) = self.frozen(from, len) {
            self.blocks_of(offset, len)
                .for_each(|block| self.states.lend(block));
        }
    }

    /// Notes that these bytes are sent. If they only wait for being frozen, that comes nearer.
    pub(crate) fn sent(&self, from: *const u8, len: usize) {
        let Some(offset) = self.view.offset_of(from) else {
            return;
        };
        let mut waits = false;
        for block in self.blocks_of(offset, len) {
            self.states.sent(block);
            waits |= self.states.waits(block);
        }
        if waits {
            self.debt.pay(len as u64);
        }
    }

    fn blocks_of(&self, offset: usize, len: usize) -> impl Iterator<Item = u32> {
        let last = offset + len.max(1) - 1;
        let (first, last) = (self.block_at(offset), self.block_at(last));
        (first..=last).map_while(|block| u32::try_from(block).ok())
    }

    /// Makes empty blocks writable again with the pages that they have; false if the kernel or a child may still refer
    /// to those.
    ///
    /// # Safety
    /// As [`Inner::recycle`].
    pub(super) unsafe fn thaw(&self, first: u32, blocks: u32) -> bool {
        let exchange = lock(&self.exchange);
        let all = first..first + blocks;
        let state = |block| self.states.get(block);
        let gone = |block| self.states.was_lent(block) || state(block) == State::Private;
        if all.clone().any(gone) {
            return false;
        }
        if all.clone().any(|block| state(block) == State::Frozen) {
            let (offset, len) = self.span(first, blocks);
            // SAFETY: nobody uses it, and nobody was given its pages.
            if unsafe { self.view.thaw(offset, len) }.is_err() {
                return false;
            }
            all.for_each(|block| self.states.set(block, State::Shared));
        }
        drop(exchange);
        true
    }

    /// Replaces the pages of empty blocks by fresh ones.
    ///
    /// # Safety
    /// As [`Inner::recycle`].
    pub(super) unsafe fn renew(&self, first: u32, blocks: u32) -> io::Result<()> {
        let (offset, len) = self.span(first, blocks);
        let exchange = lock(&self.exchange);
        // Crash: only this process knows the memfd; all of it ends with the process.
        let parted = |block| self.states.get(block) != State::Shared;
        let frozen = |block: &u32| self.states.get(*block) == State::Frozen;
        let protected = (first..first + blocks).filter(frozen).count();
        self.epochs.turn(first, blocks);
        let state = if (first..first + blocks).any(parted) {
            // SAFETY: nobody uses it.
            unsafe { self.view.renew(offset, len) }
        } else {
            // SAFETY: nobody uses it.
            unsafe { self.view.drop_pages(offset, len) }
        };
        // A frozen block that could not be mapped anew is private: its pages in the file are gone.
        let now = state.as_ref().map_or(State::Private, |()| State::Shared);
        for block in first..first + blocks {
            self.states.set(block, now);
        }
        self.epochs.turn(first, blocks);
        self.epochs.count(protected as u64);
        drop(exchange);
        state
    }

    pub(crate) fn stats(&self) -> Stats {
        let room = lock(&self.room);
        let used = room.used;
        let waiting = room.children.waiting();
        drop(room);
        self.counters.read(used, self.max, waiting)
    }
}

impl Room {
    /// Returns the bytes with memory, or that may have.
    pub(super) fn held(&self) -> u64 {
        self.used + self.warm.iter().map(|run| run.bytes).sum::<u64>()
    }
}

pub(super) fn pages(len: usize) -> u64 {
    len.next_multiple_of(PAGE) as u64
}
