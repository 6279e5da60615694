//! The policy at work: every period a governor gets the writers' figures, and its quotas are set.
//!
//! Heaps whose owners send figures take part too. Callers do not wait there, so a heap that was refused something
//! counts as waiting for a second. Memory of other heaps, and stranded or orphaned memory, is not divided.

use super::pressure::Outside;
use super::quota::{self, is_divided};
use crate::Config;
use crate::state::context::Context;
use crate::state::hogs::hog::Hogs;
use crate::state::model::{Heap, Heaps};
use crate::state::pools::pool::Pools;
use crate::state::types::{Action, ClientId, Done, Figures};
use std::time::Duration;
use tranship_policy::{Governor, PoolState, Snapshot};
use tranship_proto::{Event, PoolFigures, PoolId, PoolShape, Req};

/// Heaps have no chunks: the smallest amount of memory that they ask for.
const HEAP_GRAIN: u64 = 1 << 20;

/// Pools in one message.
const AT_ONCE: usize = 32;

/// The policy, and the times at which it works.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// `None`: quotas stay as they are.
    governor: Option<Governor>,
    due: Duration,
}

impl Schedule {
    pub fn new(config: &Config) -> Schedule {
        let governor = config.is_scheduled().then(|| {
            // The name was looked up when the configuration was read.
            Governor::new(tranship_policy::Config::of(&config.policy)).ok()
        });
        Schedule {
            governor: governor.flatten(),
            // Pools of earlier domains are not divided anew while these domains come back.
            due: config.grace,
        }
    }

    /// Says whether the manager itself sets quotas.
    pub fn governs(&self) -> bool {
        self.governor.is_some()
    }

    pub fn due(&self, pools: &Pools, heaps: &Heaps) -> Option<Duration> {
        let pools = || pools.values().any(|p| !p.is_orphan());
        let heaps = || heaps.values().any(is_divided);
        let any = self.governor.is_some() && (pools() || heaps());
        any.then_some(self.due)
    }

    /// Ends a period: asks for the writers' figures.
    pub fn go_on(&mut self, cx: &mut Context, pools: &Pools, heaps: &Heaps) {
        if self.due(pools, heaps).is_none_or(|due| due > cx.now) {
            return;
        }
        // From now on, not from the due time: after a pause there is nothing to catch up.
        self.due = cx.now + cx.config.policy_period;
        let alive = pools.iter().filter(|(_, p)| !p.is_orphan());
        let pools = alive.map(|(id, p)| (*id, p.table)).collect();
        let asker = None;
        cx.out.push(Action::ReadFigures { asker, pools });
    }

    /// Takes the writers' figures, for whichever part of the manager asked.
    pub fn figures_read(
        &mut self,
        cx: &mut Context,
        pools: &mut Pools,
        heaps: &mut Heaps,
        hogs: &Hogs,
        outside: &mut Outside,
        figures: &[(PoolId, Option<Figures>)],
    ) {
        let now = cx.now;
        for heap in heaps.values_mut() {
            heap.want.count(now);
        }
        if outside.squeezed(cx, pools, heaps, figures) {
            return;
        }
        let sight = PolicyView {
            cx,
            pools,
            heaps,
            hogs,
        };
        let snapshot = sight.snapshot(figures);
        let Some(governor) = &mut self.governor else {
            return;
        };
        let targets = governor.step(&snapshot);
        let both = snapshot.pools.iter().zip(targets);
        let mut changes: Vec<_> = both
            .filter(|(p, t)| p.quota_bytes != t.quota_bytes)
            .collect();
        // Pools that give come before pools that get.
        changes.sort_by_key(|(p, t)| t.quota_bytes > p.quota_bytes);
        for (_, target) in changes {
            let id = PoolId(target.id);
            quota::move_to(cx, pools, heaps, id, target.quota_bytes);
        }
        quota::remind(cx, pools, heaps);
    }
}

