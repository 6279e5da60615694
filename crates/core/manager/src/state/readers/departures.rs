//! Departures from pools' reader sets, until the writers were told.

use crate::state::types::Left;
use std::collections::{BTreeMap, VecDeque};
use tranship_proto::{DomainId, PoolId};

#[derive(Debug, Default)]
pub(crate) struct Departures {
    /// Departures that were not sent yet, by writer, oldest first.
    of: BTreeMap<DomainId, VecDeque<(PoolId, Left)>>,
    /// Readers among the departures, and how often.
    // Invariant: the counts over `of`.
    readers: BTreeMap<(PoolId, DomainId), u32>,
}

impl Departures {
    pub fn push(&mut self, writer: DomainId, pool: PoolId, left: Left) {
        self.of.entry(writer).or_default().push_back((pool, left));
        if let Left::Reader(reader) = left {
            *self.readers.entry((pool, reader)).or_default() += 1;
        }
    }

    /// Records that a departure was sent to the writer.
    pub fn told(&mut self, writer: DomainId, pool: PoolId, left: Left) {
        let Some(its) = self.of.get_mut(&writer) else {
            return;
        };
        if let Some(i) = its.iter().position(|l| *l == (pool, left)) {
            its.remove(i);
            if its.is_empty() {
                self.of.remove(&writer);
            }
            self.forget(pool, left);
        }
    }

    /// Removes a departure that the writer will not be told of any more.
    pub fn take(&mut self, writer: DomainId, pool: PoolId) -> Vec<Left> {
        let taken: Vec<Left> = self.of(writer, pool).collect();
        if let Some(its) = self.of.get_mut(&writer) {
            its.retain(|(p, _)| *p != pool);
            if its.is_empty() {
                self.of.remove(&writer);
            }
        }
        taken.iter().for_each(|left| self.forget(pool, *left));
        taken
    }

    fn forget(&mut self, pool: PoolId, left: Left) {
        let Left::Reader(reader) = left else { return };
        if let Some(n) = self.readers.get_mut(&(pool, reader)) {
            *n -= 1;
            if *n == 0 {
                self.readers.remove(&(pool, reader));
            }
        }
    }

    /// Returns the departures from a pool that its writer was not told of.
    pub fn of(&self, writer: DomainId, pool: PoolId) -> impl Iterator<Item = Left> + '_ {
        let its = self.of.get(&writer).into_iter().flatten();
        its.filter(move |(p, _)| *p == pool).map(|(_, left)| *left)
    }

    /// Returns the number of departures over all pools.
    pub fn count(&self, writer: DomainId) -> usize {
        self.of.get(&writer).map_or(0, VecDeque::len)
    }

    /// Says whether a reader is among the departures.
    pub fn has(&self, pool: PoolId, reader: DomainId) -> bool {
        self.readers.contains_key(&(pool, reader))
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Departures {
        /// Counts anew.
        pub fn audit(&self, is_there: impl Fn(DomainId) -> bool) -> Result<(), String> {
            let mut readers: BTreeMap<_, u32> = BTreeMap::new();
            for (pool, left) in self.of.values().flatten() {
                if let Left::Reader(reader) = left {
                    *readers.entry((*pool, *reader)).or_default() += 1;
                }
            }
            match readers == self.readers && self.of.keys().all(|writer| is_there(*writer)) {
                true => Ok(()),
                false => Err(format!("departures: {self:?}, counted: {readers:?}")),
            }
        }
    }
}
