//! Pools whose writer is gone: they are never used again, and given back as their buffers die.

use crate::state::State;
use crate::state::types::Action;
use tranship_proto::PoolId;

impl State {
    /// Makes a pool an orphan: its writer is gone, or no longer uses it.
    pub(crate) fn orphan(&mut self, id: PoolId) {
        let control_page = self.pools.control_page_of(&self.cx, id);
        self.pools.orphan(id);
        let Some(p) = self.pools.get_mut(id) else {
            return;
        };
        let (writer, entry, unshown) = (p.writer, p.entry, p.unshown());
        for c in p.chunks.values_mut() {
            c.ready = None;
        }
        p.batches.clear();
        self.pools.sub_granted(&mut self.cx, id, unshown);
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
        self.pools.open_chunks_go(&mut self.cx, id);
        self.pools.changed(id);
        self.sweep_first(id);
    }
}
