//! The end of a pool that no process maps any more.

use crate::state::State;
use crate::state::books::accounts::Of;
use crate::state::books::back_refs::BackRef;
use crate::state::hogs::watch;
use crate::state::pools::pool::Pool;
use crate::state::types::Left;
use tranship_proto::PoolId;

impl State {
    /// Forgets an orphan if no process maps a chunk of it, and each reader was told that nothing in it is alive. The ends
    /// of its queues give their counters back.
    // Crash: an end that was not told keeps its counters until its channel ends.
    pub(crate) fn pool_may_end(&mut self, id: PoolId) {
        let told = |p: &Pool| p.gone_said || p.readers.is_empty();
        let is_over =
            |p: &Pool| p.is_orphan() && p.chunks.is_empty() && p.stranded.is_empty() && told(p);
        if !self.pools.get(&id).is_some_and(is_over) {
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
            // The channel may live on for long. The reader set is over, and with it its epochs.
            for end in [q.source, q.sink] {
                self.cx.tell(end, Left::Queue(channel).event(id, 0), &[]);
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
