//! Taking up claims once all their sides are there.

use super::brought::Brought;
use super::claimed::{AssignKey, Claimed, ClaimedReader, EndKey};
use crate::state::books::back_refs::{BackRef, NAMED, READS, WRITES};
use crate::state::model::{Channel, Opening, Queue, Reader, Stage, Stranded};
use crate::state::pools::pool::Pool;
use crate::state::types::FdToken;
use crate::state::{Of, State, refusal};
use std::collections::BTreeSet;
use tranship_proto::{ChannelId, DomainId, Event, PoolId, RefusalCode, Role};
use tranship_region::layout::Kind;

impl State {
    pub(crate) fn settle(&mut self, what: &Claimed) {
        match *what {
            Claimed::Channel(channel) => {
                self.settle_channel(channel);
                self.settle_assigns_in(channel);
            }
            Claimed::Assign(channel, pool) => {
                self.settle_assign(channel, pool);
            }
            Claimed::Domain(me) => {
                // Other domains' claims of its pools, and its claims of theirs.
                let written = self.back_refs.pools(me, WRITES);
                for pool in written.iter().copied() {
                    self.settle_readers_of(pool);
                }
                for pool in self.claims.read_by(me) {
                    self.settle_reader(pool, me);
                }
                for pool in written.iter().copied() {
                    let assigns = self.claims.assigns_of(pool);
                    let channels: BTreeSet<ChannelId> = assigns.map(|(c, _, _)| c).collect();
                    for channel in channels {
                        self.settle_assign(channel, pool);
                    }
                }
                for (channel, _) in self.back_refs.ends(me) {
                    self.settle_assigns_in(channel);
                }
                // A sink may be told of its pools before its channel is there.
                for (channel, pool, _) in self.claims.assigns_by(me) {
                    self.settle_assign(channel, pool);
                }
                for pool in written {
                    self.settle_brought(pool, None);
                }
                for pool in self.back_refs.pools(me, NAMED) {
                    self.settle_brought(pool, Some(me));
                }
                // The manager may be gone by the time at which the domain would ask for what it missed.
                for pool in self.back_refs.pools(me, READS) {
                    self.pools.feed_missed(&mut self.cx, pool, me);
                }
            }
        }
    }

    /// Says whether a pool can be joined: once its writer has claimed everything.
    fn ready_pool(&self, pool: PoolId) -> bool {
        self.pools.get(&pool).is_some_and(|p| {
            !p.is_orphan()
                && self
                    .cx
                    .domains
                    .get(&p.writer)
                    .is_some_and(|d| d.claiming.is_none())
        })
    }

    fn settle_channel(&mut self, channel: ChannelId) {
        let (Some(a), Some(b)) = (
            self.claims.ends().get(&(channel, true)),
            self.claims.ends().get(&(channel, false)),
        ) else {
            return;
        };
        if a.domain != b.peer || b.domain != a.peer {
            return;
        }
        let (Some(a), Some(b)) = (
            self.claims.remove_end((channel, true)),
            self.claims.remove_end((channel, false)),
        ) else {
            return;
        };
        let record = Channel {
            name: a.name,
            source: a.domain,
            sink: b.domain,
            payers: [a.domain, b.domain].map(|d| self.cx.uid_of(d)),
            connector: b.domain,
            lines: a.lines,
            stage: Stage::Open,
            source_gone: false,
            source_half: Some(a.half),
            sink_half: Some(b.half),
            source_ring: None,
            pools: BTreeSet::new(),
        };
        for payer in record.payers.into_iter().flatten() {
            self.cx.accounts.add(payer, Of::Channels, 1);
        }
        self.back_refs.insert(a.domain, BackRef::End(channel, true));
        self.back_refs
            .insert(b.domain, BackRef::End(channel, false));
        self.channels.insert(channel, record);
        self.cx.tell(a.domain, Event::Claimed { req: a.req }, &[]);
        self.cx.tell(b.domain, Event::Claimed { req: b.req }, &[]);
    }

    /// Says whether the process that owns a queue on a reader set is back, and has claimed everything.
    fn is_back(&self, brought: &Brought) -> bool {
        let d = self.cx.domains.get(&brought.sink);
        d.is_some_and(|d| d.process == brought.process && d.claiming.is_none() && !d.unheard)
    }

