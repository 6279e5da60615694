//! Round trips of honest clients to the manager, and what it needs meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tranship_manager::Config;
use tranship_proto::ManagerStat;
use tranship_testkit::Peer;
use tranship_testkit::hostile::{ATTACKS, Load, NUISANCES};
use tranship_testkit::resource::{self, Scheduled};

use super::cast::{self, Times};
use super::groups::Grouping;
use super::stage::{ATTACKERS, CONFIG, NAMES, Stage};
use super::watch::{self, Held};
use crate::options::Common;
use crate::plan::Outcome;
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};

/// So much longer than what is sampled elsewhere.
const LONGER: u32 = 40;
/// The requests with a promise. The answer to "all there is" grows with the number of objects, so nothing is promised
/// of it.
const PROMISED: [&str; 6] = ["join", "name", "pool", "grant", "show", "stat"];
/// Nor of the first parts of a join: the client wakes when it is due, and waits for room in the listener's queue.
const MORE: [&str; 3] = ["late", "join-connected", "stat-all"];
/// Longest time of an honest client's answer beside hostile clients: the 99th percentile.
const P99: Duration = Duration::from_millis(10);
/// Descriptors that are nobody's: the manager's own, and its reserve.
const OWN: usize = 256;
/// The longest that is waited for the attackers' things to be gone.
const GONE: Duration = Duration::from_secs(60);

type Answers = BTreeMap<String, Times>;

/// Result of one run: answers, and the shares of the processors that manager and client had meanwhile.
struct Seen {
    answers: Answers,
    said: ManagerStat,
    took: Duration,
    manager: Scheduled,
    client: Scheduled,
}

fn ask(manager: u32, client: &Peer, time: Duration) -> Result<Seen> {
    let of = |pid| resource::scheduled(pid);
    let (begin, before) = (Instant::now(), [of(manager)?, of(client.pid())?]);
    client.send(&time)?;
    let (answers, said): (_, Option<_>) = client.recv().with_context(|| client.stderr())?;
    Ok(Seen {
        answers,
        said: said.context("the manager said nothing of itself")?,
        took: begin.elapsed(),
        manager: of(manager)?.since(&before[0]),
        client: of(client.pid())?.since(&before[1]),
    })
}

