//! A pool that grows by many chunks at once: how often it asks the manager, and how long that takes.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tranship_core::PoolOptions;
use tranship_sys::syscalls::SyscallCounter;

use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Facts, Measured};
use crate::systems::tranship;

/// The row whose `median_ns` is no time but a number of messages.
pub const EXCHANGES: &str = "messages to the manager";
/// The pool grows by so many, for one buffer.
pub const CHUNKS: usize = 16;
const CHUNK: u64 = 64 << 10;

pub fn bench(common: &Common) -> Outcome {
    let [manager, ours] = common.cores();
    let cell = Cell {
        system: "tranship",
        key: Key {
            mode: "growth",
            ..Key::default()
        },
        measure: Box::new(move |number| {
            let member = |core, body: fn(&Party) -> Result<Vec<Measured>>| Member {
                core,
                body: Box::new(body),
            };
            let members = vec![member(manager, stay), member(ours, grow)];
            Ok(party::run(number, members)?.into_iter().flatten().collect())
        }),
    };
    let mut outcome = Outcome::default();
    outcome.group(common.runs(), vec![cell]);
    outcome
}

/// The manager's process.
fn stay(party: &Party) -> Result<Vec<Measured>> {
    let _domain = tranship::domain(0, party)?;
    party.barrier()?;
    Ok(Vec::new())
}

fn grow(party: &Party) -> Result<Vec<Measured>> {
    let domain = tranship::domain(1, party)?;
    let bytes = CHUNK * CHUNKS as u64;
    let options = || PoolOptions::new(4 * bytes).chunk_bytes(CHUNK);
    // Timed without being looked at, in a pool of its own.
    let (timed, counted) = (
        domain.create_pool(options())?,
        domain.create_pool(options())?,
    );
    let begun = Instant::now();
    let first = timed.alloc(usize::try_from(bytes)?)?;
    let took = begun.elapsed();
    // Fails where the kernel knows no such restriction.
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    let counter = SyscallCounter::attach(std::process::id()).context("counting system calls")?;
    let mark = counter.counts();
    let second = counted.alloc(usize::try_from(bytes)?)?;
    let calls = counter.since(&mark);
    drop(counter);
    ensure!(first.len() == second.len(), "two buffers of one size");
    let sent = calls.get(&u64::try_from(libc::SYS_sendmsg)?);
    let sent = sent.copied().unwrap_or(0);
    ensure!(sent > 0, "a pool grew and nobody was asked: {calls:?}");
    party.barrier()?;
    let row = |op: &str, number: f64| Measured {
        op: op.to_owned(),
        median_ns: number,
        p99_ns: 0.0,
        per_second: 0.0,
        facts: Facts::new(),
        sampled: None,
    };
    Ok(vec![
        row(EXCHANGES, f64::from(u32::try_from(sent)?)),
        row("alloc that grows", took.as_secs_f64() * 1e9),
    ])
}
