//! The end of a connection, and the end of a domain.

use super::clients::Client;
use crate::state::books::back_refs::{BackRef, NAMED, READS, WRITES};
use crate::state::types::{Action, ClientId};
use crate::state::{Of, State};
use std::time::Duration;
use tranship_proto::{DomainId, GoneReason, PoolId, Refusal};

/// Channels and pools of an ended domain that are handled at once.
const PIECE: usize = 128;

impl State {
    /// Forgets a connection, and what follows only it.
    pub(crate) fn client_leaves(&mut self, client: ClientId) -> Option<Client> {
        let gone = self.cx.clients.remove(client)?;
        self.seat.leave(client);
        let (cx, pools) = (&mut self.cx, &self.pools);
        self.traces.follows_no_more(cx, pools, client);
        Some(gone)
    }

    /// Ends everything that needs a connection: heaps, exports, waiting and half-made channels, offers.
    pub(crate) fn detach(&mut self, id: DomainId) {
        self.traces.say_no_levels(id);
        self.drop_heaps_of(id);
        self.registered.drop_of(&mut self.cx, id);
        for export in self.exports.of(id) {
            self.drop_export(export);
        }
        while let Some(w) = self.waiting.pop_of(id) {
            self.cx.accounts.sub(w.uid, Of::Names, 1);
            self.release_shown(&w);
        }
        for (channel, _) in self.back_refs.ends(id) {
            self.drop_incoming(channel, id);
        }
        for key in self.offers.of(id) {
            self.cancel_offer(key);
        }
    }

    /// Ends a domain whose process ended, or which said goodbye. Objects that need its connection end now, and the rest
    /// in pieces if there is much. Until then the domain is like one without a connection, and no process can come back
    /// as it.
    pub(crate) fn domain_ends(&mut self, id: DomainId, reason: GoneReason) {
        self.domain_ends_for(id, reason, None);
    }

    /// Ends a domain, with the last event for its connection.
    pub(crate) fn domain_ends_for(
        &mut self,
        id: DomainId,
        reason: GoneReason,
        refusal: Option<Refusal>,
    ) {
        if self.endings.has(id) {
            return;
        }
        let Some(domain) = self.cx.domains.get(&id) else {
            return;
        };
        if let Some(client) = domain.client {
            self.cx.out.push(Action::Disconnect { client, refusal });
            let gone = self.client_leaves(client);
            for (pool, key) in gone.iter().flat_map(Client::chunks) {
                self.pools.chunk_reached(&mut self.cx, pool, key, id);
            }
        }
        if let Some(d) = self.cx.domains.get_mut(&id) {
            d.client = None;
            d.feeding.clear();
        }
        self.detach(id);
        self.void_claims_of(id);
        if self.end_piece(id, reason) {
            self.domain_is_over(id);
        } else {
            self.endings.begin(id, reason);
        }
    }

    /// Returns when the next piece of an end is due: at once.
    pub(crate) fn endings_due(&self) -> Option<Duration> {
        (!self.endings.is_empty()).then_some(self.cx.now)
    }

    /// Does the next piece of one end.
    pub(crate) fn end_on(&mut self) {
        let Some((id, reason)) = self.endings.next() else {
            return;
        };
        if self.end_piece(id, reason) {
            self.endings.over(id);
            self.domain_is_over(id);
        }
    }

    /// Ends some of a domain's channels. When there are none left, it removes the domain from some pools, and ends some
    /// that it wrote. Returns whether that was all.
    fn end_piece(&mut self, id: DomainId, reason: GoneReason) -> bool {
        let mut left = PIECE;
        for (channel, is_source) in self.back_refs.some_ends(id, left) {
            left -= 1;
            if is_source {
                self.source_goes(channel, reason);
            } else {
                self.sink_goes(channel, reason);
            }
        }
        let mut some = |mut pools: Vec<PoolId>| {
            pools.truncate(left);
            left -= pools.len();
            pools
        };
        for pool in some(self.back_refs.pools(id, READS)) {
            self.drop_reader(pool, id);
        }
        let process = self.cx.domains.get(&id).map(|d| d.process);
        for pool in some(self.back_refs.pools(id, NAMED)) {
            self.brought_leave(pool, id, process);
            if let Some(p) = self.pools.get_mut(pool) {
                let (named, forwards) = (p.named.remove(&id), p.forwarders.remove(&id));
                let records = u64::from(forwards) + u64::from(named.is_some());
                self.cx.accounts.sub(p.uid, Of::Records, records);
            }
            self.back_refs.remove(id, BackRef::Named(pool));
        }
        let written = self.back_refs.pools(id, WRITES).into_iter();
        let written = written.filter(|p| self.pools.is_written(*p));
        for pool in some(written.collect()) {
            self.orphan(pool);
        }
        left > 0
    }

    fn domain_is_over(&mut self, id: DomainId) {
        self.hogs.forget(id);
        if let Some(domain) = self.cx.domains.remove(&id) {
            self.cx.accounts.sub(domain.uid, Of::Connections, 1);
            self.cx.release(domain.pidfd);
            self.cx.release(domain.control_page);
            self.traces.outlive(&mut self.cx, id);
        }
    }
}
