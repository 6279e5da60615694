//! Histories of buffers: domains that have a traced pool are told to record their operations on its buffers, and show
//! the records. The records outlast their domain.

use crate::state::ancillary::Ancillary;
use crate::state::books::accounts::{Accounts, Of};
use crate::state::books::back_refs::{BackRefs, READS, WRITES};
use crate::state::books::extent::For;
use crate::state::context::Context;
use crate::state::pools::pool::Pools;
use crate::state::refuse::{no_such, not_yours, refusal};
use crate::state::types::{ClientId, Done, FdToken};
use std::collections::{BTreeMap, BTreeSet};
use tranship_proto::{DomainId, Event, Limited, PoolId, RefusalCode, Req};
use tranship_region::layout::{Kind, trace};

/// Ended domains whose records are kept; if there are more, each user keeps equally many.
const MOST_GONE: usize = 32;
/// Most clients that follow one pool.
const MOST_FOLLOWERS: u64 = 64;
/// Pending levels of a client that are looked at when there is room again.
const SAID: usize = 16;

/// One domain's records.
#[derive(Debug)]
pub(crate) struct Trace {
    pub domain: DomainId,
    pub name: String,
    pub pid: u32,
    pub uid: u32,
    pub alive: bool,
    pub fd: FdToken,
}

/// Histories of buffers.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// Pools that are traced until a client says otherwise.
    pools: BTreeSet<PoolId>,
    /// Pools that are traced as long as these clients exist, with the clients' users.
    followers: BTreeMap<PoolId, BTreeMap<ClientId, u32>>,
    // Invariant: `followers`, by client.
    followed: BTreeSet<(ClientId, PoolId)>,
    /// Domains that must still be told whether a pool is traced.
    unsaid: BTreeSet<(DomainId, PoolId)>,
    /// Rings by number; `last` is the last number.
    rings: BTreeMap<u32, Trace>,
    last: u32,
}

impl Traces {
    pub fn trace(
        &mut self,
        cx: &mut Context,
        pools: &Pools,
        (client, me, uid): (ClientId, DomainId, u32),
        req: Req,
        id: PoolId,
        (on, while_here): (bool, bool),
    ) -> Done {
        let p = pools.get(&id).filter(|p| !p.is_orphan());
        let p = p.ok_or(no_such(id.0))?;
        if !may_trace(&cx.accounts, uid, p.uid) {
            return Err(not_yours(id.0));
        }
        if p.writer != me {
            cx.check_operator(me)?;
        }
        let before = self.is_on(id);
        match (on, while_here) {
            (true, false) => drop(self.pools.insert(id)),
            (false, false) => drop(self.pools.remove(&id)),
            (true, true) => self.follow(id, (client, uid), &mut cx.accounts)?,
            (false, true) => self.unfollow(id, client, &mut cx.accounts),
        }
        self.say_traced(cx, pools, id, before);
        let on = self.is_on(id);
        cx.push(client, Event::Tracing { req, on }, &[]);
        Ok(())
    }

    fn follow(
        &mut self,
        id: PoolId,
        (client, uid): (ClientId, u32),
        accounts: &mut Accounts,
    ) -> Done {
        let of = self.followers.get(&id);
        if of.is_some_and(|of| of.contains_key(&client)) {
            return Ok(());
        }
        let n = of.map_or(0, BTreeMap::len) as u64;
        if n >= MOST_FOLLOWERS {
            return Err(Limited::Followers.refuse(n + 1, MOST_FOLLOWERS).into());
        }
        accounts.check(uid, Of::Records, 1)?;
        accounts.add(uid, Of::Records, 1);
        let of = self.followers.entry(id).or_default();
        of.insert(client, uid);
        self.followed.insert((client, id));
        Ok(())
    }

    fn unfollow(&mut self, id: PoolId, client: ClientId, accounts: &mut Accounts) {
        let Some(of) = self.followers.get_mut(&id) else {
            return;
        };
        if let Some(uid) = of.remove(&client) {
            accounts.sub(uid, Of::Records, 1);
        }
        if of.is_empty() {
            self.followers.remove(&id);
        }
        self.followed.remove(&(client, id));
    }

    /// Tells all domains that have the pool, if the level has changed.
    fn say_traced(&mut self, cx: &mut Context, pools: &Pools, pool: PoolId, before: bool) {
        let on = self.is_on(pool);
        let Some(p) = pools.get(&pool).filter(|_| on != before) else {
            return;
        };
        let readers = p.readers.keys().copied();
        let all: Vec<DomainId> = readers.chain([p.writer]).collect();
        for domain in all {
            self.say_level(cx, pools, domain, pool);
        }
    }

