//! Protection: full blocks are frozen at the next send, all that wait in one go.

use super::alloc::POPULATED;
use super::block::{Block, State};
use super::classes::PAGE;
use super::inner::{Inner, lock};
use std::sync::atomic::Ordering;

impl Inner {
    /// Freezes what is full. One load if nothing waits; else one system call for each stretch of neighbours.
    #[inline]
    pub(crate) fn freeze_queued(&self) {
        // Relaxed: what is missed waits for the next send.
        if self.queued.load(Ordering::Relaxed) > 0 {
            self.freeze_now();
        }
    }

    /// As [`Inner::freeze_queued`], if that pays.
    #[inline]
    pub(crate) fn freeze_if_it_pays(&self) {
        // Relaxed: see above.
        if self.queued.load(Ordering::Relaxed) > 0 && self.debt.is_paid() {
            self.freeze_now();
        }
    }

    /// The large value around an address is to be frozen too.
    pub(crate) fn enqueue_large(&self, at: *const u8) {
        if let Some((mut number, _)) = self.find(at)
            && !self.is_closed()
            && self.states.get(number) == State::Shared
        {
            while number > 0 && matches!(*self.block(number), Block::Tail) {
                number -= 1;
            }
            if matches!(&*self.block(number), Block::Large(large) if !large.filling) {
                self.enqueue(number);
            }
        }
    }

    #[cold]
    fn freeze_now(&self) {
        if self.is_closed() {
            return;
        }
        let exchange = lock(&self.exchange);
        let mut waiting = std::mem::take(&mut *lock(&self.queue));
        self.queued.fetch_sub(waiting.len(), Ordering::Relaxed);
        waiting.sort_unstable();
        let mut stretches: Vec<(u32, u32)> = Vec::with_capacity(waiting.len());
        for number in waiting {
            self.states.wait_no_more(number);
            let Some(blocks) = self.begin(number) else {
                continue;
            };
            match stretches.last_mut() {
                Some((first, count)) if *first + *count == number => *count += blocks,
                _ => stretches.push((number, blocks)),
            }
        }
        for &(first, blocks) in &stretches {
            let (offset, len) = self.span(first, blocks);
            // Blocks whose mapping the kernel refused stay as they are, and are sent by copying.
            if self.view.freeze(offset, len).is_ok() {
                self.counters.frozen(blocks);
                for block in first..first + blocks {
                    self.states.set(block, State::Frozen);
                }
            }
        }
        drop(exchange);
        for (first, blocks) in stretches {
            let mut number = first;
            while number < first + blocks {
                number += self.end(number);
            }
        }
    }

    /// Marks a block so that nobody takes slots from it nor gives it back. Says how many blocks go with it.
    fn begin(&self, number: u32) -> Option<u32> {
        let mut block = self.block(number);
        if self.states.get(number) != State::Shared {
            return None;
        }
        match &mut *block {
            Block::Cut(slots) => {
                if slots.freezing || !slots.is_full() {
                    return None;
                }
                slots.freezing = true;
                Some(1)
            }
            Block::Large(large) if !large.filling && !large.freezing => {
                large.freezing = true;
                Some(large.blocks)
            }
            _ => None,
        }
    }

    /// Takes the mark away, and gives back what was freed meanwhile; what is there the kernel can send from. Says how many blocks it was.
    fn end(&self, number: u32) -> u32 {
        self.fill_tables(number);
        let mut block = self.block(number);
        let (blocks, bytes, empty) = match &mut *block {
            Block::Cut(slots) => {
                slots.freezing = false;
                (1, self.block_bytes as u64, slots.live == 0)
            }
            Block::Large(large) => {
                large.freezing = false;
                (large.blocks, large.bytes, large.freed)
            }
            Block::Free | Block::Tail => unreachable!("a block that is being frozen stays"),
        };
        if empty {
            *block = Block::Free;
            drop(block);
            // SAFETY: no value is in it, and its table says so.
            unsafe { self.recycle(number, blocks, bytes) };
        }
        blocks
    }

    /// Fills the page tables that the kernel sends from. As long as the block is marked nobody gives its memory back, which this would make anew.
    fn fill_tables(&self, number: u32) {
        let (offset, _) = self.span(number, 1);
        let (bytes, wide) = match &*self.block(number) {
            Block::Cut(slots) if slots.live > 0 => {
                (self.block_bytes as u64, slots.cut.slot_bytes(0) >= PAGE)
            }
            Block::Large(large) if !large.freed => (large.bytes, true),
            _ => return,
        };
        // Small ones are copied. Of a program's own memory nobody says whether it was ever touched. Relaxed: whoever sees the block sees what was said
        // before it was full.
        let touched = !self.has_raw.load(Ordering::Relaxed);
        if wide && touched && bytes <= POPULATED as u64 {
            self.view
                .show_to_kernel(offset, usize::try_from(bytes).unwrap_or(0));
        }
    }
}
