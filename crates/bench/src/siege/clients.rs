//! Round trips of honest clients to the manager, and what it needs meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tranship_manager::Config;
use tranship_testkit::Peer;
use tranship_testkit::hostile::{ATTACKS, Load, NUISANCES};
use tranship_testkit::resource;

use super::cast::{self, Times};
use super::watch::{self, Held};
use super::{ATTACKERS, CONFIG, GONE, NAMES, Stage};
use crate::options::Common;
use crate::plan::Outcome;
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};

/// So much longer than what is sampled elsewhere.
const LONGER: u32 = 40;
/// What an honest client's answer may take beside hostile ones, of a hundred all but one.
const P99: Duration = Duration::from_millis(10);
/// What a descriptor, with the queues and tables behind it, may cost the manager; and a record of its tables.
const DESCRIPTOR_BYTES: u64 = 16 << 10;
const RECORD_BYTES: u64 = 256;
/// Descriptors that are nobody's: the manager's own, and its reserve.
const OWN: usize = 256;

type Answers = BTreeMap<String, Times>;

fn ask(client: &Peer, time: Duration) -> Result<Answers> {
    client.send(&time)?;
    client.recv().with_context(|| client.stderr())
}

pub fn measure(common: &Common, attackers: usize, outcome: &mut Outcome) -> Result<()> {
    let stage = Stage::new(None)?;
    let manager = stage.manager.pid();
    let exporter = stage.honest(cast::exporter())?;
    exporter.send(&NAMES)?;
    let () = exporter.recv().with_context(|| exporter.stderr())?;
    let client = stage.honest(cast::client())?;
    let time = common.budget() * LONGER;
    // Warm.
    ask(&client, time / 4)?;
    let idle = (0..common.runs())
        .map(|_| ask(&client, time))
        .collect::<Result<Vec<_>>>()?;
    let before = watch::until(manager, GONE, |_| true)?;
    let ((besieged, tally, busy), peak) = watch::during(manager, || {
        let load = stage.load(attackers, None)?;
        until_all_attack(&load, attackers)?;
        let (begin, used) = (Instant::now(), resource::processor_time(manager)?);
        let besieged = (0..common.runs())
            .map(|_| ask(&client, time))
            .collect::<Result<Vec<_>>>()?;
        let used = resource::processor_time(manager)?.saturating_sub(used);
        let busy = used.as_secs_f64() / begin.elapsed().as_secs_f64();
        let tally = load.tally()?;
        drop(load);
        Ok((besieged, tally, busy))
    })?;
    let after = watch::until(manager, GONE, |held| {
        held.fds <= before.fds && held.helpers <= before.helpers && has_returned(&before, held)
    })?;
    ensure!(!exporter.has_ended(), "{}", exporter.stderr());
    for (mode, runs) in [("idle", &idle), ("besieged", &besieged)] {
        rows(outcome, mode, runs);
    }
    let bursts: u64 = tally.values().map(|t| t[0]).sum();
    for attack in ATTACKS
        .iter()
        .map(|a| a.name)
        .chain(NUISANCES.iter().map(|n| n.name))
    {
        let [begun, ended] = tally.get(attack).copied().unwrap_or_default();
        eprintln!("{attack:40} {begun:6} bursts, {ended:6} to their end");
    }
    let said = Facts::from([
        ("bursts", bursts as f64),
        ("attackers", attackers as f64),
        ("manager_busy_percent", (busy * 100.0).round()),
    ]);
    judge(outcome, manager, [before, peak, after], said)
}

/// A heap that was large keeps a little of it.
fn has_returned(before: &Held, after: &Held) -> bool {
    after.memory.anonymous <= before.memory.anonymous + (2 << 20)
}

