//! `hops`: buffers go through a row of domains to the last one, which sends them back through the row: one at a time, or as many as there are. These are the
//! report's microbenchmarks, with its `passthrough` between.
//!
//! Each buffer is moved from domain to domain, on a channel one way and on another one back. Everybody sleeps when there is
//! nothing to do, so that the processor time of all of them, over the buffers, is what a buffer costs.

use anyhow::{Context, Result, bail, ensure};
use tranship_core::{
    Body, BufferMut, ChannelOptions, Message, PollItem, Pool, Receiver, Sender, Wait, poll,
};

use super::meet::{self, Side};
use super::trip::{STOP, sample};
use super::{Level, given_to, has_levels, levels};
use crate::clock;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};

pub const SYSTEMS: [&str; 5] = ["shm", "local", "copy", "tcp+plain", "tcp"];
/// One buffer is out, or all.
pub const MODES: [&str; 2] = ["latency", "throughput"];

/// What a domain says of its processor time, beside what the first says of the buffers.
const CPU: &str = "cpu";

#[derive(Debug, Clone, Copy)]
struct Case {
    scheme: &'static str,
    /// Buffers that may be out.
    out: usize,
    level: Level,
    payload: usize,
    buffers: usize,
    hops: usize,
    budget: std::time::Duration,
}

/// What to vary.
#[derive(Debug)]
pub struct Grid<'a> {
    pub modes: &'a [String],
    pub levels: &'a [Level],
    pub hops: &'a [usize],
    pub payloads: &'a [usize],
    pub buffers: usize,
    /// On one core as well as on two.
    pub placements: &'a [[usize; 2]],
}

pub fn bench(common: &Common, grid: &Grid<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    for cores in grid.placements {
        for mode in MODES {
            if !(grid.modes.is_empty() || grid.modes.iter().any(|m| m == mode)) {
                continue;
            }
            for payload in grid.payloads {
                let mut cells = Vec::new();
                for hops in common.some_of(grid.hops) {
                    cells.extend(row(common, grid, mode, *payload, hops, *cores));
                }
                outcome.group(common.runs(), cells);
            }
        }
    }
    outcome
}

fn row(
    common: &Common,
    grid: &Grid<'_>,
    mode: &'static str,
    payload: usize,
    hops: usize,
    cores: [usize; 2],
) -> Vec<Cell<'static>> {
    let mut cells = Vec::new();
    for scheme in SYSTEMS.into_iter().filter(|name| common.wants(name)) {
        for level in given_to(scheme, levels(grid.levels)) {
            let case = Case {
                scheme,
                out: match mode {
                    "latency" => 1,
                    _ => grid.buffers,
                },
                level: *level,
                payload,
                buffers: grid.buffers,
                hops,
                budget: common.budget(),
            };
            let key = Key {
                mode,
                payload_bytes: Some(payload),
                buffers: Some(case.buffers),
                cores: Some(1 + usize::from(cores[0] != cores[1])),
                hops: Some(hops),
                trust: has_levels(scheme).then(|| level.name()),
                ..Key::default()
            };
            cells.push(Cell {
                system: scheme,
                key,
                measure: Box::new(move |number| once(case, cores, number)),
            });
        }
    }
    cells
}

/// Time per buffer over hops (the report's figures 5.6 to 5.9).
pub fn picture(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let point = |row: &Row| Some((row.key.hops? as f64, row.median_ns));
    let lines = plot::lines(rows, name, point);
    let title = "Time per buffer over the number of domains between";
    plot::save(path, title, Along::Count("domains between"), &lines)
}

/// Time per buffer over its size.
pub fn picture_of_sizes(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let lines = plot::lines(rows, name, plot::median_over_payload);
    let title = "Buffers to the last domain and back: time for each over its size";
    plot::save(path, title, Along::Bytes, &lines)
}

