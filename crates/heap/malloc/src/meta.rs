//! Memory for the allocator's own tables, which cannot come from itself.
//!
//! A window of addresses is cut into blocks of 64 KiB. A block holds items of one power of two, chained through the
//! free ones. A larger item takes whole blocks. Tables grow with the heap, by less than a hundredth of it, and small
//! items are kept for the next table: only whole blocks go back to the kernel. Only blocks that were in use once, and a
//! step of [`STEP`] blocks, can be read and written.

use crate::environment;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use tranship_items::lock::Lock;
use tranship_sys::map;

const BLOCK: usize = 64 << 10;
/// The first size to try, for a heap without a limit; less if a limit of the process forbids it. Tables of a heap are
/// shorter than the heap.
const WINDOW: usize = 4 << 30;
const LEAST_WINDOW: usize = 16 << 20;
/// Blocks that become accessible at once.
const STEP: usize = 16;
/// Powers of two from 16 bytes to half a block.
const CLASSES: usize = 12;

/// The kind of a block: one of the classes, or one of these.
const FREE: u8 = 0xff;
const FIRST: u8 = 0xfe;
const MORE: u8 = 0xfd;

/// The window's start, by which addresses are recognised without the lock. 0: there is no window yet.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
/// Bytes of blocks in use. Written under the lock.
static COUNTED: AtomicUsize = AtomicUsize::new(0);
static STATE: Lock<BlockTable> = Lock::new(BlockTable {
    kinds: NonNull::dangling(),
    blocks: 0,
    top: 0,
    open: 0,
    free_blocks: 0,
    chains: [None; CLASSES],
});

struct BlockTable {
    /// One byte for each block, in the window's first blocks.
    kinds: NonNull<u8>,
    blocks: usize,
    /// Blocks from here on were never used.
    top: usize,
    /// The first block that cannot be read or written.
    open: usize,
    /// The free blocks below.
    free_blocks: usize,
    chains: [Option<NonNull<Link>>; CLASSES],
}

struct Link {
    next: Option<NonNull<Link>>,
}

// SAFETY: the pointers are to memory that only the holder of the lock touches.
unsafe impl Send for BlockTable {}

/// Allocates memory aligned to `align`, a power of two up to 64 KiB; `None` if the window is full. Large memory is
/// zeros.
pub(crate) fn alloc(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let bytes = bytes.max(align).max(16);
    if align > BLOCK {
        return None;
    }
    let mut state = STATE.lock();
    if state.blocks == 0 {
        state.open()?;
    }
    if bytes > BLOCK / 2 {
        return state.take_blocks(bytes.div_ceil(BLOCK), FIRST);
    }
    state.take_item(class_of(bytes))
}

/// Returns the bytes of the tables, except those elsewhere: the map of pages and the marks of blocks.
pub(crate) fn counted_bytes() -> u64 {
    // Relaxed: a figure.
    COUNTED.load(Ordering::Relaxed) as u64
}

/// Says whether the memory of such an allocation is all zeros.
pub(crate) fn is_zeroed(bytes: usize, align: usize) -> bool {
    bytes.max(align) > BLOCK / 2
}

/// Says whether an address belongs to these tables.
#[inline]
pub(crate) fn owns(address: *const u8) -> bool {
    // Ordering: a thread that has an address of these tables got it after these were stored.
    let base = BASE.load(Ordering::Relaxed);
    base != 0 && address.addr().wrapping_sub(base) < LEN.load(Ordering::Relaxed)
}

/// Returns how many bytes may be used at an address of these tables.
pub(crate) fn usable(address: NonNull<u8>) -> usize {
    let state = STATE.lock();
    let block = state.block_of(address);
    match state.kind(block) {
        FIRST => state.length(block) * BLOCK,
        class => 16 << class,
    }
}

