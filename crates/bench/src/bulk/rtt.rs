//! `bulk-rtt`: a buffer is moved and passed back, one in flight; next to a socket that carries its bytes.

use anyhow::{Result, bail, ensure};
use tranship_bulk::{Buffer, Channel, Domain, Event, Pool};

use super::trip::{STOP, Stream, sample};
use super::{Level, given_to, has_levels, join, levels};
use crate::case::{Touch, Wait};
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row};
use crate::stats::Measured;

pub const SYSTEMS: [&str; 6] = [
    "bulk-shm",
    "bulk-local",
    "bulk-copy",
    "bulk-tcp+plain",
    "bulk-tcp",
    "stream",
];

/// One cell.
#[derive(Debug, Clone, Copy)]
struct Case {
    wait: Wait,
    touch: Touch,
    level: Level,
    payload: usize,
    cores: [usize; 2],
    budget: std::time::Duration,
}

impl Case {
    fn stream(&self) -> Stream {
        Stream {
            wait: self.wait,
            touched: false,
            payload: self.payload,
            budget: self.budget,
        }
    }
}

pub fn bench(
    common: &Common,
    modes: &[Wait],
    touches: &[String],
    given: &[Level],
    payloads: &[usize],
) -> Outcome {
    let modes = match modes {
        [] => &[Wait::Spin],
        some => some,
    };
    let mut outcome = Outcome::default();
    for wait in modes {
        for (touch, name) in [(Touch::Untouched, "untouched"), (Touch::Word, "touched")] {
            if !(touches.is_empty() || touches.iter().any(|t| t == name)) {
                continue;
            }
            // All sizes in turn: whether they are alike is what is asked.
            let all = common.some_of(payloads).into_iter().flat_map(|payload| {
                let case = |level| Case {
                    wait: *wait,
                    touch,
                    level,
                    payload,
                    cores: match wait {
                        Wait::Spin => common.cores(),
                        Wait::Block => common.blocking_cores(),
                    },
                    budget: common.budget(),
                };
                cells(common, name, levels(given), case)
            });
            outcome.group(common.runs(), all.collect());
        }
    }
    outcome
}

/// One size of buffers, whose first 8 bytes are written and read, both sides spinning.
pub fn touched(common: &Common, given: &[Level], payload: usize) -> Vec<Cell<'static>> {
    cells(common, "touched", given, |level| Case {
        wait: Wait::Spin,
        touch: Touch::Word,
        level,
        payload,
        cores: common.cores(),
        budget: common.budget(),
    })
}

fn cells(
    common: &Common,
    mode: &'static str,
    given: &[Level],
    case: impl Fn(Level) -> Case,
) -> Vec<Cell<'static>> {
    let mut out = Vec::new();
    for system in SYSTEMS.into_iter().filter(|name| common.wants(name)) {
        let levels = match system {
            "stream" => &[Level::Full][..],
            _ => given_to(system, given),
        };
        for level in levels {
            let case = case(*level);
            let blocks = if case.wait == Wait::Block {
                "block"
            } else {
                ""
            };
            let key = Key {
                mode,
                op: blocks.to_owned(),
                payload_bytes: Some(case.payload),
                cores: Some(1 + usize::from(case.cores[0] != case.cores[1])),
                trust: has_levels(system).then(|| level.name()),
                ..Key::default()
            };
            out.push(Cell {
                system,
                key,
                measure: Box::new(move |number| once(system, case, number)),
            });
        }
    }
    out
}

fn once(system: &'static str, case: Case, number: u64) -> Result<Vec<Measured>> {
    let member = |core, body: fn(&'static str, Case, &Party) -> Result<Vec<Measured>>| Member {
        core,
        body: Box::new(move |party: &Party| body(system, case, party)),
    };
    let members = match system {
        "bulk-local" => vec![member(case.cores[0], both)],
        "stream" => vec![
            member(case.cores[0], |_, case, party| {
                Ok(vec![case.stream().pour(party)?])
            }),
            member(case.cores[1], |_, case, party| {
                case.stream().answer(party).map(|()| Vec::new())
            }),
        ],
        _ => vec![member(case.cores[0], ping), member(case.cores[1], pong)],
    };
    Ok(party::run(number, members)?.into_iter().flatten().collect())
}

