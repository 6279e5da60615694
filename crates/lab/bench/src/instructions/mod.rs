//! `instructions`: what each operation executes, counted by stepping through a number of messages, by function. Unlike a time it is the
//! same in every run, so that a change shows.
//!
//! Both sides warm up untraced. Then each is stepped through its batches while the other waits for a word, not for a message: nobody is
//! counted while it spins.

mod listing;
mod names;
mod opcode;
mod tracer;

use std::path::Path;

use anyhow::{Context, Result};

use self::listing::Counted;
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

/// The file too is written, if it has a name.
pub fn bench(common: &Common, systems: &[StepsEntry], save: Option<&Path>) -> Result<Outcome> {
    let (mut outcome, mut all) = (Outcome::default(), Vec::new());
    if let Err(why) = tracer::is_possible() {
        eprintln!("SKIPPED: instructions: {why:#}");
        return Ok(outcome);
    }
    for system in systems.iter().filter(|e| common.wants(e.name)) {
        match count(common, system) {
            Ok(counted) => all.extend(counted),
            Err(error) => {
                outcome.failures += 1;
                eprintln!("FAILED: {}: {error:#}", system.name);
            }
        }
    }
    outcome.rows.extend(all.iter().map(row));
    outcome.verdicts.extend(all.iter().map(Counted::line));
    if let (Some(path), 0) = (save, outcome.failures) {
        std::fs::write(path, listing::file(&all))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(outcome)
}

fn row(counted: &Counted) -> Row {
    let facts: Facts = [
        ("instructions", counted.instructions),
        ("own_instructions", counted.instructions - counted.bench),
        ("locked", counted.locked),
        ("locked_in_collection", counted.collecting),
        (
            "locked_outside_collection",
            counted.locked - counted.collecting,
        ),
        ("system_calls", counted.calls),
    ]
    .into();
    let measured = Measured {
        op: counted.op.to_owned(),
        median_ns: 0.0,
        p99_ns: 0.0,
        per_second: 0.0,
        facts,
        sampled: None,
    };
    let key = Key {
        mode: "a message",
        op: counted.op.to_owned(),
        payload_bytes: Some(PAYLOAD),
        buffers: Some(BUFFERS),
        ..Key::default()
    };
    Row::of(counted.system, key, &[measured])
}

fn count(common: &Common, system: &StepsEntry) -> Result<Vec<Counted>> {
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
    let mut all = Vec::new();
    for role in [Role::Ping, Role::Pong] {
        let text = std::fs::read(steps.tally(role)).context("what was counted")?;
        let tally: Vec<Tally> = serde_json::from_slice(&text)?;
        let names = names::of(tally.iter().map(|t| t.at))?;
        for (number, op) in (1..).zip(OPS) {
            let of: Vec<&Tally> = tally.iter().filter(|t| t.op == number).collect();
            if !of.is_empty() {
                all.push(Counted::of(system.name, op, &of, &names, messages));
            }
        }
    }
    Ok(all)
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
