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
    /// Whose turn it is in this tick, who comes after, and how many words there are for all of them.
    pub turn: Option<u32>,
    pub after: VecDeque<u32>,
    pub words: u32,
    /// Who had the last turn.
    pub last_user: u32,
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
            turn: None,
            after: VecDeque::new(),
            words: 0,
            last_user: 0,
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
