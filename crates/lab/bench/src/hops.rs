//! `hops`: buffers go through a row of domains to the last, which sends them back through the row: one at a time, or as
//! many as there are. The report's microbenchmarks, with its passthrough domains (figures 5.6 to 5.9).
//!
//! Each domain sends on what it receives, over a channel there and another one back. All domains sleep when they have
//! nothing to do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tranship_core::{
    Body, ChannelOptions, Message, PollItem, Pool, Receiver, Sender, Trust, Wait, poll,
};

use crate::bench::Bench;
use crate::clock;
use crate::options::{Common, pages};
use crate::party::{self, Party};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};
use crate::systems::tranship::{join, moved};

const SYSTEMS: [&str; 4] = ["shm", "local", "copy", "tcp+plain"];
const LEVELS: [Trust; 3] = [Trust::Full, Trust::Producer, Trust::None];
/// One buffer is out, or all.
const MODES: [&str; 2] = ["latency", "throughput"];
/// Buffers that may be out.
const BUFFERS: usize = 16;
/// The last message's word.
const STOP: u64 = u64::MAX;

#[derive(Debug, clap::Args)]
pub struct Hops {
    /// One buffer is out at a time, or all [default: both].
    #[arg(long, value_delimiter = ',', value_parser = MODES)]
    mode: Vec<String>,
    /// Levels of trust of shared memory [default: all].
    #[arg(long, value_delimiter = ',', value_parser = LEVELS.map(Trust::name))]
    trust: Vec<String>,
    /// Domains between the first and the last.
    #[arg(long, value_delimiter = ',', default_values = ["0", "1", "2"])]
    between: Vec<usize>,
    /// Bytes of a buffer, a multiple of the page.
    #[arg(long, value_parser = pages, default_value = "4K")]
    payload: usize,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    scheme: &'static str,
    level: Trust,
    out: usize,
    payload: usize,
    last: usize,
    budget: Duration,
}

impl Bench for Hops {
    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [one, two] = common.cores();
        let mut places = vec![[one, one], [one, two]];
        places.dedup();
        for cores in places {
            for mode in MODES
                .into_iter()
                .filter(|mode| common.is_named(&self.mode, mode))
            {
                let mut cells = Vec::new();
                for between in common.some_of(&self.between) {
                    cells.extend(self.row(common, mode, between, cores));
                }
                outcome.group(common.runs(), cells);
            }
        }
        Ok(outcome)
    }
}

impl Hops {
    fn row(
        &self,
        common: &Common,
        mode: &'static str,
        between: usize,
        cores: [usize; 2],
    ) -> Vec<Cell<'static>> {
        let mut cells = Vec::new();
        for scheme in SYSTEMS.into_iter().filter(|name| common.wants(name)) {
            for level in LEVELS {
                let is_wanted = match scheme {
                    "shm" => common.is_named(&self.trust, level.name()),
                    // Handles and bytes travel at the same cost at every level.
                    _ => level == Trust::Producer,
                };
                if !is_wanted {
                    continue;
                }
                let case = Case {
                    scheme,
                    level,
                    out: if mode == "latency" { 1 } else { BUFFERS },
                    payload: self.payload,
                    last: between + 1,
                    budget: common.budget(),
                };
                let key = Key {
                    trust: (scheme == "shm").then(|| level.name()),
                    ..Key::of(mode).payload(self.payload)
                };
                let used = 1 + usize::from(cores[0] != cores[1]);
                let key = key.with("cores", used).with("hops", between);
                cells.push(Cell::of(scheme, key, move |number| {
                    let cores: Vec<usize> = (0..=case.last).map(|me| cores[me % 2]).collect();
                    match scheme {
                        "local" => {
                            party::threads(number, &cores, |me, party| stage(case, me, party))
                        }
                        _ => party::each(number, &cores, |me, party| stage(case, me, party)),
                    }
                }));
            }
        }
        cells
    }
}

/// The ends that a domain has to one side.
struct Ends {
    from: Receiver,
    to: Sender,
}

