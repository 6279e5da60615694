//! Plays a scenario.

use super::app::Player;
use super::memory::Memory;
use super::num::real;
use super::run::{AppFrame, Frame, PoolFrame, Run};
use super::scenario::Scenario;
use tranship_policy::{Config, Governor, PoolState, Snapshot, UnknownPolicy};

/// Counters at the beginning of a period.
#[derive(Clone, Copy, Default)]
struct Mark {
    blocked_ns: u64,
    collect_ns: u64,
}

/// Plays a scenario under a policy. Panics if the pools ever have more than the limit: that is an error in this crate.
///
/// # Errors
/// The configuration names a policy that does not exist.
pub fn run(scenario: &Scenario, config: &Config) -> Result<Run, UnknownPolicy> {
    let unit = scenario.page_bytes.max(1);
    let mut governor = Governor::new(config.clone())?;
    let mut run = Run {
        scenario: scenario.name.clone(),
        policy: config.policy.clone(),
        limit_bytes: scenario.limit_pages * scenario.page_bytes,
        period_ms: scenario.period_ms,
        pools: scenario.pools.iter().map(|p| p.name.clone()).collect(),
        apps: scenario.apps.iter().map(|a| a.name.clone()).collect(),
        frames: Vec::new(),
    };
    let count = scenario.pools.len().max(1) as u64;
    let mut pools: Vec<Memory> = (scenario.pools.iter())
        .map(|p| Memory {
            quota: p.first_pages.unwrap_or(scenario.limit_pages / count),
            ..Memory::default()
        })
        .collect();
    let seeds = (scenario.seed..).step_by(2);
    let mut players: Vec<Player> = (scenario.apps.iter().zip(seeds))
        .map(|(app, seed)| Player::new(app, seed))
        .collect();
    let mut marks = vec![Mark::default(); pools.len()];
    let mut done = vec![0u64; players.len()];
    for ms in 0..scenario.end_ms {
        step(scenario, ms, &mut players, &mut pools);
        let at_ms = ms + 1;
        if !at_ms.is_multiple_of(scenario.period_ms.max(1)) {
            continue;
        }
        let time_ns = real(scenario.period_ms) * 1e6;
        let seen: Vec<PoolFrame> = (pools.iter().zip(&marks))
            .map(|(p, mark)| PoolFrame {
                quota_bytes: p.quota * unit,
                resident_bytes: p.resident() * unit,
                live_bytes: p.live * unit,
                blocked: real(p.blocked_ns - mark.blocked_ns) / time_ns,
                collecting: real(p.collect_ns - mark.collect_ns) / time_ns,
            })
            .collect();
        let apps = (players.iter().zip(&mut done))
            .map(|(player, done)| {
                let since = player.done - std::mem::replace(done, player.done);
                let cost: f64 = (player.app.stages.iter().map(|s| &seen[*s]))
                    .map(|p| p.blocked + p.collecting)
                    .sum();
                AppFrame {
                    per_second: real(since) * 1000.0 / real(scenario.period_ms),
                    share: (cost / real(player.callers())).min(1.0),
                    active: player.app.demand.at(ms) >= 1.0,
                }
            })
            .collect();
        marks = (pools.iter())
            .map(|p| Mark {
                blocked_ns: p.blocked_ns,
                collect_ns: p.collect_ns,
            })
            .collect();
        let snapshot = snapshot(scenario, at_ms, &players, &mut pools);
        for (pool, target) in pools.iter_mut().zip(governor.step(&snapshot)) {
            pool.quota = target.quota_bytes / unit;
        }
        run.frames.push(Frame {
            at_ms,
            pools: seen,
            apps,
        });
    }
    Ok(run)
}

fn step(scenario: &Scenario, ms: u64, players: &mut [Player], pools: &mut [Memory]) {
    for pool in pools.iter_mut() {
        pool.give_back(0);
    }
    let has: u64 = pools.iter().map(Memory::resident).sum();
    let mut room = scenario.limit_pages.saturating_sub(has);
    let busy: Vec<f64> = players.iter().map(|p| p.busy * p.app.processor).collect();
    let all: f64 = busy.iter().sum();
    // The order changes, so that no program is always served before the others.
    let count = players.len().max(1);
    let first = usize::try_from(ms).unwrap_or(0) % count;
    for i in (0..players.len()).map(|i| (i + first) % count) {
        let speed = 1.0 - (all - busy[i]).clamp(0.0, 0.95);
        players[i].step(ms, speed, pools, &mut room);
    }
    let has: u64 = pools.iter().map(Memory::resident).sum();
    assert!(
        has <= scenario.limit_pages,
        "{has} pages at {ms} ms, {} is the limit",
        scenario.limit_pages
    );
}

fn snapshot(scenario: &Scenario, at_ms: u64, players: &[Player], pools: &mut [Memory]) -> Snapshot {
    let unit = scenario.page_bytes.max(1);
    let mut callers = vec![1u64; pools.len()];
    for player in players {
        for stage in &player.app.stages {
            callers[*stage] = player.callers();
        }
    }
    let state = |((id, p), (spec, callers)): ((u32, &mut Memory), (&super::PoolSpec, u64))| {
        let mut rule = spec.rule.clone();
        rule.callers = u32::try_from(callers).unwrap_or(u32::MAX);
        PoolState {
            id,
            name: spec.name.clone(),
            blocked_ns: p.blocked_ns,
            collect_ns: p.collect_ns,
            collections: p.collections,
            allocs: p.allocs,
            live_bytes: p.live * unit,
            peak_bytes: std::mem::replace(&mut p.peak, p.live) * unit,
            garbage_bytes: p.garbage * unit,
            cached_bytes: p.free * unit,
            live_buffers: p.live,
            waiters: u32::try_from(p.waiting).unwrap_or(u32::MAX),
            waiting_ns: 0,
            quota_bytes: p.quota * unit,
            granted_bytes: p.resident() * unit,
            grain_bytes: unit,
            rule,
        }
    };
    let specs = scenario.pools.iter().zip(callers);
    Snapshot {
        at_ns: at_ms * 1_000_000,
        limit_bytes: scenario.limit_pages * scenario.page_bytes,
        pools: (0u32..).zip(pools).zip(specs).map(state).collect(),
    }
}
