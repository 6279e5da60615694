//! `demo`: the demo's main job without its trimmings. One producer fills frames of 8 MiB and hands each to four
//! consumers, every one of which reads all of its bytes.

use anyhow::{Context, Result, ensure};

use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};

pub const FRAME: usize = 8 << 20;
pub const CONSUMERS: usize = 4;
/// The stamp that ends a run.
const STOP: u64 = u64::MAX;

/// One side of a fan-out. Process 0 is the producer, 1 to [`CONSUMERS`] the consumers. Everybody blocks to wait.
pub trait Fan: Sized {
    const NAME: &'static str;
    fn open(me: usize, party: &Party) -> Result<Self>;
    /// Takes a frame, fills it (`touch::fill`), hands it to every consumer.
    fn send(&mut self, stamp: u64) -> Result<()>;
    /// Waits for a frame, reads all of it (`touch::sum`, which must be as expected), gives it back.
    fn recv(&mut self) -> Result<u64>;
}

/// A system in the list.
#[derive(Debug, Clone, Copy)]
pub struct FanEntry {
    pub name: &'static str,
    serve: fn(usize, &Party, std::time::Duration) -> Result<Vec<Measured>>,
}

pub const fn entry<F: Fan>() -> FanEntry {
    FanEntry {
        name: F::NAME,
        serve: serve::<F>,
    }
}

pub fn bench(common: &Common, systems: &[FanEntry]) -> Outcome {
    // Frames take milliseconds: give them ten times as long.
    let budget = common.budget() * 10;
    let [producer, consumers] = common.cores();
    let key = Key {
        mode: "touched",
        payload_bytes: Some(FRAME),
        receivers: Some(CONSUMERS),
        ..Key::default()
    };
    let cells = systems
        .iter()
        .filter(|e| common.wants(e.name))
        .map(|entry| Cell {
            system: entry.name,
            key: key.clone(),
            measure: Box::new(move |number| {
                let members = (0..=CONSUMERS).map(|me| Member {
                    // Two consumers beside the producer, two on the other core, if there are two.
                    core: if me % 2 == 0 { producer } else { consumers },
                    body: Box::new(move |party: &Party| (entry.serve)(me, party, budget)),
                });
                let done = party::run(number, members.collect());
                Ok(done?.into_iter().flatten().collect())
            }),
        });
    let mut outcome = Outcome::default();
    outcome.group(common.runs(), cells.collect());
    outcome
}

fn serve<F: Fan>(me: usize, party: &Party, budget: std::time::Duration) -> Result<Vec<Measured>> {
    let mut fan = F::open(me, party).with_context(|| format!("process {me} joins"))?;
    party.barrier()?;
    let measured = if me == 0 {
        produce(&mut fan, budget)?.into_iter().collect()
    } else {
        consume(&mut fan)?
    };
    party.barrier()?;
    Ok(measured)
}

fn produce<F: Fan>(fan: &mut F, budget: std::time::Duration) -> Result<Option<Measured>> {
    let mut samples = Samples::new(1 << 16, 1);
    let end = clock::ticks() + clock::in_ticks(budget);
    let mut stamp = 0;
    loop {
        let before = clock::ticks();
        stamp += 1;
        fan.send(stamp)?;
        let now = clock::ticks();
        // The first frames fault pages in.
        if stamp > 2 && !samples.push(now - before) || now > end && stamp > 4 {
            break;
        }
    }
    fan.send(STOP)?;
    Ok(samples.finish(""))
}

fn consume<F: Fan>(fan: &mut F) -> Result<Vec<Measured>> {
    let mut stamp = 0;
    loop {
        let got = fan.recv()?;
        if got == STOP {
            return Ok(Vec::new());
        }
        stamp += 1;
        ensure!(got == stamp, "expected frame {stamp}, got {got}");
    }
}
