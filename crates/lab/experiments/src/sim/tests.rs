//! How quotas follow demand, by the simulator, which is deterministic.

use crate::sim::{self, AppFigures, Run};
use tranship_policy::Config;

/// A change is followed by that many periods at most.
const PERIODS: u64 = 8;

/// Returns, for each period after the first, its end, and the largest change of any quota as a share of that quota
/// before.
fn moved(run: &Run) -> Vec<(u64, f64)> {
    let change = |w: &[sim::Frame]| {
        let both = w[0].pools.iter().zip(&w[1].pools);
        let part = both.map(|(a, b)| {
            a.quota_bytes.abs_diff(b.quota_bytes) as f64 / a.quota_bytes.max(1) as f64
        });
        (w[1].at_ms, part.fold(0.0, f64::max))
    };
    run.frames.windows(2).map(change).collect()
}

fn play(scenario: &str, policy: &str) -> Run {
    let scenario = sim::scenario(scenario).expect("a scenario");
    sim::run(&scenario, &Config::of(policy)).expect("a policy")
}

/// Returns the largest relative change of a quota between two periods within a time.
fn stirs(run: &Run, from_ms: u64, to_ms: u64) -> f64 {
    let moved = moved(run).into_iter();
    let within = moved.filter(|(at, _)| *at > from_ms && *at <= to_ms);
    within.fold(0.0, |most, (_, part)| part.max(most))
}

fn app(run: &Run, name: &str, from_ms: u64, to_ms: u64) -> AppFigures {
    let (apps, _) = sim::figures(run, from_ms, to_ms);
    apps.into_iter()
        .find(|a| a.name == name)
        .expect("a program")
}

fn quota(run: &Run, pool: usize, from_ms: u64, to_ms: u64) -> f64 {
    sim::figures(run, from_ms, to_ms).1[pool].quota_bytes / sim::PAGE as f64
}

#[test]
fn after_a_step_quotas_settle_within_eight_periods_and_then_stay() {
    for policy in ["throughput", "priority", "qos"] {
        let run = play("step", policy);
        let settled = PERIODS * run.period_ms;
        // Up at 5 s, down at 15 s.
        for (from, to) in [(5_000, 15_000), (15_000, 25_000)] {
            let stirs = stirs(&run, from + settled, to);
            assert!(stirs < 0.02, "{policy}, from {from} ms: {stirs}");
        }
        let one = app(&run, "one", 5_000 + settled, 15_000);
        assert!(one.share < 0.005, "{policy}: {one:?}");
        let (up, down) = (
            quota(&run, 0, 7_000, 15_000),
            quota(&run, 0, 17_000, 25_000),
        );
        assert!((64.0..80.0).contains(&up), "{policy}: {up} pages for 64");
        assert!(
            (10.0..14.0).contains(&down),
            "{policy}: given back but {down} pages for 10"
        );
    }
}

#[test]
fn two_equally_greedy_pools_have_the_same_and_do_not_swing() {
    for policy in ["throughput", "priority", "qos"] {
        let run = play("greedy", policy);
        let settled = 5_000 + PERIODS * run.period_ms;
        let (early, late) = (
            quota(&run, 0, settled, 30_000),
            quota(&run, 1, settled, 30_000),
        );
        assert!(
            (early - late).abs() < 0.05 * early.min(late),
            "{policy}: {early} and {late} pages"
        );
        assert!(
            early + late > 0.98 * 300.0,
            "{policy}: {early} and {late} pages of 300"
        );
        let stirs = stirs(&run, settled, 30_000);
        assert!(stirs < 0.02, "{policy}: {stirs}");
    }
}