/// So that a short run measures attacks and not their beginning.
pub fn until_all_attack(load: &Load, attackers: usize) -> Result<()> {
    loop {
        let begun: u64 = load.tally()?.values().map(|t| t[0]).sum();
        if begun >= 4 * attackers as u64 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts")]
fn rows(outcome: &mut Outcome, mode: &'static str, runs: &[Answers]) {
    for op in ["join", "name", "pool", "grant", "show", "stat", "stat-all"] {
        let of = runs.iter().filter_map(|run| run.get(op));
        let measured: Vec<Measured> = of
            .map(|times| Measured {
                op: op.to_owned(),
                median_ns: times.median,
                p99_ns: times.p99,
                per_second: times.count as f64 * 1e9 / times.sum,
                facts: Facts::new(),
            })
            .collect();
        let key = Key {
            mode,
            op: op.to_owned(),
            ..Key::default()
        };
        let mut row = Row::of("tranship", key, &measured);
        let most = runs.iter().filter_map(|run| run.get(op)).map(|t| t.max);
        row.facts.insert("max_ns", most.fold(0.0, f64::max));
        let late = row.p99_ns > P99.as_nanos() as f64;
        // What there is to be said in all grows with what there is.
        if mode == "besieged" && late && op != "stat-all" {
            outcome.verdicts.push(format!(
                "{op}: p99 is {:.1} ms beside attackers, at most {} ms are wanted",
                row.p99_ns / 1e6,
                P99.as_millis()
            ));
        }
        outcome.rows.push(row);
    }
}

#[allow(clippy::cast_precision_loss, reason = "bytes of a process")]
fn judge(outcome: &mut Outcome, manager: u32, held: [Held; 3], mut facts: Facts) -> Result<()> {
    let limits = Config::parse(CONFIG)?.limits;
    let users = ATTACKERS.len() as u64;
    let fds = ATTACKERS.len() * limits.descriptors as usize + OWN;
    let per_user =
        u64::from(limits.descriptors) * DESCRIPTOR_BYTES + u64::from(limits.records) * RECORD_BYTES;
    let [before, peak, after] = held;
    let memory = before.memory.pss + users * per_user;
    for (name, value) in [
        ("fds_before", before.fds as f64),
        ("fds_peak", peak.fds as f64),
        ("fds_after", after.fds as f64),
        ("fds_limit", fds as f64),
        ("helpers_peak", peak.helpers as f64),
        ("helpers_after", after.helpers as f64),
        ("pss_before_bytes", before.memory.pss as f64),
        ("pss_peak_bytes", peak.memory.pss as f64),
        ("pss_after_bytes", after.memory.pss as f64),
        ("anonymous_before_bytes", before.memory.anonymous as f64),
        ("anonymous_peak_bytes", peak.memory.anonymous as f64),
        ("anonymous_after_bytes", after.memory.anonymous as f64),
        ("rss_before_bytes", before.memory.rss as f64),
        ("rss_peak_bytes", peak.memory.rss as f64),
        ("rss_after_bytes", after.memory.rss as f64),
        ("memory_limit_bytes", memory as f64),
    ] {
        facts.insert(name, value);
    }
    let key = Key {
        mode: "besieged",
        op: "manager".to_owned(),
        ..Key::default()
    };
    let mut row = Row::of("tranship", key, &[]);
    (row.median_ns, row.p99_ns, row.per_second) = (0.0, 0.0, 0.0);
    row.facts = facts;
    outcome.rows.push(row);
    let mut wrong = |what: String| {
        eprintln!("FAILED: {what}");
        outcome.verdicts.push(what);
        outcome.failures += 1;
    };
    if peak.fds > fds {
        wrong(format!(
            "{} descriptors, at most {fds} by the limits",
            peak.fds
        ));
    }
    if peak.memory.pss > memory {
        let most = peak.memory.pss;
        wrong(format!("{most} bytes, at most {memory} by the limits"));
    }
    if after.fds > before.fds {
        let left = watch::kinds(manager)?;
        let (before, after) = (before.fds, after.fds);
        wrong(format!(
            "{before} descriptors before, {after} after: {left:?}"
        ));
    }
    if !has_returned(&before, &after) {
        let (before, after) = (before.memory.anonymous, after.memory.anonymous);
        wrong(format!("{before} bytes before, {after} after"));
    }
    Ok(())
}