    /// Removes queues from a reader set if their sinks are back without these channels. The channels were closed or
    /// drained, and the manager that was told did not live to tell the writer. It checks all queues, or those of one
    /// sink.
    fn settle_brought(&mut self, id: PoolId, sink: Option<DomainId>) {
        let Some(p) = self.pools.get(&id).filter(|_| self.ready_pool(id)) else {
            return;
        };
        let channels: Vec<ChannelId> = match sink {
            Some(sink) => p.brought.to(sink).collect(),
            None => p.brought.channels().collect(),
        };
        for channel in channels {
            let p = self.pools.get(&id);
            let has = |b: &Brought| self.claims.has_tried(b.sink, channel);
            let over = |b: &Brought| !has(b) && self.is_back(b);
            if p.and_then(|p| p.brought.get(channel)).is_some_and(over) {
                self.brought_leaves(id, channel);
            }
        }
    }

    /// Records that a domain no longer has a channel from an earlier manager's time; perhaps this manager never took it
    /// up.
    pub(crate) fn has_no_more(&mut self, me: DomainId, channel: ChannelId) {
        if !self.claims.leaves(me, channel) {
            return;
        }
        let uid = self.cx.uid_of(me).unwrap_or(u32::MAX);
        self.cx.accounts.sub(uid, Of::Records, 1);
        for pool in self.may_have_brought(me) {
            let brought = self.pools.get(&pool).and_then(|p| p.brought.get(channel));
            let over = brought.is_some_and(|b| b.sink == me && self.is_back(b));
            if over && self.ready_pool(pool) {
                self.brought_leaves(pool, channel);
            }
        }
    }

    /// Takes the channels of a sink's domain that ended out of a pool. The pool's writer notices a death, but not a
    /// goodbye.
    pub(crate) fn brought_leave(&mut self, id: PoolId, sink: DomainId, process: Option<u64>) {
        let Some(p) = self.pools.get(&id).filter(|_| self.ready_pool(id)) else {
            return;
        };
        let its = |c: &ChannelId| p.brought.get(*c).map(|b| b.process) == process;
        for channel in p.brought.to(sink).filter(its).collect::<Vec<_>>() {
            self.brought_leaves(id, channel);
        }
    }

    /// Returns pools of which a domain may be the sink of a queue that is older than the manager.
    fn may_have_brought(&self, sink: DomainId) -> Vec<PoolId> {
        let written = self.back_refs.pools(sink, WRITES).into_iter();
        written.chain(self.back_refs.pools(sink, NAMED)).collect()
    }

    /// Forgets claims of a channel's assignments that were never taken up, when the sink goes.
    pub(crate) fn forget_assigns(&mut self, channel: ChannelId) {
        self.drop_assigns(self.claims.assigns_in(channel));
    }

    fn drop_assigns(&mut self, keys: Vec<AssignKey>) {
        for key in keys {
            if let Some(a) = self.claims.remove_assign(key) {
                self.cx.release(a.fd);
            }
        }
    }

    /// Takes up the claims of a pool's readers.
    pub(crate) fn settle_readers_of(&mut self, pool: PoolId) {
        let of = (pool, DomainId(0))..=(pool, DomainId(u32::MAX));
        let readers: Vec<DomainId> = self
            .claims
            .readers()
            .range(of)
            .map(|((_, d), _)| *d)
            .collect();
        for reader in readers {
            self.settle_reader(pool, reader);
        }
    }

    /// Takes up a reader's claim. This includes a pool whose writer has claimed it and ended: the readers must still
    /// receive its messages.
    fn settle_reader(&mut self, pool: PoolId, reader: DomainId) {
        let orphan = self.pools.get(&pool).is_some_and(|p| p.is_orphan());
        let back = self.cx.domains.get(&reader);
        let back = back.is_some_and(|d| d.claiming.is_none());
        if !back || !(orphan || self.ready_pool(pool)) {
            return;
        }
        // Otherwise any domain could claim to read any pool, and any writer could make readers unmap another's chunks.
        let fits = |r: &ClaimedReader, p: &Pool| {
            let known = p.named.get(&reader) == Some(&r.inode)
                && p.table_inode == r.table
                && p.shape.trust == r.trust;
            known
                && p.shape.slots == r.slots
                && p.writer != reader
                // Another thread may already be offering the pool to this reader.
                && p.readers.get(&reader).is_none_or(|r| r.refs.is_none())
        };
        let claim = self.claims.readers().get(&(pool, reader));
        let fits = claim.zip(self.pools.get(&pool)).map(|(r, p)| fits(r, p));
        let Some(fits) = fits else { return };
        if orphan && !fits {
            return; // The claim's chunks count as long as the claim lasts.
        }
        let Some(r) = self.claims.remove_reader((pool, reader)) else {
            return;
        };
        self.cx
            .accounts
            .sub(r.uid, Of::Records, r.mapped.len() as u64);
        if !fits {
            let reads = |p: &Pool| p.readers.contains_key(&reader);
            let told_later =
                self.pools.get(&pool).is_some_and(reads) || self.departures.has(pool, reader);
            if r.over && !told_later {
                // The domain waits to be told when the writer has forgotten it, but the writer never knew it.
                self.cx.tell(reader, Event::PoolGone { pool }, &[]);
            }
            return self.cx.release(r.refs);
        }
        self.take_up_reader(pool, reader, (r.refs, r.inode), r.mapped);
        self.pools.awaits_no_more(&mut self.cx, pool, reader);
        self.pools.changed(pool);
        // A reader that is being offered the pool again is about to answer with the same counters.
        let offered = |r: &Reader| r.offers > 0;
        let record = self.pools.reader(pool, reader);
        if r.over && !record.is_some_and(offered) {
            self.drop_reader(pool, reader);
        }
    }

