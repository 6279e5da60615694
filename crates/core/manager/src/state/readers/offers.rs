//! Assignments that their sinks have still to accept.

use crate::state::model::Offer;
use std::collections::{BTreeMap, BTreeSet};
use tranship_proto::{ChannelId, DomainId, PoolId};

/// A pool offered over a channel.
pub(crate) type OfferKey = (ChannelId, PoolId);

#[derive(Debug, Default)]
pub(crate) struct Offers {
    all: BTreeMap<OfferKey, Offer>,
    // Invariant: both ends of each in `all`; the channels of each pool.
    by_end: BTreeSet<(DomainId, ChannelId, PoolId)>,
    by_pool: BTreeMap<PoolId, BTreeSet<ChannelId>>,
    /// Offers that wait for room in the sink's queue, by sink.
    // Invariant: the offers in `all` that the sink was not told of.
    unsaid: BTreeSet<(DomainId, ChannelId, PoolId)>,
}

impl Offers {
    /// Adds an offer that the sink must still be told of.
    pub fn insert(&mut self, (channel, pool): OfferKey, offer: Offer) {
        for end in [offer.source, offer.sink] {
            self.by_end.insert((end, channel, pool));
        }
        self.by_pool.entry(pool).or_default().insert(channel);
        self.unsaid.insert((offer.sink, channel, pool));
        self.all.insert((channel, pool), offer);
    }

    /// Ends an offer; returns it, and whether the sink was told of it.
    pub fn remove(&mut self, (channel, pool): OfferKey) -> Option<(Offer, bool)> {
        let offer = self.all.remove(&(channel, pool))?;
        for end in [offer.source, offer.sink] {
            self.by_end.remove(&(end, channel, pool));
        }
        if let Some(channels) = self.by_pool.get_mut(&pool) {
            channels.remove(&channel);
            if channels.is_empty() {
                self.by_pool.remove(&pool);
            }
        }
        let said = !self.unsaid.remove(&(offer.sink, channel, pool));
        Some((offer, said))
    }

    pub fn get(&self, key: OfferKey) -> Option<&Offer> {
        self.all.get(&key)
    }

    /// Records that the sink is told; returns the offer if it was not told before.
    pub fn say(&mut self, key: OfferKey) -> Option<&Offer> {
        let offer = self.all.get(&key)?;
        let unsaid = self.unsaid.remove(&(offer.sink, key.0, key.1));
        unsaid.then_some(offer)
    }

    /// Returns some of the offers that wait for room in a sink's queue.
    pub fn unsaid(&self, sink: DomainId, most: usize) -> Vec<OfferKey> {
        let some = self.unsaid.range(of_end(sink)).take(most);
        some.map(|(_, c, p)| (*c, *p)).collect()
    }

    /// Returns all offers that a domain made, or has to answer.
    pub fn of(&self, end: DomainId) -> Vec<OfferKey> {
        let its = self.by_end.range(of_end(end));
        its.map(|(_, c, p)| (*c, *p)).collect()
    }

    /// Returns all offers over a channel.
    pub fn over(&self, channel: ChannelId) -> Vec<OfferKey> {
        let its = (channel, PoolId(0))..=(channel, PoolId(u32::MAX));
        self.all.range(its).map(|(key, _)| *key).collect()
    }

    /// Channels over which a pool is being offered.
    pub fn of_pool(&self, pool: PoolId) -> impl Iterator<Item = ChannelId> + '_ {
        self.by_pool.get(&pool).into_iter().flatten().copied()
    }

    /// Returns the number of a pool's offers.
    pub fn count_of(&self, pool: PoolId) -> usize {
        self.by_pool.get(&pool).map_or(0, BTreeSet::len)
    }
}

fn of_end(end: DomainId) -> std::ops::RangeInclusive<(DomainId, ChannelId, PoolId)> {
    let (first, last) = (ChannelId(0), ChannelId(u32::MAX));
    (end, first, PoolId(0))..=(end, last, PoolId(u32::MAX))
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Offers {
        pub fn iter(&self) -> impl Iterator<Item = &Offer> {
            self.all.values()
        }

        /// Returns the sinks that were told of a pool, once for each offer.
        pub fn told_of(&self, pool: PoolId) -> impl Iterator<Item = DomainId> + '_ {
            let sinks = self.of_pool(pool).filter_map(move |channel| {
                let sink = self.all.get(&(channel, pool))?.sink;
                Some((sink, channel, pool))
            });
            let said = sinks.filter(|key| !self.unsaid.contains(key));
            said.map(|(sink, _, _)| sink)
        }

        /// Checks that all maps agree.
        pub fn audit(&self) -> Result<(), String> {
            let (mut ends, mut sinks, mut pools) = (BTreeSet::new(), BTreeSet::new(), 0);
            for (&(channel, pool), offer) in &self.all {
                ends.insert((offer.source, channel, pool));
                ends.insert((offer.sink, channel, pool));
                sinks.insert((offer.sink, channel, pool));
                let its = self.by_pool.get(&pool);
                pools += usize::from(its.is_some_and(|its| its.contains(&channel)));
            }
            let by_pool: usize = self.by_pool.values().map(BTreeSet::len).sum();
            let agrees = ends == self.by_end
                && self.unsaid.is_subset(&sinks)
                && (pools, by_pool) == (self.all.len(), self.all.len());
            match agrees {
                true => Ok(()),
                false => Err(format!("offers: {self:?}")),
            }
        }
    }
}
