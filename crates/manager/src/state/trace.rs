//! Histories of buffers: who has a pool is told to record what it does with its buffers, and shows where. What is recorded outlasts its writer.

use super::extent::For;
use super::model::{Trace, Traces};
use super::ties::{READS, WRITES};
use super::types::{ClientId, Done};
use super::{Parcel, State, format, no_such, not_yours, refusal};
use tranship_proto::{DomainId, Event, PoolId, RefusalCode, Req};

/// Domains that record.
const MOST: usize = 256;
/// Domains that are gone, of which it is kept what they recorded.
const MOST_GONE: usize = 32;
/// Clients that follow one pool.
const MOST_FOLLOWERS: usize = 64;
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
        let p = self.pools.get(&id).filter(|p| !p.orphan);
        let p = p.ok_or(no_such(id.0))?;
        if !self.may_trace(uid, p.uid) {
            return Err(not_yours(id.0));
        }
        let traces = &mut self.traces;
        let before = traces.is_on(id);
        match (on, while_here) {
            (true, false) => drop(traces.pools.insert(id)),
            (false, false) => drop(traces.pools.remove(&id)),
            (true, true) => {
                let of = traces.followers.entry(id).or_default();
                if of.len() >= MOST_FOLLOWERS && !of.contains(&client) {
                    let n = MOST_FOLLOWERS as u64;
                    return Err(refusal(RefusalCode::Limit, n + 1, n).into());
                }
                of.insert(client);
            }
            (false, true) => traces.unfollow(id, client),
        }
        self.say_traced(id, before);
        let on = self.traces.is_on(id);
        self.push(client, Event::Tracing { req, on }, &[]);
        Ok(())
    }

    fn may_trace(&self, uid: u32, whose: u32) -> bool {
        uid == 0 || uid == whose || self.accounts.is_owner(uid)
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
        let (Some(uid), Some(client)) = (uid, self.client_of(domain)) else {
            return;
        };
        if self.has_room_for(client, uid) {
            let on = self.traces.is_on(pool);
            self.traces.unsaid.remove(&(domain, pool));
            self.tell_for(uid, domain, Event::Traced { pool, on }, &[]);
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
        let mut all = self.ties.pools(domain, WRITES);
        all.extend(self.ties.pools(domain, READS));
        for pool in all {
            self.tell_traced(domain, pool);
        }
    }

    /// A connection ends: nobody follows by it.
    pub(super) fn follows_no_more(&mut self, client: ClientId) {
        let all: Vec<PoolId> = self.traces.followers.keys().copied().collect();
        for pool in all {
            let before = self.traces.is_on(pool);
            self.traces.unfollow(pool, client);
            self.say_traced(pool, before);
        }
    }

    pub(super) fn pool_is_not_traced(&mut self, pool: PoolId) {
        self.traces.pools.remove(&pool);
        self.traces.followers.remove(&pool);
    }

    /// A domain shows where it records. What it showed before is dropped.
    pub(super) fn show_trace(&mut self, me: DomainId, fds: &mut Parcel) -> Done {
        let (count, bytes) = format::trace_shape();
        let fd = fds.take(format::TRACE, count, bytes)?;
        let alive = |t: &Trace| t.alive && t.domain == me;
        let old = self.traces.rings.iter().find(|(_, t)| alive(t));
        let old = old.map(|(number, _)| *number);
        if let Some(old) = old.and_then(|number| self.traces.rings.remove(&number)) {
            self.release(old.fd);
        }
        let d = self.domains.get(&me);
        let recording = self.traces.rings.values().filter(|t| t.alive).count();
        let Some(d) = d.filter(|_| recording < MOST) else {
            fds.fds.push_front(fd);
            let n = MOST as u64;
            return Err(refusal(RefusalCode::Limit, n + 1, n).into());
        };
        let (name, pid, uid) = (d.name.clone(), d.pid, d.uid);
        let fd = self.hold_memory(fd.token, me, For::Tables, bytes);
        let ring = Trace {
            domain: me,
            name,
            pid,
            uid,
            alive: true,
            fd,
        };
        self.traces.last += 1;
        self.traces.rings.insert(self.traces.last, ring);
        Ok(())
    }

    /// What a domain recorded stays, until as many more have ended as are kept.
    pub(super) fn trace_outlives(&mut self, domain: DomainId) {
        let rings = self.traces.rings.values_mut();
        for t in rings.filter(|t| t.domain == domain) {
            t.alive = false;
        }
        let gone = self.traces.rings.iter().filter(|(_, t)| !t.alive);
        let gone: Vec<u32> = gone.map(|(number, _)| *number).collect();
        let surplus = gone.len().saturating_sub(MOST_GONE);
        for number in &gone[..surplus] {
            if let Some(t) = self.traces.rings.remove(number) {
                self.release(t.fd);
            }
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
            self.push(client, Event::TraceEnd { req }, &[]);
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
        self.push(client, event, &[fd]);
        Ok(())
    }
}

impl Traces {
    pub fn is_on(&self, pool: PoolId) -> bool {
        self.pools.contains(&pool) || self.followers.contains_key(&pool)
    }

    fn unfollow(&mut self, pool: PoolId, client: ClientId) {
        if let Some(of) = self.followers.get_mut(&pool) {
            of.remove(&client);
            if of.is_empty() {
                self.followers.remove(&pool);
            }
        }
    }
}