fn scheme(system: &str) -> &str {
    system.strip_prefix("bulk-").unwrap_or(system)
}

/// Both domains in one process, each a thread on its core.
fn both(system: &'static str, case: Case, party: &Party) -> Result<Vec<Measured>> {
    let address = join::address(scheme(system), party.run, 0);
    std::thread::scope(|scope| {
        let there = address.clone();
        let other = scope.spawn(move || {
            party::pin(case.cores[1])?;
            sink(&Domain::new(), &there, case)
        });
        let measured = source(&Domain::new(), &address, case)?;
        match other.join() {
            Ok(ended) => ended?,
            Err(_) => bail!("the sink panicked"),
        }
        Ok(vec![measured])
    })
}

fn ping(system: &'static str, case: Case, party: &Party) -> Result<Vec<Measured>> {
    let domain = join::domain(0, party)?;
    let address = join::address(scheme(system), party.run, 0);
    let measured = source(&domain, &address, case)?;
    party.barrier()?;
    Ok(vec![measured])
}

fn pong(system: &'static str, case: Case, party: &Party) -> Result<Vec<Measured>> {
    let domain = join::domain(1, party)?;
    let address = join::address(scheme(system), party.run, 0);
    sink(&domain, &address, case)?;
    party.barrier()?;
    Ok(Vec::new())
}

fn source(domain: &Domain, address: &str, case: Case) -> Result<Measured> {
    let channel = join::create(domain, address, case.level.trust())?;
    // As many as lie in a CPU's caches at once would be one; a few more, so that its allocator is in the path.
    let pool = join::pool(domain, &channel, 4, case.payload)?;
    let measured = sample(case.budget, |stamp| trip(&channel, &pool, case, stamp))?;
    let last = pool.alloc()?;
    let stop = STOP.to_le_bytes();
    channel.move_(last, &stop).map_err(|e| e.error)?;
    // It comes back when the other side has seen it, which may also be gone by then.
    let _ = join::next(&channel, Wait::Block)?;
    Ok(measured)
}

#[inline]
fn trip(channel: &Channel, pool: &Pool, case: Case, stamp: u64) -> Result<()> {
    let mut buffer = pool.alloc()?;
    let bytes = stamp.to_le_bytes();
    let meta: &[u8] = match case.touch {
        Touch::Untouched => &bytes,
        _ => {
            buffer.write(0, &bytes)?;
            &[]
        }
    };
    channel.move_(buffer, meta).map_err(|e| e.error)?;
    match join::next(channel, case.wait)? {
        Event::Passed(_, back) => ensure!(back[..] == bytes, "sent {stamp}, got {back:?} back"),
        other => bail!("instead of a buffer: {other:?}"),
    }
    Ok(())
}

fn sink(domain: &Domain, address: &str, case: Case) -> Result<()> {
    let channel = join::bind(domain, address, case.level.trust())?;
    join::assigned(&channel)?;
    loop {
        let Event::Moved(buffer, meta) = join::next(&channel, case.wait)? else {
            bail!("instead of a buffer something else");
        };
        let mut bytes = [0; 8];
        match meta[..] {
            [] => read(&buffer, &mut bytes)?,
            _ => bytes.copy_from_slice(&meta),
        }
        channel.pass(buffer, &bytes).map_err(|e| e.error)?;
        if bytes == STOP.to_le_bytes() {
            return Ok(());
        }
    }
}

#[inline]
fn read(buffer: &Buffer, bytes: &mut [u8; 8]) -> Result<()> {
    Ok(buffer.read(0, bytes)?)
}

/// Latency over the size of the buffer (the report's figure 5.5).
pub fn picture(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let touched: Vec<Row> = rows
        .iter()
        .filter(|row| row.key.mode == "touched")
        .cloned()
        .collect();
    let name = |row: &Row| {
        let trust = row
            .key
            .trust
            .map_or(String::new(), |trust| format!(", {trust}"));
        let one = if row.key.cores == Some(1) {
            ", one core"
        } else {
            ""
        };
        Some(format!("{}{trust}{one}", row.system))
    };
    let lines = plot::lines(&touched, name, plot::median_over_payload);
    let title = "A buffer moved and passed back: latency over its size";
    plot::save(path, title, Along::Bytes, &lines)
}
