//! Claims after a restart: the domains' words about their earlier objects. A claim is kept apart until both sides are
//! there and agree (`settle`). A domain that comes back to the same manager is compared (`resume`).

use super::brought::Brought;
use super::claimed::{Claimed, ClaimedAssign, ClaimedEnd, ClaimedReader, Reads};
use crate::state::ancillary::half_of;
use crate::state::books::back_refs::BackRef;
use crate::state::books::extent::For;
use crate::state::model::{Answer, Claiming, MAX_QUEUES};
use crate::state::types::{ChunkKey, Done};
use crate::state::{Ancillary, Fail, Of, State, no_such, not_yours, refusal};
use std::collections::BTreeSet;
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, Event, Limited, PoolId, PoolShape, RefusalCode, Req, Role,
};
use tranship_region::layout::Kind;

/// Most chunks that one claimed reader may name.
const MAX_MAPPED: usize = 1 << 20;
/// Most claims of one domain that wait for their other side.
const MAX_CLAIMS: usize = 65536;

impl State {
    /// Returns what the domain has claimed; an error if it has nothing to claim now.
    pub(crate) fn claiming(&self, me: DomainId) -> Result<&Claiming, Fail> {
        let c = self.cx.domains.get(&me).and_then(|d| d.claiming.as_ref());
        c.ok_or(refusal(RefusalCode::State, 0, 0).into())
    }

    fn check_claims_limit(&self, me: DomainId) -> Done {
        let have = self.claims.of(me);
        if have >= MAX_CLAIMS {
            return Err(Limited::Claims
                .refuse(have as u64 + 1, MAX_CLAIMS as u64)
                .into());
        }
        Ok(())
    }

    pub(crate) fn claim_pool(
        &mut self,
        me: DomainId,
        req: Req,
        pool: PoolId,
        name: &str,
        shape: PoolShape,
        fds: &mut Ancillary,
    ) -> Done {
        let claiming = self.claiming(me)?;
        let (same, claimed_twice) = (claiming.same, claiming.pools.contains(&pool));
        match self.pools.get(&pool) {
            _ if pool.0 == 0
                || pool > PoolId::MAX
                || claimed_twice
                || self.heaps.contains_key(&pool) =>
            {
                return Err(refusal(RefusalCode::Claim, u64::from(pool.0), 0).into());
            }
            Some(p) if p.writer == me && !p.is_orphan() => self.pool_again(me, req, pool)?,
            Some(_) => return Err(refusal(RefusalCode::Claim, u64::from(pool.0), 0).into()),
            // The pool was given up here, and its readers were told so.
            None if same => return Err(no_such(pool.0)),
            None => self.create_pool(me, req, name, shape, Some(pool), fds)?,
        }
        self.cx.claimed_too(me, |c| c.pools.insert(pool));
        Ok(())
    }

    pub(crate) fn claim_chunk(
        &mut self,
        me: DomainId,
        req: Req,
        id: PoolId,
        key: ChunkKey,
        fds: &mut Ancillary,
    ) -> Done {
        self.claiming(me)?;
        let p = self.pools.own(me, id)?;
        let (index, serial) = key;
        if let Some(old) = p.chunks.get(&index).map(|c| c.serial)
            && old < serial
        {
            // The message that the older chunk went was lost with its connection. The younger chunk is there and in
            // use. If it were refused, its readers would be told that it does not exist, and take their writer for a
            // liar.
            self.pools.chunk_goes(&mut self.cx, id, (index, old));
        }
        let p = self.pools.own(me, id)?;
        match p.chunks.get_mut(&index) {
            Some(c) if c.serial == serial => {
                // Some reader has not been sent it yet: the answer comes when it has.
                if let Some((answer, _)) = &mut c.ready {
                    let old = std::mem::replace(answer, Answer::Claim(req));
                    // The old request came over this connection, and waits for its own chunks.
                    if let Answer::Batch(_) = old {
                        self.pools.say_ready(&mut self.cx, id, key, old);
                    }
                } else {
                    let event = Event::ChunkReady {
                        req,
                        pool: id,
                        index,
                        serial,
                    };
                    self.cx.tell(me, event, &[]);
                }
            }
            Some(c) => {
                let have = u64::from(c.serial);
                return Err(refusal(RefusalCode::Claim, u64::from(serial), have).into());
            }
            None => {
                if serial == 0 || p.chunks.values().any(|c| c.serial == serial) {
                    return Err(refusal(RefusalCode::Claim, u64::from(serial), 0).into());
                }
                p.check_window(index)?;
                fds.are_chunks(p.shape.chunk_bytes, p.shape.trust)?;
                let fd = fds.take_any()?;
                if p.unshown() == 0 {
                    // The memory exists and its readers use it, even if quota and total are exceeded. Other pools may
                    // have come earlier and been granted it, or the total is smaller now. A refusal would only make the
                    // manager forget it. Nothing more is granted until enough has come back.
                    let over = self.admit_one(id).is_err();
                    self.pools.add_granted(&mut self.cx, id, 1);
                    if over {
                        self.cx.totals.was_claimed();
                    }
                }
                self.add_chunk(me, id, key, fd, Answer::Claim(req))?;
            }
        }
        self.cx.claimed_too(me, |c| c.chunks.insert((id, key)));
        Ok(())
    }

