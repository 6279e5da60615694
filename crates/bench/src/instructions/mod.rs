//! `instructions`: what each operation executes, counted by stepping through a number of messages, by function. Unlike a time it is the
//! same in every run, so that a change shows.
//!
//! Both sides warm up untraced. Then each is stepped through its batches while the other waits for a word, not for a message: nobody is
//! counted while it spins.

mod names;
mod opcode;
mod tracer;

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use self::tracer::{Tally, Tracer, mark};
use crate::case::{Case, Pattern, Touch, Wait};
use crate::ops::{BATCH, Ops};
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::peer::Role;
use crate::plan::Outcome;
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};

const PAYLOAD: usize = 4096;
const BUFFERS: usize = 256;
/// Batches before anything is counted: every buffer was used several times.
const WARM: usize = 64;
/// Functions named for each operation.
const NAMED: usize = 12;
/// Less of a message than this is not named.
const LEAST: f64 = 0.5;

/// The operations, by the number that [`mark`] gets.
const OPS: [&str; 4] = ["alloc", "send", "receive", "release"];
const ALLOC: u64 = 1;
const SEND: u64 = 2;
const RECEIVE: u64 = 3;
const RELEASE: u64 = 4;

/// A system in the list.
#[derive(Debug, Clone, Copy)]
pub struct StepsEntry {
    pub name: &'static str,
    clean: fn(u64),
    count: fn(&Case, Role, &Party, &Steps) -> Result<Vec<Measured>>,
}

pub const fn entry<P: Ops>() -> StepsEntry {
    StepsEntry {
        name: P::NAME,
        clean: P::clean,
        count: serve::<P>,
    }
}

/// How many batches are stepped through, and where their tallies go.
#[derive(Debug)]
struct Steps {
    batches: usize,
    folder: std::path::PathBuf,
}

impl Steps {
    fn tally(&self, role: Role) -> std::path::PathBuf {
        self.folder.join(format!("{}.json", role.index()))
    }
}

pub fn bench(common: &Common, systems: &[StepsEntry]) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if let Err(why) = tracer::is_possible() {
        eprintln!("SKIPPED: instructions: {why:#}");
        return Ok(outcome);
    }
    for system in systems.iter().filter(|e| common.wants(e.name)) {
        if let Err(error) = count(common, system, &mut outcome) {
            outcome.failures += 1;
            eprintln!("FAILED: {}: {error:#}", system.name);
        }
    }
    Ok(outcome)
}

fn count(common: &Common, system: &StepsEntry, outcome: &mut Outcome) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let steps = Steps {
        batches: if common.is_quick() { 2 } else { 16 },
        folder: folder.path().into(),
    };
    let case = Case {
        pattern: Pattern::Stream,
        wait: Wait::Spin,
        touch: Touch::Word,
        payload: PAYLOAD,
        buffers: BUFFERS,
        loans: BATCH as usize,
        cores: common.cores(),
        helper: false,
        budget: common.budget(),
    };
    let number = crate::plan::number();
    let member = |role: Role| Member {
        core: case.cores[role.index()],
        body: Box::new({
            let (case, steps) = (&case, &steps);
            move |party: &Party| (system.count)(case, role, party, steps)
        }),
    };
    let run = party::run(number, vec![member(Role::Ping), member(Role::Pong)]);
    (system.clean)(number);
    run?;
    let messages = (steps.batches * BATCH as usize) as f64;
    for role in [Role::Ping, Role::Pong] {
        let text = std::fs::read(steps.tally(role)).context("what was counted")?;
        let tally: Vec<Tally> = serde_json::from_slice(&text)?;
        let names = names::of(tally.iter().map(|t| t.at))?;
        for (number, op) in (1..).zip(OPS) {
            let of: Vec<&Tally> = tally.iter().filter(|t| t.op == number).collect();
            if of.is_empty() {
                continue;
            }
            let sum = |f: fn(&Tally) -> u64| of.iter().map(|t| f(t)).sum::<u64>() as f64 / messages;
            let facts: Facts = [
                ("instructions", sum(|t| t.times)),
                ("locked", sum(|t| t.times * u64::from(t.is_locked))),
                ("system_calls", sum(|t| t.times * u64::from(t.is_call))),
            ]
            .into();
            outcome
                .verdicts
                .push(by_function(system.name, op, &of, &names, messages));
            let measured = Measured {
                op: op.to_owned(),
                median_ns: 0.0,
                p99_ns: 0.0,
                per_second: 0.0,
                facts,
            };
            let key = Key {
                mode: "a message",
                op: op.to_owned(),
                payload_bytes: Some(PAYLOAD),
                buffers: Some(BUFFERS),
                ..Key::default()
            };
            outcome.rows.push(Row::of(system.name, key, &[measured]));
        }
    }
    Ok(())
}

/// One line: which functions, the most expensive first.
fn by_function(
    system: &str,
    op: &str,
    tally: &[&Tally],
    names: &BTreeMap<u64, String>,
    messages: f64,
) -> String {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for one in tally {
        let name = names.get(&one.at).map_or("?", String::as_str);
        *sums.entry(name).or_default() += one.times;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(name, times)| (std::cmp::Reverse(*times), *name));
    let parts = sums
        .iter()
        .map(|(name, times)| (name, *times as f64 / messages))
        .filter(|(_, each)| *each >= LEAST)
        .take(NAMED)
        .map(|(name, each)| format!("{each:.1} {name}"));
    format!("{system} {op}: {}", parts.collect::<Vec<_>>().join(", "))
}

/// Both sides of a system.
fn serve<P: Ops>(case: &Case, role: Role, party: &Party, steps: &Steps) -> Result<Vec<Measured>> {
    let mut peer = P::open(case, role, party)?;
    party.barrier()?;
    let tracer = Tracer::start(&steps.tally(role))?;
    for batch in 0..WARM + steps.batches {
        // Marks are traps: only who is traced may make them. The other side has a turn of its own.
        let mark: fn(u64) = if batch < WARM { |_| {} } else { mark };
        match role {
            Role::Ping => give(&mut peer, batch, mark)?,
            _ => {
                party.hear(Role::Ping.index())?;
                take(&mut peer, mark)?;
            }
        }
        let other = usize::from(role == Role::Ping);
        party.tell(other, 0)?;
        if role == Role::Ping {
            party.hear(other)?;
        }
    }
    tracer.end()?;
    party.barrier()?;
    Ok(Vec::new())
}

fn give<P: Ops>(peer: &mut P, batch: usize, mark: fn(u64)) -> Result<()> {
    for i in 0..BATCH as usize {
        mark(ALLOC);
        let loan = peer.alloc();
        mark(0);
        let (loan, stamp) = (loan?, (batch * BATCH as usize + i) as u64);
        mark(SEND);
        let given = peer.give(loan, stamp);
        mark(0);
        given?;
    }
    Ok(())
}

fn take<P: Ops>(peer: &mut P, mark: fn(u64)) -> Result<()> {
    for _ in 0..BATCH {
        mark(RECEIVE);
        let taken = peer.take();
        mark(0);
        let (held, _) = taken?;
        mark(RELEASE);
        let released = peer.release(held);
        mark(0);
        released?;
    }
    Ok(())
}
