//! `mbuf-spike`: resident memory before, during and after a spike of packets (figure 7 of "Network Buffer Allocation in
//! the FreeBSD Operating System", which plots swapped pages).
//!
//! Beside our mbufs, the allocators that the paper compares, made anew: `4.x` (one list each of free mbufs and clusters,
//! under a lock), and `mballoc` (our zones with caches, and without giving memory back).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use std::ptr::NonNull;
use tranship_items::reaper::{self, Driver};
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};
use tranship_mbuf::{Chain, Limits, MbufOptions, Mbufs};

use crate::bench::Bench;
use crate::options::Common;
use crate::party;
use crate::plan::{Outcome, number};
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured};

const SYSTEMS: [&str; 3] = ["tranship", "4.x", "mballoc"];
const MBUF: usize = 256;
const CLUSTER: usize = 2048;
const PAGE: usize = 4096;
const WINDOW: u64 = 1 << 30;
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
    let arena = Arc::new(Arena::private(WINDOW)?);
    Ok(match name {
        "4.x" => Box::new(Lists {
            arena: Arc::clone(&arena),
            free: Default::default(),
            held: VecDeque::new(),
        }),
        "mballoc" => {
            reaper::set_driver(Driver::Nobody);
            let zone = |name: &str, bytes: usize| -> Result<_> {
                let keg = ItemKeg::new(&arena, bytes as u64, bytes as u64)?;
                Ok(ItemZone::new(&keg, Bytes, ItemOptions::named(name)))
            };
            Box::new(Zones {
                zones: [zone("mbuf", MBUF)?, zone("cluster", CLUSTER)?],
                held: VecDeque::new(),
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

struct Zones {
    zones: [ItemZone<Bytes>; 2],
    held: VecDeque<[NonNull<u8>; 2]>,
}

impl NetBufs for Zones {
    fn get(&mut self) -> Result<()> {
        let mut packet = [NonNull::dangling(); 2];
        for ((zone, bytes), place) in self.zones.iter().zip([MBUF, CLUSTER]).zip(&mut packet) {
            *place = zone.alloc(()).context("out of memory")?;
            // SAFETY: an item of that size, just taken.
            unsafe { place.write_bytes(2, bytes) };
        }
        self.held.push_back(packet);
        Ok(())
    }

    fn put(&mut self) -> Result<()> {
        let packet = self.held.pop_front().context("no packet is out")?;
        for (zone, item) in self.zones.iter().zip(packet) {
            // SAFETY: taken from this zone, given back once.
            unsafe { zone.free(item) };
        }
        Ok(())
    }
}

struct Lists {
    arena: Arc<Arena>,
    free: [Mutex<Vec<NonNull<u8>>>; 2],
    held: VecDeque<[NonNull<u8>; 2]>,
}

impl NetBufs for Lists {
    fn get(&mut self) -> Result<()> {
        let mut packet = [NonNull::dangling(); 2];
        for ((list, bytes), place) in self.free.iter().zip([MBUF, CLUSTER]).zip(&mut packet) {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            if list.is_empty() {
                let page = self.arena.alloc_pages(1).context("out of memory")?;
                // SAFETY: inside the page, which is ours.
                list.extend((0..PAGE).step_by(bytes).map(|at| unsafe { page.add(at) }));
            }
            *place = list.pop().context("no item")?;
            // SAFETY: an item of that size, just taken.
            unsafe { place.write_bytes(2, bytes) };
        }
        self.held.push_back(packet);
        Ok(())
    }

    fn put(&mut self) -> Result<()> {
        let packet = self.held.pop_front().context("no packet is out")?;
        for (list, item) in self.free.iter().zip(packet) {
            list.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(item);
        }
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