    fn take_up_reader(
        &mut self,
        pool: PoolId,
        reader: DomainId,
        (refs, inode): (FdToken, u64),
        mapped: BTreeSet<(u32, u32)>,
    ) {
        let uid = self.cx.uid_of(reader).unwrap_or(u32::MAX);
        let Some(p) = self.pools.get_mut(pool) else {
            return self.cx.release(refs);
        };
        let mut record = Reader {
            uid,
            refs: Some(refs),
            inode,
            marked: true,
            known: true,
            proved: true,
            ..p.readers.remove(&reader).unwrap_or_default()
        };
        let (windows, bytes) = (p.shape.windows(), p.shape.chunk_bytes);
        let mut gone = Vec::new();
        for key in mapped {
            let Some(p) = self.pools.get_mut(pool) else {
                break;
            };
            let live = p.chunks.get(&key.0).is_some_and(|c| c.serial == key.1);
            if !live && p.is_orphan() {
                // The pool was judged dead without this queue, or the queue was never claimed: the sink keeps its
                // buffers, and takes the queued ones.
                continue;
            }
            if !live {
                gone.push(key);
            }
            let counts = if let Some(stranded) = p.stranded.get_mut(&key) {
                if stranded.holders.insert(reader) {
                    self.cx.strands(reader, bytes, true);
                }
                true
            } else if !live
                && p.stranded.len() < windows as usize
                && key.0 < windows
                && self.cx.accounts.room(uid, Of::Bytes) >= bytes
            {
                // No other domain knows this chunk. It counts as stranded only as far as the total allows, so that a
                // liar cannot push honest pools over it.
                let (payer, holders) = (uid, BTreeSet::from([reader]));
                p.stranded.insert(key, Stranded { payer, holders });
                self.cx.strand(uid, bytes);
                self.cx.strands(reader, bytes, true);
                true
            } else {
                live
            };
            if counts && record.shown.insert(key) {
                self.cx.accounts.add(uid, Of::Records, 1);
            }
        }
        if let Some(p) = self.pools.get_mut(pool) {
            p.readers.insert(reader, record);
            self.watch.wake();
            self.back_refs.insert(reader, BackRef::Reads(pool));
        }
        for (index, serial) in gone {
            let event = Event::ChunkGone {
                pool,
                index,
                serial,
            };
            self.cx.tell(reader, event, &[]);
        }
    }

    /// Takes up the claims of a channel's assignments.
    fn settle_assigns_in(&mut self, channel: ChannelId) {
        let keys = self.claims.assigns_in(channel);
        let pools: BTreeSet<PoolId> = keys.into_iter().map(|(_, p, _)| p).collect();
        for pool in pools {
            self.settle_assign(channel, pool);
        }
    }

    /// Opens a queue on a writer's reader set for a sink that has exactly its counters, but was not told before the
    /// last manager ended. Its source may never come back to claim the other side. Until the sink has taken the
    /// source's messages, none of their buffers is reused.
    fn open_brought(&mut self, channel: ChannelId, pool: PoolId) {
        let key = (channel, pool, false);
        let Some(a) = self.claims.assigns().get(&key).filter(|a| !a.open_said) else {
            return;
        };
        let Some(p) = self.pools.get(&pool).filter(|_| self.ready_pool(pool)) else {
            return;
        };
        let sink = a.domain;
        let proved = sink == p.writer || p.readers.get(&sink).is_some_and(|r| r.proved);
        let process = self.cx.domains.get(&sink).map(|d| d.process);
        let brought = process.map(|process| Brought { sink, process });
        if !proved || brought.is_none() || p.brought.get(channel) != brought.as_ref() {
            return;
        }
        if let Some(a) = self.claims.assign_mut(key) {
            a.open_said = true;
        }
        self.cx.tell(sink, Event::PoolOpen { channel, pool }, &[]);
    }

