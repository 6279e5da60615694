//! Reader sets: the domains whose counters a pool's writer has to read. Every change first raises the epoch in the
//! writer's control page, and then tells the writer.

use crate::state::books::back_refs::BackRef;
use crate::state::hogs::watch;
use crate::state::model::{Opening, Queue};
use crate::state::pools::pool::Pool;
use crate::state::types::{ChunkKey, Done, Left, Then};
use crate::state::{Of, State, no_such, refusal};
use tranship_proto::{ChannelId, DomainId, Event, PoolId, RefusalCode};

/// The departures of queues never taken up that are remembered for a writer that is away. (The queues that the writer
/// was told of bound all others.)
const UNJOINED_KEPT: usize = 65536;

impl State {
    /// Adds a queue to the reader set: the epoch first, then the writer's event. The ends are told when that has gone
    /// out.
    pub(crate) fn join_queue(&mut self, id: PoolId, channel: ChannelId, queue: Queue) {
        let epoch = self.pools.raise_epoch(&mut self.cx, id);
        if let Some(c) = self.channels.get_mut(&channel) {
            c.pools.insert(id);
        }
        let Some(p) = self.pools.get_mut(id) else {
            return;
        };
        if let Some(r) = p.readers.get_mut(&queue.sink) {
            r.queues += 1;
        }
        let records = u64::from(p.brought.remove(channel).is_some());
        self.cx.accounts.sub(p.uid, Of::Records, records);
        p.queues.insert(channel, queue);
        self.say_joined(id, channel, epoch);
    }

    /// Tells the writer of a queue, and of the reader's counters if it does not have them. A writer that is away or has
    /// not claimed the pool yet is told when it does.
    pub(crate) fn say_joined(&mut self, id: PoolId, channel: ChannelId, epoch: u64) {
        if self.pools.control_page_of(&self.cx, id).is_none() {
            return;
        }
        let Some(p) = self.pools.get_mut(id) else {
            return;
        };
        let Some(client) = self.cx.domains.get(&p.writer).and_then(|d| d.client) else {
            return;
        };
        let Some(q) = p.queues.get_mut(&channel) else {
            return;
        };
        q.epoch = epoch;
        let (writer, sink) = (p.writer, q.sink);
        let process = self.cx.domains.get(&sink).map_or(0, |d| d.process);
        let with_sent = q.source != writer;
        let mut fds = vec![q.rcvd];
        fds.extend(with_sent.then_some(q.sent));
        let mut new_reader = false;
        if let (Some(r), Some(d)) = (p.readers.get_mut(&sink), self.cx.domains.get(&sink))
            && let (Some(refs), false) = (r.refs, r.announced)
        {
            fds.extend([refs, d.pidfd]);
            (r.announced, r.known) = (true, true);
            new_reader = true;
        }
        let event = Event::QueueJoined {
            pool: id,
            channel,
            sink,
            process,
            epoch,
            with_sent,
            new_reader,
        };
        let then = Then::Joined(id, channel, epoch);
        self.cx.push_then(client, event, &fds, then);
    }

    /// Handles that the writer has a queue's `QueueJoined` in its socket: it will count the queue, whatever becomes of
    /// the manager. Only now may the sink take references from it, and the source send. After a crash before this, the
    /// next manager's control page would let the writer collect without these counters.
    pub(crate) fn writer_told(&mut self, id: PoolId, channel: ChannelId, epoch: u64) {
        let queue = self
            .pools
            .get(&id)
            .and_then(|p| p.queues.get(&channel))
            .filter(|q| q.epoch == epoch);
        if queue.is_some() {
            self.open_queue(id, channel);
        }
    }

    /// Sends a queue's ends the events that waited for the writer.
    fn open_queue(&mut self, id: PoolId, channel: ChannelId) {
        let Some(q) = self
            .pools
            .get_mut(id)
            .and_then(|p| p.queues.get_mut(&channel))
        else {
            return;
        };
        let (source, sink) = (q.source, q.sink);
        let Some(opening) = q.opening.take() else {
            return;
        };
        self.cx
            .tell(sink, Event::PoolOpen { channel, pool: id }, &[]);
        let (cx, pools) = (&mut self.cx, &self.pools);
        self.traces.tell(cx, pools, sink, id);
        match opening {
            Opening::Assigned { client, req } => {
                let event = Event::Assigned {
                    req,
                    channel,
                    pool: id,
                };
                if let Some(client) = client {
                    self.cx.push(client, event, &[]);
                }
            }
            Opening::Claimed { source: a, sink: b } => {
                self.cx.tell(source, Event::Claimed { req: a }, &[]);
                self.cx.tell(sink, Event::Claimed { req: b }, &[]);
            }
        }
    }