    /// Tells a domain a pool's level, at the expense of the user of the pool's writer. If that user's share of the
    /// queue is used up, the domain is told when there is room again. It is then told the level of that moment only.
    fn say_level(&mut self, cx: &mut Context, pools: &Pools, domain: DomainId, pool: PoolId) {
        let uid = pools.get(&pool).map(|p| p.uid);
        let (Some(uid), Some(client)) = (uid, cx.client_of(domain)) else {
            return;
        };
        if cx.clients.has_room_for(client, uid) {
            let on = self.is_on(pool);
            self.unsaid.remove(&(domain, pool));
            cx.tell_for(uid, domain, Event::Traced { pool, on }, &[]);
        } else {
            self.unsaid.insert((domain, pool));
        }
    }

    /// Sends levels that waited for room.
    pub fn say_levels(&mut self, cx: &mut Context, pools: &Pools, domain: DomainId) {
        let its = (domain, PoolId(0))..=(domain, PoolId(u32::MAX));
        let some = self.unsaid.range(its).take(SAID).copied();
        for (domain, pool) in some.collect::<Vec<_>>() {
            self.say_level(cx, pools, domain, pool);
        }
    }

    /// Forgets pending levels of a domain without a connection: it is told the present level when it is back.
    pub fn say_no_levels(&mut self, domain: DomainId) {
        let its = (domain, PoolId(0))..=(domain, PoolId(u32::MAX));
        let its: Vec<_> = self.unsaid.range(its).copied().collect();
        for key in its {
            self.unsaid.remove(&key);
        }
    }

    /// Records that a domain no longer has a pool.
    pub fn say_no_level(&mut self, domain: DomainId, pool: PoolId) {
        self.unsaid.remove(&(domain, pool));
    }

    /// Tells a domain that begins to read a pool its level.
    pub fn tell(&mut self, cx: &mut Context, pools: &Pools, domain: DomainId, pool: PoolId) {
        if self.is_on(pool) {
            self.say_level(cx, pools, domain, pool);
        }
    }

    /// Tells a returned domain all levels.
    pub fn tell_all(
        &mut self,
        cx: &mut Context,
        pools: &Pools,
        back_refs: &BackRefs,
        domain: DomainId,
    ) {
        let mut all = back_refs.pools(domain, WRITES);
        all.extend(back_refs.pools(domain, READS));
        for pool in all {
            self.tell(cx, pools, domain, pool);
        }
    }

    /// Ends all following by a connection that ends.
    pub fn follows_no_more(&mut self, cx: &mut Context, pools: &Pools, client: ClientId) {
        let its = (client, PoolId(0))..=(client, PoolId(u32::MAX));
        let its: Vec<_> = self.followed.range(its).copied().collect();
        for (client, pool) in its {
            let before = self.is_on(pool);
            self.unfollow(pool, client, &mut cx.accounts);
            self.say_traced(cx, pools, pool, before);
        }
    }

    pub fn forget(&mut self, pool: PoolId, accounts: &mut Accounts) {
        self.pools.remove(&pool);
        let of = self.followers.get(&pool);
        let clients = of.map(|of| of.keys().copied().collect::<Vec<_>>());
        for client in clients.into_iter().flatten() {
            self.unfollow(pool, client, accounts);
        }
    }

    /// Takes the ring into which a domain with a traced pool records. The ring that it showed before is dropped.
    pub fn show(
        &mut self,
        cx: &mut Context,
        back_refs: &BackRefs,
        me: DomainId,
        fds: &mut Ancillary,
    ) -> Done {
        let fd = fds.take(Kind::Trace, trace::ENTRIES)?;
        let alive = |t: &Trace| t.alive && t.domain == me;
        let mut rings = self.rings.iter();
        let old = rings.find(|(_, t)| alive(t)).map(|(number, _)| *number);
        let d = cx.domains.get(&me).ok_or(no_such(me.0))?;
        if old.is_none() {
            if !self.has_any(back_refs, me) {
                return Err(refusal(RefusalCode::State, 0, 0).into());
            }
            cx.accounts.check(d.uid, Of::Traces, 1)?;
        }
        let (name, pid, uid) = (d.name.clone(), d.pid, d.uid);
        let fd = cx.hold_memory(fd.token, me, For::Tables, trace::len() as u64);
        let ring = Trace {
            domain: me,
            name,
            pid,
            uid,
            alive: true,
            fd,
        };
        // The second ring takes the first one's place.
        let number = old.unwrap_or_else(|| self.number());
        match self.rings.insert(number, ring) {
            Some(before) => cx.release(before.fd),
            None => cx.accounts.add(uid, Of::Traces, 1),
        }
        Ok(())
    }

