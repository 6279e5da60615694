//! The objects in which each domain has a part. Its end and its return therefore cost time for its own objects, and
//! none for others'.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use tranship_proto::{ChannelId, DomainId, PoolId, Req};

/// A domain's part in an object. In claims, the claimed parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum BackRef {
    /// An end of a channel: true is the source.
    End(ChannelId, bool),
    /// A channel in the making, which the domain asked for.
    Asked(Req, ChannelId),
    Heap(PoolId),
    Writes(PoolId),
    Reads(PoolId),
    /// The pool's writer named the domain, or the domain may forward the pool.
    Named(PoolId),
    /// Counters of a channel's queue.
    Assign(ChannelId, PoolId, bool),
}

pub(crate) const ENDS: RangeInclusive<BackRef> =
    BackRef::End(ChannelId(0), false)..=BackRef::End(ChannelId(u32::MAX), true);
pub(crate) const HEAPS: RangeInclusive<BackRef> =
    BackRef::Heap(PoolId(0))..=BackRef::Heap(PoolId(u32::MAX));
pub(crate) const WRITES: RangeInclusive<BackRef> =
    BackRef::Writes(PoolId(0))..=BackRef::Writes(PoolId(u32::MAX));
pub(crate) const READS: RangeInclusive<BackRef> =
    BackRef::Reads(PoolId(0))..=BackRef::Reads(PoolId(u32::MAX));
pub(crate) const NAMED: RangeInclusive<BackRef> =
    BackRef::Named(PoolId(0))..=BackRef::Named(PoolId(u32::MAX));
pub(crate) const ASSIGNS: RangeInclusive<BackRef> = BackRef::Assign(ChannelId(0), PoolId(0), false)
    ..=BackRef::Assign(ChannelId(u32::MAX), PoolId(u32::MAX), true);

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BackRefs(BTreeMap<DomainId, BTreeSet<BackRef>>);

impl BackRefs {
    pub fn insert(&mut self, domain: DomainId, back_ref: BackRef) {
        self.0.entry(domain).or_default().insert(back_ref);
    }

    pub fn remove(&mut self, domain: DomainId, back_ref: BackRef) {
        if let Some(its) = self.0.get_mut(&domain) {
            its.remove(&back_ref);
            if its.is_empty() {
                self.0.remove(&domain);
            }
        }
    }

    /// Returns the number of a domain's back references.
    pub fn count(&self, domain: DomainId) -> usize {
        self.0.get(&domain).map_or(0, BTreeSet::len)
    }

    /// Returns a domain's back references of one kind.
    pub fn of(
        &self,
        domain: DomainId,
        kind: RangeInclusive<BackRef>,
    ) -> impl Iterator<Item = BackRef> + '_ {
        let its = self.0.get(&domain);
        its.into_iter()
            .flat_map(move |its| its.range(kind.clone()))
            .copied()
    }

    /// Returns the domain's pools, of a kind that has no channels.
    pub fn pools(&self, domain: DomainId, kind: RangeInclusive<BackRef>) -> Vec<PoolId> {
        let pool = |back_ref| match back_ref {
            BackRef::Heap(p) | BackRef::Writes(p) | BackRef::Reads(p) | BackRef::Named(p) => {
                Some(p)
            }
            _ => None,
        };
        self.of(domain, kind).filter_map(pool).collect()
    }

    /// Returns the domain's channels, and whether it is the source.
    pub fn ends(&self, domain: DomainId) -> Vec<(ChannelId, bool)> {
        self.some_ends(domain, usize::MAX)
    }

    /// Returns at most `most` of the domain's channels.
    pub fn some_ends(&self, domain: DomainId, most: usize) -> Vec<(ChannelId, bool)> {
        let end = |back_ref| match back_ref {
            BackRef::End(c, s) => Some((c, s)),
            _ => None,
        };
        let ends = self.of(domain, ENDS).filter_map(end);
        ends.take(most).collect()
    }

    pub fn assigns(&self, domain: DomainId) -> Vec<(ChannelId, PoolId, bool)> {
        let assign = |back_ref| match back_ref {
            BackRef::Assign(c, p, s) => Some((c, p, s)),
            _ => None,
        };
        self.of(domain, ASSIGNS).filter_map(assign).collect()
    }

    /// Returns the channel that a domain asked for with this request.
    pub fn asked(&self, domain: DomainId, req: Req) -> Option<ChannelId> {
        let of = BackRef::Asked(req, ChannelId(0))..=BackRef::Asked(req, ChannelId(u32::MAX));
        match self.of(domain, of).next()? {
            BackRef::Asked(_, channel) => Some(channel),
            _ => None,
        }
    }
}
