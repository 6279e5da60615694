//! Values: allocated, filled, freed.

use super::block::{Block, GROUP, Kind, Large, State, States};
use super::children::Children;
use super::classes::{Class, PAGE};
use super::debt::Debt;
use super::epochs::Epochs;
use super::fork;
use super::inner::{Inner, Room, pages};
use super::opened::Opened;
use super::options::Options;
use super::places::Taken;
use super::runs::Runs;
use super::stats::Counters;
use super::view::{ALIGN, View};
use crate::error::Error;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tranship_sys::ForkGuard;

/// Addresses of an arena's window that large values may make necessary: of the 128 TiB that a process has, so that two
/// such fit twice.
const ADDRESSES: usize = 16 << 40;
/// Longest value whose pages come in one call. A client that is told of a longer value may never see its bytes.
pub(super) const POPULATED: usize = 4 << 20;

impl Inner {
    pub(crate) fn new(options: &Options) -> Result<Arc<Inner>, Error> {
        let (block_bytes, large) = (options.block_bytes(), options.large());
        // Addresses cost nothing. With twice as many, a long value finds room between others; and each large one takes
        // those of a whole pageblock, however few pages it has.
        let shortest = (large / PAGE + 1) * PAGE;
        let twice = options.max.saturating_mul(2).div_ceil(block_bytes as u64);
        let each = options.max / shortest as u64 + u64::from(GROUP);
        let blocks = twice.max(each.min((ADDRESSES / block_bytes) as u64));
        let blocks = u32::try_from(blocks)
            .unwrap_or(u32::MAX - GROUP)
            .next_multiple_of(GROUP);
        Inner::over(View::new(blocks as usize * block_bytes, ALIGN)?, options)
    }

    /// Creates an arena over a file in which nothing is in use.
    pub(super) fn over(view: View, options: &Options) -> Result<Arc<Inner>, Error> {
        let block_bytes = options.block_bytes();
        let large = options.large();
        let blocks = u32::try_from(view.len() / block_bytes).unwrap_or(0);
        let inner = Arc::new(Inner {
            view,
            states: States::new(blocks),
            opened: Opened::new(blocks, block_bytes),
            epochs: Arc::new(Epochs::new(blocks)),
            groups: (0..blocks / GROUP).map(|_| OnceLock::new()).collect(),
            heaps: std::array::from_fn(|_| Mutex::default()),
            room: Mutex::new(Room {
                runs: Runs::new(blocks),
                used: 0,
                children: Children::default(),
                warm: Vec::new(),
            }),
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            debt: Debt::default(),
            births: AtomicU64::new(0),
            exchange: Mutex::default(),
            guard: ForkGuard::new()?,
            block_bytes,
            large,
            max: options.max,
            counters: Counters::default(),
            given: AtomicBool::new(false),
            has_raw: AtomicBool::new(false),
            account: options.open_account()?,
        });
        fork::enlist(&inner)?;
        Ok(inner)
    }

    /// Allocates memory for a value, still to be filled.
    pub(crate) fn alloc(&self, len: usize) -> Result<NonNull<u8>, Error> {
        self.alloc_any(len).map(|(at, _)| at)
    }

    /// Allocates memory of zeros. Memory that the kernel gives anew is zero, and is not touched.
    pub(crate) fn alloc_zeroed(&self, len: usize) -> Result<NonNull<u8>, Error> {
        let (at, used) = self.alloc_any(len)?;
        // SAFETY: just allocated, as long.
        unsafe { at.write_bytes(0, len.min(used)) };
        Ok(at)
    }

    /// Allocates memory; returns it, and how many bytes of its beginning may have been used before.
    fn alloc_any(&self, len: usize) -> Result<(NonNull<u8>, usize), Error> {
        match self.alloc_once_admitted(len) {
            // Under no lock: it may take a while.
            Err(Error::NotAdmitted { .. }) if self.ask_for_room(len) => {
                self.alloc_once_admitted(len)
            }
            other => other,
        }
    }

    /// Allocates from admitted memory: the manager is not asked.
    pub(crate) fn alloc_admitted(&self, len: usize) -> Result<NonNull<u8>, Error> {
        self.alloc_once_admitted(len).map(|(at, _)| at)
    }

    fn alloc_once_admitted(&self, len: usize) -> Result<(NonNull<u8>, usize), Error> {
        if self.guard.is_child() {
            return Err(Error::Forked);
        }
        if self.is_closed() {
            return Err(Error::Given);
        }
        let got = match Class::of(len).filter(|_| len <= self.large) {
            Some(class) => self.alloc_slot(class).map(|at| (at, len))?,
            None => self.alloc_large(len)?,
        };
        self.counters.allocated(len);
        Ok(got)
    }

