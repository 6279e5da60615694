//! Histories of buffers: who has a pool is told to record what it does with its buffers, and shows where. What is recorded outlasts its writer.

use super::back_refs::{READS, WRITES};
use super::extent::For;
use super::model::{Trace, Traces};
use super::types::{ClientId, Done};
use super::{Ancillary, Of, State, format, no_such, not_yours, refusal};
use std::collections::BTreeMap;
use tranship_proto::{DomainId, Event, PoolId, RefusalCode, Req};

/// Domains that are gone, of which it is kept what they recorded: as many of each user, if there are more.
const MOST_GONE: usize = 32;
/// Clients that follow one pool.
const MOST_FOLLOWERS: u64 = 64;
/// What waits to be said to a client, of which so much is looked at when there is room again.
const SAID: usize = 16;

impl State {
    pub(super) fn trace(
        &mut self,
        (client, uid): (ClientId, u32),
        req: Req,
        id: PoolId,
        (on, while_here): (bool, bool),
    ) -> Done {
        let p = self.pools.get(&id).filter(|p| !p.is_orphan());
        let p = p.ok_or(no_such(id.0))?;
        if !self.may_trace(uid, p.uid) {
            return Err(not_yours(id.0));
        }
        let before = self.traces.is_on(id);
        match (on, while_here) {
            (true, false) => drop(self.traces.pools.insert(id)),
            (false, false) => drop(self.traces.pools.remove(&id)),
            (true, true) => self.follow(id, (client, uid))?,
            (false, true) => self.unfollow(id, client),
        }
        self.say_traced(id, before);
        let on = self.traces.is_on(id);
        self.cx.push(client, Event::Tracing { req, on }, &[]);
        Ok(())
    }

    fn follow(&mut self, id: PoolId, (client, uid): (ClientId, u32)) -> Done {
        let of = self.traces.followers.get(&id);
        if of.is_some_and(|of| of.contains_key(&client)) {
            return Ok(());
        }
        let n = of.map_or(0, BTreeMap::len) as u64;
        if n >= MOST_FOLLOWERS {
            return Err(refusal(RefusalCode::Limit, n + 1, MOST_FOLLOWERS).into());
        }
        self.cx.accounts.check(uid, Of::Records, 1)?;
        self.cx.accounts.add(uid, Of::Records, 1);
        let of = self.traces.followers.entry(id).or_default();
        of.insert(client, uid);
        self.traces.followed.insert((client, id));
        Ok(())
    }

    fn unfollow(&mut self, id: PoolId, client: ClientId) {
        let Some(of) = self.traces.followers.get_mut(&id) else {
            return;
        };
        if let Some(uid) = of.remove(&client) {
            self.cx.accounts.sub(uid, Of::Records, 1);
        }
        if of.is_empty() {
            self.traces.followers.remove(&id);
        }
        self.traces.followed.remove(&(client, id));
    }

    fn may_trace(&self, uid: u32, whose: u32) -> bool {
        uid == 0 || uid == whose || self.cx.accounts.is_owner(uid)
    }

    /// Tells all who have the pool, if it is not as before.
    fn say_traced(&mut self, pool: PoolId, before: bool) {
        let on = self.traces.is_on(pool);
        let Some(p) = self.pools.get(&pool).filter(|_| on != before) else {
            return;
        };
        let readers = p.readers.keys().copied();
        let all: Vec<DomainId> = readers.chain([p.writer]).collect();
        for domain in all {
            self.say_level(domain, pool);
        }
    }

    /// Tells a domain how it is: at the expense of the user of the pool's writer, and if that one's share of the queue is used up when there is room
    /// again. What happens meanwhile is not said: only what is then.
    fn say_level(&mut self, domain: DomainId, pool: PoolId) {
        let uid = self.pools.get(&pool).map(|p| p.uid);
        let (Some(uid), Some(client)) = (uid, self.cx.client_of(domain)) else {
            return;
        };
        if self.cx.clients.has_room_for(client, uid) {
            let on = self.traces.is_on(pool);
            self.traces.unsaid.remove(&(domain, pool));
            self.cx
                .tell_for(uid, domain, Event::Traced { pool, on }, &[]);
        } else {
            self.traces.unsaid.insert((domain, pool));
        }
    }

    /// There is room again for what waited for it.
    pub(super) fn say_levels(&mut self, domain: DomainId) {
        let its = (domain, PoolId(0))..=(domain, PoolId(u32::MAX));
        let some = self.traces.unsaid.range(its).take(SAID).copied();
        for (domain, pool) in some.collect::<Vec<_>>() {
            self.say_level(domain, pool);
        }
    }

    /// A domain has no connection any more: what is so then is said when it is back.
    pub(super) fn say_no_levels(&mut self, domain: DomainId) {
        let its = (domain, PoolId(0))..=(domain, PoolId(u32::MAX));
        let its: Vec<_> = self.traces.unsaid.range(its).copied().collect();
        for key in its {
            self.traces.unsaid.remove(&key);
        }
    }

    /// A domain has a pool no more.
    pub(super) fn say_no_level(&mut self, domain: DomainId, pool: PoolId) {
        self.traces.unsaid.remove(&(domain, pool));
    }

