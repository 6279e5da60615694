//! `hops` and `bulk-throughput`: buffers stream through a row of domains and come back empty, many at a time or one.
//!
//! The first domain owns the buffers, those between hand them on, the last gives them back. Everybody sleeps when there is
//! nothing to do, so that the processor time of all of them, over the buffers, is what a buffer costs.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use tranship_bulk::{Buffer, Channel, Completion, Domain, Event, Kind, Relay};

use super::{Level, given_to, has_levels, join, levels};
use crate::case::Wait;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};

pub const SYSTEMS: [&str; 5] = [
    "bulk-shm",
    "bulk-local",
    "bulk-copy",
    "bulk-tcp+plain",
    "bulk-tcp",
];
/// The two ways of forwarding.
pub const MODES: [&str; 2] = ["pipelined", "stop-and-wait"];

/// The stamp that ends a run.
const STOP: u64 = u64::MAX;
const LONG: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
struct Case {
    pipelined: bool,
    level: Level,
    payload: usize,
    buffers: usize,
    hops: usize,
    cores: [usize; 2],
    budget: Duration,
}

impl Case {
    fn core(&self, domain: usize) -> usize {
        self.cores[domain % 2]
    }
}

/// What to vary.
#[derive(Debug)]
pub struct Grid<'a> {
    pub systems: &'a [&'static str],
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
                for hops in grid.hops {
                    cells.extend(row(common, grid, mode, *payload, *hops, *cores));
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
    let wanted = |name: &&&'static str| common.wants(name);
    for system in grid.systems.iter().filter(wanted).copied() {
        for level in given_to(system, levels(grid.levels)) {
            let case = Case {
                pipelined: mode == "pipelined",
                level: *level,
                payload,
                buffers: grid.buffers,
                hops,
                cores,
                budget: common.budget(),
            };
            let key = Key {
                mode,
                payload_bytes: Some(payload),
                buffers: Some(case.buffers),
                cores: Some(1 + usize::from(cores[0] != cores[1])),
                hops: Some(hops),
                trust: has_levels(system).then(|| level.name()),
                ..Key::default()
            };
            cells.push(Cell {
                system,
                key,
                measure: Box::new(move |number| once(system, case, number)),
            });
        }
    }
    cells
}

/// Time per buffer over hops (the report's figures 5.6 to 5.9).
pub fn picture(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let name = |row: &Row| {
        let trust = row.key.trust.unwrap_or("copy");
        let cores = if row.key.cores == Some(1) {
            ", one core"
        } else {
            ""
        };
        Some(format!("{trust}, {}{cores}", row.key.mode))
    };
    let point = |row: &Row| Some((row.key.hops? as f64, row.median_ns));
    let lines = plot::lines(rows, name, point);
    let title = "Time per buffer over the number of domains between";
    plot::save(path, title, Along::Count("domains between"), &lines)
}

/// Time per buffer over its size.
pub fn throughput_picture(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let name = |row: &Row| {
        let trust = row
            .key
            .trust
            .map_or(String::new(), |trust| format!(", {trust}"));
        Some(format!("{}{trust}, {}", row.system, row.key.mode))
    };
    let lines = plot::lines(rows, name, plot::median_over_payload);
    plot::save(
        path,
        "Buffers one after the other: time for each",
        Along::Bytes,
        &lines,
    )
}

fn once(system: &'static str, case: Case, number: u64) -> Result<Vec<Measured>> {
    let count = case.hops + 2;
    let stages = match system {
        "bulk-local" => {
            let body = move |party: &Party| threads(case, party.run);
            let member = Member {
                core: case.cores[0],
                body: Box::new(body),
            };
            party::run(number, vec![member])?
        }
        _ => {
            let scheme = system.strip_prefix("bulk-").unwrap_or(system);
            let member = |me: usize| Member {
                core: case.core(me),
                body: Box::new(move |party: &Party| {
                    let domain = join::domain(me, party)?;
                    let meet = || party.barrier();
                    Ok(vec![stage(&domain, me, scheme, case, party.run, &meet)?])
                }),
            };
            party::run(number, (0..count).map(member).collect())?
        }
    };
    let stages: Vec<Measured> = stages.into_iter().flatten().collect();
    ensure!(
        stages.len() == count,
        "{} of {count} domains said something",
        stages.len()
    );
    // Every domain says what it spent for a buffer; the first also how long one took.
    let cpu: f64 = stages.iter().map(|stage| stage.p99_ns).sum();
    let mut first = stages[0].clone();
    first.p99_ns = first.median_ns;
    first.facts = Facts::from([
        ("cpu_ns_per_buffer", cpu),
        ("cpu_ns_per_buffer_and_link", cpu / (case.hops + 1) as f64),
    ]);
    Ok(vec![first])
}

