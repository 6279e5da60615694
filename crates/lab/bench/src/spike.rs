//! `mbuf-spike`: resident memory before, during and after a spike of packets (figure 7 of "Network Buffer Allocation in
//! the FreeBSD Operating System", which plots swapped pages).
//!
//! Beside our mbufs, the allocators that the paper compares (`netbufs`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tranship_items::reaper::{self, Driver};
use tranship_mbuf::{Limits, MbufOptions};

use crate::bench::Bench;
use crate::netbufs::{CLUSTER, Lists, MBUF, Packet, PacketSource, Zones};
use crate::options::Common;
use crate::party;
use crate::plan::{Outcome, number};
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};

const SYSTEMS: [&str; 3] = ["tranship", "4.x", "mballoc"];
/// Operations that carry the memory of one run, not timed.
const POINT: &str = "point";

#[derive(Debug, clap::Args)]
pub struct Spike {
    /// Packets of the spike.
    #[arg(long, default_value_t = 65536)]
    packets: usize,
    /// Packets that are out all the time.
    #[arg(long, default_value_t = 4096)]
    steady: usize,
}

impl Bench for Spike {
    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let phases = match common.is_quick() {
            true => [100, 50, 2500],
            false => [1500, 300, 4500],
        };
        let phases = phases.map(Duration::from_millis);
        for system in SYSTEMS.into_iter().filter(|name| common.wants(name)) {
            let core = common.cores()[0];
            let counts = [self.packets, self.steady];
            let told = party::each(number(), &[core], |_, _| run(system, counts, phases));
            match told {
                Ok(all) => outcome.rows.extend(all.into_iter().map(|one| {
                    let mode = if one.op == POINT { "time" } else { "spike" };
                    Row::of(system, Key::of(mode), &[one])
                })),
                Err(error) => {
                    outcome.failures += 1;
                    eprintln!("FAILED: {system}: {error:#}");
                }
            }
        }
        Ok(outcome)
    }
}

fn run(system: &str, counts: [usize; 2], phases: [Duration; 3]) -> Result<Vec<Measured>> {
    match system {
        "4.x" => from(&Lists::new()?, counts, phases),
        "mballoc" => {
            reaper::set_driver(Driver::Nobody);
            from(&Zones::new()?, counts, phases)
        }
        _ => {
            let mbufs = MbufOptions::new().limits(Limits::NONE).build()?;
            let take = || {
                let mut chain = mbufs.getcl()?;
                chain.append(&[2; CLUSTER])?;
                Ok(chain)
            };
            watch(take, drop, counts, phases)
        }
    }
}

fn from(of: &dyn PacketSource, counts: [usize; 2], phases: [Duration; 3]) -> Result<Vec<Measured>> {
    // SAFETY: taken from there, given back once.
    let give = |packet| unsafe { of.give(packet) };
    watch(|| Ok(written(of.take()?)), give, counts, phases)
}

/// Puts bytes into each part of a packet.
fn written(packet: Packet) -> Packet {
    for (item, bytes) in packet.into_iter().zip([MBUF, CLUSTER]) {
        // SAFETY: an item of that size, just taken.
        unsafe { item.write_bytes(2, bytes) };
    }
    packet
}

/// Takes packets of 2 KiB with their bytes from an allocator, and gives them back: the oldest first.
fn watch<P>(
    mut take: impl FnMut() -> Result<P>,
    mut give: impl FnMut(P),
    [packets, steady]: [usize; 2],
    phases: [Duration; 3],
) -> Result<Vec<Measured>> {
    let begun = Instant::now();
    let (mut held, mut points) = (VecDeque::new(), Vec::new());
    // Takes packets or gives some back, and then has steady traffic. A point every 50 ms.
    let mut phase = |count: usize, takes: bool, time: Duration| -> Result<f64> {
        for _ in 0..count {
            match takes {
                true => held.push_back(take()?),
                false => give(held.pop_front().context("no packet is out")?),
            }
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            for _ in 0..500 {
                held.push_back(take()?);
                give(held.pop_front().context("no packet is out")?);
            }
            let facts = Facts::from([
                ("at_ms".into(), begun.elapsed().as_secs_f64() * 1e3),
                ("resident_bytes".into(), resident()?),
            ]);
            points.push(Measured {
                op: POINT.to_owned(),
                ..Measured::facts(facts)
            });
            std::thread::sleep(Duration::from_millis(50));
        }
        resident()
    };
    let before = phase(steady, true, phases[0])?;
    let peak = phase(packets, true, phases[1])?;
    let after = phase(packets, false, phases[2])?;
    points.push(Measured::facts(Facts::from([
        ("before_bytes".into(), before),
        ("peak_bytes".into(), peak),
        ("after_bytes".into(), after),
        ("after_ratio".into(), after / before),
    ])));
    Ok(points)
}

/// Bytes of this process that are in memory.
#[allow(clippy::cast_precision_loss, reason = "bytes of a process")]
fn resident() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("statm")?.parse()?;
    Ok((pages * rustix::param::page_size() as u64) as f64)
}
