//! Admission and accounting: grants, returned memory, stranded memory, quotas.

use super::pool::Pool;
use crate::state::books::totals::SHRINK_PAUSE;
use crate::state::types::{ChunkKey, Done};
use crate::state::{Of, State, refusal};
use std::time::Duration;
use tranship_proto::{DomainId, Event, PoolId, RefusalCode, Req};

/// The time after which memory that was granted and not used may be taken back.
const UNUSED: Duration = Duration::from_secs(2);

impl State {
    /// Returns how many of `chunks` may be granted to a pool now; a refusal if fewer than `least`, which is above 0.
    pub(crate) fn admit(
        &self,
        pool: &Pool,
        chunks: u32,
        least: u32,
    ) -> Result<u32, crate::state::Refusal> {
        let asked = u64::from(chunks) * pool.shape.chunk_bytes;
        let least = u64::from(least) * pool.shape.chunk_bytes;
        let quota = pool.quota_bytes.saturating_sub(pool.granted_bytes());
        let total = self.cx.room_for(pool.uid, pool.writer);
        if quota < least {
            return Err(refusal(RefusalCode::Quota, asked, quota));
        }
        if total < least {
            return Err(self.cx.no_room(pool.uid, pool.writer, asked, least));
        }
        let most = quota.min(total) / pool.shape.chunk_bytes;
        Ok(chunks.min(u32::try_from(most).unwrap_or(u32::MAX)))
    }

    /// Returns the room for a domain. If it is too small, unused grants, of other domains or of this one, are taken
    /// back first.
    pub(crate) fn room_or_taken_back(&mut self, uid: u32, domain: DomainId, bytes: u64) -> u64 {
        let room = self.cx.room_for(uid, domain);
        if room >= bytes || !self.take_back() {
            return room;
        }
        self.cx.room_for(uid, domain)
    }

    /// Takes back memory that was granted and not used for a while. Returns `false` if that was tried just now. A
    /// writer that then shows a chunk after all is treated as if the chunk had not been granted.
    fn take_back(&mut self) -> bool {
        let now = self.cx.now;
        if !self.cx.totals.takes_back(now) {
            return false;
        }
        let unused = |p: &Pool| p.unshown() > 0 && p.granted_at + UNUSED <= now && !p.is_orphan();
        let unused = self.pools.iter().filter(|(_, p)| unused(p));
        let unused: Vec<(PoolId, u32)> = unused.map(|(id, p)| (*id, p.unshown())).collect();
        for (id, chunks) in unused {
            self.pools.sub_granted(&mut self.cx, id, chunks);
        }
        true
    }

    /// Admits one more chunk of a pool.
    pub(crate) fn admit_one(&self, id: PoolId) -> Result<u32, crate::state::Fail> {
        let pool = self.pools.get(&id).ok_or(crate::state::no_such(id.0))?;
        Ok(self.admit(pool, 1, 1)?)
    }

    /// Says whether a domain may be granted memory now. `true`: no more than it needs.
    pub(crate) fn check_slowed(&mut self, me: DomainId) -> Result<bool, crate::state::Refusal> {
        let (d, now) = (self.cx.domains.get(&me), self.cx.now);
        self.hogs.check_slowed(me, d, now)
    }

    pub(crate) fn grant(&mut self, me: DomainId, req: Req, id: PoolId, chunks: u32) -> Done {
        self.pools.own(me, id)?;
        if chunks == 0 {
            return Err(refusal(RefusalCode::BadArgument, 0, 1).into());
        }
        let chunks = self.grant_some(me, id, chunks, 1)?;
        let pool = id;
        self.cx.tell(me, Event::Granted { req, pool, chunks }, &[]);
        Ok(())
    }