#[test]
fn a_server_is_held_at_its_target_under_pressure_and_static_does_not() {
    for target in [0.02, 0.05, 0.1, 0.25] {
        let scenario = format!("pressure:{target}");
        let share = |policy| {
            let run = play(&scenario, policy);
            let worst = run
                .frames
                .iter()
                .filter(|f| f.at_ms > 5_000 + PERIODS * 250);
            let worst = worst
                .map(|f| (f.apps[0].share - target).abs())
                .fold(0.0, f64::max);
            (app(&run, "server", 7_000, 30_000).share, worst)
        };
        let (held, worst) = share("qos");
        assert!((held - target).abs() < 0.02, "{target}: {held}");
        assert!(worst < 0.02, "{target}: off by {worst} in one period");
        let (fixed, _) = share("static");
        assert!((fixed - target).abs() > 0.02, "{target}: {fixed} by chance");
    }
}

/// A pipeline, in which the callers of all stages wait at the narrowest one, is held at its target.
#[test]
fn a_pipeline_is_held_at_its_target() {
    for target in [0.1, 0.2] {
        let run = play(&format!("paper:230:{target}"), "qos");
        let server = app(&run, "server", 31_000, 41_000);
        assert!((server.share - target).abs() < 0.02, "{target}: {server:?}");
    }
}

/// The orderings of the paper's figure 10, at the interferer's peak.
#[test]
fn figure_10_in_its_order() {
    let at = |scenario: &str, policy: &str| {
        let run = play(scenario, policy);
        let [server, other] = ["server", "interferer"].map(|a| app(&run, a, 31_000, 41_000));
        (server, other)
    };
    let ample = at("paper-ample", "throughput");
    let short = at("paper", "throughput");
    let first = at("paper", "priority");
    let held = at("paper", "qos");
    // Priority serves the server at least as well as throughput, at the cost of the interferer.
    assert!(
        first.0.per_second >= short.0.per_second,
        "{first:?} {short:?}"
    );
    assert!(first.0.share <= short.0.share && first.1.share > short.1.share);
    // With enough memory no caller waits; under all other policies some do.
    assert!(ample.0.share < 0.005 && ample.1.share < 0.005, "{ample:?}");
    for (name, other) in [("throughput", &short), ("priority", &first), ("qos", &held)] {
        let lost = other.0.share + other.1.share;
        assert!(lost > ample.0.share + ample.1.share, "{name}: {other:?}");
        assert!(
            ample.1.per_second >= 0.99 * other.1.per_second,
            "{name}: {other:?}"
        );
    }
    // The server's target is 25 %: it may wait, but no longer than that.
    assert!(
        held.0.share < 0.27 && held.1.share < short.1.share,
        "{held:?}"
    );
}

/// The orderings of the paper's figure 11: the longer the server may wait, the more the interferer has.
#[test]
fn figure_11_in_its_order() {
    let targets = [0.01, 0.05, 0.1, 0.25];
    let runs = targets.map(|t| play(&format!("paper:260:{t}"), "qos"));
    let seen = runs.map(|run| ["server", "interferer"].map(|a| app(&run, a, 31_000, 41_000)));
    for (pair, target) in seen.windows(2).zip(targets) {
        let [less, more] = [&pair[0], &pair[1]];
        assert!(
            less[0].per_second >= 0.99 * more[0].per_second,
            "{target}: {seen:?}"
        );
        assert!(
            less[1].per_second <= 1.01 * more[1].per_second,
            "{target}: {seen:?}"
        );
    }
    for (seen, target) in seen.iter().zip(targets) {
        assert!(seen[0].share < target + 0.02, "{target}: {seen:?}");
    }
    // At a target of 10 %, the paper's server is worse off after an interferer's visit than before; here it has its
    // memory again 8 periods later.
    let run = play("paper:260:0.1", "qos");
    let (before, after) = (
        app(&run, "server", 15_000, 21_000),
        app(&run, "server", 47_250, 65_000),
    );
    assert!(after.share <= before.share + 0.005, "{before:?} {after:?}");
}

#[test]
fn the_same_scenario_gives_the_same_run() {
    assert_eq!(play("paper", "qos"), play("paper", "qos"));
}