    pub(crate) fn claim_reader(
        &mut self,
        me: DomainId,
        req: Req,
        pool: PoolId,
        claimed: Reads,
        mapped: &[ChunkKey],
        fds: &mut Ancillary,
    ) -> Done {
        let Reads {
            slots,
            table,
            trust,
        } = claimed;
        if self.claiming(me)?.same {
            if !self.claims.readers().contains_key(&(pool, me)) {
                self.reader_again(me, pool, mapped)?;
            }
            self.cx.tell(me, Event::Claimed { req }, &[]);
            return Ok(());
        }
        if let Some(r) = self.claims.reader_mut((pool, me)) {
            let n = r.mapped.len() + mapped.len();
            if (r.slots, r.table, r.trust) != (slots, table, trust) || n > MAX_MAPPED {
                return Err(Limited::Mapped.refuse(n as u64, MAX_MAPPED as u64).into());
            }
            self.cx
                .accounts
                .check(r.uid, Of::Records, mapped.len() as u64)?;
            let before = r.mapped.len();
            r.mapped.extend(mapped);
            let more = (r.mapped.len() - before) as u64;
            self.cx.accounts.add(r.uid, Of::Records, more);
        } else {
            self.check_claims_limit(me)?;
            let settled = self
                .pools
                .get(&pool)
                .is_some_and(|p| p.readers.contains_key(&me));
            if settled || slots == 0 || slots > tranship_proto::SLOT_LIMIT {
                return Err(refusal(RefusalCode::Claim, u64::from(slots), 0).into());
            }
            let uid = self.cx.uid_of(me).ok_or(no_such(me.0))?;
            self.cx
                .accounts
                .check(uid, Of::Records, mapped.len() as u64)?;
            let refs = fds.take(Kind::Refs, slots)?;
            let (refs, inode) = (refs.token, refs.facts.inode);
            self.cx.hold_object(refs, me, Kind::Refs, slots);
            let mapped: BTreeSet<ChunkKey> = mapped.iter().copied().collect();
            self.cx.accounts.add(uid, Of::Records, mapped.len() as u64);
            self.claims.insert_reader(
                (pool, me),
                ClaimedReader {
                    uid,
                    refs,
                    inode,
                    table,
                    slots,
                    trust,
                    mapped,
                    over: false,
                    gone_said: false,
                },
            );
        }
        self.cx.tell(me, Event::Claimed { req }, &[]);
        Ok(())
    }

    pub(crate) fn claim_channel(
        &mut self,
        me: DomainId,
        req: Req,
        claim: &ChannelClaim,
        fds: &mut Ancillary,
    ) -> Done {
        let uid = self.cx.uid_of(me).ok_or(no_such(me.0))?;
        if !self.claims.has_tried(me, claim.channel) {
            if let Err(refusal) = self.cx.accounts.check(uid, Of::Records, 1) {
                if let Some(d) = self.cx.domains.get_mut(&me) {
                    d.unheard = true;
                }
                return Err(refusal.into());
            }
            self.cx.accounts.add(uid, Of::Records, 1);
            self.claims.tries(me, claim.channel);
        }
        let known = self.channels.get(&claim.channel);
        if self.claiming(me)?.same || known.is_some_and(|c| c.role_of(me).is_some()) {
            return self.channel_again(me, req, claim);
        }
        self.cx
            .claimed_too(me, |c| c.channels.insert(claim.channel));
        let ChannelClaim {
            channel,
            ref name,
            role,
            peer,
            lines,
            peer_inode,
        } = *claim;
        crate::state::refuse::check_lines(lines)?;
        // The claim does not say which end offered the name.
        self.check_named(me, name, true)
            .or_else(|_| self.check_named(me, name, false))?;
        self.check_claims_limit(me)?;
        let key = (channel, role == Role::Source);
        let other = self.claims.ends().get(&(channel, !key.1));
        let taken = channel.0 == 0
            || peer == me
            || self.channels.contains_key(&channel)
            || self.exports.contains(channel.0)
            || self.cx.domains.contains_key(&DomainId(channel.0))
            || self.claims.ends().contains_key(&key);
        if taken || other.is_some_and(|o| o.peer != me || o.domain != peer) {
            return Err(refusal(RefusalCode::Claim, u64::from(channel.0), 0).into());
        }
        let half = fds.take(half_of(role), lines)?;
        // A process with a stolen id has not the memory that belongs to it: each end names the other's. And neither end
        // alone decides the channel's name.
        let strange = |o: &ClaimedEnd| {
            o.peer_inode != half.facts.inode || o.inode != peer_inode || o.name != *name
        };
        if self
            .claims
            .ends()
            .get(&(channel, !key.1))
            .is_some_and(strange)
        {
            return Err(refusal(RefusalCode::Claim, u64::from(channel.0), 0).into());
        }
        let (half, inode) = (half.token, half.facts.inode);
        self.cx.hold_object(half, me, half_of(role), lines);
        self.claims.insert_end(
            key,
            ClaimedEnd {
                domain: me,
                name: name.clone(),
                peer,
                lines,
                half,
                inode,
                peer_inode,
                req,
            },
        );
        self.settle(&Claimed::Channel(channel));
        Ok(())
    }

