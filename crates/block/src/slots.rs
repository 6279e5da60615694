//! The memory of a cache: a page for each block, and which block is to go next.

use crate::BLOCK_BYTES;
use std::collections::VecDeque;
use tranship_core::Account;
use tranship_sys::machine;
use tranship_sys::pages::{PAGE, Pages};

const _: () = assert!(PAGE == BLOCK_BYTES);

/// Places for blocks. A block's checksum stays with it.
#[derive(Debug)]
pub(crate) struct Slots {
    pages: Pages,
    slots: Vec<Slot>,
    /// CLOCK's circle, from the hand on: all places with a block, and some that had one. So the hand meets no place
    /// that was never filled again, of which there are many where memory was given back.
    circle: VecDeque<usize>,
    /// Places with memory, and without a block.
    empty: Vec<usize>,
    /// Places whose memory is the kernel's again.
    bare: Vec<usize>,
}

#[derive(Debug)]
struct Slot {
    /// Block in the place; none if there is none.
    block: Option<u64>,
    sum: u32,
    used: bool,
    /// The block is in the circle.
    circled: bool,
}

/// A place for a block, and the block that has to go for it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) place: usize,
    pub(crate) gone: Option<u64>,
}

impl Slots {
    /// Creates at most `most` slots, and no more than the machine has memory for. Returns none if the process has no
    /// addresses for them.
    pub(crate) fn new(most: usize) -> Slots {
        let machine = usize::try_from(machine::memory_total()).unwrap_or(usize::MAX);
        let most = most.min(machine / BLOCK_BYTES);
        let pages = Pages::reserve(most).or_else(|error| {
            tracing::warn!(%error, "no addresses for {most} blocks: nothing is cached");
            Pages::reserve(0)
        });
        Slots {
            pages: pages.expect("no pages at all can be had"),
            slots: Vec::new(),
            circle: VecDeque::new(),
            empty: Vec::new(),
            bare: Vec::new(),
        }
    }

    /// Returns how many have memory.
    pub(crate) fn present(&self) -> usize {
        self.slots.len() - self.bare.len()
    }

    /// Returns how many more need memory to take that many blocks.
    pub(crate) fn lacks(&self, blocks: usize) -> usize {
        let room = self.pages.count() - self.present();
        blocks.saturating_sub(self.empty.len()).min(room)
    }

    /// Returns the block at a place, and its checksum.
    pub(crate) fn read(&mut self, place: usize) -> (&[u8], u32) {
        let slot = &mut self.slots[place];
        slot.used = true;
        (self.pages.get(place), slot.sum)
    }

    pub(crate) fn write(&mut self, place: usize, block: u64, sum: u32, bytes: &[u8]) {
        let slot = &mut self.slots[place];
        if !std::mem::replace(&mut slot.circled, true) {
            self.circle.push_back(place);
        }
        (slot.block, slot.sum, slot.used) = (Some(block), sum, false);
        self.pages.get_mut(place).copy_from_slice(bytes);
    }

    /// Empties a place.
    pub(crate) fn empty(&mut self, place: usize) {
        self.slots[place].block = None;
        self.empty.push(place);
    }

    /// Takes a place for one more block: an empty one, one with new memory, or another block's.
    pub(crate) fn take(&mut self, account: Option<&Account>) -> Option<Taken> {
        let alone = |place| Taken { place, gone: None };
        if let Some(place) = self.empty.pop() {
            return Some(alone(place));
        }
        let is_admitted = || account.is_none_or(|account| account.charge(BLOCK_BYTES as u64));
        if self.present() < self.pages.count() && is_admitted() {
            return Some(alone(self.bare.pop().unwrap_or_else(|| {
                self.slots.push(Slot {
                    block: None,
                    sum: 0,
                    used: false,
                    circled: false,
                });
                self.slots.len() - 1
            })));
        }
        self.victim()
    }

    /// Returns the next place whose block was not used since the hand passed it. Each look takes away a mark that a
    /// read has made, or a place that a write has put into the circle: there are no more looks than reads and writes.
    fn victim(&mut self) -> Option<Taken> {
        while let Some(place) = self.circle.pop_front() {
            let slot = &mut self.slots[place];
            if slot.block.is_some() && std::mem::take(&mut slot.used) {
                self.circle.push_back(place);
                continue;
            }
            slot.circled = false;
            let gone = slot.block.take();
            if gone.is_some() {
                return Some(Taken { place, gone });
            }
        }
        None
    }

    /// Gives the memory of one place to the kernel, of an empty one if there is one. None if there is no memory.
    pub(crate) fn shed(&mut self) -> Option<Taken> {
        let place = self.empty.pop();
        let empty = place.map(|place| Taken { place, gone: None });
        let taken = empty.or_else(|| self.victim())?;
        self.pages.discard(taken.place);
        self.bare.push(taken.place);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(count: usize) -> Slots {
        let mut slots = Slots::new(count);
        for block in 0..count {
            put(&mut slots, block as u64);
        }
        slots
    }

    /// Keeps a block; returns the block that had to go for it.
    fn put(slots: &mut Slots, block: u64) -> Option<u64> {
        let taken = slots.take(None).expect("a place");
        slots.write(taken.place, block, 0, &[0; BLOCK_BYTES]);
        taken.gone
    }

    #[test]
    fn what_was_used_since_the_hand_passed_stays() {
        let mut slots = slots(4);
        assert_eq!(put(&mut slots, 4), Some(0));
        for place in [1, 2] {
            slots.read(place);
        }
        assert_eq!(put(&mut slots, 5), Some(3));
        // The blocks' marks are gone.
        assert_eq!(put(&mut slots, 6), Some(4));
        assert_eq!(put(&mut slots, 7), Some(1));
        assert_eq!(put(&mut slots, 8), Some(2));
        // An empty place is used first, wherever the hand is, and is in the circle once.
        slots.empty(3);
        assert_eq!(put(&mut slots, 9), None);
        let gone: Vec<_> = (10..14).map(|block| put(&mut slots, block)).collect();
        assert!(gone.iter().all(Option::is_some), "{gone:?}");
        assert_eq!(slots.circle.len(), 4);
    }

    /// After memory was given back, only the few places that are left are checked.
    #[test]
    fn places_without_memory_are_met_once() {
        let mut slots = slots(4096);
        let mut gone = 0;
        while slots.present() > 8 {
            assert!(slots.shed().expect("a place").gone.is_some());
            gone += 1;
        }
        assert_eq!((gone, slots.circle.len()), (4088, 8));
        // Empty ones go, too, and leave nothing behind but places that one round takes away.
        for place in slots.circle.clone() {
            slots.empty(place);
            assert!(slots.shed().is_some());
        }
        assert_eq!((slots.present(), slots.circle.len()), (0, 8));
        assert!(slots.shed().is_none());
        assert_eq!(slots.circle.len(), 0);
        assert_eq!(put(&mut slots, 1), None);
        assert_eq!(slots.circle.len(), 1);
    }
}