/// Takes memory back.
///
/// # Safety
/// `address` is from [`alloc`], and nothing uses the memory there any more.
pub(crate) unsafe fn free(address: NonNull<u8>) {
    let mut state = STATE.lock();
    let block = state.block_of(address);
    match state.kind(block) {
        FIRST => state.give_blocks(block),
        class if usize::from(class) < CLASSES => {
            let link = address.cast::<Link>();
            let next = state.chains[usize::from(class)].replace(link);
            // SAFETY: at least 16 bytes, aligned to as many, that nothing else uses.
            unsafe { link.write(Link { next }) };
        }
        _ => panic!("{address:p} was not allocated"),
    }
}

/// Gives memory another size; it may move.
///
/// # Safety
/// The rules of [`free`] hold.
pub(crate) unsafe fn resize(
    address: NonNull<u8>,
    bytes: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    let usable = usable(address);
    if bytes <= usable {
        return Some(address);
    }
    let new = alloc(bytes, align)?;
    // SAFETY: both are at least `usable` long, and `new` belongs to this call alone.
    unsafe {
        ptr::copy_nonoverlapping(address.as_ptr(), new.as_ptr(), usable);
        free(address);
    }
    Some(new)
}

/// Takes the lock before a fork, so that no thread is in the middle of a change.
pub(crate) fn hold() {
    STATE.hold();
}

/// Releases the lock after a fork.
///
/// # Safety
/// The rules of [`Lock::release`] hold.
pub(crate) unsafe fn release() {
    // SAFETY: passed on.
    unsafe { STATE.release() };
}

fn class_of(bytes: usize) -> usize {
    (bytes.next_power_of_two().trailing_zeros() as usize).saturating_sub(4)
}

impl BlockTable {
    /// Reserves the window: as much as may be had.
    #[cold]
    fn open(&mut self) -> Option<()> {
        let limit = environment::max_bytes().and_then(|max| usize::try_from(max).ok());
        let mut len = limit.map_or(WINDOW, |max| {
            let len = max.saturating_add(LEAST_WINDOW).min(WINDOW);
            len.next_multiple_of(BLOCK)
        });
        let base = loop {
            match map::reserve_closed(len, BLOCK) {
                Ok(base) => break base,
                Err(_) if len > LEAST_WINDOW => {
                    len = (len / 16).max(LEAST_WINDOW).next_multiple_of(BLOCK);
                }
                Err(_) => return None,
            }
        };
        self.kinds = base;
        self.blocks = len / BLOCK;
        let top = self.blocks.div_ceil(BLOCK);
        if !self.open_up_to(top) {
            self.blocks = 0;
            // SAFETY: the reservation just made, which no other code has seen.
            let _ = unsafe { map::unmap(base, len) };
            return None;
        }
        self.top = top;
        BASE.store(base.addr().get(), Ordering::Relaxed);
        LEN.store(len, Ordering::Relaxed);
        for block in 0..self.top {
            self.set(block, MORE);
        }
        Some(())
    }

    /// Makes blocks accessible up to `top`, which is in the window; returns `false` if there is no memory for it.
    fn open_up_to(&mut self, top: usize) -> bool {
        if top <= self.open {
            return true;
        }
        let next = top.next_multiple_of(STEP).min(self.blocks);
        // SAFETY: inside the window.
        let opened = unsafe { map::open_private(self.at(self.open), (next - self.open) * BLOCK) };
        if opened.is_ok() {
            self.open = next;
        }
        opened.is_ok()
    }

    fn kind(&self, block: usize) -> u8 {
        assert!(block < self.blocks);
        // SAFETY: one byte a block; all are zeros at first, and mapped for ever.
        unsafe { self.kinds.add(block).read() }
    }

    fn set(&mut self, block: usize, kind: u8) {
        assert!(block < self.blocks);
        // SAFETY: as in `kind`; the lock is held.
        unsafe { self.kinds.add(block).write(kind) };
    }

    fn block_of(&self, address: NonNull<u8>) -> usize {
        (address.addr().get() - self.kinds.addr().get()) / BLOCK
    }

    fn at(&self, block: usize) -> NonNull<u8> {
        // SAFETY: inside the window.
        unsafe { self.kinds.add(block * BLOCK) }
    }

