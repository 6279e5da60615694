//! Pools: making, destroying, the right to forward.

use super::pool::Pool;
use crate::state::books::back_refs::BackRef;
use crate::state::quotas::schedule;
use crate::state::types::Done;
use crate::state::{Ancillary, Fail, Of, State, no_such, not_yours, refusal};
use tranship_proto::{
    ALL_READERS, DomainId, Event, Limited, PoolId, PoolShape, RefusalCode, Req, check_name,
};
use tranship_region::layout::Kind;

/// Most domains with the right to forward one pool.
const MAX_FORWARDERS: usize = 4096;

impl State {
    pub(crate) fn create_pool(
        &mut self,
        me: DomainId,
        req: Req,
        name: &str,
        shape: PoolShape,
        claimed: Option<PoolId>,
        fds: &mut Ancillary,
    ) -> Done {
        shape
            .check()
            .map_err(|e| refusal(RefusalCode::BadArgument, e.value, e.max))?;
        if !check_name(name) {
            return Err(refusal(RefusalCode::BadName, name.len() as u64, 64).into());
        }
        let Some(d) = self.cx.domains.get(&me) else {
            return Err(no_such(me.0));
        };
        let uid = d.uid;
        self.cx.accounts.check(uid, Of::Pools, 1)?;
        let Some(entry) = self.cx.free_entry(me) else {
            let n = u64::from(self.cx.config.pools_per_domain);
            return Err(Limited::PoolsOfDomain.refuse(n + 1, n).into());
        };
        let table = fds.take(Kind::Table, shape.slots)?;
        let header = table.facts.header.unwrap_or_default();
        if header.max_bytes != shape.max_bytes || header.chunk_bytes != shape.chunk_bytes {
            return Err(refusal(
                RefusalCode::BadDescriptor,
                shape.max_bytes,
                header.max_bytes,
            )
            .into());
        }
        let pool = match claimed {
            Some(pool) => pool,
            None => self.fresh_pool_id()?,
        };
        let (cx, pools, heaps) = (&self.cx, &self.pools, &self.heaps);
        let quota_bytes = match self.seat.quotas_move() {
            true => schedule::first_pool_quota(cx, pools, heaps, uid, name, &shape),
            false => cx.first_quota(uid, shape.max_bytes),
        };
        self.cx
            .hold_object(table.token, me, Kind::Table, shape.slots);
        let mut record = Pool::new(name, (me, uid), shape, table);
        (record.quota_bytes, record.entry) = (quota_bytes, entry);
        record.granted_at = self.cx.now;
        self.pools.insert(pool, record);
        self.back_refs.insert(me, BackRef::Writes(pool));
        self.cx.accounts.add(uid, Of::Pools, 1);
        self.cx.claimed_too(me, |c| c.pools.insert(pool));
        self.cx.take_entry(me, entry, pool);
        self.pools.publish(&mut self.cx, pool);
        self.cx.tell(
            me,
            Event::PoolCreated {
                req,
                pool,
                entry,
                quota_bytes,
            },
            &[],
        );
        Ok(())
    }

    pub(crate) fn destroy_pool(&mut self, me: DomainId, id: PoolId) -> Done {
        self.pools.own(me, id)?;
        self.orphan(id);
        Ok(())
    }

    pub(crate) fn allow_forward(
        &mut self,
        me: DomainId,
        req: Req,
        pool: PoolId,
        domain: DomainId,
    ) -> Done {
        if domain == ALL_READERS {
            self.pools.own(me, pool)?.readers_forward = true;
            self.cx
                .tell(me, Event::ForwardAllowed { req, pool, domain }, &[]);
            return Ok(());
        }
        // A writer that comes back repeats the rights that it gave; a domain with such a right may come back after it.
        let returning = self
            .cx
            .domains
            .get(&me)
            .is_some_and(|d| d.claiming.is_some());
        if !returning && !self.cx.domains.contains_key(&domain) {
            return Err(no_such(domain.0));
        }
        if let Some(p) = self.pools.get_mut(pool)
            && p.forwarders.len() >= MAX_FORWARDERS
            && !p.forwarders.contains(&domain)
        {
            // Forwarders that are gone make room.
            let (living, before) = (&self.cx.domains, p.forwarders.len() as u64);
            let back_refs = &mut self.back_refs;
            p.forwarders.retain(|d| {
                let lives = living.contains_key(d);
                if !lives && !p.named.contains_key(d) {
                    back_refs.remove(*d, BackRef::Named(pool));
                }
                lives
            });
            let now = p.forwarders.len() as u64;
            self.cx.accounts.sub(p.uid, Of::Records, before - now);
            if p.forwarders.len() >= MAX_FORWARDERS {
                return Err(Limited::Forwarders
                    .refuse(now + 1, MAX_FORWARDERS as u64)
                    .into());
            }
        }
        if !self.may_forward(me, pool)? {
            return Err(not_yours(pool.0));
        }
        if let Some(p) = self.pools.get_mut(pool)
            && !p.forwarders.contains(&domain)
        {
            self.cx.accounts.check(p.uid, Of::Records, 1)?;
            self.cx.accounts.add(p.uid, Of::Records, 1);
            p.forwarders.insert(domain);
            self.back_refs.insert(domain, BackRef::Named(pool));
        }
        self.cx
            .tell(me, Event::ForwardAllowed { req, pool, domain }, &[]);
        Ok(())
    }

    /// Says whether a domain may assign a pool to channels.
    pub(crate) fn may_forward(&self, me: DomainId, pool: PoolId) -> Result<bool, Fail> {
        let p = self
            .pools
            .get(&pool)
            .filter(|p| !p.is_orphan())
            .ok_or(no_such(pool.0))?;
        let reads = p.readers.get(&me).is_some_and(|r| r.refs.is_some());
        let readers_may = p.readers_forward || self.cx.config.forward == crate::Forward::Readers;
        Ok(p.writer == me || p.forwarders.contains(&me) || (reads && readers_may))
    }
}
