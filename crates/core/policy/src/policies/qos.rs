//! `qos`: the paper's policy 4. Pools with a target first get the memory that keeps them at it. Then come the needs of
//! the others. The rest goes to the pools with targets again, which then wait less than promised, until another pool
//! needs it.

use crate::config::Config;
use crate::num::{bytes, real};
use crate::policy::{Policy, Wish};
use crate::predict::{Needs, Search};
use crate::round::{Activity, Round};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Qos {
    needs: Needs,
    band: f64,
    searches: BTreeMap<Who, Search>,
    /// The bytes that each pool had in use, smoothed.
    used: BTreeMap<u32, f64>,
}

/// The share of the last period in the smoothed use.
const NEW: f64 = 0.25;

/// The share by which a pool may differ from its earlier part before its group's memory is divided anew.
const UNEVEN: f64 = 0.15;

/// The owner of a target.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Pool(u32),
    Group(String),
}

/// The pools of one target, by their positions.
#[derive(Debug)]
struct Group {
    pools: Vec<usize>,
    target: f64,
}

impl Qos {
    pub fn new(config: &Config) -> Qos {
        Qos {
            needs: Needs::new(config),
            band: config.band,
            searches: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    /// Returns the memory that holds a group at its target, divided among its pools.
    fn goals(&self, round: &Round<'_>, group: &Group, search: &mut Search) -> Vec<u64> {
        let pools = || group.pools.iter().map(|i| &round.pools[*i]);
        let callers = pools().map(|a| a.state.rule.callers).max().unwrap_or(1);
        let cost: f64 = pools().map(|a| a.blocked + a.collecting).sum();
        let share = cost / f64::from(callers.max(1));
        let quota: u64 = pools().map(|a| a.state.quota_bytes).sum();
        // Peaks of several pools come at different times.
        let used = |a: &Activity<'_>| real(a.state.live_bytes) + a.missing_bytes();
        let need: f64 = pools().map(used).sum();
        let goal = match pools().any(|a| a.fresh) {
            true => need,
            false => search.next(real(quota), share, group.target, need, self.band),
        };
        // In proportion to each pool's use: all stages of a pipeline are then equally fast. Waiting is no guide,
        // because the callers of all stages wait at the narrowest one. More memory for that stage would only make
        // another one the narrowest.
        let used = |i: &usize| self.used.get(&round.pools[*i].state.id).copied();
        let used: Vec<f64> = (group.pools.iter())
            .map(|i| used(i).unwrap_or(0.0).max(1.0))
            .collect();
        let part = goal / used.iter().sum::<f64>();
        let quotas = || {
            group
                .pools
                .iter()
                .map(|i| round.pools[*i].state.quota_bytes)
        };
        let near =
            |(has, used): (u64, &f64)| (real(has) - used * part).abs() <= UNEVEN * used * part;
        // The group is at its target, and even: nothing needs to move.
        if (share - group.target).abs() <= self.band && quotas().zip(&used).all(near) {
            return quotas().collect();
        }
        used.iter().map(|used| bytes(used * part)).collect()
    }

    fn smooth(&mut self, round: &Round<'_>) {
        let mut before = std::mem::take(&mut self.used);
        for a in &round.pools {
            let now = real(a.state.live_bytes);
            let known = before.remove(&a.state.id).filter(|_| !a.fresh);
            let used = known.map_or(now, |old| old + (now - old) * NEW);
            self.used.insert(a.state.id, used);
        }
    }
}

impl Policy for Qos {
    fn wishes(&mut self, round: &Round<'_>) -> Vec<Wish> {
        let needs = self.needs.of(round);
        self.smooth(round);
        let mut groups: BTreeMap<Who, Group> = BTreeMap::new();
        for (pool, a) in round.pools.iter().enumerate() {
            let rule = &a.state.rule;
            let Some(target) = rule.target else { continue };
            let who = match &rule.group {
                Some(name) => Who::Group(name.clone()),
                None => Who::Pool(a.state.id),
            };
            let empty = Group {
                pools: Vec::new(),
                target,
            };
            groups.entry(who).or_insert(empty).pools.push(pool);
        }
        let mut wishes = Vec::new();
        let mut wish = |rank, pool, up_to_bytes| {
            wishes.push(Wish {
                pool,
                rank,
                up_to_bytes,
            });
        };
        let mut before = std::mem::take(&mut self.searches);
        for (who, group) in groups {
            let mut search = before.remove(&who).unwrap_or_default();
            let goals = self.goals(round, &group, &mut search);
            for (pool, goal) in group.pools.iter().zip(goals) {
                wish(0, *pool, goal);
                wish(2, *pool, needs[*pool].bytes);
            }
            self.searches.insert(who, search);
        }
        for (pool, (a, need)) in round.pools.iter().zip(&needs).enumerate() {
            if a.state.rule.target.is_none() {
                wish(1, pool, need.bytes);
            }
            wish(3, pool, need.roomy_bytes);
        }
        wishes
    }
}
