//! Connects that wait: for their name to be exported, or for room at its exporter.

use crate::state::model::Waiting;
use std::collections::{BTreeMap, BTreeSet};
use tranship_proto::{DomainId, Req};

#[derive(Debug, Default)]
pub(crate) struct Waits {
    next: u64,
    all: BTreeMap<u64, Waiting>,
    by_name: BTreeMap<String, BTreeSet<u64>>,
    by_asker: BTreeMap<(DomainId, Req), u64>,
}

impl Waits {
    /// Says whether a connect of the asker waits under this number already.
    pub fn has(&self, asker: DomainId, req: Req) -> bool {
        self.by_asker.contains_key(&(asker, req))
    }

    pub fn push(&mut self, w: Waiting) {
        let number = self.next;
        self.next += 1;
        self.by_asker.insert((w.domain, w.req), number);
        self.by_name
            .entry(w.name.clone())
            .or_default()
            .insert(number);
        self.all.insert(number, w);
    }

    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let w = self.all.remove(&number)?;
        self.by_asker.remove(&(w.domain, w.req));
        if let Some(same) = self.by_name.get_mut(&w.name) {
            same.remove(&number);
            if same.is_empty() {
                self.by_name.remove(&w.name);
            }
        }
        Some(w)
    }

    /// Returns the client that has waited longest for a name, from number `from` on.
    pub fn first(&self, name: &str, from: u64) -> Option<(u64, &Waiting)> {
        let number = *self.by_name.get(name)?.range(from..).next()?;
        Some((number, self.all.get(&number)?))
    }

    pub fn take(&mut self, number: u64) -> Option<Waiting> {
        self.remove(number)
    }

    pub fn cancel(&mut self, asker: DomainId, req: Req) -> Option<Waiting> {
        let number = *self.by_asker.get(&(asker, req))?;
        self.remove(number)
    }

    pub fn get(&self, asker: DomainId, req: Req) -> Option<&Waiting> {
        self.all.get(self.by_asker.get(&(asker, req))?)
    }

    /// Takes one of a domain's waiting connects.
    pub fn pop_of(&mut self, asker: DomainId) -> Option<Waiting> {
        let of = (asker, Req(0))..=(asker, Req(u32::MAX));
        let number = *self.by_asker.range(of).next()?.1;
        self.remove(number)
    }

    /// Returns the next waiting connect after one, in the order of askers.
    pub fn after(&self, asker: Option<(DomainId, Req)>) -> Option<&Waiting> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = asker.map_or(Unbounded, Excluded);
        let (_, number) = self.by_asker.range((from, Unbounded)).next()?;
        self.all.get(number)
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Waits {
        pub fn iter(&self) -> impl Iterator<Item = &Waiting> {
            self.all.values()
        }
    }
}
