//! How far the looking through readers' counters is.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tranship_proto::{DomainId, PoolId};

/// How far it is. Each user's readers wait for nobody else's.
#[derive(Debug)]
pub(super) struct Watch {
    pub begun: Duration,
    pub last: Duration,
    /// There was nobody to look at, and nobody has come since.
    pub idle: bool,
    pub users: BTreeMap<u32, Pass>,
    /// When it was judged last who holds too much.
    pub judged: Duration,
}

/// One user's readers.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub rest: VecDeque<(PoolId, DomainId)>,
    /// Of the first one, the next slot.
    pub next: u32,
    pub words: u32,
}

impl Watch {
    pub fn new() -> Watch {
        Watch {
            begun: Duration::ZERO,
            last: Duration::ZERO,
            idle: true,
            users: BTreeMap::new(),
            judged: Duration::ZERO,
        }
    }

    /// Somebody reads a pool.
    pub fn wake(&mut self) {
        self.idle = false;
    }

    pub fn is_idle(&self) -> bool {
        self.idle
    }
}
