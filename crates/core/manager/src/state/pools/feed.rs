//! The chunks that a reader is shown: new ones as they come, and all of them in pieces after an offer or a resync.

use super::pool::Pools;
use crate::state::books::accounts::Of;
use crate::state::context::Context;
use crate::state::model::Answer;
use crate::state::refuse::{no_such, not_yours};
use crate::state::types::{ChunkKey, ClientId, Done, FdToken, Then};
use std::collections::BTreeSet;
use tranship_proto::{DomainId, Event, Limited, PoolId, Req};

/// Most unanswered resyncs of one pool by one reader.
const MAX_RESYNCS: usize = 16;

impl Pools {
    /// Shows a chunk to all readers.
    pub fn show_around(
        &mut self,
        cx: &mut Context,
        id: PoolId,
        key: ChunkKey,
        token: FdToken,
        answer: Answer,
    ) {
        let readers = self.get(&id).map(|p| p.readers.keys().copied());
        let readers: Vec<DomainId> = readers.into_iter().flatten().collect();
        let mut waits = BTreeSet::new();
        for reader in readers {
            if self.show_to(cx, reader, id, key, token) {
                waits.insert(reader);
            }
        }
        if waits.is_empty() {
            self.say_ready(cx, id, key, answer);
        } else if let Some(c) = self.get_mut(id).and_then(|p| p.chunks.get_mut(&key.0)) {
            c.ready = Some((answer, waits));
        }
    }

