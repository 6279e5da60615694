//! `collect`: what an alloc costs that must first find a used buffer dead, against the number of buffers and
//! of receivers (the CBUFs paper's figure 7).
//!
//! The owner takes all its buffers (timed), sends each to every receiver, waits until all are received and
//! released, and begins again: the cost of collecting is spread over a full turn of the pool.

use std::time::Duration;

use anyhow::{Context, Result};
use tranship_core::{BufferMut, Pool, Receiver, Sender};

use crate::bench::Bench;
use crate::case::Wait;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Party};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};
use crate::systems::tranship::join;

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
const SYSTEM: &str = "tranship";

#[derive(Debug, clap::Args)]
pub struct Turns;

impl Bench for Turns {
    /// The product alone.
    fn systems(&self) -> Vec<&'static str> {
        vec![SYSTEM]
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [core, other] = common.cores();
        for receivers in RECEIVERS {
            let cores = [vec![core], vec![other; receivers]].concat();
            for buffers in BUFFERS {
                let key = Key::of("hot").with("buffers", buffers);
                let key = key.with("receivers", receivers);
                let cell = Cell::of(SYSTEM, key, |number| {
                    party::each(number, &cores, |me, party| match me {
                        0 => own([buffers, receivers], party, common.budget()),
                        _ => receive(buffers, party),
                    })
                });
                outcome.group(common.runs(), vec![cell]);
            }
        }
        Ok(outcome)
    }
}

/// The owner of the pool, process 0.
struct Owner {
    taken: Vec<BufferMut>,
    senders: Vec<Sender>,
    pool: Pool,
}

impl Owner {
    /// Takes a buffer and keeps it.
    fn take(&mut self) -> Result<()> {
        self.taken.push(self.pool.alloc(PAYLOAD)?);
        Ok(())
    }

    /// Sends each buffer that was taken to every receiver, and lets go of it.
    fn send_all(&mut self) -> Result<()> {
        let (last, others) = self.senders.split_last_mut().context("no receivers")?;
        for mut buf in self.taken.drain(..) {
            buf[..8].copy_from_slice(&1u64.to_le_bytes());
            let buf = buf.freeze();
            for sender in &mut *others {
                sender.send(buf.clone())?;
            }
            last.send(buf)?;
        }
        Ok(())
    }

    /// Takes that many buffers; returns the longest of the calls, in ticks.
    fn one_by_one(&mut self, buffers: usize) -> Result<u64> {
        let (mut longest, mut before) = (0, clock::ticks());
        for _ in 0..buffers {
            self.take()?;
            let now = clock::ticks();
            longest = longest.max(now - before);
            before = now;
        }
        Ok(longest)
    }
}

fn own([buffers, receivers]: [usize; 2], party: &Party, budget: Duration) -> Result<Vec<Measured>> {
    let domain = join::domain(0, party)?;
    let pool = domain.create_pool(join::pool_of(buffers, PAYLOAD))?;
    // A whole turn is sent before anybody receives.
    let batch = u32::try_from(buffers)?;
    let options = join::options(Wait::Spin).lines(batch);
    let listener = domain.listen_with::<Sender>("turns", options)?;
    let mut senders = Vec::with_capacity(receivers);
    for _ in 0..receivers {
        let mut sender = listener.accept()?;
        join::show(&mut sender, &pool)?;
        senders.push(sender);
    }
    let mut owner = Owner {
        taken: Vec::with_capacity(buffers),
        senders,
        pool,
    };
    party.barrier()?;
    let mut samples = Samples::new(1 << 16, batch);
    let mut cached = Samples::new(1 << 16, 64);
    let mut slowest = Samples::new(1 << 16, 1);
    let budget = clock::in_ticks(budget);
    let begun = clock::ticks();
    // Before anything is sent: nothing is there to be collected.
    let mut before = begun;
    while before - begun < budget / 4 {
        for _ in 0..64 {
            drop(owner.pool.alloc(PAYLOAD)?);
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
            slowest.push(owner.one_by_one(buffers)?);
            clock::ticks()
        } else {
            for _ in 0..buffers {
                owner.take()?;
            }
            clock::ticks()
        };
        if turns >= 2 && !single {
            samples.push(after - before);
        }
        turns += 1;
        owner.send_all()?;
        let last = turns > 4 && after - begun > budget;
        for i in 1..=receivers {
            party.tell(i, if last { END } else { MORE })?;
        }
        for i in 1..=receivers {
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

fn receive(buffers: usize, party: &Party) -> Result<Vec<Measured>> {
    // Any number but 0: the domains' names may be the same.
    let domain = join::domain(1, party)?;
    // A turn's messages are there when it receives: it waits for none of them.
    let options = join::options(Wait::Block);
    let mut receiver = domain.open_with::<Receiver>("turns", options)?;
    join::look(&mut receiver)?;
    party.barrier()?;
    loop {
        let last = party.hear(0)? == END;
        for _ in 0..buffers {
            drop(receiver.recv()?);
        }
        party.tell(0, 0)?;
        if last {
            break;
        }
    }
    party.barrier()?;
    Ok(Vec::new())
}
