//! Ids are handed out from counters. These are reserved in blocks, so that a restarted manager does not hand out an id
//! twice.

use crate::state::types::Action;

/// Ids are reserved this many at a time.
pub const BLOCK: u32 = 1024;
const POOL_IDS: u32 = (1 << 20) - 1;

/// The first numbers: from the run-time directory, or random.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdStart {
    /// Next id of domains, channels and exports.
    pub next: u32,
    /// Next pool id.
    pub next_pool: u32,
}

#[derive(Debug)]
pub(crate) struct Ids {
    next: u32,
    left: u32,
    next_pool: u32,
    left_pool: u32,
}

impl Ids {
    pub fn new(start: IdStart) -> Ids {
        Ids {
            next: start.next,
            left: 0,
            next_pool: start.next_pool % POOL_IDS,
            left_pool: 0,
        }
    }

    /// Returns a fresh id that is neither 0 nor taken.
    pub fn general(&mut self, taken: impl Fn(u32) -> bool, out: &mut Vec<Action>) -> u32 {
        loop {
            if self.left == 0 {
                self.left = BLOCK;
                self.reserve(out);
            }
            let id = self.next;
            self.next = self.next.wrapping_add(1);
            self.left -= 1;
            if id != 0 && !taken(id) {
                return id;
            }
        }
    }

    /// Returns a fresh pool id, or `None` when all are taken.
    pub fn pool(&mut self, taken: impl Fn(u32) -> bool, out: &mut Vec<Action>) -> Option<u32> {
        for _ in 0..POOL_IDS {
            if self.left_pool == 0 {
                self.left_pool = BLOCK;
                self.reserve(out);
            }
            let id = 1 + self.next_pool;
            self.next_pool = (self.next_pool + 1) % POOL_IDS;
            self.left_pool -= 1;
            if !taken(id) {
                return Some(id);
            }
        }
        None
    }

    fn reserve(&self, out: &mut Vec<Action>) {
        out.push(Action::ReserveIds {
            next: self.next.wrapping_add(self.left),
            next_pool: (self.next_pool + self.left_pool) % POOL_IDS,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_lies_below_what_was_reserved() {
        let mut ids = Ids::new(IdStart {
            next: u32::MAX - 3,
            next_pool: POOL_IDS - 2,
        });
        let mut out = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3000 {
            let id = ids.general(|i| i == 5, &mut out);
            assert!(id != 0 && id != 5 && seen.insert(id));
        }
        assert_eq!(out.len(), 3);
        let mut pools = std::collections::BTreeSet::new();
        for _ in 0..3000 {
            let id = ids.pool(|i| i == 7, &mut out).unwrap();
            assert!(id != 0 && id != 7 && id <= POOL_IDS && pools.insert(id));
        }
        assert_eq!(ids.pool(|_| true, &mut out), None);
    }
}
