//! The memory of a cache: a page for each block, and which block is to go next.

use crate::BLOCK_BYTES;
use tranship_core::Account;
use tranship_sys::machine;
use tranship_sys::pages::{PAGE, Pages};

const _: () = assert!(PAGE == BLOCK_BYTES);

/// Places for blocks. A block's checksum stays with it.
#[derive(Debug)]
pub(crate) struct Slots {
    pages: Pages,
    slots: Vec<Slot>,
    hand: usize,
    /// With memory, and without a block.
    empty: Vec<usize>,
    /// Whose memory is the kernel's again.
    bare: Vec<usize>,
}

#[derive(Debug)]
struct Slot {
    /// None: there is none.
    block: Option<u64>,
    sum: u32,
    used: bool,
}

/// A place for a block, and the block that has to go for it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) place: usize,
    pub(crate) gone: Option<u64>,
}

impl Slots {
    /// At most so many, and no more than the machine has memory for. None where the process has no addresses for them.
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
            hand: 0,
            empty: Vec::new(),
            bare: Vec::new(),
        }
    }

    /// How many have memory.
    pub(crate) fn present(&self) -> usize {
        self.slots.len() - self.bare.len()
    }

    /// How many more need memory to take so many blocks.
    pub(crate) fn lacks(&self, blocks: usize) -> usize {
        let room = self.pages.count() - self.present();
        blocks.saturating_sub(self.empty.len()).min(room)
    }

    /// What is there, and its checksum.
    pub(crate) fn read(&mut self, place: usize) -> (&[u8], u32) {
        let slot = &mut self.slots[place];
        slot.used = true;
        (self.pages.get(place), slot.sum)
    }

    pub(crate) fn write(&mut self, place: usize, block: u64, sum: u32, bytes: &[u8]) {
        self.slots[place] = Slot {
            block: Some(block),
            sum,
            used: false,
        };
        self.pages.get_mut(place).copy_from_slice(bytes);
    }

    /// Nothing is there any more.
    pub(crate) fn empty(&mut self, place: usize) {
        self.slots[place].block = None;
        self.empty.push(place);
    }

    /// A place for one more block: an empty one, one with new memory, or another block's.
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
                });
                self.slots.len() - 1
            })));
        }
        self.victim()
    }

    fn victim(&mut self) -> Option<Taken> {
        if self.present() == self.empty.len() {
            return None;
        }
        // Twice round: the first time takes all marks away at the worst.
        for _ in 0..self.slots.len() * 2 {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[place];
            if slot.block.is_some() && !std::mem::take(&mut slot.used) {
                let gone = slot.block.take();
                return Some(Taken { place, gone });
            }
        }
        None
    }

    /// Gives the memory of one place to the kernel; of an empty one, if there is one. None if there is none.
    pub(crate) fn shed(&mut self) -> Option<Taken> {
        let place = self.empty.pop();
        let empty = place.map(|place| Taken { place, gone: None });
        let taken = empty.or_else(|| self.victim())?;
        self.pages.discard(taken.place);
        self.bare.push(taken.place);
        Some(taken)
    }
}
