//! Memory is short outside: idle memory goes back to the kernel before it has to act, and if that is not enough, no pool grows.
//!
//! Nobody loses what is in use: who is asked to shrink gives back what is free, and the limit does not fall below what is in use and
//! everybody's minimum.

use super::types::Figures;
use super::{Action, State};
use tranship_proto::{Event, PoolId, Pressure};

/// The limit comes down by this part of what lies between it and its floor, a look.
const DOWN: u64 = 4;
/// And goes up by this part of the total.
const UP: u64 = 8;
/// Of a heap nobody says what of it is in use: it is asked for an eighth at a time.
const HEAP: u64 = 8;

impl State {
    /// Somebody has memory that could be asked for, or is kept from having more.
    pub fn has_memory(&self) -> bool {
        !self.pools.is_empty()
            || !self.heaps.is_empty()
            || self.outside.level > Pressure::None
            || self.outside.limit_bytes < self.cx.total_bytes
            || !self.outside.asked.is_empty()
    }

    /// It was looked.
    pub(super) fn pressure_seen(&mut self, seen: Pressure) {
        let out = &mut self.outside;
        out.full = match seen {
            Pressure::Full => out.full.saturating_add(1),
            _ => 0,
        };
        // Up at once, down after a while.
        if seen >= out.level || out.reached + self.cx.config.pressure.calm <= self.cx.now {
            (out.level, out.reached) = (seen, self.cx.now);
        }
        if out.level > Pressure::None {
            out.wants = true;
            let alive = self.pools.iter().filter(|(_, p)| !p.is_orphan());
            let pools = alive.map(|(id, p)| (*id, p.table)).collect();
            let asker = None;
            self.cx.out.push(Action::ReadFigures { asker, pools });
        } else {
            self.relax();
        }
    }

    /// Whether these figures were asked for here; then what follows is done.
    pub(super) fn squeezed(&mut self, figures: &[(PoolId, Option<Figures>)]) -> bool {
        if !std::mem::take(&mut self.outside.wants) {
            return false;
        }
        let needs = figures.iter().filter_map(|(id, f)| {
            let p = self.pools.get(id).filter(|p| !p.is_orphan())?;
            let least = self.cx.config.rule_of(&p.name).min_bytes.max(p.chunk_bytes);
            let needed = needed_bytes(*f, p.granted_bytes(), p.chunk_bytes);
            Some((*id, needed.max(least)))
        });
        let needs: Vec<(PoolId, u64)> = needs.collect();
        self.ask_for_idle(&needs);
        // First what is idle; then nobody grows.
        if self.outside.full > 1 {
            self.lower_limit(&needs);
        }
        true
    }

    fn ask_for_idle(&mut self, needs: &[(PoolId, u64)]) {
        let mut ask = Vec::new();
        for (id, needed) in needs {
            if let Some(p) = self.pools.get(id).filter(|p| p.granted_bytes() > *needed) {
                ask.push((p.writer, *id, *needed));
            }
        }
        for (id, h) in &self.heaps {
            ask.push((h.owner, *id, h.admitted - h.admitted / HEAP));
        }
        for (writer, pool, target_bytes) in ask {
            // Who does not read is asked again at the next look.
            if self.cx.reads(writer) {
                self.outside.asked.insert(pool);
                self.cx
                    .tell(writer, Event::Shrink { pool, target_bytes }, &[]);
            }
        }
    }

    /// At once to what is granted, then step by step to what is in use.
    fn lower_limit(&mut self, needs: &[(PoolId, u64)]) {
        let granted: u64 = needs
            .iter()
            .filter_map(|(id, _)| Some(self.pools.get(id)?.granted_bytes()))
            .sum();
        let has = self.cx.accounts.sum(super::Of::Bytes);
        let needed: u64 = needs.iter().map(|(_, needed)| needed).sum();
        let floor = (has.saturating_sub(granted).saturating_add(needed)).min(self.cx.total_bytes);
        let limit = self.outside.limit_bytes.min(has.max(floor));
        let step = (limit.saturating_sub(floor)).div_ceil(DOWN);
        self.set_limit((limit - step.min(limit)).max(floor));
    }

    /// It is over: back to the total, step by step; who was asked may have its quota again.
    fn relax(&mut self) {
        for id in std::mem::take(&mut self.outside.asked) {
            let pool = self.pools.get(&id).map(|p| (p.writer, p.quota_bytes));
            let heap = || self.heaps.get(&id).map(|h| (h.owner, h.quota_bytes));
            let Some((writer, quota_bytes)) = pool.or_else(heap) else {
                continue;
            };
            match self.cx.reads(writer) {
                true => self.set_quota(id, quota_bytes),
                // At the next look.
                false => drop(self.outside.asked.insert(id)),
            }
        }
        let limit = self.outside.limit_bytes;
        let up = (self.cx.total_bytes / UP).max(1);
        self.set_limit(limit.saturating_add(up).min(self.cx.total_bytes));
    }

    fn set_limit(&mut self, bytes: u64) {
        self.outside.limit_bytes = bytes;
        self.cx.accounts.set_now(bytes);
    }
}

/// What of a pool is in use. Its writer says how many chunks have something in them, and how many of its buffers are only cached.
fn needed_bytes(figures: Option<Figures>, granted: u64, chunk_bytes: u64) -> u64 {
    // Who has said nothing uses all that it has.
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