    /// Gives up queues whose writer will not be told of any more queues. Queues from before the manager's start still
    /// count: no collector is left that could miss them.
    pub(crate) fn give_up_opening(&mut self, id: PoolId) {
        let waiting: Vec<(ChannelId, Opening)> = self.pools.get(&id).map_or(Vec::new(), |p| {
            let waiting = |(c, q): (&ChannelId, &Queue)| Some((*c, q.opening?));
            p.queues.iter().filter_map(waiting).collect()
        });
        for (channel, opening) in waiting {
            match opening {
                Opening::Assigned { .. } => self.leave_queue(id, channel),
                Opening::Claimed { .. } => self.open_queue(id, channel),
            }
        }
    }

    /// Removes both counters of a queue from the reader set together.
    pub(crate) fn leave_queue(&mut self, id: PoolId, channel: ChannelId) {
        if let Some(c) = self.channels.get_mut(&channel) {
            c.pools.remove(&id);
        }
        let Some(q) = self
            .pools
            .get_mut(id)
            .and_then(|p| p.queues.remove(&channel))
        else {
            return;
        };
        self.cx.release(q.sent);
        self.cx.release(q.rcvd);
        if let Some(r) = self.pools.reader_mut(id, q.sink) {
            r.queues -= 1;
        }
        if let Some(Opening::Assigned { client, req }) = q.opening
            && let Some(client) = client
        {
            let refusal = refusal(RefusalCode::PeerGone, u64::from(id.0), 0);
            self.cx.push(client, Event::Refused { req, refusal }, &[]);
        }
        // A queue that the writer was never told of is not missed by it; a claimed queue it has had all along.
        if q.epoch > 0 || !matches!(q.opening, Some(Opening::Assigned { .. })) {
            let epoch = self.pools.raise_epoch(&mut self.cx, id);
            self.say_left(id, Left::Queue(channel), epoch);
        }
        self.reader_may_leave(id, q.sink);
    }

    /// Tells the writer of a departure, and remembers it until it has been sent.
    pub(crate) fn say_left(&mut self, id: PoolId, left: Left, epoch: u64) {
        let Some(p) = self.pools.get(&id).filter(|p| !p.is_orphan()) else {
            return;
        };
        let live = self.pools.control_page_of(&self.cx, id).is_some();
        let writer = p.writer;
        if !self.cx.domains.contains_key(&writer) {
            return;
        }
        self.departures.push(writer, id, left);
        if live {
            let (event, then) = (left.event(id, epoch), Then::Left(id, left));
            self.cx.tell_then(writer, event, &[], then);
        }
    }

    /// Handles that a queue left which the writer has from an earlier manager.
    pub(crate) fn brought_leaves(&mut self, id: PoolId, channel: ChannelId) {
        let Some(p) = self.pools.get_mut(id) else {
            return;
        };
        let Some(brought) = p.brought.remove(channel) else {
            return;
        };
        self.cx.accounts.sub(p.uid, Of::Records, 1);
        self.say_left_unjoined(id, channel);
        self.reader_may_leave(id, brought.sink);
    }

    fn say_left_unjoined(&mut self, id: PoolId, channel: ChannelId) {
        let writer = self.pools.get(&id).map(|p| p.writer);
        let kept = |w: DomainId| self.departures.count(w) < UNJOINED_KEPT;
        if writer.is_some_and(kept) {
            let epoch = self.pools.raise_epoch(&mut self.cx, id);
            self.say_left(id, Left::Queue(channel), epoch);
        }
    }

    /// Records that a departure was sent to the writer.
    pub(crate) fn left_told(&mut self, writer: DomainId, id: PoolId, left: Left) {
        self.departures.told(writer, id, left);
        self.reader_told(id, left);
    }

    /// Tells a reader that it has left, once its pool's writer was told, or will not be told any more.
    pub(crate) fn reader_told(&mut self, id: PoolId, left: Left) {
        let Left::Reader(reader) = left else { return };
        let again = |p: &Pool| p.readers.contains_key(&reader);
        if !self.pools.get(&id).is_some_and(again) {
            self.cx.tell(reader, Event::PoolGone { pool: id }, &[]);
        }
    }

