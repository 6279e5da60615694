//! The progress of reading dead pools' counters.

use super::bits::Bits;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tranship_proto::PoolId;

/// The progress of reading. No user's pools wait for another user's.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// When the last pass began, and when its last pieces were read.
    pub begun: Duration,
    pub last: Duration,
    pub users: BTreeMap<u32, PoolsPass>,
}

/// One user's pools.
#[derive(Debug, Default)]
pub(crate) struct PoolsPass {
    /// The work that may still be done in this tick.
    pub words: u32,
    pub units: usize,
    /// The remaining pools. Of the first pool: the next slot, the chunks found alive, and once these are known the next
    /// chunk.
    pub rest: VecDeque<PoolId>,
    pub next: u32,
    pub live: Bits,
    pub judging: Option<u32>,
}

impl PoolsPass {
    pub fn next_pool(&mut self) {
        self.rest.pop_front();
        self.begin();
    }

    pub fn begin(&mut self) {
        self.next = 0;
        self.live = Bits::default();
        self.judging = None;
    }
}