fn name(row: &Row) -> Option<String> {
    let trust = row.key.trust;
    let trust = trust.map_or(String::new(), |trust| format!(", {trust}"));
    let cores = match row.key.cores {
        Some(1) => ", one core",
        _ => "",
    };
    Some(format!("{}{trust}, {}{cores}", row.system, row.key.mode))
}

fn once(case: Case, cores: [usize; 2], number: u64) -> Result<Vec<Measured>> {
    let count = case.hops + 2;
    let cores: Vec<usize> = (0..count).map(|me| cores[me % 2]).collect();
    let said = meet::run(case.scheme, &cores, number, |side| stage(side, case))?;
    let cpu: Vec<&Measured> = said.iter().filter(|one| one.op == CPU).collect();
    let each = cpu.len();
    ensure!(each == count, "{each} of {count} domains said something");
    let all: f64 = cpu.iter().map(|one| one.median_ns).sum();
    let first = said.iter().find(|one| one.op != CPU);
    let mut first = first.context("no samples")?.clone();
    first.facts = Facts::from([
        ("cpu_ns_per_buffer", all),
        ("cpu_ns_per_buffer_and_link", all / (case.hops + 1) as f64),
    ]);
    Ok(vec![first])
}

/// The channels between a domain and the next one.
struct Between {
    out: String,
    back: String,
}

fn between(case: Case, side: &Side<'_>, upper: usize) -> Between {
    Between {
        out: meet::address(case.scheme, side.run, 2 * upper),
        back: meet::address(case.scheme, side.run, 2 * upper + 1),
    }
}

/// The ends that a domain has to one side.
struct Ends {
    from: Receiver,
    to: Sender,
}

impl Ends {
    /// To the domain before, which listens.
    fn up(side: &Side<'_>, case: Case, options: &ChannelOptions) -> Result<Ends> {
        let at = between(case, side, side.me - 1);
        Ok(Ends {
            from: side
                .domain
                .open_with::<Receiver>(&at.out, options.clone())?,
            to: side.domain.open_with::<Sender>(&at.back, options.clone())?,
        })
    }

    /// To the next one.
    fn down(side: &Side<'_>, case: Case, options: &ChannelOptions) -> Result<Ends> {
        let at = between(case, side, side.me);
        Ok(Ends {
            to: meet::sender(&side.domain, &at.out, options.clone())?,
            from: meet::receiver(&side.domain, &at.back, options.clone())?,
        })
    }
}

/// One domain of the row.
fn stage(side: &Side<'_>, case: Case) -> Result<Vec<Measured>> {
    let last = case.hops + 1;
    let room = 2 * case.buffers;
    // What arrives as a copy is sent on from there, at the same level.
    let copies = match meet::copies(case.scheme, case.level) {
        true => Some(meet::pool(&side.domain, room, case.payload, case.level)?),
        false => None,
    };
    let options = meet::options(Wait::Sleep, copies.as_ref());
    let mut up = match side.me {
        0 => None,
        _ => Some(Ends::up(side, case, &options)?),
    };
    let mut down = match side.me == last {
        true => None,
        false => Some(Ends::down(side, case, &options)?),
    };
    let others = side.others(last + 1)?;
    let mut source = None;
    let begun = side.cpu_ns();
    let (buffers, mut measured) = match (&mut up, &mut down) {
        (None, Some(down)) => {
            let pool = meet::pool(&side.domain, room, case.payload, case.level)?;
            for other in others {
                pool.allow_forward(other)?;
            }
            let source = source.insert(Source::new(pool, case));
            let measured = source.measure(down)?;
            (source.sent, vec![measured])
        }
        (Some(up), None) => (echo(up)?, Vec::new()),
        (Some(up), Some(down)) => (pass_through(up, down)?, Vec::new()),
        (None, None) => bail!("a row of nothing"),
    };
    let cpu_ns = (side.cpu_ns() - begun) / buffers as f64;
    measured.push(each(CPU, cpu_ns));
    side.meet()?;
    Ok(measured)
}