    /// Returns the number of blocks of the item that begins in this one.
    fn length(&self, first: usize) -> usize {
        let more = (first + 1..self.top).take_while(|&block| self.kind(block) == MORE);
        1 + more.count()
    }

    fn take_item(&mut self, class: usize) -> Option<NonNull<u8>> {
        if self.chains[class].is_none() {
            let kind = class.to_le_bytes()[0];
            let block = self.take_blocks(1, kind)?;
            let size = 16 << class;
            for at in (0..BLOCK).step_by(size).rev() {
                // SAFETY: inside the block, which is new and ours.
                let link = unsafe { block.add(at) }.cast::<Link>();
                let next = self.chains[class].replace(link);
                // SAFETY: as above; an item holds a link.
                unsafe { link.write(Link { next }) };
            }
        }
        let item = self.chains[class]?;
        // SAFETY: a free item's link, written when it was chained.
        self.chains[class] = unsafe { item.read() }.next;
        Some(item.cast())
    }

    fn take_blocks(&mut self, count: usize, kind: u8) -> Option<NonNull<u8>> {
        let first = if self.free_blocks >= count {
            self.find_free(count)
        } else {
            None
        };
        let first = match first {
            Some(first) => {
                self.free_blocks -= count;
                first
            }
            None if count <= self.blocks - self.top && self.open_up_to(self.top + count) => {
                self.top += count;
                self.top - count
            }
            None => return None,
        };
        self.set(first, kind);
        for block in first + 1..first + count {
            self.set(block, MORE);
        }
        COUNTED.fetch_add(count * BLOCK, Ordering::Relaxed);
        Some(self.at(first))
    }

    fn find_free(&self, count: usize) -> Option<usize> {
        let mut run = 0;
        for block in 0..self.top {
            run = if self.kind(block) == FREE { run + 1 } else { 0 };
            if run == count {
                return Some(block + 1 - count);
            }
        }
        None
    }

    fn give_blocks(&mut self, first: usize) {
        let count = self.length(first);
        // SAFETY: blocks of these tables that nothing uses any more. If the kernel refuses they are not zeros: written
        // over below.
        if unsafe { map::discard(self.at(first), count * BLOCK) }.is_err() {
            // SAFETY: as above.
            unsafe { ptr::write_bytes(self.at(first).as_ptr(), 0, count * BLOCK) };
        }
        for block in first..first + count {
            self.set(block, FREE);
        }
        COUNTED.fetch_sub(count * BLOCK, Ordering::Relaxed);
        self.free_blocks += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_apart_aligned_and_used_again() {
        let mut all = Vec::new();
        for round in 0..200usize {
            let bytes = 1 + round * round * 7 % 100_000;
            let align = 1 << (round % 12);
            let item = alloc(bytes, align).expect("room");
            assert!(owns(item.as_ptr()) && item.addr().get().is_multiple_of(align));
            assert!(usable(item) >= bytes);
            if is_zeroed(bytes, align) {
                // SAFETY: `bytes` that are ours.
                let all = unsafe { std::slice::from_raw_parts(item.as_ptr(), bytes) };
                assert!(all.iter().all(|b| *b == 0), "{bytes}");
            }
            // SAFETY: as above.
            unsafe { ptr::write_bytes(item.as_ptr(), 0xee, bytes) };
            all.push((item, bytes));
        }
        all.sort();
        assert!(
            all.windows(2)
                .all(|w| w[0].0.addr().get() + w[0].1 <= w[1].0.addr().get())
        );
        let top = STATE.lock().top;
        for (item, _) in &all {
            // SAFETY: ours, not used any more.
            unsafe { free(*item) };
        }
        let again: Vec<_> = all
            .iter()
            .map(|(_, bytes)| alloc(*bytes, 1).expect("room"))
            .collect();
        assert_eq!(STATE.lock().top, top, "what was free is used again");
        for item in again {
            // SAFETY: as above.
            unsafe { free(item) };
        }
        assert!(!owns(ptr::null()) && !owns(all.as_ptr().cast()));
    }
}