    /// Grants as many chunks as possible, but no fewer than `least`, which is above 0.
    pub(crate) fn grant_some(
        &mut self,
        me: DomainId,
        id: PoolId,
        chunks: u32,
        least: u32,
    ) -> Result<u32, crate::state::Fail> {
        let p = self.pools.own(me, id)?;
        let (uid, bytes) = (p.uid, p.shape.chunk_bytes);
        self.room_or_taken_back(uid, me, u64::from(least) * bytes);
        let fits = self.admit(&self.pools[&id], least, least).is_ok();
        let chunks = match fits && self.check_slowed(me)? {
            true => least,
            false => chunks,
        };
        match self.admit(&self.pools[&id], chunks, least) {
            Ok(n) => {
                // Part of the requested memory may be useless, so this counts as a refusal of all of it.
                if n < chunks && self.cx.room_for(uid, me) < u64::from(chunks) * bytes {
                    self.ask_to_shrink(id);
                }
                self.pools.add_granted(&mut self.cx, id, n);
                Ok(n)
            }
            Err(r) => {
                if r.code == RefusalCode::Total {
                    self.ask_to_shrink(id);
                }
                Err(r.into())
            }
        }
    }

    /// Asks pools and heaps to shrink when the total is exhausted: those of users with more than an equal share come
    /// down to that share.
    pub(crate) fn ask_to_shrink(&mut self, asker: PoolId) {
        let now = self.cx.now;
        if !self.cx.totals.asks_to_shrink(now) {
            return;
        }
        let accounts = &self.cx.accounts;
        let equal = self.cx.total_bytes / accounts.users_with(Of::Bytes).max(1) as u64;
        let pool = self.pools.get(&asker).map(|p| p.uid);
        let its = pool.or_else(|| self.heaps.get(&asker).map(|h| h.uid));
        // The asking user, and a user with more than an equal share: each pool comes down to its part of that share.
        let share = |uid: u32| {
            let pools = accounts.has(uid, Of::Pools).max(1);
            let much = its == Some(uid) || accounts.has(uid, Of::Bytes) >= equal;
            much.then(|| equal.min(accounts.limit(uid, Of::Bytes)) / pools)
        };
        // Under a policy every pool comes down to its quota, and no further.
        let scheduled = self.seat.quotas_move();
        let is_due = |asked: Option<Duration>| asked.is_none_or(|t| t + SHRINK_PAUSE <= now);
        let mut ask = Vec::new();
        for (id, h) in &mut self.heaps {
            let target = share(h.uid);
            ask.push((*id, h.owner, h.admitted, target, &mut h.asked_to_shrink));
        }
        for (id, p) in self.pools.iter_mut().filter(|(_, p)| !p.is_orphan()) {
            let target = match scheduled {
                true => Some(p.quota_bytes),
                false => share(p.uid).map(|s| s.next_multiple_of(p.shape.chunk_bytes)),
            };
            let has = p.granted_bytes();
            ask.push((*id, p.writer, has, target, &mut p.asked_to_shrink));
        }
        for (pool, owner, has, target, asked) in ask {
            if let Some(target_bytes) = target
                && pool != asker
                && is_due(*asked)
                && has > target_bytes
            {
                *asked = Some(now);
                // An owner that does not read is asked again when it does.
                if self.cx.reads(owner) {
                    self.cx
                        .tell(owner, Event::Shrink { pool, target_bytes }, &[]);
                }
            }
        }
    }

    pub(crate) fn ungrant(&mut self, me: DomainId, id: PoolId, chunks: u32) -> Done {
        let n = self.pools.own(me, id)?.unshown().min(chunks);
        self.pools.sub_granted(&mut self.cx, id, n);
        Ok(())
    }

    pub(crate) fn return_chunk(&mut self, me: DomainId, id: PoolId, key: ChunkKey) -> Done {
        let p = self.pools.own(me, id)?;
        if p.chunks.get(&key.0).is_none_or(|c| c.serial != key.1) {
            return Err(crate::state::no_such(key.0));
        }
        self.pools.chunk_goes(&mut self.cx, id, key);
        Ok(())
    }
}
