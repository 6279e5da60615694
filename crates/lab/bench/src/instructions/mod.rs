//! `instructions`: what each operation executes, counted by stepping through a number of messages. Unlike a time the count is the
//! same in every run, so that a change shows.
//!
//! Both sides warm up untraced. Then each is stepped through its batches while the other waits for a word, not for a message: nobody is
//! counted while it spins.

mod opcode;
mod tracer;

use anyhow::Result;

use self::tracer::{Tally, Tracer, mark};
use crate::bench::Bench;
use crate::case::{Case, Pattern, Wait};
use crate::messages;
use crate::options::Common;
use crate::party::{self, Party};
use crate::peer::{Ops, Peer, ROLES, Role};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
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

/// Counts as one side of a case, with so many batches.
type Serve = fn(&Case, Role, &Party, usize) -> Result<Vec<Measured>>;

fn systems() -> Vec<(&'static str, Serve)> {
    vec![
        (Raw::NAME, serve::<Raw>),
        (Tranship::NAME, serve::<Tranship>),
        #[cfg(feature = "iceoryx2")]
        (
            crate::systems::iceoryx2::Iceoryx2::NAME,
            serve::<crate::systems::iceoryx2::Iceoryx2>,
        ),
    ]
}

/// Options of the command line: none.
#[derive(Debug, clap::Args)]
pub struct Instructions;

impl Bench for Instructions {
    fn systems(&self) -> Vec<&'static str> {
        systems().iter().map(|(name, _)| *name).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        if let Err(why) = tracer::is_possible() {
            eprintln!("SKIPPED: instructions: {why:#}");
            return Ok(outcome);
        }
        let batches = if common.is_quick() { 1 } else { 16 };
        let case = &Case {
            pattern: Pattern::Stream,
            payload: PAYLOAD,
            buffers: BUFFERS,
            loans: BATCH as usize,
            helper: false,
            ..messages::trip(common, Wait::Spin)
        };
        let key = Key::of("a message").payload(PAYLOAD);
        let key = key.with("buffers", BUFFERS);
        let wanted = systems().into_iter().filter(|(name, _)| common.wants(name));
        let cells = wanted.map(|(name, serve)| {
            Cell::of(name, key.clone(), move |number| {
                party::each(number, &case.cores, |me, party| {
                    serve(case, ROLES[me], party, batches)
                })
            })
        });
        // Each run counts the same.
        outcome.group(1, cells.collect());
        Ok(outcome)
    }
}

fn measured(op: &str, tally: Tally, messages: usize) -> Measured {
    let of = |count: u64| count as f64 / messages as f64;
    Measured {
        op: op.to_owned(),
        ..Measured::facts(Facts::from([
            ("instructions".into(), of(tally.instructions)),
            ("locked".into(), of(tally.locked)),
            ("system_calls".into(), of(tally.calls)),
        ]))
    }
}

/// Both sides of a system: it warms up, then is stepped through.
fn serve<P: Ops>(case: &Case, role: Role, party: &Party, batches: usize) -> Result<Vec<Measured>> {
    let mut peer = P::open(case, role, party)?;
    party.barrier()?;
    let tracer = Tracer::start()?;
    for batch in 0..WARM + batches {
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
    let tallies = OPS.into_iter().zip(tracer.end()?);
    party.barrier()?;
    let counted = tallies.filter(|(_, tally)| tally.instructions > 0);
    let measured = counted.map(|(op, tally)| match op {
        "send_many" | "recv_many" => measured(op, tally, batches * CALLS * P::MANY),
        _ => measured(op, tally, batches * BATCH as usize),
    });
    Ok(measured.collect())
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