/// One domain of the row.
fn stage(case: Case, me: usize, party: &Party) -> Result<Vec<Measured>> {
    let domain = moved::domain(case.scheme, me, party)?;
    let address = |link: usize| moved::address(case.scheme, party.run, link as u64);
    let pool_of = |level| -> Result<Pool> {
        let options = join::pool_of(4 * BUFFERS, case.payload).trust(level);
        Ok(domain.create_pool(options.allow_forward(true))?)
    };
    // A message that arrives as a copy goes on from there.
    let copies = match (case.scheme, case.level) {
        ("local", _) => None,
        ("shm", level) if level != Trust::None => None,
        _ => Some(pool_of(case.level)?),
    };
    let options = || {
        let options = ChannelOptions::new().wait(Wait::Sleep);
        match &copies {
            Some(pool) => options.snapshots(pool.id()),
            None => options,
        }
    };
    let mut up = match me {
        0 => None,
        _ => Some(Ends {
            from: domain.open_with::<Receiver>(&address(2 * me - 2), options())?,
            to: domain.open_with::<Sender>(&address(2 * me - 1), options())?,
        }),
    };
    let mut down = match me == case.last {
        true => None,
        false => {
            let to = domain.listen_with::<Sender>(&address(2 * me), options())?;
            let from = domain.listen_with::<Receiver>(&address(2 * me + 1), options())?;
            Some(Ends {
                to: to.accept()?,
                from: from.accept()?,
            })
        }
    };
    party.barrier()?;
    // At level none a send shows a pool to one domain only; this one goes to both neighbours.
    if let (Some(pool), "shm") = (&copies, case.scheme) {
        for ends in up.iter_mut().chain(&mut down) {
            ends.to.assign(pool)?;
        }
    }
    let measured = match (&mut up, &mut down) {
        (None, Some(down)) => {
            let (pool, sent, back) = (pool_of(case.level)?, 0, 0);
            let source = Source {
                pool,
                case,
                sent,
                back,
            };
            source.measure(down)?
        }
        (Some(up), None) => {
            while go(up.from.recv()?, &mut up.to)? != STOP {}
            Vec::new()
        }
        (Some(up), Some(down)) => {
            pass_through(up, down)?;
            Vec::new()
        }
        (None, None) => Vec::new(),
    };
    // Nobody leaves while another still looks at its memory.
    party.barrier()?;
    Ok(measured)
}

/// Sends a message on; gives its word.
fn go(message: Message, to: &mut Sender) -> Result<u64> {
    let word = message.word;
    to.send((message.body, word))
        .map_err(|failed| failed.error)?;
    Ok(word)
}

fn pass_through(up: &mut Ends, down: &mut Ends) -> Result<()> {
    loop {
        poll(
            &mut [
                PollItem::receiver(&mut up.from),
                PollItem::receiver(&mut down.from),
            ],
            None,
        )?;
        while let Some(message) = down.from.try_recv()? {
            if go(message, &mut up.to)? == STOP {
                return Ok(());
            }
        }
        // The sender may be gone before the last messages are passed on.
        while let Some(message) = up.from.try_recv()? {
            go(message, &mut down.to)?;
        }
    }
}

/// The first domain.
struct Source {
    pool: Pool,
    case: Case,
    sent: u64,
    back: u64,
}

impl Source {
    fn measure(mut self, ends: &mut Ends) -> Result<Vec<Measured>> {
        // The first buffer waits until every domain has agreed to the pool.
        self.send(ends, 1)?;
        let message = ends.from.recv()?;
        self.take(&message)?;
        let budget = clock::in_ticks(self.case.budget);
        let mut samples = Samples::new(1 << 18, 1);
        let (mut begun, mut before) = (clock::ticks(), clock::ticks());
        // A quarter of the time to warm up; however slow the machine, some samples.
        while !samples.are_enough() || before - begun < budget / 4 * 5 {
            while self.sent - self.back < self.case.out as u64 {
                let word = self.sent + 1;
                self.send(ends, word)?;
            }
            let message = ends.from.recv()?;
            self.take(&message)?;
            let now = clock::ticks();
            if self.back <= 2 * self.case.out as u64 {
                // The first ones wait for what is made once.
                begun = now;
            } else if now - begun > budget / 4 && !samples.push(now - before) {
                break;
            }
            before = now;
        }
        self.send(ends, STOP)?;
        while self.back < self.sent {
            let message = ends.from.recv()?;
            self.take(&message)?;
        }
        let mut measured = samples.finish("").context("no samples")?;
        if self.case.out > 1 {
            // Buffers come back in groups: the mean is what one costs.
            measured.median_ns = 1e9 / measured.per_second;
        }
        Ok(vec![measured])
    }

    fn send(&mut self, ends: &mut Ends, word: u64) -> Result<()> {
        let buf = self.pool.alloc(self.case.payload)?;
        ends.to.send((buf, word)).map_err(|failed| failed.error)?;
        self.sent += 1;
        Ok(())
    }

    fn take(&mut self, message: &Message) -> Result<()> {
        self.back += 1;
        let word = message.word;
        ensure!(
            word == STOP || word == self.back,
            "buffer {} comes back as {word}",
            self.back
        );
        let is_buffer = matches!(message.body, Body::Buffer(_) | Body::BufferMut(_));
        ensure!(
            is_buffer && message.len() == self.case.payload,
            "another message came back"
        );
        Ok(())
    }
}
