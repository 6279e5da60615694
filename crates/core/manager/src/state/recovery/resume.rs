//! A domain that comes back to the manager that it left: its claims name known objects, and objects that it does not
//! claim are given up.

use crate::state::books::back_refs::{READS, WRITES};
use crate::state::pools::pool::Pool;
use crate::state::types::{ChunkKey, Done, Left, Then};
use crate::state::{State, no_such, refusal};
use std::collections::BTreeSet;
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, Event, GoneReason, Limited, PoolId, RefusalCode, Req, Role,
};

impl State {
    /// Gives a pool its place in the new control page. The reader set is sent again from the start, its epoch first:
    /// the writer may not collect before it has all of it.
    pub(crate) fn pool_again(&mut self, me: DomainId, req: Req, id: PoolId) -> Done {
        let Some(entry) = self.cx.free_entry(me) else {
            return Err(Limited::PoolsOfDomain.refuse(1, 0).into());
        };
        self.cx.take_entry(me, entry, id);
        let left: Vec<Left> = self.departures.of(me, id).collect();
        let Some(client) = self.cx.client_of(me) else {
            return Ok(());
        };
        let Some(p) = self.pools.get_mut(id) else {
            return Err(no_such(id.0));
        };
        for r in p.readers.values_mut() {
            r.announced = false;
        }
        // Those requests came over a connection that is gone: the present claims are answered instead.
        p.batches.clear();
        let queues: Vec<ChannelId> = p.queues.keys().copied().collect();
        p.entry = entry;
        p.epoch = 1 + (queues.len() + left.len()) as u64;
        let quota_bytes = p.quota_bytes;
        self.pools.publish(&mut self.cx, id);
        let created = Event::PoolCreated {
            req,
            pool: id,
            entry,
            quota_bytes,
        };
        self.cx.push(client, created, &[]);
        // Departures go first: a channel or a reader may have come again meanwhile.
        let mut epoch = 1;
        for l in left {
            epoch += 1;
            self.cx
                .push_then(client, l.event(id, epoch), &[], Then::Left(id, l));
        }
        for channel in queues {
            epoch += 1;
            self.say_joined(id, channel, epoch);
        }
        Ok(())
    }

    pub(crate) fn reader_again(&mut self, me: DomainId, pool: PoolId, mapped: &[ChunkKey]) -> Done {
        let Some(r) = self.pools.reader(pool, me) else {
            return Err(refusal(RefusalCode::Claim, u64::from(pool.0), 0).into());
        };
        let first = self.cx.claimed_too(me, |c| c.readers.insert(pool)) == Some(true);
        // Split claims: only the last one completes them, so nothing is taken from `shown` before `ClaimDone`. Chunks that
        // the reader was not shown are ignored: a liar may name any number.
        let (known, mut gone): (Vec<ChunkKey>, Vec<ChunkKey>) =
            mapped.iter().partition(|key| r.shown.contains(key));
        if let Some(p) = self.pools.get(&pool) {
            if p.is_orphan() {
                // The pool's writer may have ended before it named these chunks (`take_up_reader`).
                gone.clear();
            }
            gone.extend(mapped.iter().filter(|key| p.stranded.contains_key(key)));
        }
        self.cx.claimed_too(me, |c| {
            c.chunks.extend(known.into_iter().map(|key| (pool, key)))
        });
        for (index, serial) in gone {
            let event = Event::ChunkGone {
                pool,
                index,
                serial,
            };
            self.cx.tell(me, event, &[]);
        }
        let gone = self.pools.get(&pool).is_some_and(|p| p.gone_said);
        if gone && first {
            self.cx.tell(me, Event::PoolGone { pool }, &[]);
        }
        Ok(())
    }

