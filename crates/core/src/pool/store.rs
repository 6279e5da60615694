//! Slabs and runs.

use super::larges::Larges;
use std::collections::HashMap;
use tranship_zone::{Keg, Run, RunAllocator, SlotNumbers};

/// Slabs and runs, under one lock.
pub(super) struct Store {
    pub(super) runs: RunAllocator,
    pub(super) kegs: Vec<Keg>,
    pub(super) numbers: SlotNumbers,
    /// Buffers larger than a chunk, and how many there ever were.
    pub(super) huge: HashMap<u32, Run>,
    /// Those of level `none` included.
    pub(super) huge_allocs: u64,
    pub(super) large: Larges,
}

impl Store {
    /// Buffers that are runs of their own.
    pub(super) fn huge_live(&self) -> u64 {
        (self.huge.len() + self.large.len()) as u64
    }
}