    pub(crate) fn claim_assign(
        &mut self,
        me: DomainId,
        req: Req,
        channel: ChannelId,
        pool: PoolId,
        fds: &mut Ancillary,
    ) -> Done {
        let same = self.claiming(me)?.same;
        if let Some(q) = self.pools.get(&pool).and_then(|p| p.queues.get(&channel)) {
            if !same || (q.source != me && q.sink != me) {
                return Err(refusal(RefusalCode::Claim, u64::from(channel.0), 0).into());
            }
            let open = q.sink == me && q.opening.is_none();
            self.cx.tell(me, Event::Claimed { req }, &[]);
            if open {
                // The domain may have missed that event.
                self.cx.tell(me, Event::PoolOpen { channel, pool }, &[]);
            }
            return Ok(());
        }
        if same {
            return Err(refusal(RefusalCode::Claim, u64::from(channel.0), 0).into());
        }
        self.check_claims_limit(me)?;
        let is_source = match self.channels.get(&channel).and_then(|c| c.role_of(me)) {
            Some(role) => role == Role::Source,
            None => {
                let mine = |s: bool| {
                    self.claims
                        .ends()
                        .get(&(channel, s))
                        .is_some_and(|e| e.domain == me)
                };
                if mine(true) {
                    true
                } else if mine(false) {
                    false
                } else {
                    return Err(not_yours(channel.0));
                }
            }
        };
        let key = (channel, pool, is_source);
        if self.claims.assigns().contains_key(&key) {
            return Err(refusal(RefusalCode::Claim, u64::from(channel.0), 0).into());
        }
        let fd = fds.take_sealed()?;
        self.cx
            .hold_memory(fd.token, me, For::Tables, fd.facts.size);
        let claimed = ClaimedAssign {
            domain: me,
            fd: fd.token,
            facts: fd.facts,
            req,
            open_said: false,
        };
        self.claims.insert_assign(key, claimed);
        self.settle(&Claimed::Assign(channel, pool));
        Ok(())
    }

    pub(crate) fn claim_reader_set(
        &mut self,
        me: DomainId,
        req: Req,
        pool: PoolId,
        readers: &[(DomainId, u64)],
        queues: &[(ChannelId, DomainId, u64)],
    ) -> Done {
        let same = self.claiming(me)?.same;
        let p = self.pools.own(me, pool)?;
        if !same {
            let (uid, before) = (p.uid, p.named.len() + p.brought.len());
            let most = (readers.len() + queues.len()) as u64;
            self.cx.accounts.check(uid, Of::Records, most)?;
            let p = self.pools.own(me, pool)?;
            // Each is looked for in the other.
            let some = p.named.len().max(p.brought.len()) + readers.len().max(queues.len());
            if some > MAX_QUEUES {
                return Err(Limited::Queues
                    .refuse(some as u64, MAX_QUEUES as u64)
                    .into());
            }
            p.named.extend(readers.iter().copied());
            for &(channel, sink, process) in queues {
                if !p.queues.contains_key(&channel) {
                    p.brought.insert(channel, Brought { sink, process });
                }
            }
            let more = (p.named.len() + p.brought.len() - before) as u64;
            self.cx.accounts.add(uid, Of::Records, more);
            for (reader, _) in readers {
                self.back_refs.insert(*reader, BackRef::Named(pool));
            }
        }
        self.cx.tell(me, Event::Claimed { req }, &[]);
        Ok(())
    }

    pub(crate) fn claim_done(&mut self, me: DomainId, req: Req) -> Done {
        if self.claiming(me)?.cut_short {
            // Nothing is given up or settled: the domain claims everything again.
            return Err(self.cx.accounts.no_descriptors().into());
        }
        self.give_up_unclaimed(me);
        if let Some(d) = self.cx.domains.get_mut(&me) {
            d.claiming = None;
        }
        self.cx.tell(me, Event::Claimed { req }, &[]);
        self.settle(&Claimed::Domain(me));
        let (cx, pools) = (&mut self.cx, &self.pools);
        self.traces.tell_all(cx, pools, &self.back_refs, me);
        Ok(())
    }
}