    /// Removes a reader without queues and without mappings from the reader set. A reader with a queue from an earlier
    /// manager's time may still take references from the pool, and stays.
    pub(crate) fn reader_may_leave(&mut self, id: PoolId, reader: DomainId) {
        let over = self.pools.get(&id).is_some_and(|p| {
            p.readers
                .get(&reader)
                .is_some_and(|r| r.queues == 0 && r.offers == 0 && r.shown.is_empty())
                && p.brought.to(reader).next().is_none()
        });
        if over {
            self.drop_reader(id, reader);
        }
    }

    /// Handles that a reader has unmapped a chunk.
    pub(crate) fn unmapped(&mut self, me: DomainId, id: PoolId, key: ChunkKey) -> Done {
        // A reader gives up a pool whose writer has not come back. Its claim stays: it tells the writer that the
        // reader's references are over.
        if let Some(r) = self.claims.reader_mut((id, me)) {
            if r.mapped.remove(&key) {
                self.cx.accounts.sub(r.uid, Of::Records, 1);
            }
            r.over |= r.mapped.is_empty();
            if r.over && r.gone_said {
                self.cx.tell(me, Event::PoolGone { pool: id }, &[]);
            }
            return Ok(());
        }
        let found = self.pools.get_mut(id).map(|p| {
            let live = p.chunks.get(&key.0).is_some_and(|c| c.serial == key.1);
            (live, p.gone_said, p.readers.get_mut(&me))
        });
        let Some((live, gone_said, Some(r))) = found else {
            // The reader gives up a pool that it is not known to read: it may forget the pool, once the writer has.
            if !self.departures.has(id, me) {
                self.cx.tell(me, Event::PoolGone { pool: id }, &[]);
            }
            return Ok(());
        };
        if !r.shown.contains(&key) {
            // The last message of a reader that was shown nothing, or still held something when it was told that the
            // pool is gone.
            self.reader_may_leave(id, me);
            if gone_said {
                self.cx.tell(me, Event::PoolGone { pool: id }, &[]);
            }
            return Err(no_such(key.0));
        }
        r.marked |= live;
        self.pools.unhold_chunk(&mut self.cx, id, key, me);
        self.pools.feed_all(&mut self.cx, me);
        self.reader_may_leave(id, me);
        self.pool_may_end(id);
        Ok(())
    }

    /// Drops a reader, with everything that it held.
    pub(crate) fn drop_reader(&mut self, id: PoolId, reader: DomainId) {
        let Some(p) = self.pools.get(&id) else { return };
        let Some(r) = p.readers.get(&reader) else {
            return;
        };
        let keys: Vec<_> = r.shown.iter().copied().collect();
        let queues: Vec<ChannelId> = p
            .queues
            .iter()
            .filter(|(_, q)| q.sink == reader)
            .map(|(c, _)| *c)
            .collect();
        if !queues.is_empty() {
            for channel in queues {
                self.leave_queue(id, channel);
            }
            // The last queue may have ended the reader already.
            return self.drop_reader(id, reader);
        }
        let brought: Vec<ChannelId> = p.brought.to(reader).collect();
        for channel in brought {
            if let Some(p) = self.pools.get_mut(id)
                && p.brought.remove(channel).is_some()
            {
                self.cx.accounts.sub(p.uid, Of::Records, 1);
            }
            self.say_left_unjoined(id, channel);
        }
        for key in keys {
            self.pools.unhold_chunk(&mut self.cx, id, key, reader);
        }
        watch::hold_ends(&mut self.cx, &mut self.pools, id, reader);
        let Some(r) = self
            .pools
            .get_mut(id)
            .and_then(|p| p.readers.remove(&reader))
        else {
            return;
        };
        self.back_refs.remove(reader, BackRef::Reads(id));
        self.traces.say_no_level(reader, id);
        let told = self.pools.get(&id).is_some_and(|p| p.gone_said);
        if let Some(d) = self.cx.domains.get_mut(&reader) {
            d.feeding.remove(&id);
        }
        let orphan = self.pools.get(&id).is_none_or(|p| p.is_orphan());
        if let Some(refs) = r.refs {
            self.cx.release(refs);
            self.pools.changed(id);
            if r.known {
                let epoch = self.pools.raise_epoch(&mut self.cx, id);
                self.say_left(id, Left::Reader(reader), epoch);
            }
        }
        // No other event would ever tell the reader that its counters no longer count. A later offer brings the table
        // again. The event must not go out before the writer has the departure in its socket: a reader that forgot the
        // pool could not prove its departure to the next manager.
        if !told && (orphan || !r.known) {
            self.cx.tell(reader, Event::PoolGone { pool: id }, &[]);
        }
        self.pool_may_end(id);
    }
}
