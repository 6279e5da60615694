//! The chunks that a reader is shown: new ones as they come, and all of them in pieces after an offer or a resync.

use super::back_refs::READS;
use super::types::{ChunkKey, Done, FdToken};
use super::{Of, State, no_such, not_yours};
use tranship_proto::{DomainId, Event, Limited, PoolId, Req};

/// Most unanswered resyncs of one pool by one reader.
const MAX_RESYNCS: usize = 16;

impl State {
    /// Shows a new chunk to a reader; returns `true` if the writer has to wait for it.
    pub(super) fn show_to(
        &mut self,
        reader: DomainId,
        pool: PoolId,
        key: ChunkKey,
        fd: FdToken,
    ) -> bool {
        let Some(p) = self.pools.get_mut(pool) else {
            return false;
        };
        let sated = p.readers.get(&reader).is_some_and(|r| p.is_sated(r));
        let Some(r) = p.readers.get_mut(&reader) else {
            return false;
        };
        if r.queues == 0 && r.offers == 0 {
            return false;
        }
        match &r.feed {
            Some(feed) if key.0 >= feed.next => return false,
            None if r.marked => return false,
            _ => {}
        }
        let room = self.cx.accounts.room(r.uid, Of::Records) > 0;
        let queued = room && !sated && self.push_chunk(reader, pool, key, fd);
        let Some(r) = self.pools.reader_mut(pool, reader) else {
            return false;
        };
        match (&mut r.feed, queued) {
            (_, true) => {
                if r.shown.insert(key) {
                    self.cx.accounts.add(r.uid, Of::Records, 1);
                }
            }
            (Some(feed), false) => feed.next = feed.next.min(key.0),
            (None, false) => r.marked = true,
        }
        queued
    }

    /// Sends all chunks of the pool to the reader, as fast as it takes them.
    pub(super) fn start_feed(&mut self, pool: PoolId, reader: DomainId, req: Option<Req>) {
        let Some(r) = self.pools.reader_mut(pool, reader) else {
            return;
        };
        let feed = r.feed.get_or_insert_default();
        feed.next = 0;
        feed.reqs.extend(req);
        if let Some(d) = self.cx.domains.get_mut(&reader) {
            d.feeding.insert(pool);
        }
        self.feed_all(reader);
    }

    /// Sends a returned reader the events that it missed. It gets them now rather than on demand, because the manager
    /// may be gone by then.
    pub(super) fn feed_returned(&mut self, reader: DomainId) {
        for pool in self.back_refs.pools(reader, READS) {
            self.feed_missed(pool, reader);
        }
    }

    /// Sends a reader the missed chunks of one pool.
    pub(super) fn feed_missed(&mut self, pool: PoolId, reader: DomainId) {
        let reads = self.pools.reader(pool, reader);
        if reads.is_some_and(|r| r.marked && r.queues > 0) {
            self.start_feed(pool, reader, None);
        }
    }

    pub(super) fn feed_all(&mut self, reader: DomainId) {
        let Some(d) = self.cx.domains.get(&reader) else {
            return;
        };
        let Some(client) = d.client else { return };
        if d.feeding.is_empty() {
            return;
        }
        let feeding: Vec<PoolId> = d.feeding.iter().copied().collect();
        for pool in feeding {
            while self.cx.clients.has_room(client) && self.feed_one(pool, reader) {}
        }
    }

    /// Sends the next chunk; `false` when the pool's feed is over.
    fn feed_one(&mut self, pool: PoolId, reader: DomainId) -> bool {
        let next = self.pools.get(&pool).and_then(|p| {
            let r = p.readers.get(&reader)?;
            let feed = r.feed.as_ref()?;
            // A reader that asks may have lost any chunk; otherwise it needs only chunks that it was not shown.
            let asked = !feed.reqs.is_empty();
            let mut rest = p.chunks.range(feed.next..).filter(|(_, c)| !c.open);
            let chunk = rest.find(|(i, c)| asked || !r.shown.contains(&(**i, c.serial)));
            chunk.map(|(i, c)| ((*i, c.serial), c.fd, p.is_sated(r)))
        });
        let Some((key, fd, sated)) = next else {
            self.end_feed(pool, reader);
            return false;
        };
        let room = self
            .cx
            .uid_of(reader)
            .is_some_and(|uid| self.cx.accounts.room(uid, Of::Records) > 0);
        if (sated || !room) && !self.has_shown(pool, reader, key) {
            return false; // continues when it has unmapped a chunk
        }
        if !self.push_chunk(reader, pool, key, fd) {
            return false;
        }
        if let Some(r) = self.pools.reader_mut(pool, reader) {
            if r.shown.insert(key) {
                self.cx.accounts.add(r.uid, Of::Records, 1);
            }
            if let Some(feed) = &mut r.feed {
                feed.next = key.0 + 1;
            }
        }
        true
    }

    fn has_shown(&self, pool: PoolId, reader: DomainId, key: ChunkKey) -> bool {
        let reader = self.pools.reader(pool, reader);
        reader.is_some_and(|r| r.shown.contains(&key))
    }

    fn end_feed(&mut self, pool: PoolId, reader: DomainId) {
        if let Some(d) = self.cx.domains.get_mut(&reader) {
            d.feeding.remove(&pool);
        }
        let Some(r) = self.pools.reader_mut(pool, reader) else {
            return;
        };
        r.marked = false;
        for req in r.feed.take().unwrap_or_default().reqs {
            self.cx.tell(reader, Event::Resynced { req, pool }, &[]);
        }
    }

    pub(super) fn resync(&mut self, me: DomainId, req: Req, id: PoolId) -> Done {
        let p = self.pools.get(&id).ok_or(no_such(id.0))?;
        if p.writer == me && !p.is_orphan() {
            self.cx.tell(me, Event::Resynced { req, pool: id }, &[]);
            return Ok(());
        }
        let r = p
            .readers
            .get(&me)
            // A reader whose source died while there was no manager has no queue, but may have messages.
            .filter(|r| r.queues + r.offers > 0 || r.proved)
            .ok_or(not_yours(id.0))?;
        let waiting = r.feed.as_ref().map_or(0, |f| f.reqs.len());
        if waiting >= MAX_RESYNCS {
            return Err(Limited::Resyncs
                .refuse(waiting as u64 + 1, MAX_RESYNCS as u64)
                .into());
        }
        self.start_feed(id, me, Some(req));
        Ok(())
    }

    pub(super) fn unmapped(&mut self, me: DomainId, id: PoolId, key: ChunkKey) -> Done {
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
        self.unhold_chunk(id, key, me);
        self.feed_all(me);
        self.reader_may_leave(id, me);
        self.pool_may_end(id);
        Ok(())
    }
}
