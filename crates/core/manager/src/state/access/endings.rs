//! Domains that have ended, of which many objects are left.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use tranship_proto::{DomainId, GoneReason};

#[derive(Debug, Default)]
pub(crate) struct Endings {
    all: BTreeMap<DomainId, GoneReason>,
    /// The domain that had the last turn.
    last: DomainId,
}

impl Endings {
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

    /// Returns the domain with the next turn. Domains take turns, so that the shorter ends are through first.
    pub fn next(&mut self) -> Option<(DomainId, GoneReason)> {
        let next = self.all.range((Excluded(self.last), Unbounded));
        let (&id, &reason) = next.chain(&self.all).next()?;
        self.last = id;
        Some((id, reason))
    }
}
