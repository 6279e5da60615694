//! The twin allocator: pageblocks of values that are sent many times, beside the program's own heap.
//!
//! ```text
//!   alloc ─► heap (one of several, by thread) ─► pageblock being filled ─► full ─► queued
//!                                                                                    │ next send, in one batch
//!   free ──► bit in the block's table (outside the block)                          frozen: sent without copying
//!                    └── last one: the block's pages are replaced, its place is free again
//! ```
//!
//! A slot of a frozen block is not used again before the whole block is empty: what was sent may still be under way, and a new
//! value would only fault. A block that is not frozen gives its freed slots out again.
//!
//! Locks are taken in this order: a heap, a block, `room`; `exchange` before a block. A fork takes `exchange` only.

mod block;
pub(crate) mod classes;
mod fork;
mod freeze;
mod heap;
mod places;
mod stats;
mod view;

pub use stats::Stats;

use crate::error::Error;
use block::{Block, Kind, Large, State, States};
use classes::{Class, LARGEST, PAGE};
use heap::{HEAPS, Heap};
use places::Places;
use stats::Counters;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tranship_sys::ForkGuard;
use view::View;

/// How an [`crate::Arena`] is made.
#[derive(Clone, Debug)]
pub struct Options {
    max: u64,
    block_pages: usize,
    large: usize,
}

impl Default for Options {
    /// As much as the machine has; pageblocks of 16 pages; values above 32 KiB have pages of their own.
    fn default() -> Options {
        Options {
            max: tranship_sys::machine::memory_total().max(64 << 20),
            block_pages: 16,
            large: LARGEST,
        }
    }
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// At most that many bytes of pageblocks and large values. Taken when they are needed.
    #[must_use]
    pub fn max(mut self, bytes: u64) -> Options {
        self.max = bytes.max(1 << 20);
        self
    }

    /// Pages of a pageblock, the unit that is protected: a power of two from 4 to 512, else the nearest.
    #[must_use]
    pub fn block_pages(mut self, pages: usize) -> Options {
        self.block_pages = pages.clamp(4, 512).next_power_of_two();
        self
    }

    /// Values above that many bytes have pages of their own (from a page to half a pageblock, at most 32 KiB).
    #[must_use]
    pub fn large_threshold(mut self, bytes: usize) -> Options {
        self.large = bytes;
        self
    }
}

/// What a block's lock protects, and where its group's memory is made when it is first needed.
type Group = OnceLock<Box<[Mutex<Block>]>>;
const GROUP: u32 = 256;

#[derive(Debug)]
pub(crate) struct Inner {
    view: View,
    states: States,
    groups: Box<[Group]>,
    heaps: [Mutex<Heap>; HEAPS],
    room: Mutex<Room>,
    /// Full blocks that wait for the next send.
    queue: Mutex<Vec<u32>>,
    queued: AtomicUsize,
    /// How often a block was cut.
    births: AtomicU64,
    /// Held while mappings are exchanged; a fork holds it.
    exchange: Mutex<()>,
    guard: ForkGuard,
    block_bytes: usize,
    large: usize,
    max: u64,
    counters: Counters,
}

/// Which addresses and how much memory are taken.
#[derive(Debug)]
struct Room {
    places: Places,
    /// Bytes of pageblocks and of large values.
    used: u64,
    children: fork::Children,
    /// Empty blocks that were never frozen: their pages can be used again as they are.
    warm: Vec<u32>,
}

