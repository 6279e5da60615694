//! A policy at work: remembers the last snapshot, and keeps the rules of all policies.

use crate::allot::allot;
use crate::config::Config;
use crate::num::{bytes, real};
use crate::pace::pace;
use crate::policies::{UnknownPolicy, find};
use crate::policy::{Policy, Wish};
use crate::round::{Activity, Round};
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;

/// A quota to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The pool's id.
    pub id: u32,
    /// The pool's quota from now on.
    pub quota_bytes: u64,
}

/// Turns snapshots into quotas.
///
/// Invariant: the sum of the quotas that [`step`](Governor::step) returns is within the snapshot's limit. No quota is
/// below its pool's minimum, nor below one chunk, if those fit into the limit. No quota is above its pool's maximum. No
/// group's sum is above the group's maximum, if the minimums of its pools fit into it.
///
/// ```
/// # mod tranship { pub use tranship_policy as policy; }
/// use tranship::policy::{Config, Governor, Snapshot};
///
/// let mut governor = Governor::new(Config::of("throughput"))?;
/// let nobody = Snapshot { at_ns: 0, limit_bytes: 1 << 30, pools: Vec::new() };
/// assert!(governor.step(&nobody).is_empty());
/// # Ok::<(), tranship_policy::UnknownPolicy>(())
/// ```
#[derive(Debug)]
pub struct Governor {
    config: Config,
    policy: Box<dyn Policy>,
    before: Option<Snapshot>,
}

impl Governor {
    /// Makes a governor with the policy that the configuration names.
    ///
    /// # Errors
    /// A name that no policy has; the error lists the existing names.
    pub fn new(config: Config) -> Result<Governor, UnknownPolicy> {
        let policy = (find(&config.policy)?.make)(&config);
        Ok(Governor::with(config, policy))
    }

    /// Makes a governor with the caller's own policy.
    pub fn with(config: Config, policy: Box<dyn Policy>) -> Governor {
        Governor {
            config,
            policy,
            before: None,
        }
    }

    /// Ends a period: returns quotas for all pools of the snapshot, in its order.
    pub fn step(&mut self, snapshot: &Snapshot) -> Vec<Target> {
        let round = Round::since(self.before.as_ref(), snapshot);
        let wishes = match self.policy.moves() {
            true => self.policy.wishes(&round),
            false => stay(&round),
        };
        let mut round = round;
        divide_groups(&mut round.pools, &wishes);
        let limit = snapshot.limit_bytes;
        let wanted = allot(&round.pools, &wishes, limit);
        let step = bytes(real(limit) * self.config.most_step);
        let quotas = pace(&round.pools, &wanted, limit, step);
        self.before = Some(snapshot.clone());
        let all = snapshot.pools.iter().zip(quotas);
        all.map(|(p, quota_bytes)| Target {
            id: p.id,
            quota_bytes,
        })
        .collect()
    }
}

/// Divides each group's maximum among its pools, as the most that each may have.
fn divide_groups(pools: &mut [Activity<'_>], wishes: &[Wish]) {
    let group = |a: &Activity<'_>| {
        let rule = &a.state.rule;
        rule.group.clone().zip(rule.group_max_bytes)
    };
    let mut groups: BTreeMap<String, u64> = BTreeMap::new();
    for (name, most) in pools.iter().filter_map(group) {
        let known = groups.entry(name).or_insert(most);
        *known = most.min(*known);
    }
    for (name, most) in groups {
        let is_in = |a: &Activity<'_>| group(a).is_some_and(|(group, _)| group == name);
        let others = pools.iter().filter(|a| !is_in(a));
        let others: u64 = others.fold(0, |sum, a| sum.saturating_add(a.least_bytes));
        let theirs = wishes
            .iter()
            .filter(|w| pools.get(w.pool).is_some_and(is_in));
        let theirs: Vec<Wish> = theirs.copied().collect();
        let parts = allot(pools, &theirs, most.saturating_add(others));
        for (a, part) in pools.iter_mut().zip(parts).filter(|(a, _)| is_in(a)) {
            a.most_bytes = part;
        }
    }
}

fn stay(round: &Round<'_>) -> Vec<Wish> {
    let pools = round.pools.iter().enumerate();
    pools
        .map(|(pool, a)| Wish {
            pool,
            rank: 0,
            up_to_bytes: a.state.quota_bytes,
        })
        .collect()
}
