//! The order in which counters of dead pools are read: in passes over all of them, in pieces, so that the manager
//! delays no client. Each slot is judged by itself. A dead slot of a dead pool stays dead, so a pass may take its time.

use super::pass::PoolsPass;
use crate::state::pools::pool::Pool;
use crate::state::types::{Action, FdToken};
use crate::state::{Of, State};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use tranship_proto::{ChannelId, DomainId, Event, PoolId};
use tranship_region::layout::Kind;

/// Words that are read for all users in one tick: 2 MiB, half a millisecond.
const WORDS: u32 = 1 << 19;
/// Chunks and readers of one user's pools that are handled in one tick.
const UNITS: usize = 2048;
/// The units for a look at a pool.
const LOOK: usize = 16;
/// Between two pieces of a pass.
const PAUSE: Duration = Duration::from_millis(10);
/// Words of a slot table's entry.
const TABLE_WORDS: usize = 8;

/// The counters of a pool to read.
struct Counters {
    slots: u32,
    table: Option<FdToken>,
    refs: Vec<FdToken>,
    queues: Vec<(FdToken, FdToken)>,
}

impl State {
    /// Returns when the next piece is due, if there is anything to read.
    pub(crate) fn sweep_due(&self) -> Option<Duration> {
        if !self.sweep.users.is_empty() {
            return Some(self.sweep.last + PAUSE);
        }
        let next = self.sweep.begun + self.cx.config.orphan_interval;
        if self.pools.has_orphans() {
            return Some(next);
        }
        let claimed = !self.claims.readers().is_empty();
        claimed.then(|| next.max(self.cx.config.grace))
    }

    /// Returns pools that are read but that no domain claims to write, each with a user that claims to read it.
    fn unclaimed(&self) -> impl Iterator<Item = (PoolId, u32)> {
        let read = self.claims.readers().iter().filter(|(_, r)| !r.gone_said);
        read.map(|((p, _), r)| (*p, r.uid))
            .filter(|(p, _)| !self.pools.contains_key(p))
    }

    /// Reads the next pieces if it is time.
    pub(crate) fn sweep_on(&mut self) {
        let due = self.sweep_due().is_some_and(|due| due <= self.cx.now);
        if !due {
            return;
        }
        if self.sweep.users.is_empty() {
            self.sweep.begun = self.cx.now;
            let mut pools: BTreeMap<PoolId, u32> = BTreeMap::new();
            if self.cx.now >= self.cx.config.grace {
                pools.extend(self.unclaimed());
            }
            let orphans = self.pools.iter().filter(|(_, p)| p.is_orphan());
            pools.extend(orphans.map(|(id, p)| (*id, p.uid)));
            for (pool, uid) in pools {
                let pass = self.sweep.users.entry(uid).or_default();
                pass.rest.push_back(pool);
            }
        }
        let users: Vec<u32> = self.sweep.users.keys().copied().collect();
        let words = WORDS / u32::try_from(users.len()).unwrap_or(u32::MAX).max(1);
        for uid in users {
            if let Some(pass) = self.sweep.users.get_mut(&uid) {
                (pass.words, pass.units) = (words, UNITS);
            }
            self.sweep_pieces(uid);
        }
    }

    /// Puts a pool that has just died before its user's others.
    pub(crate) fn sweep_first(&mut self, id: PoolId) {
        let Some(uid) = self.pools.get(&id).map(|p| p.uid) else {
            return;
        };
        let pass = self.sweep.users.entry(uid).or_default();
        pass.rest.retain(|p| *p != id);
        let begun = pass.next > 0 || pass.judging.is_some();
        let at = usize::from(begun && !pass.rest.is_empty());
        pass.rest.insert(at, id);
        if at == 0 {
            pass.begin();
        }
        pass.words = pass.words.max(WORDS / 16);
        pass.units = pass.units.max(UNITS / 16);
        self.sweep_pieces(uid);
    }

    /// Continues with a user's pools within this tick's bounds.
    fn sweep_pieces(&mut self, uid: u32) {
        self.sweep.last = self.cx.now;
        while self.sweep_piece(uid) {}
        if self
            .sweep
            .users
            .get(&uid)
            .is_some_and(|p| p.rest.is_empty())
        {
            self.sweep.users.remove(&uid);
        }
    }

