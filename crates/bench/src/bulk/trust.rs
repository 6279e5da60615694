//! `trust`: what a level of trust costs. A buffer is moved and passed back over shared memory, one in flight, with none or
//! all of its bytes written by the one side and read by the other; next to ways that copy.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tranship_bulk::{Buffer, Domain, Event, Trust};

use super::join;
use crate::case::Wait;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row};
use crate::stats::{Measured, Samples};
use crate::systems::kernel;
use crate::touch;

/// `none` by copying out of the sender's memory, and by sealing each buffer; the other levels; what copies.
pub const SYSTEMS: [&str; 7] = [
    "none-snapshot",
    "none-sealed",
    "producer",
    "half",
    "full",
    "copy",
    "stream",
];

/// The stamp that ends a run.
const STOP: u64 = u64::MAX;
/// Most samples of a run.
const SAMPLES: usize = 1 << 16;
/// So that the allocator is in the path, and no more memory than that.
const BUFFERS: usize = 2;

/// One cell.
#[derive(Debug, Clone, Copy)]
struct Case {
    system: &'static str,
    /// All bytes are written and read.
    touched: bool,
    payload: usize,
    cores: [usize; 2],
    budget: std::time::Duration,
}

impl Case {
    fn trust(&self) -> Trust {
        match self.system {
            "full" => Trust::Full,
            "half" => Trust::Half,
            "producer" => Trust::Producer,
            _ => Trust::None,
        }
    }

    fn address(&self, run: u64) -> String {
        let scheme = if self.system == "copy" { "copy" } else { "shm" };
        join::address(scheme, run, 0)
    }

    fn domain(&self, me: usize, party: &Party) -> Result<Domain> {
        let domain = join::domain(me, party)?;
        domain.seal_from(match self.system {
            "none-sealed" => 0,
            _ => u64::MAX,
        });
        Ok(domain)
    }
}

pub fn bench(common: &Common, touches: &[String], payloads: &[usize]) -> Outcome {
    let mut outcome = Outcome::default();
    for (touched, mode) in [(false, "untouched"), (true, "touched")] {
        if !(touches.is_empty() || touches.iter().any(|t| t == mode)) {
            continue;
        }
        for payload in payloads {
            let wanted = SYSTEMS.into_iter().filter(|name| common.wants(name));
            let cells = wanted.map(|system| {
                let case = Case {
                    system,
                    touched,
                    payload: *payload,
                    cores: common.cores(),
                    budget: common.budget(),
                };
                let key = Key {
                    mode,
                    payload_bytes: Some(*payload),
                    ..Key::default()
                };
                Cell {
                    system,
                    key,
                    measure: Box::new(move |number| once(case, number)),
                }
            });
            outcome.group(common.runs(), cells.collect());
        }
    }
    outcome
}

fn once(case: Case, number: u64) -> Result<Vec<Measured>> {
    type Side = fn(Case, &Party) -> Result<Vec<Measured>>;
    let sides: [Side; 2] = match case.system {
        "stream" => [pour, answer],
        _ => [source, sink],
    };
    let member = |at: usize| Member {
        core: case.cores[at],
        body: Box::new(move |party: &Party| {
            let measured = sides[at](case, party)?;
            party.barrier()?;
            Ok(measured)
        }),
    };
    let both = party::run(number, vec![member(0), member(1)])?;
    Ok(both.into_iter().flatten().collect())
}

fn source(case: Case, party: &Party) -> Result<Vec<Measured>> {
    let domain = case.domain(0, party)?;
    let channel = join::create(&domain, &case.address(party.run), case.trust())?;
    let pool = join::pool(&domain, &channel, BUFFERS, case.payload)?;
    let trip = |stamp: u64| {
        let mut buffer = pool.alloc()?;
        let bytes = stamp.to_le_bytes();
        if case.touched {
            fill(&mut buffer, stamp)?;
        }
        channel.move_(buffer, &bytes).map_err(|e| e.code)?;
        match join::next(&channel, Wait::Spin)? {
            Event::Passed(_, back) => {
                ensure!(back[..] == bytes, "sent {stamp}, got {back:?} back");
                Ok(())
            }
            other => bail!("instead of a buffer: {other:?}"),
        }
    };
    let measured = sample(case, trip)?;
    let last = pool.alloc()?;
    channel
        .move_(last, &STOP.to_le_bytes())
        .map_err(|e| e.code)?;
    // It comes back when the other side has seen it, which may also be gone by then.
    let _ = join::next(&channel, Wait::Block)?;
    Ok(vec![measured])
}

