//! Handover of an arena to another process: it gets the file, and the places of values in it, and believes none of
//! them.
//!
//! All pageblocks that it takes over are frozen, whatever they were before. Memory that the former process sent by
//! reference may still be under way, also out of blocks that hold no value any more. Hence all other pages are replaced
//! (a hole is punched) before anything is allocated. Slots that were free in a block become free when the whole block
//! is free.

use super::block::{Block, Kind, Large, Slots, State};
use super::classes::{Class, PAGE};
use super::inner::{Inner, lock, pages};
use super::options::Options;
use super::runs::Runs;
use super::view::View;
use crate::error::Error;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Place of a value in its arena's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuePlace {
    /// Bytes from the file's start.
    pub offset: u64,
    /// Bytes of it.
    pub len: u64,
    /// Number of the class for which its pageblock is cut, or number of pageblocks that it has for itself.
    pub kind: u32,
}

const LARGE: u32 = 1 << 31;

impl Inner {
    /// Returns the place of a value in the file; none if the file does not have it (a fork came while it was filled).
    pub(crate) fn place_of(&self, at: NonNull<u8>, len: usize) -> Option<ValuePlace> {
        let (number, within) = self.find(at.as_ptr())?;
        let (kind, blocks) = match &*self.block(number) {
            Block::Cut(slots) => (u32::try_from(slots.cut.main.index()).ok()?, 1),
            Block::Large(large) => (LARGE | large.blocks, large.blocks),
            Block::Free | Block::Tail => return None,
        };
        let lost = |block| self.states.get(block) == State::Private;
        if self.guard.is_child() || (number..number + blocks).any(lost) {
            return None;
        }
        Some(ValuePlace {
            offset: (number as usize * self.block_bytes + within) as u64,
            len: len as u64,
            kind,
        })
    }

    /// Gives the file to another process: from then on nothing is allocated, given back or protected here. With `false`
    /// takes the file back.
    pub(crate) fn give_away(&self, given: bool) {
        let exchange = lock(&self.exchange);
        // Ordering: release, partner of the acquire in `is_closed`.
        let before = self.given.swap(given, Ordering::Release);
        drop(exchange);
        // The holder of the file pays for it.
        if before != given {
            self.charge_whole(!given);
        }
    }

    /// Creates an arena over a file that another process filled; returns for each place whether a value can be there.
    pub(crate) fn adopt(
        file: OwnedFd,
        options: &Options,
        wanted: &[ValuePlace],
    ) -> Result<(Arc<Inner>, Vec<bool>), Error> {
        let inner = Inner::over(View::adopt(file, options.block_bytes())?, options)?;
        // Until `begin`: a process that gives up before that must leave the file as it is.
        inner.give_away(true);
        let mut taken = BTreeMap::new();
        let found = wanted
            .iter()
            .map(|place| inner.claim(place, &mut taken).is_some())
            .collect();
        let mut stretches: Vec<(u32, u32)> = Vec::new();
        for (number, blocks) in taken {
            match stretches.last_mut() {
                Some((first, count)) if *first + *count == number => *count += blocks,
                _ => stretches.push((number, blocks)),
            }
        }
        for &(first, blocks) in &stretches {
            let (offset, len) = inner.span(first, blocks);
            inner.open(&mut lock(&inner.room), first, blocks)?;
            inner.view.freeze(offset, len)?;
            inner.counters.frozen(blocks);
            for block in first..first + blocks {
                inner.states.set(block, State::Frozen);
                inner.states.lend(block);
            }
        }
        lock(&inner.room).runs = Runs::with_taken(inner.block_count(), &stretches);
        Ok((inner, found))
    }

    /// Enters a value; none if no value can be there, or another one is.
    fn claim(&self, place: &ValuePlace, taken: &mut BTreeMap<u32, u32>) -> Option<()> {
        let offset = usize::try_from(place.offset).ok()?;
        let len = usize::try_from(place.len).ok()?;
        let number = u32::try_from(offset / self.block_bytes).ok()?;
        let within = offset % self.block_bytes;
        if number >= self.block_count() {
            return None;
        }
        if place.kind & LARGE != 0 {
            let blocks = place.kind & !LARGE;
            let end = number.checked_add(blocks)?;
            let fits = blocks > 0
                && within == 0
                && end <= self.block_count()
                && len.div_ceil(self.block_bytes) == blocks as usize;
            let free = |block| matches!(*self.block(block), Block::Free);
            if !fits || !(number..end).all(free) {
                return None;
            }
            for tail in number + 1..end {
                *self.block(tail) = Block::Tail;
            }
            let whole = u32::try_from(len.div_ceil(PAGE)).ok()?;
            self.states.set_kind(number, Kind::Large(whole));
            *self.block(number) = Block::Large(Large {
                len,
                blocks,
                bytes: pages(len),
                filling: false,
                freezing: false,
                freed: false,
            });
            taken.insert(number, blocks);
            lock(&self.room).used += pages(len);
            return Some(());
        }
        let class = Class::numbered(place.kind as usize)?;
        let cut = class.cut(self.block_bytes / PAGE);
        let slot = cut.slot_at(within)?;
        if len > cut.slot_bytes(slot) {
            return None;
        }
        let mut block = self.block(number);
        if matches!(*block, Block::Free) {
            // Relaxed: only that the numbers differ.
            let born = self.births.fetch_add(1, Ordering::Relaxed);
            let mut slots = Box::new(Slots::new(cut, 0, born));
            slots.side_open = false;
            *block = Block::Cut(slots);
            self.states.set_kind(number, Kind::Cut(class.index()));
            taken.insert(number, 1);
            lock(&self.room).used += self.block_bytes as u64;
        }
        match &mut *block {
            Block::Cut(slots) if slots.cut.main == class => slots.take_at(slot).then_some(()),
            _ => None,
        }
    }

    /// Replaces all pages without values, once the former process no longer has the file. Must be called before
    /// anything is allocated.
    pub(crate) fn replace_rest(&self) -> io::Result<()> {
        let free = lock(&self.room).runs.free_runs();
        for (first, blocks) in free {
            let (offset, len) = self.span(first, blocks);
            // SAFETY: nothing is allocated there.
            unsafe { self.view.drop_pages(offset, len)? };
        }
        self.give_away(false);
        Ok(())
    }
}
