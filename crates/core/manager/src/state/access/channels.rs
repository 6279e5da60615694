//! Leaving a channel, in order or by death, and wake descriptors.

use crate::state::books::back_refs::BackRef;
use crate::state::types::Done;
use crate::state::{Ancillary, Fail, State, no_such, not_yours, refusal};
use tranship_proto::{
    ChannelId, DomainId, Event, GoneReason, Limited, PoolId, RefusalCode, Req, Role,
};

impl State {
    fn role_in(&self, me: DomainId, id: ChannelId) -> Result<Role, Fail> {
        let c = self.channels.get(&id).ok_or(no_such(id.0))?;
        c.role_of(me).ok_or(not_yours(id.0))
    }

    pub(crate) fn close_channel(&mut self, me: DomainId, id: ChannelId) -> Done {
        if self.drop_claimed_end(me, id) {
            return Ok(());
        }
        // This covers an end that the domain claimed in vain.
        self.has_no_more(me, id);
        let role = self.role_in(me, id)?;
        if self
            .channels
            .get(&id)
            .is_some_and(crate::state::model::Channel::is_incoming)
        {
            self.drop_incoming(id, me);
            return Ok(());
        }
        match role {
            Role::Source => self.source_goes(id, GoneReason::Closed),
            Role::Sink => self.sink_goes(id, GoneReason::Closed),
        }
        Ok(())
    }

    pub(crate) fn drained(&mut self, me: DomainId, id: ChannelId) -> Done {
        if self.drop_claimed_end(me, id) {
            return Ok(());
        }
        if !self.channels.contains_key(&id) {
            self.has_no_more(me, id);
        }
        if self.role_in(me, id)? == Role::Sink
            && self.channels.get(&id).is_some_and(|c| c.source_gone)
        {
            self.sink_goes(id, GoneReason::Closed);
        }
        Ok(())
    }

    fn cancel_offers_of(&mut self, id: ChannelId) {
        for key in self.offers.over(id) {
            self.cancel_offer(key);
        }
    }

    /// Ends the source's side of a channel. Its queues stay until the sink has taken the remaining messages.
    pub(crate) fn source_goes(&mut self, id: ChannelId, reason: GoneReason) {
        self.cancel_offers_of(id);
        let Some(c) = self.channels.get_mut(&id).filter(|c| !c.source_gone) else {
            return;
        };
        c.source_gone = true;
        self.back_refs.remove(c.source, BackRef::End(id, true));
        // Messages that the sink does not take are no longer counted to the source.
        let payer = c.payers[0].take();
        let (sink, half) = (c.sink, c.source_half.take());
        let ring = half.and_then(|half| {
            let out = &mut self.cx.out;
            self.cx.descriptors.release_but_count(half, out)
        });
        if let Some(c) = self.channels.get_mut(&id) {
            c.source_ring = ring;
        }
        self.no_channel(&[payer, None]);
        self.cx.tell_gone(sink, id, reason);
    }

    /// Ends the sink's side: the queues leave and the channel is forgotten.
    pub(crate) fn sink_goes(&mut self, id: ChannelId, reason: GoneReason) {
        self.cancel_offers_of(id);
        let pools: Vec<PoolId> = match self.channels.get(&id) {
            Some(c) => c.pools.iter().copied().collect(),
            None => return,
        };
        for pool in pools {
            self.leave_queue(pool, id);
        }
        self.forget_assigns(id);
        let Some(c) = self.channels.remove(&id) else {
            return;
        };
        self.has_no_more(c.sink, id);
        self.back_refs.remove(c.source, BackRef::End(id, true));
        self.back_refs.remove(c.sink, BackRef::End(id, false));
        self.no_channel(&c.payers);
        for half in [c.source_half, c.sink_half].into_iter().flatten() {
            self.cx.release(half);
        }
        if let Some(ring) = c.source_ring {
            self.cx.descriptors.forget(ring);
        }
        if !c.source_gone {
            self.cx.tell_gone(c.source, id, reason);
        }
    }

    /// Gives the peer a socket to write to, and the asking domain the other end to sleep on.
    pub(crate) fn wake_fd(
        &mut self,
        me: DomainId,
        req: Req,
        id: ChannelId,
        fds: &mut Ancillary,
    ) -> Done {
        let role = self.role_in(me, id)?;
        let Some(c) = self.channels.get(&id).filter(|c| !c.is_incoming()) else {
            return Err(refusal(RefusalCode::State, u64::from(id.0), 0).into());
        };
        let peer = match role {
            Role::Source => c.sink,
            Role::Sink => c.source,
        };
        let uid = self.cx.uid_of(me).ok_or(no_such(me.0))?;
        self.cx.accounts.check_descriptors(uid, 2)?;
        let Some(client) = self.cx.client_of(peer) else {
            // The peer has no connection.
            return Err(refusal(RefusalCode::State, u64::from(id.0), 0).into());
        };
        // A domain that asks faster than the peer takes must not get the peer expelled.
        if !self.cx.clients.has_room_for(client, uid) {
            return Err(Limited::Backlog.refuse(0, 0).into());
        }
        let [near, far] = fds.ends()?.map(|end| self.cx.hold(end, uid));
        self.cx
            .tell_for(uid, peer, Event::WakeFd { channel: id }, &[far]);
        self.cx.tell(me, Event::WakeEnd { req }, &[near]);
        // The messages have their own hold on them.
        self.cx.release(near);
        self.cx.release(far);
        Ok(())
    }
}
