//! The desk, and shared memory as both sides see it.

use super::memory::{ReaderMemory, WriterMemory};
use super::words::{KEPT, LAST};
use crate::line::Lines;
use std::convert::Infallible;
use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use tranship_sync::{drop_shared, full_fence, prefetch_write};

/// Lines from the next one to the one that is prefetched, and to that if lines are dropped before.
const AHEAD: u64 = 1;
const FAR_AHEAD: u64 = 3;
/// Lines from the next one to the one that is dropped.
const DROPPED: u32 = 16;

/// The lines and buffers that a reader may hold: one cache line, which the reader writes and the writer reads.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Desk {
    /// The window ([`Win`](super::Win)).
    pub win: AtomicU64,
    /// Buffers that are held longer: a slot's number plus 1 each; 0: none.
    pub kept: [AtomicU32; KEPT as usize],
    /// Not 0: the reader's table has holds, too.
    pub more: AtomicU32,
    zero: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Desk>() == 64);

/// The writer's lines are its memory.
impl WriterMemory for Lines<'_> {
    type Stop = Infallible;

    #[inline(always)]
    fn set_first(&self, position: u64, word: u64) -> Result<(), Infallible> {
        // Ordering: release; partner: `ReaderMemory::first`.
        self.at(position).words[0].store(word, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn set_word(&self, position: u64, index: usize, word: u64) -> Result<(), Infallible> {
        // Ordering: relaxed; published by word 0.
        self.at(position).words[index].store(word, Ordering::Relaxed);
        Ok(())
    }

    #[inline(always)]
    fn set_last(&self, position: u64, word: u64) -> Result<(), Infallible> {
        // Ordering: relaxed; a release fence follows.
        self.at(position).words[LAST].store(word, Ordering::Relaxed);
        Ok(())
    }

    #[inline(always)]
    fn fence_release(&self) -> Result<(), Infallible> {
        // Ordering: partner: the acquire fence before `ReaderMemory::last`.
        fence(Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn prefetch(&self, tail: u64) {
        // A line that was dropped comes from further away.
        let ahead = match self.count() >= 4 * DROPPED
            && drop_shared(self.at(tail.wrapping_add(DROPPED.into())))
        {
            true => FAR_AHEAD,
            false => AHEAD,
        };
        prefetch_write(std::ptr::from_ref(self.at(tail.wrapping_add(ahead))).cast());
    }
}

/// A reader's memory: the lines, which it only loads, and its own desk and table.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The writer's lines.
    pub lines: Lines<'a>,
    /// The own desk.
    pub desk: &'a Desk,
    /// The own table: a counter each slot. Empty: the reader's handles count themselves.
    pub table: &'a [AtomicU32],
}

impl ReaderMemory for Reading<'_> {
    type Stop = Infallible;

    #[inline(always)]
    fn first(&self, position: u64) -> Result<u64, Infallible> {
        // Ordering: acquire; partner: `WriterMemory::set_first`.
        Ok(self.lines.at(position).words[0].load(Ordering::Acquire))
    }

    #[inline(always)]
    fn word(&self, position: u64, index: usize) -> Result<u64, Infallible> {
        // Ordering: relaxed; after word 0, before `fence_acquire`.
        Ok(self.lines.at(position).words[index].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn last(&self, position: u64) -> Result<u64, Infallible> {
        // Ordering: relaxed; after `fence_acquire`, whose partner is the writer's release fence.
        Ok(self.lines.at(position).words[LAST].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn set_win(&self, word: u64) -> Result<(), Infallible> {
        // Ordering: release; partner: `Desks::win`. What was accessed, and kept, comes before.
        self.desk.win.store(word, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn kept(&self, entry: u8) -> Result<u32, Infallible> {
        // Ordering: acquire; partner: `let_go` by another thread. The next hold in this entry comes after it.
        Ok(self.desk.kept[usize::from(entry)].load(Ordering::Acquire))
    }

    #[inline(always)]
    fn set_kept(&self, entry: u8, word: u32) -> Result<(), Infallible> {
        // Ordering: release; partner: `Desks::kept`.
        self.desk.kept[usize::from(entry)].store(word, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn set_more(&self, word: u32) -> Result<(), Infallible> {
        // Ordering: release; partner: `Desks::more`.
        self.desk.more.store(word, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn count(&self, slot: u32, up: bool) -> Result<(), Infallible> {
        // A reader whose handles count themselves shows no table here.
        let Some(counter) = self.table.get(slot as usize) else {
            return Ok(());
        };
        // Ordering: release; partner: `Desks::table`.
        match up {
            true => counter.fetch_add(1, Ordering::Release),
            false => counter.fetch_sub(1, Ordering::Release),
        };
        Ok(())
    }

    #[inline(always)]
    fn fence_acquire(&self) -> Result<(), Infallible> {
        fence(Ordering::Acquire);
        Ok(())
    }

    #[inline(always)]
    fn fence_full(&self) -> Result<(), Infallible> {
        // Ordering: partner: `Desks::fence_full`.
        full_fence();
        Ok(())
    }
}
