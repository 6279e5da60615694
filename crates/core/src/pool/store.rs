//! Slabs and runs.

use std::collections::HashMap;
use tranship_zone::{Keg, Run, RunAllocator, SlotNumbers};

/// Slabs and runs, under one lock.
pub(super) struct Store {
    pub(super) runs: RunAllocator,
    pub(super) kegs: Vec<Keg>,
    pub(super) numbers: SlotNumbers,
    /// Buffers larger than a chunk, and how many there ever were.
    pub(super) huge: HashMap<u32, Run>,
    pub(super) huge_allocs: u64,
}
