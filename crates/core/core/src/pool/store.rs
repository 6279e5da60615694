//! Slabs and runs.

use super::larges::Larges;
use std::collections::HashMap;
use tranship_zone::{Classes, Keg, Run, RunAllocator, SlabShape, SlotNumbers, SlotSet};

/// Slabs and runs, under one lock.
pub(super) struct Store {
    pub(super) runs: RunAllocator,
    pub(super) kegs: Vec<Keg>,
    pub(super) numbers: SlotNumbers,
    /// Buffers larger than a chunk.
    pub(super) huge: HashMap<u32, Run>,
    /// Allocations of such buffers so far, those of level `none` included.
    pub(super) huge_allocs: u64,
    pub(super) large: Larges,
}

impl Store {
    pub(super) fn new(classes: &Classes, slots: u32, chunks: u32, chunk_bytes: u64) -> Store {
        let shape = |class| SlabShape::new(classes.bytes_of(class), chunk_bytes);
        Store {
            runs: RunAllocator::new(chunks, chunk_bytes),
            kegs: (0..classes.count()).map(|c| Keg::new(shape(c))).collect(),
            numbers: SlotNumbers::new(slots),
            huge: HashMap::new(),
            huge_allocs: 0,
            large: Larges::default(),
        }
    }

    /// Buffers that are runs of their own.
    pub(super) fn huge_live(&self) -> u64 {
        (self.huge.len() + self.large.len()) as u64
    }

    /// Takes a slot for such a buffer.
    pub(super) fn take_number(&mut self) -> Option<u32> {
        self.numbers.take(1).and_then(|set| set.get(0))
    }

    /// Frees such a slot.
    pub(super) fn give_number(&mut self, slot: u32) {
        self.numbers.give(&SlotSet::Range {
            first: slot,
            count: 1,
        });
    }
}