fn each(op: &str, ns: f64) -> Measured {
    Measured {
        op: op.to_owned(),
        median_ns: ns,
        p99_ns: ns,
        per_second: 1e9 / ns,
        facts: Facts::new(),
        sampled: None,
    }
}

fn buffer(message: Message) -> Result<(BufferMut, u64)> {
    match message.body {
        Body::BufferMut(buf) => Ok((buf, message.word)),
        other => bail!("instead of a buffer {other:?}"),
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
    fn new(pool: Pool, case: Case) -> Source {
        Source {
            pool,
            case,
            sent: 0,
            back: 0,
        }
    }

    fn measure(&mut self, ends: &mut Ends) -> Result<Measured> {
        let measured = match self.case.out {
            1 => sample(self.case.budget, |stamp| {
                self.send(ends, stamp)?;
                self.take(ends.from.recv()?)
            })?,
            out => self.flood(ends, out as u64)?,
        };
        self.send(ends, STOP)?;
        while self.back < self.sent {
            self.take(ends.from.recv()?)?;
        }
        Ok(measured)
    }

    /// As many as may be out, for as long as the budget says.
    fn flood(&mut self, ends: &mut Ends, out: u64) -> Result<Measured> {
        let budget = clock::in_ticks(self.case.budget);
        let begun = clock::ticks();
        // Time and number where the warming up ends.
        let mut from = None;
        loop {
            while self.sent - self.back < out {
                self.send(ends, self.sent + 1)?;
            }
            // All that is there, after a sleep if that is nothing.
            let mut next = Some(ends.from.recv()?);
            while let Some(message) = next {
                self.take(message)?;
                next = ends.from.try_recv()?;
            }
            let now = clock::ticks();
            match from {
                None if now - begun > budget / 4 => from = Some((now, self.back)),
                // On a machine that is busy with others, later: when something has come back.
                Some((then, first)) if now - begun > budget / 4 * 5 && self.back > first => {
                    let ns = clock::ns(now - then) / (self.back - first) as f64;
                    return Ok(each("", ns));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, ends: &mut Ends, stamp: u64) -> Result<()> {
        let buf = self.pool.alloc(self.case.payload)?;
        ends.to.move_buffer_with(buf, stamp)?;
        self.sent += 1;
        Ok(())
    }

    fn take(&mut self, message: Message) -> Result<()> {
        let (_, stamp) = buffer(message)?;
        self.back += 1;
        let back = self.back;
        ensure!(
            stamp == STOP || stamp == back,
            "buffer {back} comes back as {stamp}"
        );
        Ok(())
    }
}

/// The last domain. Gives how many buffers it saw.
fn echo(ends: &mut Ends) -> Result<u64> {
    let mut seen = 0;
    loop {
        let (buf, stamp) = buffer(ends.from.recv()?)?;
        seen += 1;
        ensure!(stamp == STOP || stamp == seen, "buffer {seen} is {stamp}");
        ends.to.move_buffer_with(buf, stamp)?;
        if stamp == STOP {
            return Ok(seen);
        }
    }
}

/// A domain between.
fn pass_through(up: &mut Ends, down: &mut Ends) -> Result<u64> {
    let mut seen = 0;
    loop {
        let mut both = [
            PollItem::receiver(&mut up.from),
            PollItem::receiver(&mut down.from),
        ];
        poll(&mut both, None)?;
        while let Some(message) = up.from.try_recv()? {
            let (buf, stamp) = buffer(message)?;
            seen += 1;
            down.to.move_buffer_with(buf, stamp)?;
        }
        while let Some(message) = down.from.try_recv()? {
            let (buf, stamp) = buffer(message)?;
            up.to.move_buffer_with(buf, stamp)?;
            if stamp == STOP {
                return Ok(seen);
            }
        }
    }
}
