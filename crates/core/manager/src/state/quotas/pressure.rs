//! Memory is short outside of the manager. Idle memory goes back to the kernel before the kernel has to act. If that is
//! not enough, no pool grows.
//!
//! Memory in use is never taken: a pool that is asked to shrink gives back free memory. The limit does not fall below
//! the memory in use and the minimum of every pool.

use super::quota;
use crate::state::books::accounts::Of;
use crate::state::context::Context;
use crate::state::model::Heaps;
use crate::state::pools::pool::Pools;
use crate::state::types::{Action, Figures};
use std::collections::BTreeSet;
use std::time::Duration;
use tranship_proto::{Event, PoolId, Pressure};

/// The divisor of a step down: each look lowers the limit by this part of its distance to the floor.
const DOWN: u64 = 4;
/// The divisor of a step up: each look raises the limit by this part of the total.
const UP: u64 = 8;
/// The divisor of a heap's step: no figure says how much of a heap is in use, so it is asked for an eighth at a time.
const HEAP: u64 = 8;

/// The known facts about memory outside of the manager.
#[derive(Debug)]
pub(crate) struct Outside {
    level: Pressure,
    /// When the level was reached last.
    reached: Duration,
    /// The memory that may be granted in all, at most the total.
    limit_bytes: u64,
    /// How often in a row the shortage was found to be at its worst.
    full: u32,
    /// Pools that were asked to shrink, and may grow again when the shortage is over.
    asked: BTreeSet<PoolId>,
    /// The next figures are for this.
    wants: bool,
}

impl Outside {
    pub fn new(total_bytes: u64) -> Outside {
        Outside {
            level: Pressure::Unwatched,
            reached: Duration::ZERO,
            limit_bytes: total_bytes,
            full: 0,
            asked: BTreeSet::new(),
            wants: false,
        }
    }

    pub fn level(&self) -> Pressure {
        self.level
    }

    /// Returns the memory that may be granted in all, at most the total.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Says whether a domain has memory that could be asked for, or may not grow at present.
    pub fn has_memory(&self, cx: &Context, pools: &Pools, heaps: &Heaps) -> bool {
        !pools.is_empty()
            || !heaps.is_empty()
            || self.level > Pressure::None
            || self.limit_bytes < cx.total_bytes
            || !self.asked.is_empty()
    }

    /// Takes the result of a look.
    pub fn seen(&mut self, cx: &mut Context, pools: &mut Pools, heaps: &mut Heaps, seen: Pressure) {
        self.full = match seen {
            Pressure::Full => self.full.saturating_add(1),
            _ => 0,
        };
        // Up at once, down after a while.
        if seen >= self.level || self.reached + cx.config.pressure.calm <= cx.now {
            (self.level, self.reached) = (seen, cx.now);
        }
        if self.level > Pressure::None {
            self.wants = true;
            let alive = pools.iter().filter(|(_, p)| !p.is_orphan());
            let pools = alive.map(|(id, p)| (*id, p.table)).collect();
            let asker = None;
            cx.out.push(Action::ReadFigures { asker, pools });
        } else {
            self.relax(cx, pools, heaps);
        }
    }

    /// Says whether these figures were asked for here; if so, reacts to them.
    pub fn squeezed(
        &mut self,
        cx: &mut Context,
        pools: &Pools,
        heaps: &Heaps,
        figures: &[(PoolId, Option<Figures>)],
    ) -> bool {
        if !std::mem::take(&mut self.wants) {
            return false;
        }
        let needs = figures.iter().filter_map(|(id, f)| {
            let p = pools.get(id).filter(|p| !p.is_orphan())?;
            let least = cx
                .config
                .rule_of(&p.name)
                .min_bytes
                .max(p.shape.chunk_bytes);
            let needed = needed_bytes(*f, p.granted_bytes(), p.shape.chunk_bytes);
            Some((*id, needed.max(least)))
        });
        let needs: Vec<(PoolId, u64)> = needs.collect();
        self.ask_for_idle(cx, pools, heaps, &needs);
        // Idle memory comes first; after that no pool grows.
        if self.full > 1 {
            self.lower_limit(cx, pools, &needs);
        }
        true
    }

    fn ask_for_idle(
        &mut self,
        cx: &mut Context,
        pools: &Pools,
        heaps: &Heaps,
        needs: &[(PoolId, u64)],
    ) {
        let mut ask = Vec::new();
        for (id, needed) in needs {
            if let Some(p) = pools.get(id).filter(|p| p.granted_bytes() > *needed) {
                ask.push((p.writer, *id, *needed));
            }
        }
        for (id, h) in heaps {
            ask.push((h.owner, *id, h.admitted - h.admitted / HEAP));
        }
        for (writer, pool, target_bytes) in ask {
            // A writer that does not read is asked again at the next look.
            if cx.reads(writer) {
                self.asked.insert(pool);
                cx.tell(writer, Event::Shrink { pool, target_bytes }, &[]);
            }
        }
    }

    /// Lowers the limit: at once to the granted memory, then step by step to the memory in use.
    fn lower_limit(&mut self, cx: &mut Context, pools: &Pools, needs: &[(PoolId, u64)]) {
        let granted: u64 = needs
            .iter()
            .filter_map(|(id, _)| Some(pools.get(id)?.granted_bytes()))
            .sum();
        let has = cx.accounts.sum(Of::Bytes);
        let needed: u64 = needs.iter().map(|(_, needed)| needed).sum();
        let floor = (has.saturating_sub(granted).saturating_add(needed)).min(cx.total_bytes);
        let limit = self.limit_bytes.min(has.max(floor));
        let step = (limit.saturating_sub(floor)).div_ceil(DOWN);
        self.set_limit(cx, (limit - step.min(limit)).max(floor));
    }

    /// Ends the shortage: raises the limit to the total, step by step. Pools that were asked to shrink get their quotas
    /// again.
    fn relax(&mut self, cx: &mut Context, pools: &mut Pools, heaps: &mut Heaps) {
        for id in std::mem::take(&mut self.asked) {
            let pool = pools.get(&id).map(|p| (p.writer, p.quota_bytes));
            let heap = || heaps.get(&id).map(|h| (h.owner, h.quota_bytes));
            let Some((writer, quota_bytes)) = pool.or_else(heap) else {
                continue;
            };
            match cx.reads(writer) {
                true => quota::set(cx, pools, heaps, id, quota_bytes),
                // At the next look.
                false => drop(self.asked.insert(id)),
            }
        }
        let limit = self.limit_bytes;
        let up = (cx.total_bytes / UP).max(1);
        self.set_limit(cx, limit.saturating_add(up).min(cx.total_bytes));
    }

    fn set_limit(&mut self, cx: &mut Context, bytes: u64) {
        self.limit_bytes = bytes;
        cx.accounts.set_now(bytes);
    }
}

/// Returns the bytes of a pool that are in use. Its writer says how many chunks have buffers in use, and how many
/// buffers are only cached.
fn needed_bytes(figures: Option<Figures>, granted: u64, chunk_bytes: u64) -> u64 {
    // A writer without figures counts as using everything that it has.
    let said = figures.filter(|f| f.allocs > 0 || f.live_bytes > 0);
    let Some(f) = said else { return granted };
    let busy = f.live_bytes.min(granted);
    let (live, all) = (
        u128::from(f.live_buffers),
        u128::from(f.live_buffers) + u128::from(f.cached),
    );
    let part = match all {
        0 => busy,
        all => u64::try_from(u128::from(busy) * live / all).unwrap_or(busy),
    };
    part.next_multiple_of(chunk_bytes.max(1)).min(granted)
}
