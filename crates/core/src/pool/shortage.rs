//! Why there is no memory: whose it is.

use super::own::OwnPool;
use crate::base::{lock, millis};
use crate::error::{Error, Holder, Limit, Shortage};
use std::collections::BTreeMap;
use std::time::Instant;
use tranship_ledger::Words;
use tranship_proto::DomainId;

/// So many of the buffers that were sent are asked for their holders: an error is no time for a survey.
const ASKED: usize = 16;

impl OwnPool {
    pub(super) fn out_of_memory(&self, need_bytes: u64, limit: Limit, started: Instant) -> Error {
        Error::from(Shortage {
            need_bytes,
            limit,
            live_bytes: self.bytes_present(),
            quota_bytes: self.quota_bytes(),
            holder: self.holder(),
            waited_ms: millis(started.elapsed()),
        })
    }

    /// The domain that holds most of the oldest buffers that were sent and are still alive, or has not taken them.
    fn holder(&self) -> Option<Holder> {
        let gc = lock(&self.gc);
        let mut held: BTreeMap<DomainId, u32> = BTreeMap::new();
        let oldest = gc.oldest_alive().take(ASKED);
        let mut asked = 0;
        for slot in oldest {
            asked += 1;
            // Not a verdict: words that change meanwhile are counted as they are found.
            let readers = gc.roster.holders(slot).map(|(domain, _)| domain);
            let queues = gc.roster.queues().iter();
            let queues = queues.filter(|q| q.sent.load(slot) != q.rcvd.load(slot));
            let sinks = queues.filter_map(|q| {
                let mut sinks = gc.sinks.iter();
                sinks.find(|(channel, _)| u64::from(channel.0) == q.channel)
            });
            let mut holders: Vec<_> = readers
                .filter_map(|domain| u32::try_from(domain).ok().map(DomainId))
                .chain(sinks.map(|(_, sink)| sink.domain))
                .collect();
            if self.handles(slot).count() > 0 {
                holders.push(self.domain.id());
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