    /// A domain begins to read a pool.
    pub(super) fn tell_traced(&mut self, domain: DomainId, pool: PoolId) {
        if self.traces.is_on(pool) {
            self.say_level(domain, pool);
        }
    }

    /// A domain has come back.
    pub(super) fn tell_all_traced(&mut self, domain: DomainId) {
        let mut all = self.back_refs.pools(domain, WRITES);
        all.extend(self.back_refs.pools(domain, READS));
        for pool in all {
            self.tell_traced(domain, pool);
        }
    }

    /// A connection ends: nobody follows by it.
    pub(super) fn follows_no_more(&mut self, client: ClientId) {
        let its = (client, PoolId(0))..=(client, PoolId(u32::MAX));
        let its: Vec<_> = self.traces.followed.range(its).copied().collect();
        for (client, pool) in its {
            let before = self.traces.is_on(pool);
            self.unfollow(pool, client);
            self.say_traced(pool, before);
        }
    }

    pub(super) fn pool_is_not_traced(&mut self, pool: PoolId) {
        self.traces.pools.remove(&pool);
        let of = self.traces.followers.get(&pool);
        let clients = of.map(|of| of.keys().copied().collect::<Vec<_>>());
        for client in clients.into_iter().flatten() {
            self.unfollow(pool, client);
        }
    }

    /// A domain shows where it records: it has a pool that is traced. What it showed before is dropped.
    pub(super) fn show_trace(&mut self, me: DomainId, fds: &mut Ancillary) -> Done {
        let (count, bytes) = format::trace_shape();
        let fd = fds.take(format::TRACE, count, bytes)?;
        let alive = |t: &Trace| t.alive && t.domain == me;
        let mut rings = self.traces.rings.iter();
        let old = rings.find(|(_, t)| alive(t)).map(|(number, _)| *number);
        let taken = match (old, self.cx.uid_of(me)) {
            (Some(_), _) => Ok(()),
            (None, Some(uid)) if self.has_traced(me) => self.cx.accounts.check(uid, Of::Traces, 1),
            _ => Err(refusal(RefusalCode::State, 0, 0)),
        };
        let d = match (taken, self.cx.domains.get(&me)) {
            (Ok(()), Some(d)) => d,
            (taken, _) => {
                fds.fds.push_front(fd);
                return taken.map_err(Into::into);
            }
        };
        let (name, pid, uid) = (d.name.clone(), d.pid, d.uid);
        let fd = self.cx.hold_memory(fd.token, me, For::Tables, bytes);
        let ring = Trace {
            domain: me,
            name,
            pid,
            uid,
            alive: true,
            fd,
        };
        // The second one takes the first one's place.
        let number = old.unwrap_or_else(|| self.traces.number());
        match self.traces.rings.insert(number, ring) {
            Some(before) => self.cx.release(before.fd),
            None => self.cx.accounts.add(uid, Of::Traces, 1),
        }
        Ok(())
    }

    fn has_traced(&self, domain: DomainId) -> bool {
        let mut all = self.back_refs.pools(domain, WRITES);
        all.extend(self.back_refs.pools(domain, READS));
        all.into_iter().any(|pool| self.traces.is_on(pool))
    }

    /// What a domain recorded stays, until there is too much of it: then the oldest goes of the user who has most.
    pub(super) fn trace_outlives(&mut self, domain: DomainId) {
        let ends = |t: &&mut Trace| t.alive && t.domain == domain;
        let Some(t) = self.traces.rings.values_mut().find(ends) else {
            return;
        };
        t.alive = false;
        self.cx.accounts.sub(t.uid, Of::Traces, 1);
        let (last, mut gone): (u32, BTreeMap<u32, Vec<u32>>) = (t.uid, BTreeMap::new());
        let dead = self.traces.rings.iter().filter(|(_, t)| !t.alive);
        for (number, t) in dead {
            gone.entry(t.uid).or_default().push(*number);
        }
        if gone.values().map(Vec::len).sum::<usize>() <= MOST_GONE {
            return;
        }
        // Of several with as many the one that has just got one more.
        let most = gone
            .iter()
            .max_by_key(|(uid, all)| (all.len(), **uid == last));
        let oldest = most.and_then(|(_, all)| all.first());
        if let Some(t) = oldest.and_then(|number| self.traces.rings.remove(number)) {
            self.cx.release(t.fd);
        }
    }

    pub(super) fn next_trace(
        &mut self,
        (client, uid): (ClientId, u32),
        req: Req,
        after: u32,
    ) -> Done {
        let after = after.saturating_add(1)..;
        let mut rings = self.traces.rings.range(after);
        let found = rings.find(|(_, t)| self.may_trace(uid, t.uid));
        let Some((number, t)) = found else {
            self.cx.push(client, Event::TraceEnd { req }, &[]);
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
        self.cx.push(client, event, &[fd]);
        Ok(())
    }
}

impl Traces {
    pub fn is_on(&self, pool: PoolId) -> bool {
        self.pools.contains(&pool) || self.followers.contains_key(&pool)
    }

    /// Of the next one. They begin anew after the last, and pass over those that are there.
    fn number(&mut self) -> u32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.rings.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}