/// How many of those are kept: 4 MiB of them at the default size.
const WARM: usize = 64;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks is a double free; what it protects is whole all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    pub(crate) fn new(options: &Options) -> Result<Arc<Inner>, Error> {
        let block_bytes = options.block_pages * PAGE;
        let large = options.large.clamp(PAGE, LARGEST).min(block_bytes / 2);
        // Addresses cost nothing; with twice as many, a long value finds room between others.
        let blocks = options.max.saturating_mul(2).div_ceil(block_bytes as u64);
        let blocks = u32::try_from(blocks)
            .unwrap_or(u32::MAX)
            .next_multiple_of(GROUP);
        let view = View::new(blocks as usize * block_bytes, 2 << 20)?;
        let inner = Arc::new(Inner {
            view,
            states: States::new(blocks),
            groups: (0..blocks / GROUP).map(|_| OnceLock::new()).collect(),
            heaps: std::array::from_fn(|_| Mutex::default()),
            room: Mutex::new(Room {
                places: Places::new(blocks),
                used: 0,
                children: fork::Children::default(),
                warm: Vec::new(),
            }),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            births: AtomicU64::new(0),
            exchange: Mutex::default(),
            guard: ForkGuard::new()?,
            block_bytes,
            large,
            max: options.max,
            counters: Counters::default(),
        });
        fork::enlist(&inner)?;
        Ok(inner)
    }

    /// Memory for a value, still to be filled.
    pub(crate) fn alloc(&self, len: usize) -> Result<NonNull<u8>, Error> {
        if self.guard.is_child() {
            return Err(Error::Forked);
        }
        let at = match Class::of(len).filter(|_| len <= self.large) {
            Some(class) => self.alloc_slot(class)?,
            None => self.alloc_large(len)?,
        };
        self.counters.allocated(len);
        Ok(at)
    }

    fn alloc_large(&self, len: usize) -> Result<NonNull<u8>, Error> {
        let blocks = u32::try_from(len.div_ceil(self.block_bytes)).unwrap_or(u32::MAX);
        let first = self.take_blocks(blocks, pages(len), len)?;
        for tail in 1..blocks {
            *self.block(first + tail) = Block::Tail;
        }
        let whole = u32::try_from(len.div_ceil(PAGE)).unwrap_or(u32::MAX >> 1);
        self.states.set_kind(first, Kind::Large(whole));
        *self.block(first) = Block::Large(Large {
            len,
            blocks,
            filling: true,
            freezing: false,
            freed: false,
        });
        Ok(self.address(first))
    }

    /// Takes places for `blocks` pageblocks of which `bytes` will be touched.
    fn take_blocks(&self, blocks: u32, bytes: u64, asked: usize) -> Result<u32, Error> {
        let mut room = self.room_after_children();
        let fits = room.used.saturating_add(bytes) <= self.max;
        if fits
            && blocks == 1
            && let Some(warm) = room.warm.pop()
        {
            room.used += bytes;
            drop(room);
            return self.make_shared(warm, 1, bytes);
        }
        let Some(first) = fits.then(|| room.places.take(blocks)).flatten() else {
            return Err(Error::OutOfMemory {
                asked,
                used: room.used,
                max: self.max,
            });
        };
        room.used += bytes;
        drop(room);
        self.make_shared(first, blocks, bytes)
    }

    /// A fork may have parted places that nobody had.
    fn make_shared(&self, first: u32, blocks: u32, bytes: u64) -> Result<u32, Error> {
        let parted = |block| self.states.get(block) != State::Shared;
        if (first..first + blocks).any(parted) {
            // SAFETY: just taken, and nobody uses it yet.
            let renewed = unsafe { self.renew(first, blocks) };
            renewed.inspect_err(|_| lock(&self.room).give(first, blocks, bytes))?;
        }
        Ok(first)
    }

    /// The value at an address has been filled: its block may be frozen. `raw`: nobody says when it is, so a large one is frozen when
    /// it is first sent.
    pub(crate) fn filled(&self, at: NonNull<u8>, raw: bool) {
        let (block, _) = self.place(at);
        let full = match &mut *self.block(block) {
            Block::Cut(slots) => {
                slots.filling -= 1;
                slots.is_full() && !std::mem::replace(&mut slots.queued, true)
            }
            Block::Large(large) => {
                large.filling = false;
                !raw
            }
            Block::Free | Block::Tail => unreachable!("a value that is being filled is there"),
        };
        if full {
            self.enqueue(block);
        }
    }

    /// Gives a value's memory back; `filling`, if it was never [`Inner::filled`].
    ///
    /// # Safety
    /// It came from `alloc` of this arena, and nobody uses it.
    ///
    /// # Panics
    /// If nothing that is in use begins there.
    pub(crate) unsafe fn free(&self, at: NonNull<u8>, filling: bool) {
        if self.guard.is_child() {
            // The parent's tables; what this child has of the pages is its own copy, and ends with it.
            return;
        }
        self.counters.freed();
        let (block, within) = self.place(at);
        match self.take_back(block, within, filling) {
            After::Nothing => {}
            After::Reuse { heap, class, born } => self.list_again(heap, class, (block, born)),
            After::Queue => self.enqueue(block),
            After::Empty { blocks, bytes } => {
                // SAFETY: the last value in it is gone, and the block's table says so.
                unsafe { self.recycle(block, blocks, bytes) };
            }
        }
    }

    fn take_back(&self, number: u32, within: usize, filling: bool) -> After {
        let mut block = self.block(number);
        match &mut *block {
            Block::Cut(slots) => {
                let slot = slots.cut.slot_at(within);
                let slot = slot.expect("the address of a value");
                slots.give(slot);
                slots.filling -= u32::from(filling);
                if slots.freezing {
                    return After::Nothing;
                }
                if slots.live == 0 {
                    *block = Block::Free;
                    return After::Empty {
                        blocks: 1,
                        bytes: self.block_bytes as u64,
                    };
                }
                if self.states.get(number) != State::Shared {
                    return After::Nothing;
                }
                let main = slot < slots.cut.slots;
                if main && !slots.listed.main {
                    slots.listed.main = true;
                    return After::Reuse {
                        heap: slots.heap,
                        class: slots.cut.main,
                        born: slots.born,
                    };
                }
                if slots.is_full() && !std::mem::replace(&mut slots.queued, true) {
                    return After::Queue;
                }
                After::Nothing
            }
            Block::Large(large) if within == 0 => {
                if large.freezing {
                    large.freed = true;
                    return After::Nothing;
                }
                let (blocks, bytes) = (large.blocks, pages(large.len));
                *block = Block::Free;
                After::Empty { blocks, bytes }
            }
            _ => panic!("freed what is no value: {within} bytes into pageblock {number}"),
        }
    }

    /// Gives empty pageblocks back: their pages, and then their place.
    ///
    /// # Safety
    /// No value is in them, and their tables say so.
    unsafe fn recycle(&self, first: u32, blocks: u32, bytes: u64) {
        self.states.set_kind(first, Kind::Free);
        for tail in 1..blocks {
            *self.block(first + tail) = Block::Free;
        }
        let mut room = lock(&self.room);
        if room.keep_for_children(first, blocks, bytes) {
            return;
        }
        let clean = blocks == 1 && self.states.get(first) == State::Shared;
        if clean && room.warm.len() < WARM {
            room.warm.push(first);
            room.used -= bytes;
            return;
        }
        drop(room);
        // Where the kernel refuses, the place stays as it is until it is taken again.
        // SAFETY: passed on.
        let _ = unsafe { self.renew(first, blocks) };
        room = lock(&self.room);
        room.give(first, blocks, bytes);
    }

    /// Replaces the pages of empty blocks by fresh ones.
    ///
    /// # Safety
    /// As [`Inner::recycle`].
    unsafe fn renew(&self, first: u32, blocks: u32) -> io::Result<()> {
        let (offset, len) = self.span(first, blocks);
        let exchange = lock(&self.exchange);
        // Crash: only this process knows the memfd; all of it ends with the process.
        let parted = |block| self.states.get(block) != State::Shared;
        let state = if (first..first + blocks).any(parted) {
            // SAFETY: nobody uses it.
            unsafe { self.view.renew(offset, len) }
        } else {
            // SAFETY: nobody uses it.
            unsafe { self.view.drop_pages(offset, len) }
        };
        // What was frozen and could not be mapped anew is private: its pages in the file are gone.
        let now = state.as_ref().map_or(State::Private, |()| State::Shared);
        for block in first..first + blocks {
            self.states.set(block, now);
        }
        drop(exchange);
        state
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.guard.is_child()
    }

    /// How long the value that begins at an address may be. Takes no lock.
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

    /// Where bytes lie in the file, if its pages there no longer change: what may be sent by reference.
    pub(crate) fn frozen(&self, from: *const u8, len: usize) -> Option<usize> {
        let offset = self.view.offset_of(from)?;
        let last = offset.checked_add(len.max(1) - 1)?;
        let (first, last) = (offset / self.block_bytes, last / self.block_bytes);
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

    /// See [`View::file`].
    pub(crate) fn file(&self) -> (BorrowedFd<'_>, (u64, u64)) {
        self.view.file()
    }

    /// Is the address one of this arena's?
    pub(crate) fn owns(&self, at: *const u8) -> bool {
        self.view.offset_of(at).is_some()
    }

    fn find(&self, at: *const u8) -> Option<(u32, usize)> {
        let offset = self.view.offset_of(at)?;
        let block = u32::try_from(offset / self.block_bytes).ok()?;
        Some((block, offset % self.block_bytes))
    }

    fn place(&self, at: NonNull<u8>) -> (u32, usize) {
        self.find(at.as_ptr()).expect("an address of this arena")
    }

    pub(crate) fn block_of(&self, at: NonNull<u8>) -> u32 {
        self.place(at).0
    }

    /// See [`crate::Arena::sparse`].
    pub(crate) fn sparse(&self, count: usize) -> Vec<u32> {
        let taken = lock(&self.room).places.frontier();
        let mut found: Vec<(u32, u32)> = (0..taken)
            .filter(|&number| self.states.get(number) != State::Shared)
            .filter_map(|number| match &*self.block(number) {
                Block::Cut(slots) => {
                    let all = u32::try_from(slots.cut.slots).ok()?;
                    // In thousandths, so that blocks of all classes compare.
                    (slots.live * 2 <= all).then(|| (slots.live * 1000 / all, number))
                }
                _ => None,
            })
            .collect();
        found.sort_unstable();
        found.truncate(count);
        let mut numbers: Vec<u32> = found.into_iter().map(|(_, number)| number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn address(&self, block: u32) -> NonNull<u8> {
        self.view.window_at(block as usize * self.block_bytes)
    }

    fn span(&self, first: u32, blocks: u32) -> (usize, usize) {
        (
            first as usize * self.block_bytes,
            blocks as usize * self.block_bytes,
        )
    }

    fn block_count(&self) -> u32 {
        u32::try_from(self.groups.len()).expect("fewer than 2^32") * GROUP
    }

    fn block(&self, number: u32) -> MutexGuard<'_, Block> {
        let group = self.groups[(number / GROUP) as usize]
            .get_or_init(|| (0..GROUP).map(|_| Mutex::default()).collect());
        lock(&group[(number % GROUP) as usize])
    }

    fn enqueue(&self, block: u32) {
        lock(&self.queue).push(block);
        // Relaxed: a send that misses it copies, and the next one does not.
        self.queued.fetch_add(1, Ordering::Relaxed);
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
    /// A place is free again.
    fn give(&mut self, first: u32, blocks: u32, bytes: u64) {
        self.places.give(first, blocks);
        self.used -= bytes;
    }
}

/// What is left to do when a value is back and the block's lock released.
enum After {
    Nothing,
    /// A heap may take slots from it again.
    Reuse {
        heap: usize,
        class: Class,
        born: u64,
    },
    /// Nobody writes in it any more.
    Queue,
    Empty {
        blocks: u32,
        bytes: u64,
    },
}

fn pages(len: usize) -> u64 {
    len.next_multiple_of(PAGE) as u64
}
