//! Who holds what of others' pools, and for how long: readers' counters are looked through once a period, in pieces, so that the
//! manager stalls for nobody. Programs notice nothing of it.

use super::types::{Action, HeldSlot};
use super::{Of, State};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;
use std::time::Duration;
use tranship_proto::{DomainId, PoolId};

/// Words that are read for all users in one tick: half a MiB.
const WORDS: u32 = 1 << 17;
/// Slots in one go.
const PIECE: u32 = 8192;
/// Of these, for a look at a reader.
const LOOK: u32 = 64;
/// Between two ticks.
const PAUSE: Duration = Duration::from_millis(10);
/// Of a slot table's entry.
const TABLE_WORDS: u32 = 8;

impl State {
    pub(super) fn watch_due(&self) -> Option<Duration> {
        if !self.watch.users.is_empty() {
            return Some(self.watch.last + PAUSE);
        }
        (!self.watch.idle).then(|| self.watch.begun + self.cx.config.policy_period)
    }

    pub(super) fn watch_on(&mut self) {
        if self.watch_due().is_none_or(|due| due > self.cx.now) {
            return;
        }
        if self.watch.users.is_empty() {
            self.watch.begun = self.cx.now;
            for (id, p) in self.pools.iter() {
                let readers = p.readers.iter().filter(|(_, r)| r.refs.is_some());
                for (reader, r) in readers {
                    let pass = self.watch.users.entry(r.uid).or_default();
                    pass.rest.push_back((*id, *reader));
                }
            }
            self.watch.idle = self.watch.users.is_empty();
        }
        self.watch.last = self.cx.now;
        // Who was left out at the last tick comes first at this one.
        let (users, last) = (&self.watch.users, self.watch.last_user);
        let next = users.range((Excluded(last), Unbounded));
        let all = next.chain(users.range(..=last)).map(|(uid, _)| *uid);
        (self.watch.after, self.watch.turn) = (all.collect(), None);
        self.watch.words = WORDS;
        self.watch_next();
    }

    /// Goes on with whose turn it is, or gives the next one its part of the words that are left, as long as there are any.
    fn watch_next(&mut self) {
        loop {
            if let Some(uid) = self.watch.turn {
                if self.watch_more(uid) {
                    return;
                }
                self.watch.turn = None;
            }
            if self.watch.words == 0 {
                return;
            }
            let left = u32::try_from(self.watch.after.len()).unwrap_or(u32::MAX);
            let Some(uid) = self.watch.after.pop_front() else {
                return;
            };
            if let Some(pass) = self.watch.users.get_mut(&uid) {
                pass.words = (self.watch.words / left).max(1);
                (self.watch.turn, self.watch.last_user) = (Some(uid), uid);
            }
        }
    }

    /// Of so many words.
    fn watch_spends(&mut self, uid: u32, words: u32) {
        self.watch.words = self.watch.words.saturating_sub(words);
        if let Some(pass) = self.watch.users.get_mut(&uid) {
            pass.words = pass.words.saturating_sub(words);
        }
    }

    /// Has the next piece of a user's read, if there is time for it; `false` if there is none, or nothing more.
    fn watch_more(&mut self, uid: u32) -> bool {
        loop {
            let Some(pass) = self.watch.users.get(&uid) else {
                return false;
            };
            let Some((pool, reader)) = pass.rest.front().copied() else {
                self.watch.users.remove(&uid);
                return false;
            };
            if pass.words == 0 {
                return false;
            }
            let from = pass.next;
            self.watch_spends(uid, LOOK);
            let room = self.cx.accounts.room(uid, Of::Records);
            let found = self.pools.get_mut(pool).and_then(|p| {
                let r = p.readers.get_mut(&reader)?;
                let refs = r.refs?;
                if from == 0 {
                    r.hold.begin(room);
                }
                Some((p.table, refs, p.slots))
            });
            let Some((table, refs, slots)) = found.filter(|(_, _, slots)| from < *slots) else {
                self.watch_ends(uid, (pool, reader));
                continue;
            };
            let to = from.saturating_add(PIECE).min(slots);
            self.watch_spends(uid, to - from);
            if let Some(pass) = self.watch.users.get_mut(&uid) {
                pass.next = to;
            }
            self.cx.out.push(Action::ReadHeld {
                pool,
                reader,
                table,
                refs,
                slots: from..to,
            });
            return true;
        }
    }

