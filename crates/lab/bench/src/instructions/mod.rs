//! `instructions`: what each operation executes, counted by stepping through a number of messages. Unlike a time the count is the
//! same in every run, so that a change shows.
//!
//! Both sides warm up untraced. Then each is stepped through its batches while the other waits for a word, not for a message: nobody is
//! counted while it spins.

mod opcode;
mod tracer;

use anyhow::{Context, Result};

use self::tracer::{Tally, Tracer, mark};
use crate::bench::Bench;
use crate::case::{Case, Pattern, Wait};
use crate::messages;
use crate::options::Common;
use crate::party::{self, Party};
use crate::peer::{Ops, ROLES, Role};
use crate::plan::Outcome;
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};
use crate::systems::raw::Raw;
use crate::systems::tranship::Tranship;

/// Messages in a row; a sender has at least twice as many buffers.
const BATCH: u32 = 32;
const PAYLOAD: usize = 4096;
const BUFFERS: usize = 256;
/// Batches before anything is counted: every buffer was used several times.
const WARM: usize = 64;

/// The operations, by the number that [`mark`] gets.
const OPS: [&str; tracer::OPS] = [
    "alloc",
    "send",
    "receive",
    "release",
    "send_many",
    "recv_many",
];
const ALLOC: u64 = 1;
const SEND: u64 = 2;
const RECEIVE: u64 = 3;
const RELEASE: u64 = 4;
const SEND_MANY: u64 = 5;
const RECV_MANY: u64 = 6;
/// The calls for many messages after each batch.
const CALLS: usize = 3;

/// A system in the list.
#[derive(Debug, Clone, Copy)]
struct StepsEntry {
    name: &'static str,
    many: usize,
    clean: fn(u64),
    count: fn(&Case, Role, &Party, &Steps) -> Result<Vec<Measured>>,
}

fn systems() -> Vec<StepsEntry> {
    vec![
        entry::<Raw>(),
        entry::<Tranship>(),
        #[cfg(feature = "iceoryx2")]
        entry::<crate::systems::iceoryx2::Iceoryx2>(),
    ]
}

const fn entry<P: Ops>() -> StepsEntry {
    StepsEntry {
        name: P::NAME,
        many: P::MANY,
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

/// Options of the command line: none.
#[derive(Debug, clap::Args)]
pub struct Instructions;

impl Bench for Instructions {
    fn systems(&self) -> Vec<&'static str> {
        systems().iter().map(|e| e.name).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        if let Err(why) = tracer::is_possible() {
            eprintln!("SKIPPED: instructions: {why:#}");
            return Ok(outcome);
        }
        let all = systems();
        for system in all.iter().filter(|e| common.wants(e.name)) {
            match count(common, system) {
                Ok(rows) => outcome.rows.extend(rows),
                Err(error) => {
                    outcome.failures += 1;
                    eprintln!("FAILED: {}: {error:#}", system.name);
                }
            }
        }
        Ok(outcome)
    }
}

fn row(system: &str, op: &str, tally: Tally, messages: f64) -> Row {
    let of = |count: u64| count as f64 / messages;
    let measured = Measured::facts(Facts::from([
        ("instructions".into(), of(tally.instructions)),
        ("locked".into(), of(tally.locked)),
        ("system_calls".into(), of(tally.calls)),
    ]));
    let key = Key::of("a message").op(op).payload(PAYLOAD);
    Row::of(system, key.buffers(BUFFERS), &[measured])
}

fn count(common: &Common, system: &StepsEntry) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let steps = Steps {
        batches: if common.is_quick() { 1 } else { 16 },
        folder: folder.path().into(),
    };
    let case = Case {
        pattern: Pattern::Stream,
        payload: PAYLOAD,
        buffers: BUFFERS,
        loans: BATCH as usize,
        helper: false,
        ..messages::trip(common, Wait::Spin)
    };
    let number = crate::plan::number();
    let run = party::each(number, &case.cores, |me, party| {
        (system.count)(&case, ROLES[me], party, &steps)
    });
    (system.clean)(number);
    run?;
    let messages = |op| match op {
        "send_many" | "recv_many" => steps.batches * CALLS * system.many,
        _ => steps.batches * BATCH as usize,
    };
    let mut all = Vec::new();
    for role in ROLES {
        let text = std::fs::read(steps.tally(role)).context("what was counted")?;
        let tallies: [Tally; tracer::OPS] = serde_json::from_slice(&text)?;
        for (op, tally) in OPS.into_iter().zip(tallies) {
            if tally.instructions > 0 {
                all.push(row(system.name, op, tally, messages(op) as f64));
            }
        }
    }
    Ok(all)
}

/// Both sides of a system: it warms up, then is stepped through.
fn serve<P: Ops>(case: &Case, role: Role, party: &Party, steps: &Steps) -> Result<Vec<Measured>> {
    let mut peer = P::open(case, role, party)?;
    party.barrier()?;
    let tracer = Tracer::start(&steps.tally(role))?;
    for batch in 0..WARM + steps.batches {
        // Marks are traps: only the traced process may make them.
        let mark = if batch < WARM { |_| {} } else { mark };
        // Each side has turns of its own.
        if role == Role::Ping {
            give(&mut peer, batch, mark)?;
            party.tell(1, 0)?;
            party.hear(1)?;
        } else {
            party.hear(0)?;
            take(&mut peer, mark)?;
            party.tell(0, 0)?;
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
    if P::MANY == 1 {
        return Ok(());
    }
    for _ in 0..CALLS {
        let loans: Vec<_> = (0..P::MANY).map(|_| peer.alloc()).collect::<Result<_>>()?;
        mark(SEND_MANY);
        let given = peer.give_many(loans);
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
    if P::MANY == 1 {
        return Ok(());
    }
    let mut held = Vec::with_capacity(P::MANY);
    for _ in 0..CALLS {
        mark(RECV_MANY);
        let taken = peer.take_many(&mut held);
        mark(0);
        taken?;
        held.drain(..).try_for_each(|held| peer.release(held))?;
    }
    Ok(())
}
