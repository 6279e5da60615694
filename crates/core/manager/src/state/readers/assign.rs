//! Assigning a pool to a channel, in two phases.

use crate::state::books::back_refs::BackRef;
use crate::state::model::{MAX_QUEUES, Offer, Opening, Queue, Reader};
use crate::state::types::{Done, FdToken};
use crate::state::{Ancillary, Fail, State, no_such, not_yours, refusal};
use tranship_proto::{
    ChannelId, DomainId, Event, Levels, Limited, PoolId, RefusalCode, Req, SAID_NO,
};
use tranship_region::layout::Kind;

/// Offers that waited for room and are looked at in one go.
const OFFERED: usize = 16;

impl State {
    pub(crate) fn assign(
        &mut self,
        me: DomainId,
        req: Req,
        channel: ChannelId,
        pool: PoolId,
        fds: &mut Ancillary,
    ) -> Done {
        let c = self.channels.get(&channel).ok_or(no_such(channel.0))?;
        if c.source != me {
            return Err(not_yours(channel.0));
        }
        if c.source_gone || c.is_incoming() || self.offers.get((channel, pool)).is_some() {
            return Err(refusal(RefusalCode::State, u64::from(channel.0), 0).into());
        }
        let sink = c.sink;
        if !self.may_forward(me, pool)? {
            return Err(not_yours(pool.0));
        }
        let Some(p) = self.pools.get(&pool) else {
            return Err(no_such(pool.0));
        };
        let joined = p.queues.contains_key(&channel);
        let Some(uid) = self.cx.domains.get(&me).map(|d| d.uid) else {
            return Err(no_such(me.0));
        };
        if self.cx.client_of(sink).is_none() {
            return Err(refusal(RefusalCode::PeerGone, u64::from(sink.0), 0).into());
        }
        let slots = p.shape.slots;
        // Each offer may be a queue, and its sink a reader, a moment later.
        let (queues, readers) = (p.queues.len(), p.readers.len());
        let offers = self.offers.count_of(pool);
        let have = match p.readers.contains_key(&sink) {
            true => queues + offers,
            false => queues.max(readers) + offers,
        };
        if have >= MAX_QUEUES {
            return Err(Limited::Queues
                .refuse(have as u64 + 1, MAX_QUEUES as u64)
                .into());
        }
        if !self.cx.domains.contains_key(&p.writer) {
            return Err(no_such(pool.0));
        }
        let sent = fds.take(Kind::Sent, slots)?.token;
        self.cx.hold_object(sent, me, Kind::Sent, slots);
        let key = (channel, pool);
        let offer = Offer {
            req,
            source: me,
            uid,
            sink,
            sent,
        };
        self.offers.insert(key, offer);
        if !joined && !self.may_say(key) {
            return Ok(());
        }
        self.say_offer(key);
        if joined {
            // The source has lost the answer with its connection, and sent nothing over the queue, so it starts again.
            // This happens while the offer lasts: the sink may already take buffers, and stays on the reader set with
            // those it can be made to hold.
            self.leave_queue(pool, channel);
        }
        Ok(())
    }

    /// Says whether there is room for an offer in its sink's queue.
    fn may_say(&self, key: (ChannelId, PoolId)) -> bool {
        let offer = self.offers.get(key);
        offer.is_some_and(|o| {
            let client = self.cx.client_of(o.sink);
            client.is_some_and(|c| self.cx.clients.has_room_for(c, o.uid))
        })
    }

    /// Sends offers that waited for room at the sink.
    pub(crate) fn say_offers(&mut self, sink: DomainId) {
        for key in self.offers.unsaid(sink, OFFERED) {
            if self.may_say(key) {
                self.say_offer(key);
            }
        }
    }

    fn say_offer(&mut self, key: (ChannelId, PoolId)) {
        let (channel, pool) = key;
        let Some((sink, uid)) = self.offers.say(key).map(|o| (o.sink, o.uid)) else {
            return;
        };
        let Some(its) = self.cx.uid_of(sink) else {
            return;
        };
        let Some(p) = self.pools.get_mut(pool) else {
            return;
        };
        let mut known = sink == p.writer;
        if !known {
            let new = || Reader {
                uid: its,
                ..Reader::default()
            };
            self.back_refs.insert(sink, BackRef::Reads(pool));
            let r = p.readers.entry(sink).or_insert_with(new);
            known = r.refs.is_some();
            r.offers += 1;
        }
        let (writer, table) = (p.writer, p.table);
        let offer = Event::PoolOffer {
            channel,
            pool,
            writer,
            shape: p.shape,
            known,
        };
        let Some(process) = self.cx.domains.get(&writer).map(|d| d.pidfd) else {
            return self.cancel_offer(key);
        };
        self.cx.tell_for(uid, sink, offer, &[table, process]);
        if sink != writer && !self.pools.shown_all(pool, sink) {
            self.pools.start_feed(&mut self.cx, pool, sink, None);
        }
    }