    fn has_any(&self, back_refs: &BackRefs, domain: DomainId) -> bool {
        let mut all = back_refs.pools(domain, WRITES);
        all.extend(back_refs.pools(domain, READS));
        all.into_iter().any(|pool| self.is_on(pool))
    }

    /// Keeps the records of an ended domain. If there are too many, the user with most loses its oldest.
    pub fn outlive(&mut self, cx: &mut Context, domain: DomainId) {
        let ends = |t: &&mut Trace| t.alive && t.domain == domain;
        let Some(t) = self.rings.values_mut().find(ends) else {
            return;
        };
        t.alive = false;
        cx.accounts.sub(t.uid, Of::Traces, 1);
        let (last, mut gone): (u32, BTreeMap<u32, Vec<u32>>) = (t.uid, BTreeMap::new());
        let dead = self.rings.iter().filter(|(_, t)| !t.alive);
        for (number, t) in dead {
            gone.entry(t.uid).or_default().push(*number);
        }
        if gone.values().map(Vec::len).sum::<usize>() <= MOST_GONE {
            return;
        }
        // If several have equally many, the user that has just got one more.
        let most = gone
            .iter()
            .max_by_key(|(uid, all)| (all.len(), **uid == last));
        let oldest = most.and_then(|(_, all)| all.first());
        if let Some(t) = oldest.and_then(|number| self.rings.remove(number)) {
            cx.release(t.fd);
        }
    }

    pub fn next(
        &self,
        cx: &mut Context,
        (client, me, uid): (ClientId, DomainId, u32),
        req: Req,
        after: u32,
    ) -> Done {
        let after = after.saturating_add(1)..;
        let mut rings = self.rings.range(after);
        let all = cx.check_operator(me).is_ok();
        let found =
            rings.find(|(_, t)| may_trace(&cx.accounts, uid, t.uid) && (all || t.domain == me));
        let Some((number, t)) = found else {
            cx.push(client, Event::TraceEnd { req }, &[]);
            return Ok(());
        };
        let event = Event::TraceRing {
            req,
            number: *number,
            domain: t.domain,
            name: t.name.clone(),
            pid: t.pid,
            alive: t.alive,
        };
        let fd = t.fd;
        cx.push(client, event, &[fd]);
        Ok(())
    }

    pub fn is_on(&self, pool: PoolId) -> bool {
        self.pools.contains(&pool) || self.followers.contains_key(&pool)
    }

    /// Returns the number of the next ring. Numbers wrap around, and skip those in use.
    fn number(&mut self) -> u32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.rings.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

fn may_trace(accounts: &Accounts, uid: u32, whose: u32) -> bool {
    uid == 0 || uid == whose || accounts.is_owner(uid)
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;
    use crate::state::access::clients::Client;
    use crate::state::pools::pool::Pool;

    impl Traces {
        pub fn rings(&self) -> impl Iterator<Item = &Trace> {
            self.rings.values()
        }

        /// Returns the user to whom each follower is counted.
        pub fn payers(&self) -> impl Iterator<Item = u32> + '_ {
            self.followers.values().flat_map(BTreeMap::values).copied()
        }

        /// Checks that both maps agree, and that each domain that must still be told has earlier messages to take.
        pub fn audit(&self, cx: &Context, pools: &Pools) -> Result<(), String> {
            let followers = self.followers.iter();
            let followers = followers.flat_map(|(pool, of)| of.keys().map(|c| (*c, *pool)));
            if self.followed != followers.collect() {
                return Err(format!("followers: {self:?}"));
            }
            for (domain, pool) in &self.unsaid {
                let p = pools.get(pool);
                let writes = |p: &Pool| p.writer == *domain && !p.is_orphan();
                let has = p.is_some_and(|p| writes(p) || p.readers.contains_key(domain));
                // A domain without messages to take makes no room.
                let client = cx.client_of(*domain);
                let client = client.and_then(|c| cx.clients.get(c));
                if !has || client.is_none_or(Client::has_all) {
                    return Err(format!("{domain} is not told whether {pool} is traced"));
                }
            }
            Ok(())
        }
    }
}
