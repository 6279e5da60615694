//! When which counters of dead pools are read: in passes over all of them, in pieces, so that the manager stalls for
//! nobody. Each slot is judged by itself, and one that is dead in a dead pool stays dead: a pass may take its time.

use super::types::{Action, FdToken};
use super::{State, format};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;
use tranship_proto::{ChannelId, DomainId, Event, PoolId};

/// Words that are read for one tick: 4 MiB, about 1 ms.
const WORDS: u32 = 1 << 20;
/// Between two pieces of a pass.
const PAUSE: Duration = Duration::from_millis(10);
/// Of a slot table's entry.
const TABLE_WORDS: usize = 8;

/// How far the reading is.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// When the last pass was begun, and its last piece read.
    begun: Duration,
    last: Duration,
    /// Words that may still be read for this tick.
    words: u32,
    /// What is left of the pass; of its first pool, the next slot and what was found alive.
    rest: VecDeque<PoolId>,
    next: u32,
    live: BTreeSet<u32>,
}

/// What there is to read of a pool.
struct Counters {
    slots: u32,
    table: Option<FdToken>,
    refs: Vec<FdToken>,
    queues: Vec<(FdToken, FdToken)>,
}

impl State {
    /// When the next piece is due, if there is anything to read.
    pub(super) fn sweep_due(&self) -> Option<Duration> {
        if !self.sweep.rest.is_empty() {
            return Some(self.sweep.last + PAUSE);
        }
        let next = self.sweep.begun + self.config.orphan_interval;
        if self.pools.values().any(|p| p.orphan) {
            return Some(next);
        }
        self.unclaimed()
            .next()
            .is_some()
            .then(|| next.max(self.config.grace))
    }

    /// Pools that are read, and that nobody claims to write.
    fn unclaimed(&self) -> impl Iterator<Item = PoolId> {
        let read = self.claims.readers.iter().filter(|(_, r)| !r.gone_said);
        read.map(|((p, _), _)| *p)
            .filter(|p| !self.pools.contains_key(p))
    }

    /// Reads the next piece if it is time.
    pub(super) fn sweep_on(&mut self) {
        let due = self.sweep_due().is_some_and(|due| due <= self.now);
        if !due {
            return;
        }
        if self.sweep.rest.is_empty() {
            self.sweep.begun = self.now;
            let mut pools: BTreeSet<PoolId> = BTreeSet::new();
            if self.now >= self.config.grace {
                pools.extend(self.unclaimed());
            }
            pools.extend(self.pools.iter().filter(|(_, p)| p.orphan).map(|(k, _)| *k));
            self.sweep.rest = pools.into_iter().collect();
            self.sweep_begin();
        }
        self.sweep.words = WORDS;
        self.sweep_piece();
    }

    /// A pool has just died: it comes before all others.
    pub(super) fn sweep_first(&mut self, id: PoolId) {
        self.sweep.rest.retain(|p| *p != id);
        self.sweep.rest.push_front(id);
        self.sweep_begin();
        self.sweep.words = self.sweep.words.max(WORDS / 16);
        self.sweep_piece();
    }

    fn sweep_begin(&mut self) {
        self.sweep.next = 0;
        self.sweep.live.clear();
    }

    fn sweep_next_pool(&mut self) -> BTreeSet<u32> {
        self.sweep.rest.pop_front();
        self.sweep.next = 0;
        std::mem::take(&mut self.sweep.live)
    }

    /// Has the next piece read, if this tick may read any more.
    fn sweep_piece(&mut self) {
        self.sweep.last = self.now;
        while let Some(id) = self.sweep.rest.front().copied() {
            let orphan = self.pools.get(&id).filter(|p| p.orphan);
            // Nobody else was ever shown it, or all of them are gone.
            let silent = |p: &super::Pool| {
                p.chunks.is_empty()
                    || (p.readers.is_empty()
                        && p.queues.is_empty()
                        && !self.claims.names_pool(id)
                        && !self.is_awaited(id))
            };
            if orphan.is_some_and(silent) {
                self.sweep_next_pool();
                self.orphan_judged(id, &BTreeSet::new());
                continue;
            }
            let Some(c) = self
                .orphan_counters(id)
                .or_else(|| self.claimed_counters(id))
            else {
                self.sweep_next_pool();
                continue;
            };
            let each = TABLE_WORDS + c.refs.len() + 2 * c.queues.len();
            let each = u32::try_from(each).unwrap_or(WORDS);
            if self.sweep.words == 0 {
                return;
            }
            let from = self.sweep.next;
            let to = from
                .saturating_add((self.sweep.words / each).max(1))
                .min(c.slots);
            self.sweep.words = self
                .sweep
                .words
                .saturating_sub((to - from).saturating_mul(each));
            self.out.push(Action::ReadOrphan {
                pool: id,
                slots: from..to,
                table: c.table,
                refs: c.refs,
                queues: c.queues,
                chunk_bytes: self.pools.get(&id).map_or(1, |p| p.chunk_bytes),
            });
            return;
        }
    }

    /// A piece was read.
    pub(super) fn swept(&mut self, id: PoolId, read: &Range<u32>, live: Option<Vec<u32>>) {
        if self.sweep.rest.front() != Some(&id) || self.sweep.next != read.start {
            return;
        }
        let slots = self.pools.get(&id).map(|p| p.slots);
        let slots = slots.or_else(|| self.claimed_counters(id).map(|c| c.slots));
        match (live, slots) {
            (Some(live), Some(slots)) => {
                self.sweep.live.extend(live);
                self.sweep.next = read.end;
                if read.end >= slots {
                    let live = self.sweep_next_pool();
                    if self.pools.contains_key(&id) {
                        self.orphan_judged(id, &live);
                    } else {
                        self.claimed_judged(id, &live);
                    }
                }
            }
            // Not judged in this pass.
            _ => drop(self.sweep_next_pool()),
        }
        self.sweep_piece();
    }

