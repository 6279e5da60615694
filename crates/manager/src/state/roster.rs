//! Rosters: whose counters a pool's writer has to look at. Every change raises the epoch in the
//! writer's board first, and says so to the writer after.

use super::State;
use super::model::{Left, Queue};
use super::types::{Action, FdToken};
use tranship_proto::{ChannelId, DomainId, Event, PoolId};

/// Departures that are remembered for a writer that is away.
const LEFT_KEPT: usize = 2048;

impl State {
    /// The board in which a pool's entry is to be kept up to date, if there is one.
    pub(super) fn live_board(&self, id: PoolId) -> Option<FdToken> {
        let p = self.pools.get(&id).filter(|p| !p.orphan)?;
        let d = self.domains.get(&p.writer)?;
        let ours = d.entries.get(p.entry as usize) == Some(&Some(id));
        ours.then_some(d.board)
    }

    /// Raises the epoch where the writer looks before it collects.
    pub(super) fn raise_epoch(&mut self, id: PoolId) -> u64 {
        let board = self.live_board(id);
        let Some(p) = self.pools.get_mut(&id) else {
            return 0;
        };
        p.epoch += 1;
        let (entry, epoch, quota_bytes) = (p.entry, p.epoch, p.quota_bytes);
        if let Some(board) = board {
            self.out.push(Action::SetBoard {
                board,
                entry,
                pool: Some(id),
                epoch,
                quota_bytes,
            });
        }
        epoch
    }

    /// A queue enters the roster: epoch, then the writer's event, then the sink's. The caller tells the source after.
    pub(super) fn join_queue(&mut self, id: PoolId, channel: ChannelId, queue: Queue) {
        let epoch = self.raise_epoch(id);
        if let Some(c) = self.channels.get_mut(&channel) {
            c.pools.insert(id);
        }
        let Some(p) = self.pools.get_mut(&id) else {
            return;
        };
        if let Some(r) = p.readers.get_mut(&queue.sink) {
            r.queues += 1;
        }
        let sink = queue.sink;
        p.queues.insert(channel, queue);
        self.say_joined(id, channel, epoch);
        // Only now: a sink that took references earlier, from a source that does not wait for its own answer, would
        // hold what the writer's collector cannot see yet.
        self.tell(sink, Event::PoolOpen { channel, pool: id }, &[]);
    }

    /// Tells the writer of a queue, and of the reader's counters where it has not got them.
    pub(super) fn say_joined(&mut self, id: PoolId, channel: ChannelId, epoch: u64) {
        let Some(p) = self.pools.get_mut(&id) else {
            return;
        };
        let Some(q) = p.queues.get(&channel) else {
            return;
        };
        let (writer, sink) = (p.writer, q.sink);
        let with_sent = q.source != writer;
        let mut fds = vec![q.rcvd];
        fds.extend(with_sent.then_some(q.sent));
        let mut new_reader = false;
        if let (Some(r), Some(d)) = (p.readers.get_mut(&sink), self.domains.get(&sink))
            && let (Some(refs), false) = (r.refs, r.announced)
        {
            fds.extend([refs, d.pidfd]);
            r.announced = true;
            new_reader = true;
        }
        let event = Event::QueueJoined {
            pool: id,
            channel,
            sink,
            epoch,
            with_sent,
            new_reader,
        };
        if let Some(client) = self.client_of(writer) {
            let returning = self
                .domains
                .get(&writer)
                .is_some_and(|d| d.claiming.is_some());
            if returning {
                self.push_unbounded(client, event, &fds, None);
            } else {
                self.push(client, event, &fds);
            }
        }
    }

    /// Both counters of a queue leave the roster together.
    pub(super) fn leave_queue(&mut self, id: PoolId, channel: ChannelId) {
        if let Some(c) = self.channels.get_mut(&channel) {
            c.pools.remove(&id);
        }
        let Some(q) = self
            .pools
            .get_mut(&id)
            .and_then(|p| p.queues.remove(&channel))
        else {
            return;
        };
        self.release(q.sent);
        self.release(q.rcvd);
        if let Some(r) = self
            .pools
            .get_mut(&id)
            .and_then(|p| p.readers.get_mut(&q.sink))
        {
            r.queues -= 1;
        }
        let epoch = self.raise_epoch(id);
        self.say_left(id, Left::Queue(channel), epoch);
        self.reader_may_leave(id, q.sink);
    }

    /// Tells the writer what left, and keeps it in mind for the case that it does not hear it.
    pub(super) fn say_left(&mut self, id: PoolId, left: Left, epoch: u64) {
        let Some(p) = self.pools.get(&id).filter(|p| !p.orphan) else {
            return;
        };
        let writer = p.writer;
        if let Some(d) = self.domains.get_mut(&writer) {
            if d.left.len() >= LEFT_KEPT {
                d.left.pop_front();
            }
            d.left.push_back((id, left));
        }
        if self.live_board(id).is_some() {
            self.tell(writer, left_event(id, left, epoch), &[]);
        }
    }

    /// A reader without queues that maps nothing any more leaves the roster.
    pub(super) fn reader_may_leave(&mut self, id: PoolId, reader: DomainId) {
        let over = self
            .pools
            .get(&id)
            .and_then(|p| p.readers.get(&reader))
            .is_some_and(|r| r.queues == 0 && r.offers == 0 && r.shown.is_empty());
        if over {
            self.drop_reader(id, reader);
        }
    }

    /// A reader is gone, with everything that it held.
    pub(super) fn drop_reader(&mut self, id: PoolId, reader: DomainId) {
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
            // The last one may have ended the reader already.
            return self.drop_reader(id, reader);
        }
        for key in keys {
            self.unhold_chunk(id, key, reader);
        }
        let Some(r) = self
            .pools
            .get_mut(&id)
            .and_then(|p| p.readers.remove(&reader))
        else {
            return;
        };
        let told = self.pools.get(&id).is_some_and(|p| p.gone_said);
        if let Some(d) = self.domains.get_mut(&reader) {
            d.feeding.remove(&id);
        }
        // Nothing else would ever tell it that its counters count no more. A later offer brings the table again.
        if !told {
            self.tell(reader, Event::PoolGone { pool: id }, &[]);
        }
        if let Some(refs) = r.refs {
            self.release(refs);
            let epoch = self.raise_epoch(id);
            self.say_left(id, Left::Reader(reader), epoch);
        }
        self.pool_may_end(id);
    }
}

pub(super) fn left_event(pool: PoolId, left: Left, epoch: u64) -> Event {
    match left {
        Left::Queue(channel) => Event::QueueLeft {
            pool,
            channel,
            epoch,
        },
        Left::Reader(domain) => Event::ReaderLeft {
            pool,
            domain,
            epoch,
        },
    }
}