    /// Does the next step; returns `false` if it has to wait.
    fn sweep_piece(&mut self, uid: u32) -> bool {
        let Some(pass) = self.sweep.users.get_mut(&uid) else {
            return false;
        };
        let Some(id) = pass.rest.front().copied() else {
            return false;
        };
        if pass.units < LOOK {
            return false;
        }
        pass.units -= LOOK;
        if let Some(from) = pass.judging {
            return self.judge_some(uid, id, from);
        }
        let next = pass.next;
        let orphan = self.pools.get(&id).filter(|p| p.is_orphan());
        // No other domain was ever shown it, or all of them are gone.
        let silent = |p: &Pool| {
            p.readers.is_empty()
                && p.queues.is_empty()
                && !self.claims.names_pool(id)
                && !self.is_awaited(id)
        };
        let silent = orphan.is_some_and(silent);
        let counters = || {
            let orphan = self.orphan_counters(id);
            orphan.or_else(|| self.claimed_counters(id))
        };
        let counters = if silent { None } else { counters() };
        let Some(pass) = self.sweep.users.get_mut(&uid) else {
            return false;
        };
        if silent {
            pass.begin();
            pass.judging = Some(0);
            return true;
        }
        let Some(c) = counters else {
            pass.next_pool();
            return true;
        };
        let each = TABLE_WORDS + c.refs.len() + 2 * c.queues.len();
        let each = u32::try_from(each).unwrap_or(WORDS);
        if pass.words == 0 {
            return false;
        }
        let to = next.saturating_add((pass.words / each).max(1)).min(c.slots);
        pass.words = pass.words.saturating_sub((to - next).saturating_mul(each));
        let p = self.pools.get(&id);
        self.cx.out.push(Action::ReadOrphan {
            pool: id,
            slots: next..to,
            table: c.table,
            refs: c.refs,
            queues: c.queues,
            chunk_bytes: p.map_or(1, |p| p.shape.chunk_bytes),
            windows: p.map_or(1, |p| p.shape.windows()),
        });
        false
    }

    /// Takes a piece that was read.
    pub(crate) fn swept(&mut self, id: PoolId, read: &Range<u32>, live: Option<Vec<(u32, u32)>>) {
        let is_next = |p: &PoolsPass| {
            p.rest.front() == Some(&id) && p.next == read.start && p.judging.is_none()
        };
        let users = self.sweep.users.iter();
        let Some(uid) = users
            .filter(|(_, p)| is_next(p))
            .map(|(uid, _)| *uid)
            .next()
        else {
            return;
        };
        let slots = self.pools.get(&id).map(|p| p.shape.slots);
        let slots = slots.or_else(|| self.claimed_counters(id).map(|c| c.slots));
        let Some(pass) = self.sweep.users.get_mut(&uid) else {
            return;
        };
        match (live, slots) {
            (Some(live), Some(slots)) => {
                live.iter().for_each(|range| pass.live.set(*range));
                pass.next = read.end;
                if read.end >= slots {
                    pass.judging = Some(0);
                }
            }
            // The pool is not judged in this pass.
            _ => pass.next_pool(),
        }
        self.sweep_pieces(uid);
    }

    /// Gives up some of the chunks in which nothing is alive.
    fn judge_some(&mut self, uid: u32, id: PoolId, from: u32) -> bool {
        let Some(pass) = self.sweep.users.get_mut(&uid) else {
            return false;
        };
        let Some(p) = self.pools.get(&id).filter(|p| p.is_orphan()) else {
            let silent = pass.live.is_empty();
            pass.next_pool();
            if silent && !self.pools.contains_key(&id) {
                self.claimed_judged(id);
            }
            return true;
        };
        // A writer that ended within its claims did not name all of its chunks: readers may hold buffers in others.
        let silent = pass.live.is_empty();
        let cost = 1 + p.readers.len();
        let most = (pass.units / cost).max(1);
        pass.units = pass.units.saturating_sub(most.saturating_mul(cost));
        let some: Vec<(u32, u32)> = p
            .chunks
            .range(from..)
            .take(most)
            .map(|(i, c)| (*i, c.serial))
            .collect();
        let dead: Vec<(u32, u32)> = some
            .iter()
            .filter(|(i, _)| !pass.live.has(*i))
            .copied()
            .collect();
        match some.last().and_then(|(last, _)| last.checked_add(1)) {
            Some(next) if some.len() == most => pass.judging = Some(next),
            _ => pass.next_pool(),
        }
        let over = pass.rest.front() != Some(&id);
        for key in dead {
            self.pools.chunk_goes(&mut self.cx, id, key);
        }
        if over {
            self.orphan_judged(id, silent);
        }
        true
    }

    /// Tells the readers of an orphan to forget it once nothing in it is alive.
    fn orphan_judged(&mut self, id: PoolId, silent: bool) {
        let Some(p) = self.pools.get_mut(id) else {
            return;
        };
        if !p.gone_said && p.chunks.is_empty() && silent {
            p.gone_said = true;
            let readers: Vec<DomainId> = p.readers.keys().copied().collect();
            for reader in readers {
                self.cx.tell(reader, Event::PoolGone { pool: id }, &[]);
            }
        }
        self.pool_may_end(id);
    }