    pub(crate) fn accept_pool(
        &mut self,
        me: DomainId,
        channel: ChannelId,
        pool: PoolId,
        with_refs: bool,
        fds: &mut Ancillary,
    ) -> Done {
        // The offer was taken back meanwhile: the answer comes too late, which is no error.
        let Some(offer) = self.offers.get((channel, pool)) else {
            return Ok(());
        };
        if offer.sink != me {
            return Err(not_yours(channel.0));
        }
        match self.check_accept(me, pool, with_refs, fds) {
            Ok((rcvd, refs)) => {
                let inode = refs.map(|(_, inode)| inode);
                self.finish_assign(me, channel, pool, rcvd, refs);
                self.watch.wake();
                if self.claims.assigns_of(pool).next().is_some() {
                    for (channel, _) in self.back_refs.ends(me) {
                        self.settle_assign(channel, pool);
                    }
                }
                // Counters that the writer has had on its reader set all the time.
                if let Some(p) = self.pools.get_mut(pool)
                    && let Some(r) = p.readers.get_mut(&me)
                    && inode.is_some_and(|i| p.named.get(&me) == Some(&i))
                {
                    r.proved = true;
                }
                Ok(())
            }
            Err(Fail::Refuse(r) | Fail::Expel(r)) => {
                self.cancel_offer((channel, pool));
                Err(Fail::Expel(r))
            }
        }
    }

    /// Returns the sink's counters: of the queue, and of references (with the inode), if they are new.
    fn check_accept(
        &mut self,
        me: DomainId,
        pool: PoolId,
        with_refs: bool,
        fds: &mut Ancillary,
    ) -> Result<(FdToken, Option<(FdToken, u64)>), Fail> {
        let p = self.pools.get(&pool).ok_or(no_such(pool.0))?;
        let reads = me != p.writer;
        if reads && !with_refs && p.readers.get(&me).is_none_or(|r| r.refs.is_none()) {
            return Err(refusal(RefusalCode::State, 0, 1).into());
        }
        let slots = p.shape.slots;
        let rcvd = fds.take(Kind::Rcvd, slots)?;
        let refs = with_refs.then(|| fds.take(Kind::Refs, slots)).transpose()?;
        let refs = refs.filter(|_| reads).map(|fd| (fd.token, fd.facts.inode));
        Ok((rcvd.token, refs))
    }

    /// Finishes an assignment: the epoch in the writer's control page, then the writer's event; when that has gone out,
    /// the answers to both ends.
    fn finish_assign(
        &mut self,
        me: DomainId,
        channel: ChannelId,
        pool: PoolId,
        rcvd: FdToken,
        refs: Option<(FdToken, u64)>,
    ) {
        let Some((offer, said)) = self.offers.remove((channel, pool)) else {
            return;
        };
        for token in self.claims.take_assigns(channel, pool) {
            self.cx.release(token);
        }
        let slots = self.pools.get(&pool).map_or(0, |p| p.shape.slots);
        self.cx.hold_object(rcvd, me, Kind::Rcvd, slots);
        if let Some((refs, inode)) = refs {
            self.cx.hold_object(refs, me, Kind::Refs, slots);
            let reader = self.pools.reader_mut(pool, me);
            let old = match reader {
                Some(r) => {
                    r.announced = false;
                    r.inode = inode;
                    r.refs.replace(refs)
                }
                None => Some(refs),
            };
            if let Some(old) = old {
                self.cx.release(old);
            }
        }
        if let Some(r) = self.pools.reader_mut(pool, me) {
            r.offers = r.offers.saturating_sub(u32::from(said));
        }
        self.cx.claimed_too(me, |c| c.readers.insert(pool));
        let client = self.cx.client_of(offer.source);
        let queue = Queue {
            source: offer.source,
            sink: me,
            sent: offer.sent,
            rcvd,
            epoch: 0,
            opening: Some(Opening::Assigned {
                client,
                req: offer.req,
            }),
        };
        self.join_queue(pool, channel, queue);
    }

    pub(crate) fn veto_pool(
        &mut self,
        me: DomainId,
        channel: ChannelId,
        pool: PoolId,
        levels: Option<Levels>,
    ) -> Done {
        match self.offers.get((channel, pool)) {
            Some(offer) if offer.sink == me => {
                let trust = self.pools.get(&pool).map(|p| p.shape.trust);
                let why = match levels.zip(trust) {
                    Some((levels, trust)) if !levels.has(trust) => {
                        refusal(RefusalCode::Trust, trust as u64, levels.bits())
                    }
                    _ => refusal(RefusalCode::PeerGone, pool.0.into(), SAID_NO),
                };
                self.refuse_offer((channel, pool), why);
                Ok(())
            }
            _ => Err(no_such(channel.0)),
        }
    }
}
