//! `tail`: how long single operations take at worst. One message is in flight, to and fro; every alloc, send, receive and release of
//! both sides is timed by itself.
//!
//! Who receives is told so by a word of its own, not by the message, so the message is there and nobody is timed while he waits. An
//! empty pair of time stamps at every message says what the timer takes, and what the machine does to a program that does nothing;
//! that is in every number, and nothing is subtracted.

mod log;
mod picture;
mod side;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Pattern, Touch, Wait};
use crate::clock;
use crate::histogram::Histogram;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::peer::Role;
use crate::placement::{self, Placement};
use crate::plan::{self, Outcome};
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured, Sampled};
pub use log::TIMER;
use log::{NAMES, Seen};
pub use picture::save as pictures;

const BUFFERS: usize = 256;
/// What no operation may take, by the design, but one in a thousand.
pub const LIMIT_NS: f64 = 1000.0;

/// A system in the list.
#[derive(Debug, Clone, Copy)]
pub struct TailEntry {
    pub name: &'static str,
    clean: fn(u64),
    serve: side::Serve,
}

pub const fn entry<P: crate::ops::Ops>() -> TailEntry {
    TailEntry {
        name: P::NAME,
        clean: P::clean,
        serve: side::serve::<P>,
    }
}

pub fn bench(common: &Common, systems: &[TailEntry], payloads: &[usize]) -> Outcome {
    let mut outcome = Outcome::default();
    for payload in common.some_of(payloads) {
        let case = Case {
            pattern: Pattern::RoundTrip,
            wait: Wait::Spin,
            touch: Touch::Word,
            payload,
            buffers: BUFFERS,
            loans: 1,
            cores: common.cores(),
            helper: true,
            budget: common.budget(),
        };
        let wanted: Vec<_> = systems.iter().filter(|e| common.wants(e.name)).collect();
        let mut runs: Vec<Result<Vec<Vec<Seen>>>> = wanted.iter().map(|_| Ok(Vec::new())).collect();
        for _ in 0..common.runs() {
            for (system, runs) in wanted.iter().zip(&mut runs) {
                let Ok(before) = runs else { continue };
                match once(system, &case) {
                    Ok(seen) => before.push(seen),
                    Err(error) => *runs = Err(error),
                }
            }
        }
        for (system, runs) in wanted.iter().zip(runs) {
            match runs {
                Ok(runs) => outcome.rows.extend(rows(system.name, &case, &runs)),
                Err(error) => {
                    outcome.failures += 1;
                    eprintln!("FAILED: {} of {payload} bytes: {error:#}", system.name);
                }
            }
        }
    }
    outcome.verdicts.extend(timer(&outcome.rows));
    outcome
}

/// One run: both sides' histograms together.
fn once(system: &TailEntry, case: &Case) -> Result<Vec<Seen>> {
    let folder = tempfile::tempdir()?;
    let file = |role: Role| -> PathBuf { folder.path().join(format!("{}.json", role.index())) };
    let member = |role: Role| Member {
        core: case.cores[role.index()],
        body: Box::new({
            let (file, serve) = (file(role), system.serve);
            move |party: &Party| serve(case, role, party, &file)
        }),
    };
    let number = plan::number();
    let run = party::run(number, vec![member(Role::Ping), member(Role::Pong)]);
    (system.clean)(number);
    run?;
    let mut all: Vec<Seen> = Vec::new();
    for role in [Role::Ping, Role::Pong] {
        let text = std::fs::read(file(role)).context("what was timed")?;
        let one: Vec<Seen> = serde_json::from_slice(&text)?;
        log::merge(&mut all, &one);
    }
    ensure!(!all.is_empty(), "nothing was timed");
    Ok(all)
}

/// A row for each operation and placement: all samples of all runs together. Its runs are apart, for who wants their range.
fn rows(system: &str, case: &Case, runs: &[Vec<Seen>]) -> Vec<Row> {
    let mut all: Vec<Seen> = Vec::new();
    runs.iter().for_each(|run| log::merge(&mut all, run));
    let is_unclear = |seen: &&Seen| seen.placement == Some(Placement::Unclear);
    let has_others = all.iter().any(|seen| !is_unclear(&seen));
    let mut out = Vec::new();
    let places = placement::ALL.map(Some).into_iter().chain([None]);
    for (op, place) in NAMES
        .iter()
        .flat_map(|op| places.clone().map(move |place| (*op, place)))
    {
        let of = |seen: &&Seen| seen.op == op && seen.placement == place;
        let Some(pooled) = all.iter().find(of) else {
            continue;
        };
        if is_unclear(&pooled) && has_others {
            continue;
        }
        let unclear = all.iter().filter(is_unclear).find(|seen| seen.op == op);
        let unclear = unclear.map_or(0, |seen| seen.times.count());
        let key = Key {
            mode: case.mode(),
            op: op.to_owned(),
            payload_bytes: Some(case.payload),
            buffers: Some(case.buffers),
            cores: Some(case.cores_used()),
            placement: place.map(Placement::name),
            ..Key::default()
        };
        let each = runs.iter().enumerate().filter_map(|(round, run)| {
            let seen = run.iter().find(of)?;
            Some(measured(seen, round))
        });
        let each: Vec<Measured> = each.collect();
        let one = Row::of(system, key, &[measured(pooled, 0)]);
        let times = &pooled.times;
        let facts = [
            ("max_ns", clock::ns(times.max()).round()),
            (
                "ppm_above_1us",
                (times.ppm_above(limit()) * 10.0).round() / 10.0,
            ),
        ];
        out.push(Row {
            discarded_samples: place.map(|_| unclear),
            histogram: pairs(times),
            facts: Facts::from(facts),
            runs: each,
            ..one
        });
    }
    out
}

fn limit() -> u64 {
    clock::in_ticks(std::time::Duration::from_micros(1))
}

fn pairs(times: &Histogram) -> Vec<(f64, u64)> {
    let round = |ns: f64| (ns * 10.0).round() / 10.0;
    times
        .buckets()
        .map(|(ticks, n)| (round(clock::ns(ticks)), n))
        .collect()
}

fn measured(seen: &Seen, round: usize) -> Measured {
    let times = &seen.times;
    let at = |ppm| clock::ns(times.quantile(ppm));
    Measured {
        op: seen.op.clone(),
        median_ns: at(500_000),
        p99_ns: at(990_000),
        per_second: 1e9 * times.count() as f64 / clock::ns(times.sum().max(1)),
        facts: Facts::new(),
        sampled: Some(Sampled {
            placement: seen.placement,
            samples: times.count(),
            p999_ns: at(999_000),
            line_ns: seen.line_ns,
            round,
        }),
    }
}

/// What the timer itself takes, in words.
fn timer(rows: &[Row]) -> Vec<String> {
    let of = rows.iter().filter(|row| row.key.op == TIMER);
    let (mut least, mut most, mut p999) = (f64::MAX, 0.0f64, 0.0f64);
    for row in of {
        (least, most) = (least.min(row.median_ns), most.max(row.median_ns));
        p999 = p999.max(row.p999_ns);
    }
    let text = format!(
        "the timer itself: an empty pair of time stamps takes {least:.0} to {most:.0} ns (median), {p999:.0} ns at p99.9; that is in every \
         number above, and nothing is subtracted"
    );
    (p999 > 0.0).then_some(text).into_iter().collect()
}
