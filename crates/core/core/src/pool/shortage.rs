//! Holders of a pool's memory, for errors.

use super::gc::{Collector, Gc};
use super::memory::Memory;
use crate::base::lock;
use crate::error::Holder;
use std::collections::BTreeMap;
use tranship_ledger::Words;
use tranship_proto::DomainId;

/// Number of sent buffers whose holders an error looks for: more would take long.
const ASKED: usize = 16;

impl Collector {
    /// Returns the domain that holds most of the oldest buffers that were sent.
    pub(super) fn holder(&self, memory: &Memory) -> Option<Holder> {
        let has_handle = |slot| memory.slots.handles(slot).count() > 0;
        lock(&self.gc).holder(memory.domain().id(), has_handle)
    }

    /// Whether another domain holds a slot, or has not taken a message with it.
    pub(super) fn is_held_by(&self, slot: u32, domain: DomainId) -> bool {
        lock(&self.gc).holders(slot).any(|holder| holder == domain)
    }
}

impl Gc {
    /// Returns the domains that hold a slot, or have not taken a message with it. Not a verdict for the collector,
    /// which also asks for handles and generations; but a domain that is not among them had nothing when this began,
    /// and nothing under way.
    // Ordering: queues first, then references. A receipt raises the reference before it counts the message, so a look
    // that finds it counted finds the reference.
    fn holders(&self, slot: u32) -> impl Iterator<Item = DomainId> + '_ {
        let readers = self.reader_set.holders(slot).map(|(domain, _)| domain);
        let queues = self.reader_set.queues().iter();
        let queues = queues.filter(move |q| q.sent.load(slot) != q.rcvd.load(slot));
        let sinks = queues.filter_map(|q| {
            let mut sinks = self.sinks.iter();
            sinks.find(|(channel, _)| u64::from(channel.0) == q.channel)
        });
        let readers = readers.filter_map(|domain| u32::try_from(domain).ok().map(DomainId));
        sinks.map(|(_, sink)| sink.domain).chain(readers)
    }

    /// Returns the domain that holds most of the oldest sent buffers that are alive, or has not taken them.
    /// `has_handle`: whether this process, `me`, has a handle of a slot.
    fn holder(&self, me: DomainId, has_handle: impl Fn(u32) -> bool) -> Option<Holder> {
        let mut held: BTreeMap<DomainId, u32> = BTreeMap::new();
        let oldest = self.oldest_alive().take(ASKED);
        let mut asked = 0;
        for slot in oldest {
            asked += 1;
            let mut holders: Vec<_> = self.holders(slot).collect();
            if has_handle(slot) {
                holders.push(me);
            }
            holders.sort_unstable();
            holders.dedup();
            for domain in holders {
                *held.entry(domain).or_default() += 1;
            }
        }
        let most = held.into_iter().max_by_key(|(_, buffers)| *buffers);
        most.map(|(domain, buffers)| Holder {
            domain,
            buffers,
            asked,
        })
    }
}