    pub(crate) fn channel_again(&mut self, me: DomainId, req: Req, claim: &ChannelClaim) -> Done {
        let id = claim.channel;
        let end = (id, claim.role == Role::Source);
        if let Some(e) = self.claims.end_mut(end).filter(|e| e.domain == me) {
            // The other end has not come yet.
            e.req = req;
            self.cx.claimed_too(me, |c| c.channels.insert(id));
            return Ok(());
        }
        let (known, gone) = match self.channels.get(&id) {
            None => (true, true),
            Some(c) => {
                let peer = if c.source == me { c.sink } else { c.source };
                let agrees = c.role_of(me) == Some(claim.role) && peer == claim.peer;
                (
                    agrees && !c.is_incoming(),
                    claim.role == Role::Sink && c.source_gone,
                )
            }
        };
        if !known {
            return Err(refusal(RefusalCode::Claim, u64::from(id.0), 0).into());
        }
        // Only existing objects are kept: a liar may name any number of ids.
        if self.channels.contains_key(&id) {
            self.cx.claimed_too(me, |c| c.channels.insert(id));
        }
        self.cx.tell(me, Event::Claimed { req }, &[]);
        if gone {
            self.cx.tell_gone(me, id, GoneReason::Closed);
        }
        Ok(())
    }

    /// Gives up the domain's objects here that it did not claim.
    pub(crate) fn give_up_unclaimed(&mut self, me: DomainId) {
        let Some(c) = self.cx.domains.get_mut(&me).and_then(|d| d.claiming.take()) else {
            return;
        };
        self.drop_ends_of(me, &c.channels);
        let mut channels = self.back_refs.ends(me);
        channels.retain(|(id, _)| {
            let open = self.channels.get(id).is_some_and(|ch| !ch.is_incoming());
            open && !c.channels.contains(id)
        });
        for (channel, is_source) in channels {
            if is_source {
                self.source_goes(channel, GoneReason::Closed);
            } else {
                self.sink_goes(channel, GoneReason::Closed);
            }
        }
        if c.same {
            self.give_up_reading(me, &c.readers, &c.chunks);
        }
        let mut pools = self.back_refs.pools(me, WRITES);
        pools.retain(|id| self.pools.is_written(*id));
        for pool in pools {
            if !c.pools.contains(&pool) {
                self.orphan(pool);
                continue;
            }
            let Some(p) = self.pools.get(&pool) else {
                continue;
            };
            let gone: Vec<ChunkKey> = p
                .chunks
                .iter()
                .map(|(i, k)| (*i, k.serial))
                .filter(|k| !c.chunks.contains(&(pool, *k)))
                .collect();
            let unshown = p.unshown();
            for key in gone {
                self.pools.chunk_goes(&mut self.cx, pool, key);
            }
            self.pools.sub_granted(&mut self.cx, pool, unshown);
        }
    }

    fn give_up_reading(
        &mut self,
        me: DomainId,
        readers: &BTreeSet<PoolId>,
        chunks: &BTreeSet<(PoolId, ChunkKey)>,
    ) {
        let read = self.back_refs.pools(me, READS);
        for pool in read {
            let Some(r) = self.pools.reader(pool, me) else {
                continue;
            };
            // A reader that is being offered the pool answers with its counters.
            if !readers.contains(&pool) && r.offers == 0 {
                self.drop_reader(pool, me);
                continue;
            }
            let unmapped: Vec<ChunkKey> = r
                .shown
                .iter()
                .filter(|k| !chunks.contains(&(pool, **k)))
                .copied()
                .collect();
            let live =
                |p: &Pool, key: &ChunkKey| p.chunks.get(&key.0).is_some_and(|c| c.serial == key.1);
            if let Some(p) = self.pools.get_mut(pool)
                && unmapped.iter().any(|key| live(p, key))
                && let Some(r) = p.readers.get_mut(&me)
            {
                r.marked = true;
            }
            for key in unmapped {
                self.pools.unhold_chunk(&mut self.cx, pool, key, me);
            }
            self.reader_may_leave(pool, me);
            self.pool_may_end(pool);
        }
    }
}