    /// Shows a new chunk to a reader; returns `true` if the writer has to wait for it.
    pub fn show_to(
        &mut self,
        cx: &mut Context,
        reader: DomainId,
        pool: PoolId,
        key: ChunkKey,
        fd: FdToken,
    ) -> bool {
        let Some(p) = self.get_mut(pool) else {
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
        let room = cx.accounts.room(r.uid, Of::Records) > 0;
        let queued = room && !sated && self.push_chunk(cx, reader, pool, key, fd);
        let Some(r) = self.reader_mut(pool, reader) else {
            return false;
        };
        match (&mut r.feed, queued) {
            (_, true) => {
                if r.shown.insert(key) {
                    cx.accounts.add(r.uid, Of::Records, 1);
                }
            }
            (Some(feed), false) => feed.next = feed.next.min(key.0),
            (None, false) => r.marked = true,
        }
        queued
    }

    /// Queues a chunk to a reader. Returns `false` if there is no connection or no room, or the reader does not read.
    pub fn push_chunk(
        &mut self,
        cx: &mut Context,
        reader: DomainId,
        pool: PoolId,
        key: ChunkKey,
        fd: FdToken,
    ) -> bool {
        let payer = self.get(&pool).map_or(u32::MAX, |p| p.uid);
        let client = cx.client_of(reader);
        let room = |c: &ClientId| cx.clients.has_room_for_chunk(*c, payer);
        let Some(client) = client.filter(room) else {
            return false;
        };
        let event = Event::ChunkAdded {
            pool,
            index: key.0,
            serial: key.1,
        };
        let (fds, then) = ([fd], Then::Chunk(pool, key));
        let (message, cause) = ((event, fds.as_slice()), Some(payer));
        let out = &mut cx.out;
        cx.clients.push(client, message, then, cause, out);
        cx.claimed_too(reader, |c| c.chunks.insert((pool, key)));
        true
    }

    /// Sends all chunks of the pool to the reader, as fast as it takes them.
    pub fn start_feed(
        &mut self,
        cx: &mut Context,
        pool: PoolId,
        reader: DomainId,
        req: Option<Req>,
    ) {
        let Some(r) = self.reader_mut(pool, reader) else {
            return;
        };
        let feed = r.feed.get_or_insert_default();
        feed.next = 0;
        feed.reqs.extend(req);
        if let Some(d) = cx.domains.get_mut(&reader) {
            d.feeding.insert(pool);
        }
        self.feed_all(cx, reader);
    }

    /// Sends a reader the missed chunks of one pool.
    pub fn feed_missed(&mut self, cx: &mut Context, pool: PoolId, reader: DomainId) {
        let reads = self.reader(pool, reader);
        if reads.is_some_and(|r| r.marked && r.queues > 0) {
            self.start_feed(cx, pool, reader, None);
        }
    }

    pub fn feed_all(&mut self, cx: &mut Context, reader: DomainId) {
        let Some(d) = cx.domains.get(&reader) else {
            return;
        };
        let Some(client) = d.client else { return };
        if d.feeding.is_empty() {
            return;
        }
        let feeding: Vec<PoolId> = d.feeding.iter().copied().collect();
        for pool in feeding {
            while cx.clients.has_room(client) && self.feed_one(cx, pool, reader) {}
        }
    }

    /// Sends the next chunk; `false` when the pool's feed is over.
    fn feed_one(&mut self, cx: &mut Context, pool: PoolId, reader: DomainId) -> bool {
        let next = self.get(&pool).and_then(|p| {
            let r = p.readers.get(&reader)?;
            let feed = r.feed.as_ref()?;
            // A reader that asks may have lost any chunk; otherwise it needs only chunks that it was not shown.
            let asked = !feed.reqs.is_empty();
            let mut rest = p.chunks.range(feed.next..).filter(|(_, c)| !c.open);
            let chunk = rest.find(|(i, c)| asked || !r.shown.contains(&(**i, c.serial)));
            chunk.map(|(i, c)| ((*i, c.serial), c.fd, p.is_sated(r)))
        });
        let Some((key, fd, sated)) = next else {
            self.end_feed(cx, pool, reader);
            return false;
        };
        let uid = cx.uid_of(reader);
        let room = uid.is_some_and(|uid| cx.accounts.room(uid, Of::Records) > 0);
        if (sated || !room) && !self.has_shown(pool, reader, key) {
            return false; // continues when it has unmapped a chunk
        }
        if !self.push_chunk(cx, reader, pool, key, fd) {
            return false;
        }
        if let Some(r) = self.reader_mut(pool, reader) {
            if r.shown.insert(key) {
                cx.accounts.add(r.uid, Of::Records, 1);
            }
            if let Some(feed) = &mut r.feed {
                feed.next = key.0 + 1;
            }
        }
        true
    }

    fn end_feed(&mut self, cx: &mut Context, pool: PoolId, reader: DomainId) {
        if let Some(d) = cx.domains.get_mut(&reader) {
            d.feeding.remove(&pool);
        }
        let Some(r) = self.reader_mut(pool, reader) else {
            return;
        };
        r.marked = false;
        for req in r.feed.take().unwrap_or_default().reqs {
            cx.tell(reader, Event::Resynced { req, pool }, &[]);
        }
    }

    fn has_shown(&self, pool: PoolId, reader: DomainId, key: ChunkKey) -> bool {
        let reader = self.reader(pool, reader);
        reader.is_some_and(|r| r.shown.contains(&key))
    }

    /// Says whether a reader has all chunks of a pool, or is being sent them.
    pub fn shown_all(&self, pool: PoolId, reader: DomainId) -> bool {
        let Some(p) = self.get(&pool) else {
            return true;
        };
        let Some(r) = p.readers.get(&reader) else {
            return true;
        };
        r.feed.is_some()
            || p.chunks
                .iter()
                .all(|(i, c)| c.open || r.shown.contains(&(*i, c.serial)))
    }

    pub fn resync(&mut self, cx: &mut Context, me: DomainId, req: Req, id: PoolId) -> Done {
        let p = self.get(&id).ok_or(no_such(id.0))?;
        if p.writer == me && !p.is_orphan() {
            cx.tell(me, Event::Resynced { req, pool: id }, &[]);
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
        self.start_feed(cx, id, me, Some(req));
        Ok(())
    }
}
