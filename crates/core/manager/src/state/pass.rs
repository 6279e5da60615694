//! How far the reading of dead pools' counters is.

use super::bits::Bits;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tranship_proto::PoolId;

/// How far the reading is. Each user's pools wait for nobody else's.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// When the last pass was begun, and its last pieces read.
    pub begun: Duration,
    pub last: Duration,
    pub users: BTreeMap<u32, Pass>,
}

/// One user's pools.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// What may still be done in this tick.
    pub words: u32,
    pub units: usize,
    /// What is left; of the first pool, the next slot, what was found alive, and once that is known the next chunk.
    pub rest: VecDeque<PoolId>,
    pub next: u32,
    pub live: Bits,
    pub judging: Option<u32>,
}

impl Pass {
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