    pub(crate) fn settle_assign(&mut self, channel: ChannelId, pool: PoolId) {
        self.open_brought(channel, pool);
        let (from, to) = ((channel, pool, true), (channel, pool, false));
        let (Some(a), Some(b)) = (
            self.claims.assigns().get(&from),
            self.claims.assigns().get(&to),
        ) else {
            return;
        };
        let Some(c) = self.channels.get(&channel).filter(|c| !c.is_incoming()) else {
            return;
        };
        let Some(p) = self.pools.get(&pool).filter(|_| self.ready_pool(pool)) else {
            return;
        };
        let reads =
            |d: DomainId| p.writer == d || p.readers.get(&d).is_some_and(|r| r.refs.is_some());
        if !reads(c.sink) || !reads(c.source) {
            return;
        }
        let slots = p.shape.slots;
        let good = a.facts.is(Kind::Sent, slots)
            && b.facts.is(Kind::Rcvd, slots)
            && (a.domain, b.domain) == (c.source, c.sink)
            && !p.queues.contains_key(&channel);
        let (Some(a), Some(b)) = (
            self.claims.remove_assign(from),
            self.claims.remove_assign(to),
        ) else {
            return;
        };
        if !good {
            self.cx.release(a.fd);
            self.cx.release(b.fd);
            for (domain, req) in [(a.domain, a.req), (b.domain, b.req)] {
                let refusal = refusal(RefusalCode::Claim, u64::from(channel.0), 0);
                self.cx.tell(domain, Event::Refused { req, refusal }, &[]);
            }
            return;
        }
        let queue = Queue {
            source: a.domain,
            sink: b.domain,
            sent: a.fd,
            rcvd: b.fd,
            epoch: 0,
            opening: Some(Opening::Claimed {
                source: a.req,
                sink: b.req,
            }),
        };
        let sink = queue.sink;
        self.join_queue(pool, channel, queue);
        self.pools.feed_missed(&mut self.cx, pool, sink);
    }

    /// Drops one end of a channel whose other end has not come back.
    pub(crate) fn drop_claimed_end(&mut self, me: DomainId, channel: ChannelId) -> bool {
        let roles = [Role::Source, Role::Sink];
        let mine = roles
            .map(|r| (channel, r == Role::Source))
            .into_iter()
            .find(|k| self.claims.ends().get(k).is_some_and(|e| e.domain == me));
        let Some(key) = mine else { return false };
        self.forget_end(key);
        true
    }

    fn forget_end(&mut self, key: EndKey) {
        let Some(end) = self.claims.remove_end(key) else {
            return;
        };
        self.cx.release(end.half);
        let mut assigns = self.claims.assigns_in(key.0);
        assigns.retain(|(_, _, is_source)| *is_source == key.1);
        self.drop_assigns(assigns);
        self.has_no_more(end.domain, key.0);
    }

    /// Ends that a domain had claimed and does not claim any more.
    pub(crate) fn drop_ends_of(&mut self, me: DomainId, but: &BTreeSet<ChannelId>) {
        let mut ends: Vec<EndKey> = self.claims.ends_of(me);
        ends.retain(|(channel, _)| !but.contains(channel));
        for key in ends {
            self.forget_end(key);
        }
    }

    /// Ends the effect of a domain's claims; this says nothing about its objects.
    pub(crate) fn void_claims_of(&mut self, me: DomainId) {
        let tried = self.claims.leaves_all(me);
        let uid = self.cx.uid_of(me).unwrap_or(u32::MAX);
        self.cx.accounts.sub(uid, Of::Records, tried as u64);
        for key in self.claims.ends_of(me) {
            if let Some(end) = self.claims.remove_end(key) {
                self.cx.release(end.half);
            }
        }
        self.drop_assigns(self.claims.assigns_by(me));
        for pool in self.claims.read_by(me) {
            if let Some(r) = self.claims.remove_reader((pool, me)) {
                self.cx
                    .accounts
                    .sub(r.uid, Of::Records, r.mapped.len() as u64);
                self.cx.release(r.refs);
            }
        }
    }
}
