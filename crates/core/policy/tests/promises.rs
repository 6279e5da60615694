//! Rules for every policy and all snapshots: the sum, minimums, maximums, bounded movement.

use proptest::prelude::*;
use tranship_policy::{Config, Governor, POLICIES, PoolState, Rule, Snapshot};

const PAGE: u64 = 4096;

fn pool() -> impl Strategy<Value = PoolState> {
    let sizes = (0u64..1 << 22, 0u64..1 << 22, 0u64..1 << 24, 0u32..5);
    let counts = (0u64..1 << 34, 0u64..1 << 30, 0u64..1 << 20, 0u64..64);
    let rule = (
        0u64..1 << 20,
        1u64..1 << 24,
        0u32..9,
        -2i32..3,
        prop::option::of(0.0f64..0.5),
        0u32..20,
        prop::option::of("[ab]"),
        prop::option::of(1u64..1 << 24),
    );
    (sizes, counts, rule).prop_map(
        |((live, peak, quota, grain), (blocked, collect, allocs, buffers), rule)| {
            let (min_bytes, max_bytes, weight, priority, target, callers, group, together) = rule;
            PoolState {
                live_bytes: live,
                peak_bytes: peak,
                quota_bytes: quota,
                granted_bytes: live.min(quota),
                grain_bytes: PAGE << grain,
                blocked_ns: blocked,
                collect_ns: collect,
                allocs,
                live_buffers: buffers,
                rule: Rule {
                    min_bytes,
                    max_bytes: max_bytes.max(min_bytes),
                    weight,
                    priority,
                    target,
                    callers,
                    group,
                    group_max_bytes: together,
                },
                ..PoolState::default()
            }
        },
    )
}

/// Rounds of snapshots: in each the pools that are there, with counters that may jump back.
fn rounds() -> impl Strategy<Value = Vec<(u64, Vec<(u32, PoolState)>)>> {
    let pools = prop::collection::vec((0u32..8, pool()), 0..8);
    prop::collection::vec((1u64 << 12..1 << 24, pools), 1..8)
}

fn least(p: &PoolState) -> u64 {
    let max = p.rule.max_bytes - p.rule.max_bytes % p.grain_bytes;
    let min = p.rule.min_bytes.next_multiple_of(p.grain_bytes);
    min.max(p.grain_bytes).min(max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_the_policy_and_the_pools(rounds in rounds(), follow in any::<bool>(), which in 0..POLICIES.len()) {
        let policy = POLICIES[which].name;
        let config = Config::of(policy);
        assert_eq!(config.most_step, 0.25);
        let mut governor = Governor::new(config).expect("a policy");
        let mut given: std::collections::BTreeMap<u32, u64> = Default::default();
        for (number, (limit_bytes, pools)) in (1u64..).zip(rounds) {
            let mut seen = std::collections::BTreeSet::new();
            let pools: Vec<PoolState> = pools
                .into_iter()
                .filter(|(id, _)| seen.insert(*id))
                .map(|(id, mut p)| {
                    p.id = id;
                    if let Some(quota) = given.get(&id).filter(|_| follow) {
                        p.quota_bytes = *quota;
                    }
                    p
                })
                .collect();
            let snapshot = Snapshot { at_ns: number * 250_000_000, limit_bytes, pools };
            let targets = governor.step(&snapshot);
            prop_assert_eq!(targets.len(), snapshot.pools.len());
            let sum: u64 = targets.iter().map(|t| t.quota_bytes).sum();
            prop_assert!(sum <= limit_bytes, "{policy}: {sum} of {limit_bytes}");
            let mins: u64 = snapshot.pools.iter().map(least).sum();
            let before: u64 = snapshot.pools.iter().map(|p| p.quota_bytes).sum();
            let step = limit_bytes / 4;
            for (p, t) in snapshot.pools.iter().zip(&targets) {
                prop_assert_eq!(p.id, t.id);
                prop_assert!(t.quota_bytes <= p.rule.max_bytes);
                if mins <= limit_bytes {
                    prop_assert!(t.quota_bytes >= least(p), "{policy}: {t:?} below {}", least(p));
                    // Movement is bounded, unless the limit, a minimum or a maximum demands more.
                    let up = t.quota_bytes.saturating_sub(p.quota_bytes.max(least(p)));
                    prop_assert!(up <= step.max(p.grain_bytes), "{policy}: up by {up}, {step} at most");
                    // The group's limit is a maximum too.
                    let grouped = p.rule.group.is_some() && p.rule.group_max_bytes.is_some();
                    if !grouped && before <= limit_bytes && mins + before <= limit_bytes {
                        let down = p.quota_bytes.min(p.rule.max_bytes).saturating_sub(t.quota_bytes);
                        prop_assert!(down <= step.max(p.grain_bytes) + p.grain_bytes, "{policy}: down by {down}, {step} at most");
                    }
                }
            }
            for group in ["a", "b"] {
                let theirs = || snapshot.pools.iter().zip(&targets).filter(|(p, _)| {
                    p.rule.group.as_deref() == Some(group) && p.rule.group_max_bytes.is_some()
                });
                let most = theirs().filter_map(|(p, _)| p.rule.group_max_bytes).min();
                let have: u64 = theirs().map(|(_, t)| t.quota_bytes).sum();
                let least: u64 = theirs().map(|(p, _)| least(p)).sum();
                if let Some(most) = most {
                    prop_assert!(have <= most.max(least), "{policy}: {have} of {most} for {group}");
                }
            }
            given.extend(targets.iter().map(|t| (t.id, t.quota_bytes)));
        }
    }
}

#[test]
fn an_unknown_policy_is_an_error_that_names_those_there_are() {
    let error = Governor::new(Config::of("best")).expect_err("no such policy");
    let said = error.to_string();
    for policy in POLICIES {
        assert!(said.contains(policy.name), "{said}");
    }
}
