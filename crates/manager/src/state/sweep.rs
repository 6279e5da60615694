//! When which counters of dead pools are read: in passes over all of them, in pieces, so that the manager stalls for
//! nobody. Each slot is judged by itself, and one that is dead in a dead pool stays dead: a pass may take its time.

use super::types::{Action, FdToken};
use super::{State, format};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;
use tranship_proto::{DomainId, Event, PoolId};

/// Words that are read for one tick: 4 MiB, about 1 ms.
const WORDS: u32 = 1 << 20;
/// Between two pieces of a pass.
const PAUSE: Duration = Duration::from_millis(10);
/// After its start a manager gives a pool's writer this long to come back before it calls the pool dead.
const GRACE: Duration = Duration::from_secs(2);
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
        self.unclaimed().next().is_some().then(|| next.max(GRACE))
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
            if self.now >= GRACE {
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
            let silent = |p: &super::Pool| {
                // Nobody else was ever shown it, or all of them are gone.
                p.chunks.is_empty() || (p.readers.is_empty() && p.queues.is_empty())
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

    /// The counters of a pool whose writer has died, with those that were claimed and not taken up before it did. `None` while a
    /// queue is there of which only one side came back: its source may still be on its way, with buffers in hand.
    fn orphan_counters(&self, id: PoolId) -> Option<Counters> {
        let p = self.pools.get(&id).filter(|p| p.orphan)?;
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

    /// References and queues of a pool that were claimed and are not taken up, if each can be read.
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
            let other = self.claims.assigns.get(&(*channel, id, !is_source))?;
            if *is_source {
                queues.push((right(a, format::SENT)?, right(other, format::RCVD)?));
            }
        }
        Some((readers.iter().map(|r| r.refs).collect(), queues))
    }

    /// The counters of a pool that nobody claims to write, if all that could show something alive are there: a queue of
    /// which only one side came back counts as alive, and so does all while a domain is still claiming.
    fn claimed_counters(&self, id: PoolId) -> Option<Counters> {
        if self.now < GRACE
            || self.pools.contains_key(&id)
            || self.domains.values().any(|d| d.claiming.is_some())
        {
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
