//! Domains that have ended, of which many objects are left.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use tranship_proto::{DomainId, GoneReason};

#[derive(Debug)]
pub(super) struct Endings {
    all: BTreeMap<DomainId, GoneReason>,
    /// Whose turn was last.
    last: DomainId,
}

impl Endings {
    pub fn new() -> Endings {
        Endings {
            all: BTreeMap::new(),
            last: DomainId(0),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn has(&self, domain: DomainId) -> bool {
        self.all.contains_key(&domain)
    }

    pub fn begin(&mut self, domain: DomainId, reason: GoneReason) {
        self.all.insert(domain, reason);
    }

    pub fn over(&mut self, domain: DomainId) {
        self.all.remove(&domain);
    }

    /// Whose turn it is. They take turns, so that the shorter ones are through first.
    pub fn next(&mut self) -> Option<(DomainId, GoneReason)> {
        let next = self.all.range((Excluded(self.last), Unbounded));
        let (&id, &reason) = next.chain(&self.all).next()?;
        self.last = id;
        Some((id, reason))
    }
}