    /// A piece was read; nothing of it counts as held if it could not be.
    pub(super) fn held_read(
        &mut self,
        (pool, reader): (PoolId, DomainId),
        slots: &Range<u32>,
        held: &[HeldSlot],
    ) {
        let (now, linger) = (self.cx.now, self.cx.config.linger);
        let record = self.pools.get_mut(pool).and_then(|p| {
            let (most, payer) = (p.max_bytes, p.uid);
            p.readers.get_mut(&reader).map(|r| (r, most, payer))
        });
        let Some((r, most_bytes, payer)) = record else {
            return self.watch_next();
        };
        let uid = r.uid;
        let bounded = |h: &HeldSlot| HeldSlot {
            // Trust: by the word of the pool's writer, whom nobody of another user believes that it gave anything away.
            bytes: h.bytes.min(most_bytes),
            moved: h.moved && uid == payer,
            ..*h
        };
        let held: Vec<HeldSlot> = held.iter().map(bounded).collect();
        r.hold.add(&held, now, linger);
        let found = u32::try_from(held.len()).unwrap_or(u32::MAX);
        let found = found.min(slots.end - slots.start);
        self.watch_spends(uid, found.saturating_mul(TABLE_WORDS));
        self.watch_next();
    }

    /// All of what a reader holds of a pool was seen.
    fn watch_ends(&mut self, uid: u32, (pool, reader): (PoolId, DomainId)) {
        if let Some(pass) = self.watch.users.get_mut(&uid) {
            pass.rest.pop_front();
            pass.next = 0;
        }
        let (now, linger) = (self.cx.now, self.cx.config.linger);
        let Some(p) = self.pools.get_mut(pool) else {
            return;
        };
        // More than there is of the pool nobody can hold, whatever the table says.
        let there = p.chunks.len() as u64 * p.chunk_bytes;
        let Some(r) = p.readers.get_mut(&reader) else {
            return;
        };
        let before = r.hold.records();
        let charged = r.hold.end(now, linger, there);
        let after = r.hold.records();
        self.cx.accounts.sub(uid, Of::Records, before);
        self.cx.accounts.add(uid, Of::Records, after);
        self.set_lingering(pool, reader, charged);
    }

    /// So much of a pool is charged to one of its readers from now on.
    fn set_lingering(&mut self, pool: PoolId, reader: DomainId, bytes: u64) {
        let Some(p) = self.pools.get_mut(pool) else {
            return;
        };
        let payer = p.uid;
        let Some(r) = p.readers.get_mut(&reader) else {
            return;
        };
        let before = std::mem::replace(&mut r.hold.lingering_bytes, bytes);
        p.lingering_bytes = (p.lingering_bytes + bytes).saturating_sub(before);
        let uid = r.uid;
        if let Some(d) = self.cx.domains.get_mut(&reader) {
            let its = d.lingering.entry(payer).or_default();
            *its = (*its + bytes).saturating_sub(before);
            if *its == 0 {
                d.lingering.remove(&payer);
            }
        }
        // What is of a pool of the same user is counted to that user already.
        if uid != payer {
            self.cx.accounts.charge(uid, before, bytes);
        }
    }

    /// A reader is about to be no more.
    pub(super) fn hold_ends(&mut self, pool: PoolId, reader: DomainId) {
        self.set_lingering(pool, reader, 0);
        let hold = self.pools.get_mut(pool).and_then(|p| {
            let r = p.readers.get_mut(&reader)?;
            Some((r.uid, std::mem::take(&mut r.hold)))
        });
        if let Some((uid, hold)) = hold {
            self.cx.accounts.sub(uid, Of::Records, hold.records());
        }
    }

    /// What of a pool is charged to those who hold it.
    pub(super) fn lingering_of(&self, pool: PoolId) -> u64 {
        self.pools.get(&pool).map_or(0, |p| p.lingering_bytes)
    }

    /// Counts all of it anew.
    pub(super) fn audit_holds(&self) -> Result<(), String> {
        let mut domains: BTreeMap<DomainId, BTreeMap<u32, u64>> = BTreeMap::new();
        let mut users: BTreeMap<u32, u64> = BTreeMap::new();
        for (id, p) in self.pools.iter() {
            let all = p.readers.values().map(|r| r.hold.lingering_bytes);
            let (said, all) = (p.lingering_bytes, all.sum::<u64>());
            if said != all {
                return Err(format!(
                    "pool {id}: {said} bytes of it linger, counted: {all}"
                ));
            }
            for (reader, r) in &p.readers {
                let bytes = r.hold.lingering_bytes;
                if bytes > p.max_bytes {
                    return Err(format!("pool {id}: {bytes} bytes of it linger at {reader}"));
                }
                if bytes > 0 {
                    *domains
                        .entry(*reader)
                        .or_default()
                        .entry(p.uid)
                        .or_default() += bytes;
                }
                if r.uid != p.uid {
                    *users.entry(r.uid).or_default() += bytes;
                }
            }
        }
        for (id, d) in &self.cx.domains {
            let counted = domains.remove(id).unwrap_or_default();
            if d.lingering != counted {
                let said = &d.lingering;
                return Err(format!(
                    "domain {id}: {said:?} linger, counted: {counted:?}"
                ));
            }
        }
        users.retain(|_, bytes| *bytes > 0);
        match users == *self.cx.accounts.charged() {
            true => Ok(()),
            false => Err(format!(
                "charged: {:?}, counted: {users:?}",
                self.cx.accounts.charged()
            )),
        }
    }
}