    /// Returns the counters of a pool whose writer has died, with those that were claimed and not taken up before.
    /// Returns `None` while some may be missing: a chunk that is called dead must be dead for each reader that is told.
    ///
    /// A buffer can still reach a reader by a queue only, and a domain that has claimed everything has claimed its
    /// queues. Of the last queue on any way to that domain, the source is back too, or the queue counts as alive
    /// (`claimed`), and so on along that way. A domain that has not come yet therefore does not matter, but one in the
    /// middle of its claims does. Readers that the writer named are awaited for a while nevertheless, so that their
    /// mappings stay inside the total.
    fn orphan_counters(&self, id: PoolId) -> Option<Counters> {
        let p = self.pools.get(&id).filter(|p| p.is_orphan())?;
        if self.is_awaited(id) {
            return None;
        }
        let settled = p.queues.values().map(|q| (q.sent, q.rcvd));
        let (refs, queues) = self.claimed(id, p.shape.slots)?;
        Some(Counters {
            slots: p.shape.slots,
            table: Some(p.table),
            refs: p
                .readers
                .values()
                .filter_map(|r| r.refs)
                .chain(refs)
                .collect(),
            queues: settled.chain(queues).collect(),
        })
    }

    /// Says whether a domain that claims to read a pool has more to claim, or a reader named by the writer may still
    /// come.
    fn is_awaited(&self, id: PoolId) -> bool {
        let claims = |d: &DomainId| self.claims.readers().contains_key(&(id, *d));
        let busy = |d: &DomainId| {
            let claiming = self.cx.domains.get(d).and_then(|d| d.claiming.as_ref());
            claiming.is_some_and(|c| !c.same)
        };
        let late = |p: &Pool| {
            let here = |d: &DomainId| p.readers.contains_key(d) || claims(d);
            let living = || p.awaited().keys().any(|d| !here(d));
            self.cx.now < self.cx.config.grace && !p.named.keys().all(here) || living()
        };
        let named = |p: &Pool| p.named.keys().any(busy) || late(p);
        let of = (id, DomainId(0))..=(id, DomainId(u32::MAX));
        let mut readers = self.claims.readers().range(of);
        readers.any(|((_, d), _)| busy(d)) || self.pools.get(&id).is_some_and(named)
    }

    /// Says whether the other end of a channel is back, has claimed everything, and lives. Then it does not have the
    /// objects that it did not claim. This holds only for channels that were taken up: an id alone can be stolen.
    fn other_end_is_back(&self, channel: ChannelId, is_source: bool) -> bool {
        let c = self.channels.get(&channel).filter(|c| !c.source_gone);
        let other = c.map(|c| if is_source { c.sink } else { c.source });
        let other = other.and_then(|d| self.cx.domains.get(&d));
        other.is_some_and(|d| d.claiming.is_none())
    }

    /// Returns claimed references and queues of a pool that are not taken up, if each can be read. A queue with a
    /// missing side cannot be read, unless its other end does not have it: a source that was not told that it may send
    /// has sent nothing.
    #[allow(clippy::type_complexity)]
    fn claimed(&self, id: PoolId, slots: u32) -> Option<(Vec<FdToken>, Vec<(FdToken, FdToken)>)> {
        let of = (id, DomainId(0))..=(id, DomainId(u32::MAX));
        let readers: Vec<_> = self.claims.readers().range(of).map(|(_, r)| r).collect();
        if readers.iter().any(|r| r.slots != slots) {
            return None;
        }
        let right =
            |a: &super::claimed::ClaimedAssign, kind| a.facts.is(kind, slots).then_some(a.fd);
        let mut queues = Vec::new();
        for key in self.claims.assigns_of(id) {
            let (channel, _, is_source) = key;
            let a = self.claims.assigns().get(&key)?;
            let Some(other) = self.claims.assigns().get(&(channel, id, !is_source)) else {
                if self.other_end_is_back(channel, is_source) {
                    continue;
                }
                return None;
            };
            if is_source {
                queues.push((right(a, Kind::Sent)?, right(other, Kind::Rcvd)?));
            }
        }
        Some((readers.iter().map(|r| r.refs).collect(), queues))
    }

    /// Returns the counters of a pool that no domain claims to write, if all counters that could show something alive
    /// are there (as above).
    fn claimed_counters(&self, id: PoolId) -> Option<Counters> {
        if self.cx.now < self.cx.config.grace || self.pools.contains_key(&id) || self.is_awaited(id)
        {
            return None;
        }
        let of = (id, DomainId(0))..=(id, DomainId(u32::MAX));
        let slots = self.claims.readers().range(of).next()?.1.slots;
        let (refs, queues) = self.claimed(id, slots)?;
        Some(Counters {
            slots,
            table: None,
            refs,
            queues,
        })
    }

    /// Ends a pool whose writer ended while there was no manager, and of which nothing is held or in a queue.
    fn claimed_judged(&mut self, id: PoolId) {
        if self.claimed_counters(id).is_none() {
            return;
        }
        let mut readers = Vec::new();
        for ((_, reader), r) in self.claims.readers_mut(id) {
            // Their chunks go; the claims stay, for a writer that was only slow.
            self.cx
                .accounts
                .sub(r.uid, Of::Records, r.mapped.len() as u64);
            r.mapped.clear();
            if !std::mem::replace(&mut r.gone_said, true) {
                readers.push(*reader);
            }
        }
        for reader in readers {
            self.cx.tell(reader, Event::PoolGone { pool: id }, &[]);
        }
    }
}
