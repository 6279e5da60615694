//! Slots: taken from the pageblocks of the calling thread's heap.

use super::block::{Block, Kind, Slots, State};
use super::classes::{Class, PAGE};
use super::heap::{Entry, Heap, mine};
use super::inner::{Inner, lock};
use crate::error::Error;
use std::ptr::NonNull;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

/// Most full blocks of each class that wait for values of their side class.
const SIDES: usize = 2;

impl Inner {
    pub(super) fn alloc_slot(&self, class: Class) -> Result<NonNull<u8>, Error> {
        let number = mine();
        let mut heap = lock(&self.heaps[number]);
        if let Some(at) = self.slot_of_side(&mut heap, class) {
            return Ok(at);
        }
        loop {
            if let Some(at) = self.slot_of_main(&mut heap, class) {
                return Ok(at);
            }
            let block = self
                .take_blocks(1, self.block_bytes as u64, class.bytes())?
                .first;
            // Relaxed: only that the numbers differ.
            let born = self.births.fetch_add(1, Ordering::Relaxed);
            let cut = class.cut(self.block_bytes / PAGE);
            let mut slots = Box::new(Slots::new(cut, number, born));
            slots.listed.main = true;
            self.states.set_kind(block, Kind::Cut(class.index()));
            *self.block(block) = Block::Cut(slots);
            heap.main[class.index()].push_back((block, born));
        }
    }

    /// Returns a slot from the rest of full blocks of other classes.
    fn slot_of_side(&self, heap: &mut Heap, class: Class) -> Option<NonNull<u8>> {
        while let Some(&entry) = heap.side[class.index()].front() {
            if let Some(at) = self.take_slot(entry, class) {
                return Some(at);
            }
            heap.side[class.index()].pop_front();
            self.close_side(entry);
        }
        None
    }

    fn slot_of_main(&self, heap: &mut Heap, class: Class) -> Option<NonNull<u8>> {
        while let Some(&entry) = heap.main[class.index()].front() {
            if let Some(at) = self.take_slot(entry, class) {
                return Some(at);
            }
            heap.main[class.index()].pop_front();
            self.drop_unused(entry);
            if let Some(side) = self.end_main(entry) {
                // The block serves its side class for a while: of many such blocks the oldest is given up, so that it
                // can be frozen.
                let waiting = &mut heap.side[side.index()];
                waiting.push_back(entry);
                if waiting.len() > SIDES
                    && let Some(oldest) = waiting.pop_front()
                {
                    self.close_side(oldest);
                }
            }
        }
        None
    }

    /// Drops a block that was parted by a fork before its first slot was taken; no thread will take one.
    fn drop_unused(&self, entry: Entry) {
        let mut block = self.block(entry.0);
        if let Block::Cut(slots) = &*block
            && slots.born == entry.1
            && slots.live == 0
            && !slots.freezing
        {
            *block = Block::Free;
            drop(block);
            // SAFETY: no value is in it, and its table says so.
            unsafe { self.recycle(entry.0, 1, self.block_bytes as u64) };
        }
    }

    /// Returns a slot of a listed block; `None` if it has none, or is no longer to be filled.
    fn take_slot(&self, entry: Entry, class: Class) -> Option<NonNull<u8>> {
        let mut block = self.block(entry.0);
        let slots = self.still(&mut block, entry)?;
        let slot = slots.take(class)?;
        slots.filling += 1;
        let offset = entry.0 as usize * self.block_bytes + slots.cut.offset(slot);
        Some(self.view.window_at(offset))
    }

    /// Returns the block of an entry, if it still is that block and can be filled.
    fn still<'a>(
        &self,
        block: &'a mut MutexGuard<'_, Block>,
        (number, born): Entry,
    ) -> Option<&'a mut Slots> {
        match &mut **block {
            Block::Cut(slots) if slots.born == born => {
                let filled = !slots.freezing && self.states.get(number) == State::Shared;
                filled.then_some(slots)
            }
            _ => None,
        }
    }

    /// Removes a block from the heap's list of its main class. Returns the side class for which the heap should list
    /// it.
    fn end_main(&self, entry: Entry) -> Option<Class> {
        let mut block = self.block(entry.0);
        let slots = self.still(&mut block, entry)?;
        slots.listed.main = false;
        let side = slots.cut.side?;
        let offer = slots.side_open && !slots.listed.side && slots.free_of(side) > 0;
        slots.listed.side |= offer;
        offer.then_some(side)
    }

    /// Closes a block's side slots: it may be frozen.
    fn close_side(&self, entry: Entry) {
        let mut block = self.block(entry.0);
        let Some(slots) = self.still(&mut block, entry) else {
            return;
        };
        slots.listed.side = false;
        slots.side_open = false;
        if slots.is_full() {
            drop(block);
            self.enqueue(entry.0);
        }
    }

    /// Lists a full block again that has a free slot.
    pub(super) fn list_again(&self, heap: usize, class: Class, entry: Entry) {
        lock(&self.heaps[heap]).main[class.index()].push_back(entry);
    }
}
