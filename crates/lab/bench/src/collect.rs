//! `collect`: what an alloc costs that must first find a used buffer dead, against the number of buffers and
//! of receivers (the CBUFs paper's figure 7).
//!
//! The owner takes all its buffers (timed), sends each to every receiver, waits until all are received and
//! released, and begins again: the cost of collecting is spread over a full turn of the pool.

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Party};
use crate::peer::{Collect, Size};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};
use crate::systems::tranship;

/// The rows' operations.
const CACHED: &str = "alloc and free, never sent";
const COLLECTING: &str = "alloc with collection";
/// Of all allocs of one turn of the pool the slowest.
const SLOWEST: &str = "slowest alloc of a turn";
const BUFFERS: [usize; 5] = [8, 64, 256, 1024, 4096];
const RECEIVERS: [usize; 4] = [1, 2, 4, 8];
/// Bytes of a buffer.
const PAYLOAD: usize = 4096;
/// Said to the receivers: a turn's messages are sent, or it was the last turn.
const MORE: u64 = 1;
const END: u64 = 0;

/// A system in the list.
#[derive(Debug, Clone, Copy)]
struct CollectEntry {
    name: &'static str,
    clean: fn(u64),
    own: fn(Size, &Party, std::time::Duration) -> Result<Vec<Measured>>,
    receive: fn(Size, &Party) -> Result<Vec<Measured>>,
}

fn systems() -> Vec<CollectEntry> {
    vec![
        entry::<tranship::Turns>(),
        #[cfg(feature = "iceoryx2")]
        entry::<crate::systems::iceoryx2::Iceoryx2>(),
    ]
}

const fn entry<C: Collect>() -> CollectEntry {
    CollectEntry {
        name: C::NAME,
        clean: C::clean,
        own: own::<C>,
        receive: receive::<C>,
    }
}

#[derive(Debug, clap::Args)]
pub struct Turns;

impl Bench for Turns {
    const REFERENCES: &'static [&'static str] = &["iceoryx2"];

    fn systems(&self) -> Vec<&'static str> {
        systems().iter().map(|e| e.name).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let all = systems();
        for receivers in RECEIVERS {
            for buffers in BUFFERS {
                let size = Size {
                    buffers,
                    receivers,
                    payload: PAYLOAD,
                };
                let wanted = all.iter().filter(|e| common.wants(e.name));
                let key = Key::of("hot").buffers(buffers).receivers(receivers);
                let cells = wanted.map(|entry| {
                    Cell::of(entry.name, key.clone(), move |number| {
                        once(*entry, size, common, number)
                    })
                });
                outcome.group(common.runs(), cells.collect());
            }
        }
        Ok(outcome)
    }
}

fn once(entry: CollectEntry, size: Size, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let [core, other] = common.cores();
    let cores = [vec![core], vec![other; size.receivers]].concat();
    let done = party::each(number, &cores, |me, party| match me {
        0 => (entry.own)(size, party, common.budget()),
        _ => (entry.receive)(size, party),
    });
    (entry.clean)(number);
    done
}

fn own<C: Collect>(
    size: Size,
    party: &Party,
    budget: std::time::Duration,
) -> Result<Vec<Measured>> {
    let mut owner = C::owner(size, party).context("the owner joins")?;
    party.barrier()?;
    let batch = u32::try_from(size.buffers)?;
    let mut samples = Samples::new(1 << 16, batch);
    let mut cached = Samples::new(1 << 16, 64);
    let mut slowest = Samples::new(1 << 16, 1);
    let budget = clock::in_ticks(budget);
    let begun = clock::ticks();
    // Before anything is sent: nothing is there to be collected.
    let mut before = begun;
    while before - begun < budget / 4 {
        for _ in 0..64 {
            C::cached(&mut owner)?;
        }
        let now = clock::ticks();
        cached.push(now - before);
        before = now;
    }
    let mut turns = 0;
    loop {
        let before = clock::ticks();
        // The first turn takes what was never used, the second warms. Then every other one is looked at call by call.
        let single = turns >= 2 && turns % 2 == 1;
        let after = if single {
            slowest.push(one_by_one::<C>(&mut owner, size.buffers)?);
            clock::ticks()
        } else {
            for _ in 0..size.buffers {
                C::take(&mut owner)?;
            }
            clock::ticks()
        };
        if turns >= 2 && !single {
            samples.push(after - before);
        }
        turns += 1;
        C::send_all(&mut owner)?;
        let last = turns > 4 && after - begun > budget;
        for i in 1..=size.receivers {
            party.tell(i, if last { END } else { MORE })?;
        }
        for i in 1..=size.receivers {
            party.hear(i)?;
        }
        if last {
            break;
        }
    }
    party.barrier()?;
    let one = |name: &str, s: Samples| {
        s.finish(name)
            .with_context(|| format!("no samples of {name}"))
    };
    Ok(vec![
        one(CACHED, cached)?,
        one(COLLECTING, samples)?,
        one(SLOWEST, slowest)?,
    ])
}

/// The longest of a turn's calls, in ticks.
fn one_by_one<C: Collect>(owner: &mut C::Owner, buffers: usize) -> Result<u64> {
    let (mut longest, mut before) = (0, clock::ticks());
    for _ in 0..buffers {
        C::take(owner)?;
        let now = clock::ticks();
        longest = longest.max(now - before);
        before = now;
    }
    Ok(longest)
}

fn receive<C: Collect>(size: Size, party: &Party) -> Result<Vec<Measured>> {
    let mut receiver = C::receiver(size, party).context("a receiver joins")?;
    party.barrier()?;
    loop {
        let last = party.hear(0)? == END;
        for _ in 0..size.buffers {
            C::receive(&mut receiver)?;
        }
        party.tell(0, 0)?;
        if last {
            break;
        }
    }
    party.barrier()?;
    Ok(Vec::new())
}