/// All domains in one process.
fn threads(case: Case, run: u64) -> Result<Vec<Measured>> {
    let count = case.hops + 2;
    let barrier = Barrier::new(count);
    std::thread::scope(|scope| {
        let stages: Vec<_> = (0..count)
            .map(|me| {
                let barrier = &barrier;
                scope.spawn(move || {
                    party::pin(case.core(me))?;
                    let meet = || {
                        barrier.wait();
                        Ok(())
                    };
                    stage(&Domain::new(), me, "local", case, run, &meet)
                })
            })
            .collect();
        let ended = stages.into_iter().map(|stage| match stage.join() {
            Ok(measured) => measured,
            Err(_) => bail!("a domain panicked"),
        });
        ended.collect()
    })
}

/// One domain of the row.
fn stage(
    domain: &Domain,
    me: usize,
    scheme: &str,
    case: Case,
    run: u64,
    meet: &dyn Fn() -> Result<()>,
) -> Result<Measured> {
    let trust = case.level.trust();
    let up = match me {
        0 => None,
        _ => Some(join::bind(
            domain,
            &join::address(scheme, run, me - 1),
            trust,
        )?),
    };
    let down = match me == case.hops + 1 {
        true => None,
        false => Some(join::create(
            domain,
            &join::address(scheme, run, me),
            trust,
        )?),
    };
    let measured = match (&up, &down) {
        (None, Some(down)) => {
            let pool = join::pool(domain, down, case.buffers, case.payload)?;
            meet()?;
            source(down, &pool, case)
        }
        (Some(up), None) => {
            join::assigned(up)?;
            meet()?;
            sink(up, case)
        }
        (Some(up), Some(down)) => {
            join::assign(down, join::assigned(up)?)?;
            meet()?;
            match case.pipelined {
                true => relay(up, down),
                false => wait_for_each(up, down),
            }
        }
        (None, None) => bail!("a row of nothing"),
    };
    let measured = measured?;
    // Nobody leaves, or closes its channels, while another still looks.
    meet()?;
    Ok(measured)
}

/// Processor time of this thread, ns.
fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn measured(wall_ns: f64, cpu_ns: f64, buffers: u64) -> Measured {
    let each = wall_ns / buffers as f64;
    Measured {
        op: String::new(),
        median_ns: each,
        p99_ns: cpu_ns / buffers as f64,
        per_second: 1e9 / each,
        facts: Facts::new(),
    }
}

/// Waits for the end of an operation: the other end's library has taken it.
fn ended(channel: &Channel, operation: Completion) -> Result<()> {
    Ok(channel.block_on(operation)?)
}

/// Moves a buffer; waits for room where the carrier has none.
fn send(channel: &Channel, buffer: Buffer, stamp: u64) -> Result<Completion> {
    let mut buffer = buffer;
    loop {
        match channel.move_(buffer, &stamp.to_le_bytes()) {
            Ok(operation) => return Ok(operation),
            Err(refused) if refused.kind() == Kind::Full => buffer = refused.unsent,
            Err(refused) => return Err(refused.kind().into()),
        }
        channel.turn()?;
        std::thread::yield_now();
    }
}