/// Answers a client that asks for a policy's view of the pools after one.
pub(crate) fn ask_figures(
    cx: &mut Context,
    pools: &Pools,
    client: ClientId,
    req: Req,
    after: PoolId,
) -> Done {
    use std::ops::Bound::{Excluded, Unbounded};
    let pools = pools.range((Excluded(after), Unbounded));
    let alive = pools.filter(|(_, p)| !p.is_orphan()).take(AT_ONCE);
    let pools = alive.map(|(id, p)| (*id, p.table)).collect();
    let asker = Some((client, req));
    cx.out.push(Action::ReadFigures { asker, pools });
    Ok(())
}

pub(crate) fn say_figures(
    cx: &mut Context,
    pools: &Pools,
    heaps: &Heaps,
    hogs: &Hogs,
    (client, req): (ClientId, Req),
    figures: &[(PoolId, Option<Figures>)],
) {
    let sight = PolicyView {
        cx,
        pools,
        heaps,
        hogs,
    };
    let told = figures.iter().filter_map(|(id, f)| {
        let p = sight.pool_state(*id, *f)?;
        Some(PoolFigures {
            pool: *id,
            name: p.name,
            blocked_ns: p.blocked_ns,
            collect_ns: p.collect_ns,
            collections: p.collections,
            allocs: p.allocs,
            live_bytes: p.live_bytes,
            peak_bytes: p.peak_bytes,
            live_buffers: p.live_buffers,
            garbage_bytes: p.garbage_bytes,
            cached_bytes: p.cached_bytes,
            lingering_bytes: pools.get(id).map_or(0, |p| p.lingering_bytes),
            waiters: p.waiters,
            quota_bytes: p.quota_bytes,
            granted_bytes: p.granted_bytes,
            chunk_bytes: p.grain_bytes,
            min_bytes: p.rule.min_bytes,
            max_bytes: p.rule.max_bytes,
            weight: p.rule.weight,
            priority: p.rule.priority,
            target_ppm: p.rule.target.map(millionths),
            callers: p.rule.callers,
            group: p.rule.group,
            group_max_bytes: p.rule.group_max_bytes,
        })
    });
    let event = Event::Figures {
        req,
        limit_bytes: quota::for_pools(cx, pools, heaps),
        pools: told.collect(),
    };
    cx.push(client, event, &[]);
}

/// The sources of a policy's view.
struct PolicyView<'a> {
    cx: &'a Context,
    pools: &'a Pools,
    heaps: &'a Heaps,
    hogs: &'a Hogs,
}

