//! The domains' held buffers of other domains' pools, and for how long. Readers' counters are read once a period, in
//! pieces, so that the manager delays no client. Programs notice nothing of it.

use crate::state::books::accounts::Of;
use crate::state::context::Context;
use crate::state::pools::pool::Pools;
use crate::state::types::{Action, HeldSlot};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;
use std::time::Duration;
use tranship_proto::{DomainId, PoolId};

/// Words that are read for all users in one tick: half a MiB.
const WORDS: u32 = 1 << 17;
/// Slots that are read at once.
const PIECE: u32 = 8192;
/// Words for a look at a reader.
const LOOK: u32 = 64;
/// Between two ticks.
const PAUSE: Duration = Duration::from_millis(10);
/// Words of a slot table's entry.
const TABLE_WORDS: u32 = 8;

/// The progress of the reading. No user's readers wait for another user's.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    begun: Duration,
    last: Duration,
    /// There was a reader to look at, or one has come since.
    awake: bool,
    users: BTreeMap<u32, ReadersLook>,
    /// The user whose turn it is in this tick, the users after it, and the words for all of them.
    turn: Option<u32>,
    after: VecDeque<u32>,
    words: u32,
    /// The user that had the last turn.
    last_user: u32,
}

/// One user's readers.
#[derive(Debug, Default)]
pub(crate) struct ReadersLook {
    rest: VecDeque<(PoolId, DomainId)>,
    /// The next slot of the first reader.
    next: u32,
    words: u32,
}

impl Watch {
    /// Records that a domain reads a pool.
    pub fn wake(&mut self) {
        self.awake = true;
    }

    pub fn is_idle(&self) -> bool {
        !self.awake
    }

    pub fn due(&self, period: Duration) -> Option<Duration> {
        if !self.users.is_empty() {
            return Some(self.last + PAUSE);
        }
        self.awake.then(|| self.begun + period)
    }

    pub fn go_on(&mut self, cx: &mut Context, pools: &mut Pools) {
        let due = self.due(cx.config.policy_period);
        if due.is_none_or(|due| due > cx.now) {
            return;
        }
        if self.users.is_empty() {
            self.begun = cx.now;
            for (id, p) in pools.iter() {
                let readers = p.readers.iter().filter(|(_, r)| r.refs.is_some());
                for (reader, r) in readers {
                    let pass = self.users.entry(r.uid).or_default();
                    pass.rest.push_back((*id, *reader));
                }
            }
            self.awake = !self.users.is_empty();
        }
        self.last = cx.now;
        // A user that was left out at the last tick comes first at this one.
        let (users, last) = (&self.users, self.last_user);
        let next = users.range((Excluded(last), Unbounded));
        let all = next.chain(users.range(..=last)).map(|(uid, _)| *uid);
        (self.after, self.turn) = (all.collect(), None);
        self.words = WORDS;
        self.go_on_with(cx, pools);
    }

    /// Continues with the user whose turn it is. Without one, it gives the next user its part of the remaining words,
    /// as long as there are any.
    fn go_on_with(&mut self, cx: &mut Context, pools: &mut Pools) {
        loop {
            if let Some(uid) = self.turn {
                if self.read_more(uid, cx, pools) {
                    return;
                }
                self.turn = None;
            }
            if self.words == 0 {
                return;
            }
            let left = u32::try_from(self.after.len()).unwrap_or(u32::MAX);
            let Some(uid) = self.after.pop_front() else {
                return;
            };
            if let Some(pass) = self.users.get_mut(&uid) {
                pass.words = (self.words / left).max(1);
                (self.turn, self.last_user) = (Some(uid), uid);
            }
        }
    }

    /// Spends words of the tick.
    fn spend(&mut self, uid: u32, words: u32) {
        self.words = self.words.saturating_sub(words);
        if let Some(pass) = self.users.get_mut(&uid) {
            pass.words = pass.words.saturating_sub(words);
        }
    }

    /// Reads the next piece of a user's counters, if there is time. Returns `false` if there is no time, or nothing
    /// more to read.
    fn read_more(&mut self, uid: u32, cx: &mut Context, pools: &mut Pools) -> bool {
        loop {
            let Some(pass) = self.users.get(&uid) else {
                return false;
            };
            let Some((pool, reader)) = pass.rest.front().copied() else {
                self.users.remove(&uid);
                return false;
            };
            if pass.words == 0 {
                return false;
            }
            let from = pass.next;
            self.spend(uid, LOOK);
            let room = cx.accounts.room(uid, Of::Records);
            let found = pools.get_mut(pool).and_then(|p| {
                let r = p.readers.get_mut(&reader)?;
                let refs = r.refs?;
                if from == 0 {
                    r.hold.begin(room);
                }
                Some((p.table, refs, p.shape.slots))
            });
            let Some((table, refs, slots)) = found.filter(|(_, _, slots)| from < *slots) else {
                self.end_look(uid, (pool, reader), cx, pools);
                continue;
            };
            let to = from.saturating_add(PIECE).min(slots);
            self.spend(uid, to - from);
            if let Some(pass) = self.users.get_mut(&uid) {
                pass.next = to;
            }
            cx.out.push(Action::ReadHeld {
                pool,
                reader,
                table,
                refs,
                slots: from..to,
            });
            return true;
        }
    }