fn source(channel: &Channel, pool: &tranship_bulk::Pool, case: Case) -> Result<Measured> {
    let budget = clock::in_ticks(case.budget);
    let begun = clock::ticks();
    let (mut sent, mut back, mut stopping) = (0u64, 0u64, false);
    // Time, processor time and number where the warming up ends.
    let mut from = None;
    let mut to = None;
    while !(stopping && back == sent) {
        while !stopping && let Ok(buffer) = pool.alloc() {
            let now = clock::ticks();
            if from.is_none() && now - begun > budget / 4 {
                from = Some((now, cpu_ns(), back));
            }
            // On a machine that is busy with others, later: when something has come back.
            let some = from.is_some_and(|(_, _, first)| back > first);
            if to.is_none() && some && now - begun > budget / 4 * 5 {
                to = Some((now, cpu_ns(), back));
                stopping = true;
            }
            sent += 1;
            let stamp = if stopping { STOP } else { sent };
            let operation = send(channel, buffer, stamp)?;
            if !case.pipelined {
                ended(channel, operation)?;
            }
            if !case.pipelined || sent.is_multiple_of(16) {
                break;
            }
        }
        // All that is there; none, and there is nothing to send: a sleep.
        let mut event = channel.poll_event()?;
        if event.is_none() && (stopping || pool.free() == 0) {
            event = channel.wait_event(LONG)?;
        }
        while let Some(Event::Passed(..)) = event {
            back += 1;
            event = channel.poll_event()?;
        }
        ensure!(event.is_none(), "instead of a buffer: {event:?}");
    }
    let (from, to) = (from.context("no samples")?, to.context("no samples")?);
    ensure!(to.2 > from.2, "no buffer came back in {:?}", case.budget);
    Ok(measured(
        clock::ns(to.0 - from.0),
        to.1 - from.1,
        to.2 - from.2,
    ))
}

fn sink(channel: &Channel, case: Case) -> Result<Measured> {
    let (mut taken, begun) = (0u64, cpu_ns());
    loop {
        let Event::Moved(buffer, meta) = join::next(channel, Wait::Block)? else {
            bail!("instead of a buffer something else");
        };
        taken += 1;
        let stop = meta == STOP.to_le_bytes();
        ensure!(
            stop || meta == taken.to_le_bytes(),
            "message {taken} is {meta:?}"
        );
        let operation = channel.pass(buffer, &meta).map_err(|e| e.error)?;
        if stop {
            return Ok(measured(1.0, cpu_ns() - begun, taken));
        }
        if !case.pipelined {
            ended(channel, operation)?;
        }
    }
}

fn relay(up: &Channel, down: &Channel) -> Result<Measured> {
    let mut relay = Relay::new(up, down)?;
    let (mut seen, mut handed, mut stop) = (0u64, 0u64, false);
    let begun = cpu_ns();
    while !(stop && handed == 2 * seen) {
        let mut strange = None;
        let look = |_: &mut tranship_bulk::Buffer, meta: &mut tranship_bulk::Meta| {
            seen += 1;
            stop |= *meta == STOP.to_le_bytes();
        };
        let turned = relay.turn_with(look, |side, event| strange = Some((side, event)))?;
        ensure!(strange.is_none(), "instead of a buffer: {strange:?}");
        handed += turned as u64;
        if turned == 0 {
            relay.wait(LONG);
        }
    }
    Ok(measured(1.0, cpu_ns() - begun, seen))
}

/// As the report's program did: each operation has ended before the next event is taken.
fn wait_for_each(up: &Channel, down: &Channel) -> Result<Measured> {
    let mut early = VecDeque::new();
    let (mut seen, mut back, mut stop) = (0u64, 0u64, false);
    let begun = cpu_ns();
    while !(stop && seen == back) {
        let mut idle = true;
        if let Some(event) = up.poll_event()? {
            let Event::Moved(buffer, meta) = event else {
                bail!("instead of a buffer: {event:?}");
            };
            (seen, idle) = (seen + 1, false);
            stop |= meta == STOP.to_le_bytes();
            ended(down, down.move_(buffer, &meta).map_err(|e| e.error)?)?;
        }
        early.extend(down.poll_event()?);
        if let Some(event) = early.pop_front() {
            let Event::Passed(buffer, meta) = event else {
                bail!("instead of a buffer: {event:?}");
            };
            (back, idle) = (back + 1, false);
            let operation = up.pass(buffer, &meta).map_err(|e| e.error)?;
            if !(stop && seen == back) {
                ended(up, operation)?;
            }
        }
        if idle {
            tranship_bulk::wait_any(&[up, down], LONG);
        }
    }
    Ok(measured(1.0, cpu_ns() - begun, seen))
}
