//! Protection: full blocks are frozen at the next send, all that wait in one go.

use super::alloc::POPULATED;
use super::block::{Block, State};
use super::classes::PAGE;
use super::inner::{Inner, lock};
use std::sync::atomic::Ordering;

impl Inner {
    /// Freezes the full blocks. One load if nothing waits; else one system call for each stretch of neighbours.
    #[inline]
    pub(crate) fn freeze_queued(&self) {
        // Relaxed: a block that is missed waits for the next send.
        if self.queued.load(Ordering::Relaxed) > 0 {
            self.freeze_now();
        }
    }

    /// Freezes like [`Inner::freeze_queued`], if that pays.
    #[inline]
    pub(crate) fn freeze_if_it_pays(&self) {
        // Relaxed: see above.
        if self.queued.load(Ordering::Relaxed) > 0 && self.debt.is_paid() {
            self.freeze_now();
        }
    }

    /// Queues the large value around an address to be frozen too.
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

    /// Returns whether these bytes may go by reference at the next send, after the waiting blocks are frozen. Freezes
    /// nothing.
    pub(crate) fn could_refer(&self, at: *const u8, len: usize) -> bool {
        if self.frozen(at, len).is_some() {
            return true;
        }
        self.debt.is_paid()
            && self.find(at).is_some_and(|(number, _)| {
                self.states.get(number) == State::Shared
                    && (self.states.waits(number)
                        || matches!(&*self.block(number), Block::Large(_) | Block::Tail))
            })
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

    /// Marks a block so that no thread takes slots from it or gives it back. Returns how many blocks go with it.
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

    /// Takes the mark away, and gives back values that were freed meanwhile; the kernel can send the others. Returns
    /// how many blocks it was.
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

    /// Fills the page tables that the kernel sends from, of a marked block. As long as it is marked no thread gives its
    /// memory back, which this would make anew.
    fn fill_tables(&self, number: u32) {
        let (offset, _) = self.span(number, 1);
        let (bytes, wide) = match &*self.block(number) {
            Block::Cut(slots) if slots.freezing && slots.live > 0 => {
                (self.block_bytes as u64, slots.cut.slot_bytes(0) >= PAGE)
            }
            Block::Large(large) if large.freezing && !large.freed => (large.bytes, true),
            _ => return,
        };
        // Small values are copied. For a program's own memory it is not known whether it was ever touched. Relaxed: a
        // thread that sees the block also sees the stores before it was full.
        let touched = !self.has_raw.load(Ordering::Relaxed);
        if wide && touched && bytes <= POPULATED as u64 {
            self.view
                .show_to_kernel(offset, usize::try_from(bytes).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::alloc::Freed;
    use super::super::options::Options;
    use super::*;
    use std::ptr::NonNull;
    use std::sync::Arc;
    use tranship_sys::memfd;

    /// Bytes of a large value.
    const LARGE: usize = 10 * PAGE;

    fn arena() -> Arc<Inner> {
        Inner::new(&Options::new()).expect("an arena")
    }

    /// Returns a value of which no byte was written, so that it has no memory yet. Its block is full.
    fn untouched(arena: &Inner, len: usize) -> (NonNull<u8>, u32) {
        let mut at = arena.alloc(len).expect("memory");
        arena.filled(at, false);
        while len < LARGE && lock(&arena.queue).is_empty() {
            at = arena.alloc(len).expect("memory");
            arena.filled(at, false);
        }
        (at, arena.block_of(at))
    }

    fn memory(arena: &Inner) -> u64 {
        memfd::facts(arena.file().0).expect("fstat").blocks * 512
    }

    #[test]
    fn page_tables_are_filled_only_while_nobody_gives_the_memory_back() {
        for (len, all) in [(LARGE, LARGE as u64), (PAGE, 16 * PAGE as u64)] {
            let arena = arena();
            let (_, number) = untouched(&arena, len);
            arena.fill_tables(number);
            assert_eq!(memory(&arena), 0, "{len}: it is not marked");
            assert!(arena.begin(number).is_some(), "{len}: it is full");
            arena.fill_tables(number);
            assert_eq!(memory(&arena), all, "{len}");
        }
    }

    #[test]
    fn what_is_freed_meanwhile_has_no_page_tables_filled_and_goes_back_at_the_end() {
        let arena = arena();
        let (at, number) = untouched(&arena, LARGE);
        assert!(arena.begin(number).is_some());
        // SAFETY: just allocated, and nobody uses it.
        unsafe { arena.free(at, Freed::Value) };
        assert!(matches!(&*arena.block(number), Block::Large(large) if large.freed));
        arena.end(number);
        assert_eq!(memory(&arena), 0);
        assert!(matches!(&*arena.block(number), Block::Free));
    }
}