    /// The counters of a pool whose writer has died, with those that were claimed and not taken up before it did. `None` while
    /// they may not be all: what is said to be dead has to be so for each of its readers that is told.
    ///
    /// Something can still come to a reader by a queue only, and who has claimed all that it has has claimed its queues: of
    /// the last one on any way to it the source is back too, or it counts as alive (`claimed`), and so on along that way. So
    /// nobody who has not come yet matters, only who is in the midst of its claims. Readers that the writer named are
    /// awaited for a while all the same, so that what they map stays inside the total.
    fn orphan_counters(&self, id: PoolId) -> Option<Counters> {
        let p = self.pools.get(&id).filter(|p| p.orphan)?;
        if self.is_awaited(id) {
            return None;
        }
        let settled = p.queues.values().map(|q| (q.sent, q.rcvd));
        let (refs, queues) = self.claimed(id, p.slots)?;
        Some(Counters {
            slots: p.slots,
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

    /// Whether somebody who claims to read a pool has still something to claim, or a reader whom its writer named may be
    /// on its way.
    fn is_awaited(&self, id: PoolId) -> bool {
        let named = |d: &DomainId| self.pools.get(&id).is_some_and(|p| p.named.contains_key(d));
        let claims = |d: &DomainId| self.claims.readers.contains_key(&(id, *d));
        let claiming = |d: &super::Domain| d.claiming.as_ref().is_some_and(|c| !c.same);
        let busy = |(id, d): (&DomainId, &super::Domain)| claiming(d) && (named(id) || claims(id));
        let late = |p: &super::Pool| {
            let here = |d: &DomainId| p.readers.contains_key(d) || claims(d);
            self.now < self.config.grace && !p.named.keys().all(here)
        };
        self.domains.iter().any(busy) || self.pools.get(&id).is_some_and(late)
    }

    /// Whether the other end of a channel is back, has claimed all that it has, and lives: what it has not claimed of it, it has
    /// not. Only of channels that were taken up: an id alone can be stolen.
    fn other_end_is_back(&self, channel: ChannelId, is_source: bool) -> bool {
        let c = self.channels.get(&channel).filter(|c| !c.source_gone);
        let other = c.map(|c| if is_source { c.sink } else { c.source });
        let other = other.and_then(|d| self.domains.get(&d));
        other.is_some_and(|d| d.claiming.is_none())
    }

    /// References and queues of a pool that were claimed and are not taken up, if each can be read. A queue of which one side is
    /// missing cannot, unless its other end has it not: a source that was not told that it may send has sent nothing.
    #[allow(clippy::type_complexity)]
    fn claimed(&self, id: PoolId, slots: u32) -> Option<(Vec<FdToken>, Vec<(FdToken, FdToken)>)> {
        let of = (id, DomainId(0))..=(id, DomainId(u32::MAX));
        let readers: Vec<_> = self.claims.readers.range(of).map(|(_, r)| r).collect();
        if readers.iter().any(|r| r.slots != slots) {
            return None;
        }
        let right = |a: &super::claims::ClaimedAssign, kind: u32| {
            let (f, h) = (a.facts, a.facts.header.unwrap_or_default());
            let bytes = format::counts_bytes(slots);
            (f.sealed && f.size == bytes && h.kind == kind && h.count == slots).then_some(a.fd)
        };
        let mut queues = Vec::new();
        for ((channel, _, is_source), a) in self.claims.assigns.iter().filter(|(k, _)| k.1 == id) {
            let Some(other) = self.claims.assigns.get(&(*channel, id, !is_source)) else {
                if self.other_end_is_back(*channel, *is_source) {
                    continue;
                }
                return None;
            };
            if *is_source {
                queues.push((right(a, format::SENT)?, right(other, format::RCVD)?));
            }
        }
        Some((readers.iter().map(|r| r.refs).collect(), queues))
    }

    /// The counters of a pool that nobody claims to write, if all that could show something alive are there (as above).
    fn claimed_counters(&self, id: PoolId) -> Option<Counters> {
        if self.now < self.config.grace || self.pools.contains_key(&id) || self.is_awaited(id) {
            return None;
        }
        let of = (id, DomainId(0))..=(id, DomainId(u32::MAX));
        let slots = self.claims.readers.range(of).next()?.1.slots;
        let (refs, queues) = self.claimed(id, slots)?;
        Some(Counters {
            slots,
            table: None,
            refs,
            queues,
        })
    }

    /// The writer ended while no manager was there, and nothing of its pool is held or on its way.
    fn claimed_judged(&mut self, id: PoolId, live: &BTreeSet<u32>) {
        if !live.is_empty() || self.claimed_counters(id).is_none() {
            return;
        }
        let of = (id, DomainId(0))..=(id, DomainId(u32::MAX));
        let mut readers = Vec::new();
        for ((_, reader), r) in self.claims.readers.range_mut(of) {
            // Their chunks go; the claims stay, for a writer that was only slow.
            r.mapped.clear();
            if !std::mem::replace(&mut r.gone_said, true) {
                readers.push(*reader);
            }
        }
        for reader in readers {
            self.tell(reader, Event::PoolGone { pool: id }, &[]);
        }
    }
}
