//! Pools whose writer is gone: they are never used again, and given back as their buffers die.

use super::back_refs::BackRef;
use super::types::Action;
use super::{Of, State, watch};
use tranship_proto::{DomainId, Event, PoolId};

impl State {
    /// Makes a pool an orphan: its writer is gone, or no longer uses it.
    pub(super) fn orphan(&mut self, id: PoolId) {
        let control_page = self.live_control_page(id);
        self.pools.orphan(id);
        let Some(p) = self.pools.get_mut(id) else {
            return;
        };
        let (writer, entry, unshown) = (p.writer, p.entry, p.unshown());
        for c in p.chunks.values_mut() {
            c.ready = None;
        }
        p.batches.clear();
        self.sub_granted(id, unshown);
        if let Some(control_page) = control_page {
            self.cx.out.push(Action::SetEntry {
                control_page,
                entry,
                pool: None,
                epoch: 0,
                quota_bytes: 0,
            });
        }
        let d = self.cx.domains.get_mut(&writer);
        let slot = d.and_then(|d| d.entries.get_mut(entry as usize));
        if let Some(slot) = slot.filter(|s| **s == Some(id)) {
            *slot = None;
        }
        for left in self.departures.take(writer, id) {
            self.reader_told(id, left);
        }
        for channel in self.offers.of_pool(id).collect::<Vec<_>>() {
            self.cancel_offer((channel, id));
        }
        self.traces.say_no_level(writer, id);
        self.give_up_opening(id);
        self.settle_readers_of(id);
        self.open_chunks_go(id);
        self.pools.changed(id);
        self.sweep_first(id);
    }

    /// Gives up the chunks of an orphan in which nothing is alive.
    pub(super) fn orphan_judged(&mut self, id: PoolId) {
        let Some(p) = self.pools.get_mut(id) else {
            return;
        };
        if !p.gone_said && p.chunks.is_empty() {
            p.gone_said = true;
            let readers: Vec<DomainId> = p.readers.keys().copied().collect();
            for reader in readers {
                self.cx.tell(reader, Event::PoolGone { pool: id }, &[]);
            }
        }
        self.pool_may_end(id);
    }

    /// Forgets an orphan if no process maps a chunk of it.
    pub(super) fn pool_may_end(&mut self, id: PoolId) {
        if !self
            .pools
            .get(&id)
            .is_some_and(|p| p.is_orphan() && p.chunks.is_empty() && p.stranded.is_empty())
        {
            return;
        }
        let readers = self.pools.get(&id).map(|p| p.readers.keys().copied());
        for reader in readers.into_iter().flatten().collect::<Vec<_>>() {
            watch::hold_ends(&mut self.cx, &mut self.pools, id, reader);
        }
        let Some(p) = self.pools.remove(id) else {
            return;
        };
        self.traces.forget(id, &mut self.cx.accounts);
        for pidfd in p.awaited().values() {
            self.cx.release(*pidfd);
        }
        self.cx.accounts.sub(p.uid, Of::Pools, 1);
        let records = p.named.len() + p.brought.len() + p.forwarders.len();
        self.cx.accounts.sub(p.uid, Of::Records, records as u64);
        self.back_refs.remove(p.writer, BackRef::Writes(id));
        for named in p.named.keys().chain(&p.forwarders) {
            self.back_refs.remove(*named, BackRef::Named(id));
        }
        self.cx.release(p.table);
        for (channel, q) in p.queues {
            self.cx.release(q.sent);
            self.cx.release(q.rcvd);
            if let Some(c) = self.channels.get_mut(&channel) {
                c.pools.remove(&id);
            }
        }
        for (reader, r) in p.readers {
            self.back_refs.remove(reader, BackRef::Reads(id));
            self.traces.say_no_level(reader, id);
            self.cx
                .accounts
                .sub(r.uid, Of::Records, r.shown.len() as u64);
            if let Some(refs) = r.refs {
                self.cx.release(refs);
            }
            if let Some(d) = self.cx.domains.get_mut(&reader) {
                d.feeding.remove(&id);
            }
        }
    }
}