    /// Takes a piece that was read; nothing of it counts as held if it could not be read.
    pub fn held_read(
        &mut self,
        cx: &mut Context,
        pools: &mut Pools,
        (pool, reader): (PoolId, DomainId),
        slots: &Range<u32>,
        held: &[HeldSlot],
    ) {
        let (now, linger) = (cx.now, cx.config.linger);
        let record = pools.get_mut(pool).and_then(|p| {
            let (most, payer) = (p.shape.max_bytes, p.uid);
            p.readers.get_mut(&reader).map(|r| (r, most, payer))
        });
        let Some((r, most_bytes, payer)) = record else {
            return self.go_on_with(cx, pools);
        };
        let uid = r.uid;
        let bounded = |h: &HeldSlot| HeldSlot {
            // Trust: the word of the pool's writer. That word alone never charges a moved
            // buffer to a reader of another user.
            bytes: h.bytes.min(most_bytes),
            moved: h.moved && uid == payer,
            ..*h
        };
        let held: Vec<HeldSlot> = held.iter().map(bounded).collect();
        r.hold.add(&held, now, linger);
        let found = u32::try_from(held.len()).unwrap_or(u32::MAX);
        let found = found.min(slots.end - slots.start);
        self.spend(uid, found.saturating_mul(TABLE_WORDS));
        self.go_on_with(cx, pools);
    }

    /// Ends a look at all buffers of a pool that a reader holds.
    fn end_look(
        &mut self,
        uid: u32,
        (pool, reader): (PoolId, DomainId),
        cx: &mut Context,
        pools: &mut Pools,
    ) {
        if let Some(pass) = self.users.get_mut(&uid) {
            pass.rest.pop_front();
            pass.next = 0;
        }
        let (now, linger) = (cx.now, cx.config.linger);
        let Some(p) = pools.get_mut(pool) else {
            return;
        };
        // A reader cannot hold more than the pool's size, whatever the table says.
        let there = p.chunks.len() as u64 * p.shape.chunk_bytes;
        let Some(r) = p.readers.get_mut(&reader) else {
            return;
        };
        let before = r.hold.records();
        let charged = r.hold.end(now, linger, there);
        let after = r.hold.records();
        cx.accounts.sub(uid, Of::Records, before);
        cx.accounts.add(uid, Of::Records, after);
        set_lingering(cx, pools, (pool, reader), charged);
    }
}

/// Sets the bytes of a pool that are charged to one of its readers.
fn set_lingering(
    cx: &mut Context,
    pools: &mut Pools,
    (pool, reader): (PoolId, DomainId),
    bytes: u64,
) {
    let Some(p) = pools.get_mut(pool) else {
        return;
    };
    let payer = p.uid;
    let Some(r) = p.readers.get_mut(&reader) else {
        return;
    };
    let before = std::mem::replace(&mut r.hold.lingering_bytes, bytes);
    p.lingering_bytes = (p.lingering_bytes + bytes).saturating_sub(before);
    let uid = r.uid;
    if let Some(d) = cx.domains.get_mut(&reader) {
        let its = d.lingering.entry(payer).or_default();
        *its = (*its + bytes).saturating_sub(before);
        if *its == 0 {
            d.lingering.remove(&payer);
        }
    }
    // Memory of a pool of the same user is counted to that user already.
    if uid != payer {
        cx.accounts.charge(uid, before, bytes);
    }
}

/// Handles that a reader is about to end.
pub(crate) fn hold_ends(cx: &mut Context, pools: &mut Pools, pool: PoolId, reader: DomainId) {
    set_lingering(cx, pools, (pool, reader), 0);
    let hold = pools.get_mut(pool).and_then(|p| {
        let r = p.readers.get_mut(&reader)?;
        Some((r.uid, std::mem::take(&mut r.hold)))
    });
    if let Some((uid, hold)) = hold {
        cx.accounts.sub(uid, Of::Records, hold.records());
    }
}

#[cfg(feature = "audit")]
pub(crate) use audit::audit;

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    /// Counts all charges anew.
    pub(crate) fn audit(cx: &Context, pools: &Pools) -> Result<(), String> {
        let mut domains: BTreeMap<DomainId, BTreeMap<u32, u64>> = BTreeMap::new();
        let mut users: BTreeMap<u32, u64> = BTreeMap::new();
        for (id, p) in pools.iter() {
            let all = p.readers.values().map(|r| r.hold.lingering_bytes);
            let (said, all) = (p.lingering_bytes, all.sum::<u64>());
            if said != all {
                return Err(format!(
                    "pool {id}: {said} bytes of it linger, counted: {all}"
                ));
            }
            for (reader, r) in &p.readers {
                let bytes = r.hold.lingering_bytes;
                if bytes > p.shape.max_bytes {
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
        for (id, d) in &cx.domains {
            let counted = domains.remove(id).unwrap_or_default();
            if d.lingering != counted {
                let said = &d.lingering;
                return Err(format!(
                    "domain {id}: {said:?} linger, counted: {counted:?}"
                ));
            }
        }
        users.retain(|_, bytes| *bytes > 0);
        match users == *cx.accounts.charged() {
            true => Ok(()),
            false => Err(format!(
                "charged: {:?}, counted: {users:?}",
                cx.accounts.charged()
            )),
        }
    }
}
