//! `mbuf-spike`: resident memory before, during and after a spike of packets (figure 7 of "Network Buffer Allocation in
//! the FreeBSD Operating System", which plots swapped pages).
//!
//! Beside our mbufs, the allocators that the paper compares (`netbufs`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tranship_items::reaper::{self, Driver};
use tranship_mbuf::{Chain, Limits, MbufOptions, Mbufs};

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
            let told = party::each(number(), &[core], |_, _| {
                watch(&mut *open(system)?, self.packets, self.steady, phases)
            });
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

/// Gives packets of 2 KiB and takes them back.
trait NetBufs {
    fn get(&mut self) -> Result<()>;
    /// Gives back the oldest packet.
    fn put(&mut self) -> Result<()>;
}

fn open(name: &str) -> Result<Box<dyn NetBufs>> {
    let held = VecDeque::new();
    Ok(match name {
        "4.x" => Box::new(Held {
            of: Lists::new()?,
            held,
        }),
        "mballoc" => {
            reaper::set_driver(Driver::Nobody);
            Box::new(Held {
                of: Zones::new()?,
                held,
            })
        }
        _ => Box::new(Product {
            mbufs: MbufOptions::new().limits(Limits::NONE).build()?,
            held: VecDeque::new(),
        }),
    })
}

struct Product {
    mbufs: Mbufs,
    held: VecDeque<Chain>,
}

impl NetBufs for Product {
    fn get(&mut self) -> Result<()> {
        let mut chain = self.mbufs.getcl()?;
        chain.append(&[2; CLUSTER])?;
        self.held.push_back(chain);
        Ok(())
    }

    fn put(&mut self) -> Result<()> {
        self.held.pop_front().context("no packet is out").map(drop)
    }
}

/// Packets that are out, of an allocator.
struct Held<A> {
    of: A,
    held: VecDeque<Packet>,
}

impl<A: PacketSource> NetBufs for Held<A> {
    fn get(&mut self) -> Result<()> {
        let packet = self.of.take()?;
        for (item, bytes) in packet.into_iter().zip([MBUF, CLUSTER]) {
            // SAFETY: an item of that size, just taken.
            unsafe { item.write_bytes(2, bytes) };
        }
        self.held.push_back(packet);
        Ok(())
    }

    fn put(&mut self) -> Result<()> {
        let packet = self.held.pop_front().context("no packet is out")?;
        // SAFETY: taken from there, given back once.
        unsafe { self.of.give(packet) };
        Ok(())
    }
}

fn watch(
    bufs: &mut dyn NetBufs,
    packets: usize,
    steady: usize,
    phases: [Duration; 3],
) -> Result<Vec<Measured>> {
    let begun = Instant::now();
    let mut points = Vec::new();
    for _ in 0..steady {
        bufs.get()?;
    }
    traffic(bufs, phases[0], begun, &mut points)?;
    let before = resident()?;
    for _ in 0..packets {
        bufs.get()?;
    }
    traffic(bufs, phases[1], begun, &mut points)?;
    let peak = resident()?;
    for _ in 0..packets {
        bufs.put()?;
    }
    traffic(bufs, phases[2], begun, &mut points)?;
    let after = resident()?;
    points.push(Measured::facts(Facts::from([
        ("before_bytes".into(), before),
        ("peak_bytes".into(), peak),
        ("after_bytes".into(), after),
        ("after_ratio".into(), after / before),
    ])));
    Ok(points)
}

/// Steady traffic: packets come and go, the oldest first. A point every 50 ms.
fn traffic(
    bufs: &mut dyn NetBufs,
    time: Duration,
    begun: Instant,
    points: &mut Vec<Measured>,
) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        for _ in 0..500 {
            bufs.get()?;
            bufs.put()?;
        }
        let at_ms = begun.elapsed().as_secs_f64() * 1e3;
        let facts = Facts::from([
            ("at_ms".into(), at_ms),
            ("resident_bytes".into(), resident()?),
        ]);
        points.push(Measured {
            op: POINT.to_owned(),
            ..Measured::facts(facts)
        });
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Bytes of this process that are in memory.
#[allow(clippy::cast_precision_loss, reason = "bytes of a process")]
fn resident() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("statm")?.parse()?;
    Ok((pages * rustix::param::page_size() as u64) as f64)
}