impl PolicyView<'_> {
    /// Returns the memory for pools, and each pool's state.
    fn snapshot(&self, figures: &[(PoolId, Option<Figures>)]) -> Snapshot {
        let pools = figures
            .iter()
            .filter_map(|(id, f)| self.pool_state(*id, *f));
        let heaps = self.heaps.iter().filter(|(_, h)| is_divided(h));
        let heaps = heaps.map(|(id, h)| self.heap_state(*id, h));
        Snapshot {
            at_ns: u64::try_from(self.cx.now.as_nanos()).unwrap_or(u64::MAX),
            limit_bytes: quota::for_pools(self.cx, self.pools, self.heaps),
            pools: pools.chain(heaps).collect(),
        }
    }

    /// Returns a heap's state. Memory that its program has allocated is not taken away: it is the heap's minimum, plus
    /// something to grow by.
    fn heap_state(&self, id: PoolId, h: &Heap) -> PoolState {
        let (live, cached) = h.said.unwrap_or((h.admitted, 0));
        let mut rule = self.cx.config.rule_of(&h.name);
        let most = self.cx.most_for(h.uid, h.max_bytes);
        rule.max_bytes = rule.max_bytes.min(most);
        if self.hogs.is_slowed(h.owner) {
            rule.max_bytes = rule.max_bytes.min(h.admitted);
        }
        let grown = (live + live / 8).saturating_add(HEAP_GRAIN);
        rule.min_bytes = rule.min_bytes.max(grown).min(rule.max_bytes);
        let wanted = h.want.refused.map(|(_, bytes)| bytes.max(1));
        PoolState {
            id: id.0,
            name: h.name.clone(),
            blocked_ns: u64::try_from(h.want.blocked.as_nanos()).unwrap_or(u64::MAX),
            allocs: h.want.admits,
            live_bytes: live,
            // The heap counts as if it consisted of blocks of the size that it lacks.
            live_buffers: wanted.map_or(0, |bytes| (live / bytes).max(1)),
            cached_bytes: cached,
            waiters: u32::from(wanted.is_some()),
            quota_bytes: h.quota_bytes,
            granted_bytes: h.admitted,
            grain_bytes: HEAP_GRAIN,
            rule,
            ..PoolState::default()
        }
    }

    fn pool_state(&self, id: PoolId, figures: Option<Figures>) -> Option<PoolState> {
        let p = self.pools.get(&id).filter(|p| !p.is_orphan())?;
        let granted = p.granted_bytes();
        let mut rule = self.cx.config.rule_of(&p.name);
        let most = self.cx.most_for(p.uid, p.shape.max_bytes);
        rule.max_bytes = rule.max_bytes.min(most);
        rule.min_bytes = rule.min_bytes.min(rule.max_bytes);
        if self.hogs.is_slowed(p.writer) {
            // A domain that holds too much of others' memory gets no more of its own.
            rule.max_bytes = rule.max_bytes.min(granted).max(p.shape.chunk_bytes);
            rule.min_bytes = rule.min_bytes.min(rule.max_bytes);
        }
        if p.pinned {
            (rule.min_bytes, rule.max_bytes) =
                (p.quota_bytes, p.quota_bytes.max(p.shape.chunk_bytes));
        }
        // A writer without figures counts as using everything that it has.
        let silent = Figures {
            live_bytes: granted,
            ..Figures::default()
        };
        let said = figures.filter(|f| f.allocs > 0 || f.live_bytes > 0 || f.blocked_ns > 0);
        let f = said.unwrap_or(silent);
        Some(PoolState {
            id: id.0,
            name: p.name.clone(),
            blocked_ns: f.blocked_ns,
            collect_ns: f.collect_ns,
            collections: f.collections,
            allocs: f.allocs,
            // Trust: a writer's word about memory that it was granted.
            live_bytes: f.live_bytes.min(granted),
            peak_bytes: f.peak_bytes.min(granted),
            live_buffers: f.live_buffers,
            garbage_bytes: f.garbage_bytes.min(granted),
            cached_bytes: f.cached_bytes.min(granted),
            waiters: u32::try_from(f.waiters).unwrap_or(u32::MAX),
            quota_bytes: p.quota_bytes,
            granted_bytes: granted,
            grain_bytes: p.shape.chunk_bytes,
            rule,
            ..PoolState::default()
        })
    }
}

/// Returns the quota of a new pool: under a policy the memory that no other pool was given, and its minimum at least.
pub(crate) fn first_pool_quota(
    cx: &Context,
    pools: &Pools,
    heaps: &Heaps,
    uid: u32,
    name: &str,
    shape: &PoolShape,
) -> u64 {
    let usual = cx.first_quota(uid, shape.max_bytes);
    let alive = pools.values().filter(|p| !p.is_orphan());
    let given: u64 = alive.map(|p| p.quota_bytes).sum();
    let left = quota::for_pools(cx, pools, heaps).saturating_sub(given);
    let rule = cx.config.rule_of(name);
    let least = rule.min_bytes.max(shape.chunk_bytes);
    // The memory that the pool's group may still have together.
    let in_group = rule.group_max_bytes.map_or(u64::MAX, |most| {
        let alive = pools.values().filter(|p| !p.is_orphan());
        let theirs = alive.filter(|p| cx.config.rule_of(&p.name).group == rule.group);
        most.saturating_sub(theirs.map(|p| p.quota_bytes).sum())
    });
    let quota = usual.min(left.min(in_group).max(least));
    quota / shape.chunk_bytes * shape.chunk_bytes
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of a share: below a million
pub(crate) fn millionths(share: f64) -> u32 {
    (share * 1e6).round() as u32
}
