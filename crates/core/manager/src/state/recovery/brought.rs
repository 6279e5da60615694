//! Queues on a pool's reader set that are older than the manager: the writer named them when it claimed the pool, and
//! they have neither joined nor left since.

use std::collections::{BTreeMap, BTreeSet};
use tranship_proto::{ChannelId, DomainId};

/// The sink of a brought queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Brought {
    pub sink: DomainId,
    /// The sink's process: an id alone can be stolen.
    pub process: u64,
}

/// A pool's queues that its sinks brought. The queues of one sink are found without reading the others: there may be
/// many, and the sink may come back often.
#[derive(Debug, Default)]
pub(crate) struct BroughtQueues {
    all: BTreeMap<ChannelId, Brought>,
    // Invariant: of each in `all`.
    by_sink: BTreeSet<(DomainId, ChannelId)>,
}

impl BroughtQueues {
    pub fn insert(&mut self, channel: ChannelId, brought: Brought) {
        self.remove(channel);
        self.all.insert(channel, brought);
        self.by_sink.insert((brought.sink, channel));
    }

    pub fn remove(&mut self, channel: ChannelId) -> Option<Brought> {
        let brought = self.all.remove(&channel)?;
        self.by_sink.remove(&(brought.sink, channel));
        Some(brought)
    }

    pub fn get(&self, channel: ChannelId) -> Option<&Brought> {
        self.all.get(&channel)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.all.keys().copied()
    }

    /// Returns the queues to this sink.
    pub fn to(&self, sink: DomainId) -> impl Iterator<Item = ChannelId> + '_ {
        let its = (sink, ChannelId(0))..=(sink, ChannelId(u32::MAX));
        self.by_sink.range(its).map(|(_, channel)| *channel)
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl BroughtQueues {
        /// Checks that both maps agree.
        pub fn agrees(&self) -> bool {
            let all = self.all.iter().map(|(channel, b)| (b.sink, *channel));
            all.collect::<BTreeSet<_>>() == self.by_sink
        }
    }
}