fn fill(buffer: &mut Buffer, stamp: u64) -> Result<()> {
    // From here on the buffer is ready to be written in place.
    buffer.write(0, &stamp.to_le_bytes())?;
    // SAFETY: a buffer that this side alone has and may write, all of it, whole pages.
    buffer.view(|view| unsafe { touch::fill(view.as_ptr().cast_mut(), view.len(), stamp) })?;
    Ok(())
}

fn sink(case: Case, party: &Party) -> Result<Vec<Measured>> {
    let domain = case.domain(1, party)?;
    let channel = join::bind(&domain, &case.address(party.run), case.trust())?;
    join::assigned(&channel)?;
    loop {
        let Event::Moved(buffer, meta) = join::next(&channel, Wait::Spin)? else {
            bail!("instead of a buffer something else");
        };
        let stamp = meta[..].try_into().map(u64::from_le_bytes)?;
        if case.touched && stamp != STOP {
            // SAFETY: all of a buffer, whole pages; the other side is ours too, and does not write what it sent.
            let sum = buffer.view(|view| unsafe { touch::sum(view.as_ptr(), view.len()) })?;
            ensure!(
                sum == touch::expected(case.payload, stamp),
                "bytes of buffer {stamp} changed"
            );
        }
        channel.pass(buffer, &meta).map_err(|e| e.code)?;
        if stamp == STOP {
            return Ok(Vec::new());
        }
    }
}

/// Warms up for a quarter of the budget, then takes a sample of each trip.
fn sample(case: Case, mut trip: impl FnMut(u64) -> Result<()>) -> Result<Measured> {
    let mut samples = Samples::new(SAMPLES, 1);
    let budget = clock::in_ticks(case.budget);
    let begun = clock::ticks();
    let mut stamp = 0;
    while stamp < 8 || clock::ticks() - begun < budget / 4 {
        stamp += 1;
        trip(stamp)?;
    }
    let mut before = clock::ticks();
    let end = before + budget;
    loop {
        stamp += 1;
        trip(stamp)?;
        let now = clock::ticks();
        if !samples.push(now - before) || now > end {
            return samples.finish("").context("no samples");
        }
        before = now;
    }
}

/// `stream`: the bytes go through a socket, eight come back.
fn pour(case: Case, party: &Party) -> Result<Vec<Measured>> {
    let kind = SocketType::STREAM;
    let (mine, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    kernel::widen(&mine, case.payload)?;
    kernel::widen(&theirs, case.payload)?;
    party.send(1, 0, &[theirs.as_fd()])?;
    drop(theirs);
    let socket = spinning(mine)?;
    party.barrier()?;
    let mut words = vec![1u64; case.payload / 8];
    let mut back = [0u64];
    let mut trip = |stamp: u64| -> Result<()> {
        match case.touched {
            // SAFETY: our own vector of words, that many bytes.
            true => unsafe { touch::fill(words.as_mut_ptr().cast(), case.payload, stamp) },
            false => words[0] = stamp,
        }
        kernel::write_all(&socket, kernel::bytes(&words))?;
        kernel::read_all(&socket, kernel::bytes_mut(&mut back))?;
        ensure!(back[0] == stamp, "sent {stamp}, got {} back", back[0]);
        Ok(())
    };
    let measured = sample(case, &mut trip)?;
    trip(STOP)?;
    Ok(vec![measured])
}

fn answer(case: Case, party: &Party) -> Result<Vec<Measured>> {
    let theirs = party.recv(0)?.1.pop().context("the socket")?;
    let socket = spinning(theirs)?;
    party.barrier()?;
    let mut words = vec![1u64; case.payload / 8];
    loop {
        kernel::read_all(&socket, kernel::bytes_mut(&mut words))?;
        let stamp = words[0];
        if case.touched {
            // SAFETY: our own vector of words, that many bytes.
            let sum = unsafe { touch::sum(words.as_ptr().cast(), case.payload) };
            let expected = touch::expected(case.payload, stamp);
            ensure!(sum == expected, "bytes of message {stamp} changed");
        }
        kernel::write_all(&socket, kernel::bytes(&words[..1]))?;
        if stamp == STOP {
            return Ok(Vec::new());
        }
    }
}

fn spinning(socket: OwnedFd) -> Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Latency over the size of the buffer, all bytes written and read.
pub fn picture(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let name = |row: &Row| (row.key.mode == "touched").then(|| row.system.clone());
    let lines = plot::lines(rows, name, plot::median_over_payload);
    let title = "Written, moved, read, passed back: what trust costs, over the buffer's size";
    plot::save(path, title, Along::Bytes, &lines)
}
