//! What ends with a connection, and what ends with a domain.

use super::ties::{NAMED, READS, Tie, WRITES};
use super::types::{Action, Then};
use super::{Of, State, refusal};
use tranship_proto::{ChannelId, DomainId, Event, GoneReason, PoolId, Refusal, RefusalCode};

impl State {
    /// What needs a connection: heaps, exports, waiting and half-made channels, offers.
    pub(super) fn detach(&mut self, id: DomainId) {
        self.drop_heaps_of(id);
        let exports = self.domains.get(&id).map(|d| d.exports.clone());
        for export in exports.into_iter().flatten() {
            self.drop_export(export);
        }
        while let Some(w) = self.waiting.pop_of(id) {
            self.accounts.sub(w.uid, Of::Names, 1);
            self.release(w.half);
        }
        for (channel, _) in self.ties.ends(id) {
            self.drop_incoming(channel, id);
        }
        let offers = self.ties.offers(id);
        for key in offers {
            self.cancel_offer(key);
        }
    }

    /// The domain is no more: its process ended, or it said goodbye.
    pub(super) fn domain_ends(&mut self, id: DomainId, reason: GoneReason) {
        let Some(domain) = self.domains.get(&id) else {
            return;
        };
        if let Some(client) = domain.client {
            self.out.push(Action::Disconnect {
                client,
                refusal: None,
            });
            let gone = self.clients.remove(&client);
            let flight = gone.map(|c| c.flight);
            for f in flight.into_iter().flatten() {
                if let Then::Chunk(pool, key) = f.then {
                    self.chunk_reached(pool, key, id);
                }
            }
        }
        if let Some(d) = self.domains.get_mut(&id) {
            d.client = None;
            d.feeding.clear();
        }
        self.detach(id);
        self.drop_claims_of(id);
        let channels = self.ties.ends(id);
        for (channel, is_source) in channels {
            if is_source {
                self.source_goes(channel, reason);
            } else {
                self.sink_goes(channel, reason);
            }
        }
        for pool in self.ties.pools(id, READS) {
            self.drop_reader(pool, id);
        }
        for pool in self.ties.pools(id, NAMED) {
            if let Some(p) = self.pools.get_mut(&pool) {
                let (named, forwards) = (p.named.remove(&id), p.forwarders.remove(&id));
                let records = u64::from(forwards) + u64::from(named.is_some());
                self.accounts.sub(p.uid, Of::Records, records);
            }
            self.ties.untie(id, Tie::Named(pool));
        }
        let written = self.ties.pools(id, WRITES);
        let written = written.into_iter().filter(|p| self.is_written(*p));
        let written: Vec<PoolId> = written.collect();
        for pool in written {
            self.orphan(pool);
        }
        if let Some(domain) = self.domains.remove(&id) {
            self.accounts.sub(domain.uid, Of::Connections, 1);
            self.release(domain.pidfd);
            self.release(domain.board);
        }
    }

    /// An offer will not be answered: the source hears of it, the sink's answer will be ignored.
    pub(super) fn cancel_offer(&mut self, key: (ChannelId, PoolId)) {
        self.refuse_offer(key, refusal(RefusalCode::PeerGone, u64::from(key.1.0), 0));
    }

    pub(super) fn refuse_offer(&mut self, key: (ChannelId, PoolId), refusal: Refusal) {
        let Some(offer) = self.offers.remove(&key) else {
            return;
        };
        self.untie_offer(key, offer.source, offer.sink);
        self.release(offer.sent);
        self.tell(
            offer.source,
            Event::Refused {
                req: offer.req,
                refusal,
            },
            &[],
        );
        if let Some(d) = self.domains.get_mut(&offer.sink) {
            d.unsaid.remove(&key);
        }
        if offer.said {
            self.offer_over(key.1, offer.sink);
        }
    }

    /// One offer of a pool to a reader is over, whatever its outcome.
    pub(super) fn offer_over(&mut self, pool: PoolId, sink: DomainId) {
        if let Some(r) = self
            .pools
            .get_mut(&pool)
            .and_then(|p| p.readers.get_mut(&sink))
        {
            r.offers = r.offers.saturating_sub(1);
        }
        self.reader_may_leave(pool, sink);
    }
}