    fn alloc_large(&self, len: usize) -> Result<(NonNull<u8>, usize), Error> {
        let blocks = u32::try_from(len.div_ceil(self.block_bytes)).unwrap_or(u32::MAX);
        let Taken { first, bytes, used } = self.take_blocks(blocks, pages(len), len)?;
        for tail in 1..blocks {
            *self.block(first + tail) = Block::Tail;
        }
        let whole = u32::try_from(len.div_ceil(PAGE)).unwrap_or(u32::MAX >> 1);
        self.states.set_kind(first, Kind::Large(whole));
        *self.block(first) = Block::Large(Large {
            len,
            blocks,
            bytes,
            filling: true,
            freezing: false,
            freed: false,
        });
        Ok((self.address(first), used))
    }

    /// Gives a large value its pages in one call: a fault for each costs more than twice as much.
    pub(crate) fn populate(&self, at: NonNull<u8>, len: usize) {
        if len > self.large && len <= POPULATED {
            let (block, within) = self.place(at);
            self.view
                .populate(self.span(block, 1).0 + within, len.next_multiple_of(PAGE));
        }
    }

    /// Notes that the value at an address has been filled: its block may be frozen. `raw`: the end of filling is not
    /// announced, so a large value is frozen when it is first sent.
    pub(crate) fn filled(&self, at: NonNull<u8>, raw: bool) {
        if raw {
            // Relaxed: the block's lock orders it before the block is full.
            self.has_raw.store(true, Ordering::Relaxed);
        }
        let (block, _) = self.place(at);
        let full = match &mut *self.block(block) {
            Block::Cut(slots) => {
                slots.filling -= 1;
                slots.is_full()
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

    /// Gives a value's memory back.
    ///
    /// # Safety
    /// It came from `alloc` of this arena, and nobody uses it.
    ///
    /// # Panics
    /// If nothing that is in use begins there.
    pub(crate) unsafe fn free(&self, at: NonNull<u8>, what: Freed) {
        if self.is_closed() {
            // The parent's tables; this child's pages are its own copy, and end with it.
            return;
        }
        self.counters.freed();
        let (block, within) = self.place(at);
        match self.take_back(block, within, what) {
            After::Nothing => {}
            After::Reuse { heap, class, born } => self.list_again(heap, class, (block, born)),
            After::Queue => self.enqueue(block),
            After::Empty { blocks, bytes } => {
                // SAFETY: the last value in it is gone, and the block's table says so.
                unsafe { self.recycle(block, blocks, bytes) };
            }
        }
    }

    fn take_back(&self, number: u32, within: usize, what: Freed) -> After {
        let owe = |bytes: usize| {
            let owes = match what {
                Freed::Unfilled => false,
                Freed::Value => true,
                Freed::Raw => self.states.was_sent(number),
            };
            if owes {
                self.debt.owe(bytes as u64);
            }
        };
        let mut block = self.block(number);
        match &mut *block {
            Block::Cut(slots) => {
                let slot = slots.cut.slot_at(within);
                let slot = slot.expect("the address of a value");
                slots.give(slot);
                owe(slots.cut.slot_bytes(slot));
                slots.filling -= u32::from(what == Freed::Unfilled);
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
                if slots.is_full() {
                    return After::Queue;
                }
                After::Nothing
            }
            Block::Large(large) if within == 0 => {
                owe(large.len);
                if large.freezing {
                    large.freed = true;
                    return After::Nothing;
                }
                let (blocks, bytes) = (large.blocks, large.bytes);
                *block = Block::Free;
                After::Empty { blocks, bytes }
            }
            _ => panic!("freed what is no value: {within} bytes into pageblock {number}"),
        }
    }

    /// Returns [`crate::Arena::sparse`].
    pub(crate) fn sparse(&self, count: usize) -> Vec<u32> {
        let taken = self.frontier();
        let mut found: Vec<(u32, u32)> = (0..taken)
            .filter(|&number| self.states.get(number) != State::Shared)
            .filter_map(|number| match &*self.block(number) {
                Block::Cut(slots) => {
                    let all = u32::try_from(slots.cut.slots).ok()?;
                    // In thousandths, so that blocks of all classes can be compared.
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
}

/// Memory that is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freed {
    /// Memory that was never [`Inner::filled`].
    Unfilled,
    /// Memory that was made to be sent.
    Value,
    /// Memory of a program, of which most may never be sent.
    Raw,
}

/// Work that is left after a value is back and the block's lock is released.
enum After {
    Nothing,
    /// A heap may take slots from it again.
    Reuse {
        heap: usize,
        class: Class,
        born: u64,
    },
    /// No thread writes in it any more.
    Queue,
    Empty {
        blocks: u32,
        bytes: u64,
    },
}