pub fn measure(common: &Common, attackers: usize, outcome: &mut Outcome) -> Result<()> {
    let stage = Stage::new(None)?;
    let manager = stage.manager.pid();
    let exporter = stage.honest(cast::exporter())?;
    exporter.send(&NAMES)?;
    let () = exporter.recv().with_context(|| exporter.stderr())?;
    let client = stage.honest(cast::client())?;
    let time = common.budget() * LONGER;
    let groupings = stage.groups.all();
    let likely = groupings[0];
    stage.groups.arrange(likely)?;
    // Warm.
    ask(manager, &client, time / 4)?;
    let idle = (0..common.runs())
        .map(|_| ask(manager, &client, time))
        .collect::<Result<Vec<_>>>()?;
    let before = watch::until(manager, GONE, |_| true)?;
    let ((besieged, tally), peak) = watch::during(manager, || {
        let load = stage.load(attackers, None)?;
        until_all_attack(&load, attackers)?;
        let mut besieged: Vec<(Grouping, Seen)> = Vec::new();
        for _ in 0..common.runs() {
            for grouping in &groupings {
                stage.groups.arrange(*grouping)?;
                besieged.push((*grouping, ask(manager, &client, time)?));
            }
        }
        let tally = load.tally()?;
        drop(load);
        Ok((besieged, tally))
    })?;
    let after = watch::until(manager, GONE, |held| {
        held.fds <= before.fds && held.helpers <= before.helpers && has_returned(&before, held)
    })?;
    ensure!(!exporter.has_ended(), "{}", exporter.stderr());
    rows(outcome, "idle", &idle.iter().collect::<Vec<_>>(), false);
    for grouping in groupings {
        let of = besieged.iter().filter(|(of, _)| *of == grouping);
        let of: Vec<_> = of.map(|(_, seen)| seen).collect();
        rows(outcome, grouping.besieged(), &of, grouping == likely);
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
    let said = &besieged.last().context("no runs")?.1.said;
    let facts = Facts::from([
        ("bursts".into(), bursts as f64),
        ("attackers".into(), attackers as f64),
        ("longest_turn_ns".into(), said.longest_turn_us as f64 * 1e3),
    ]);
    judge(outcome, manager, said, [before, peak, after], facts)
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
fn rows(outcome: &mut Outcome, mode: &'static str, runs: &[&Seen], counts: bool) {
    for op in PROMISED.into_iter().chain(MORE) {
        let of = runs.iter().filter_map(|run| run.answers.get(op));
        let row = cast::row(mode, op, None, of);
        let late = row.p99_ns > P99.as_nanos() as f64;
        if counts && late && PROMISED.contains(&op) {
            outcome.verdicts.push(format!(
                "{op}: p99 is {:.1} ms beside attackers, at most {} ms are wanted",
                row.p99_ns / 1e6,
                P99.as_millis()
            ));
        }
        outcome.rows.push(row);
    }
    outcome.rows.push(shares(mode, runs));
}

/// Percentage of a processor that manager and client had, and the time that each waited for it when it could run.
fn shares(mode: &'static str, runs: &[&Seen]) -> Row {
    let percent =
        |part: Duration, seen: &Seen| 100.0 * part.as_secs_f64() / seen.took.as_secs_f64();
    let each = |of: Scheduled| of.waited.as_secs_f64() * 1e9 / of.times.max(1) as f64;
    let measured = |seen: &&Seen| {
        let (manager, client) = (seen.manager, seen.client);
        Measured::facts(Facts::from([
            ("manager_ran_percent".into(), percent(manager.ran, seen)),
            (
                "manager_waited_percent".into(),
                percent(manager.waited, seen),
            ),
            ("manager_waited_each_ns".into(), each(manager)),
            ("client_waited_percent".into(), percent(client.waited, seen)),
            ("client_waited_each_ns".into(), each(client)),
        ]))
    };
    let all: Vec<Measured> = runs.iter().map(measured).collect();
    Row::of("tranship", Key::of(mode).op("processor"), &all)
}

#[allow(clippy::cast_precision_loss, reason = "bytes of a process")]
fn judge(
    outcome: &mut Outcome,
    manager: u32,
    said: &ManagerStat,
    held: [Held; 3],
    mut facts: Facts,
) -> Result<()> {
    let limits = Config::parse(CONFIG)?.limits;
    let users = ATTACKERS.len();
    let fds = users * limits.descriptors as usize + OWN;
    let [before, peak, after] = held;
    let memory = before.memory.pss + users as u64 * said.own_bytes_per_user;
    for (when, held) in [("before", before), ("peak", peak), ("after", after)] {
        let memory = held.memory;
        for (what, value) in [
            ("fds", held.fds as u64),
            ("helpers", held.helpers as u64),
            ("pss_bytes", memory.pss),
            ("anonymous_bytes", memory.anonymous),
            ("rss_bytes", memory.rss),
        ] {
            facts.insert(format!("{when}_{what}").into(), value as f64);
        }
    }
    facts.insert("fds_limit".into(), fds as f64);
    facts.insert("memory_limit_bytes".into(), memory as f64);
    let key = Key::of("besieged").op("manager");
    let row = Row::of("tranship", key, &[Measured::facts(facts)]);
    outcome.rows.push(row);
    let [pss, left] = [peak.memory.pss, after.memory.anonymous];
    for (is_wrong, what) in [
        (
            peak.fds > fds,
            format!("{} descriptors, at most {fds} by the limits", peak.fds),
        ),
        (
            pss > memory,
            format!("{pss} bytes, at most {memory} by the limits"),
        ),
        (
            after.fds > before.fds,
            format!(
                "{} descriptors before, {} after: {:?}",
                before.fds,
                after.fds,
                watch::kinds(manager)?
            ),
        ),
        (
            !has_returned(&before, &after),
            format!("{} bytes before, {left} after", before.memory.anonymous),
        ),
    ] {
        if is_wrong {
            eprintln!("FAILED: {what}");
            outcome.verdicts.push(what);
            outcome.failures += 1;
        }
    }
    Ok(())
}
