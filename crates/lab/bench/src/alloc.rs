//! `alloc`: blocks of one size taken and given back, bytes untouched: one or 32 at a time by one thread, or taken by one thread and
//! given back by another.
//!
//! Each run is a fresh process of this program with the allocator under test preloaded, so that every
//! allocator is called in the same way, as programs call it.

mod cross;
mod process;
mod threads;

pub use process::Given;
pub use threads::Threads;

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bench::Bench;
use crate::clock;
use crate::options::{Common, size};
use crate::party;
use crate::plan::{Cell, Outcome};
use crate::report::{FASTEST, Key};
use crate::stats::{Measured, hot};
use crate::systems::allocators::{Allocator, MALLOCS, Malloc, Mmap, Preload};
use crate::systems::tranship::Zones;
use cross::BATCH;
use process::{check_preload, library, run_child};

const PAGE: usize = 4096;
/// Sizes when none are asked for: small ones, then 1 to 256 pages.
const SIZES: [usize; 9] = [
    64,
    256,
    1024,
    PAGE,
    2 * PAGE,
    4 * PAGE,
    16 * PAGE,
    64 * PAGE,
    256 * PAGE,
];
/// Works, blocks at a time, threads. Only the first is of buffers and mappings, too.
const WORKS: [(&str, usize, usize); 3] = [("hot", 1, 1), ("hot", 32, 1), ("cross", 1024, 2)];

/// An allocator in the list of all.
#[derive(Debug, Clone, Copy)]
struct AllocEntry {
    name: &'static str,
    preload: Option<Preload>,
    is_malloc: bool,
    measure: fn(usize, usize, u64) -> Result<Measured>,
}

fn systems() -> Vec<AllocEntry> {
    let entry = |name, measure| AllocEntry {
        name,
        preload: None,
        is_malloc: false,
        measure,
    };
    let malloc = |(name, preload)| AllocEntry {
        preload,
        is_malloc: true,
        ..entry(name, measure::<Malloc>)
    };
    let mut all = vec![entry("tranship", measure::<Zones>)];
    all.extend(MALLOCS.map(malloc));
    all.push(entry("mmap", measure::<Mmap>));
    all
}

#[derive(Debug, clap::Args)]
pub struct Alloc {
    /// Sizes in bytes [default: 64 to 4K, and 1 to 256 pages].
    #[arg(long, value_delimiter = ',', value_parser = size)]
    payload: Vec<usize>,
}

impl Bench for Alloc {
    const REFERENCES: &'static [&'static str] = &["glibc", FASTEST];

    fn systems(&self) -> Vec<&'static str> {
        systems().iter().map(|e| e.name).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let sizes = match &self.payload[..] {
            [] => &SIZES,
            some => some,
        };
        let mut outcome = Outcome::default();
        let wanted = systems().into_iter().filter(|e| common.wants(e.name));
        let ready: Vec<_> = wanted
            .filter_map(|entry| Some((entry, library(entry.name, entry.preload)?)))
            .collect();
        for (mode, buffers, threads) in WORKS {
            for bytes in common.some_of(sizes) {
                let able = |entry: &AllocEntry| entry.is_malloc || (mode, buffers) == ("hot", 1);
                let cells = ready.iter().filter(|(entry, _)| able(entry));
                let cells = cells.map(|(entry, library)| {
                    let key = Key::of(mode).payload(bytes).with("threads", threads);
                    let key = match buffers {
                        1 => key,
                        _ => key.with("buffers", buffers),
                    };
                    Cell::of(entry.name, key, move |_| {
                        let given = Given {
                            system: entry.name.to_owned(),
                            mode: mode.to_owned(),
                            bytes,
                            buffers,
                            threads,
                            cores: common.cores().to_vec(),
                            sample_ms: common.sample_ms().min(20),
                            ns_per_tick: clock::ns(1),
                        };
                        Ok(vec![run_child(&given, library.as_ref())?])
                    })
                });
                outcome.group(common.runs(), cells.collect());
            }
        }
        Ok(outcome)
    }
}

/// The process's side: measures, and prints what it measured.
pub fn child(given: Given) -> Result<()> {
    clock::adopt(given.ns_per_tick);
    let measured = match &*given.mode {
        "hot" | "cross" => in_one_or_two(&given)?,
        _ => threads::measure(&given)?,
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

fn in_one_or_two(given: &Given) -> Result<Measured> {
    let entry = systems().into_iter().find(|e| e.name == given.system);
    let entry = entry.with_context(|| format!("no allocator {}", given.system))?;
    check_preload(entry.preload)?;
    let bytes = given.bytes;
    let &[one, two] = &given.cores[..] else {
        bail!("two processors are named, not {}", given.cores.len());
    };
    let budget = clock::in_ticks(Duration::from_millis(given.sample_ms));
    party::pin(one)?;
    match &*given.mode {
        "hot" => (entry.measure)(bytes, given.buffers, budget),
        _ => cross::measure(bytes, [one, two], budget),
    }
}

/// Takes `held` blocks and gives them back, again and again.
fn measure<A: Allocator>(bytes: usize, held: usize, budget: u64) -> Result<Measured> {
    let mut allocator = A::open(bytes)?;
    let take = |allocator: &mut A| -> Result<A::Held> {
        let mut held = allocator.alloc()?;
        // The address is used for all that the optimiser knows, or it would leave out the pair. Not the handle: what else
        // one consists of may stay in registers, as it may with any caller.
        std::hint::black_box(A::address(&mut held));
        Ok(held)
    };
    if held == 1 {
        return hot(budget, BATCH, || {
            (0..BATCH).try_for_each(|_| {
                let held = take(&mut allocator)?;
                allocator.free(held)
            })
        });
    }
    let mut blocks = Vec::with_capacity(held);
    hot(budget, BATCH, || {
        for _ in 0..BATCH as usize / held {
            for _ in 0..held {
                blocks.push(take(&mut allocator)?);
            }
            blocks.drain(..).try_for_each(|held| allocator.free(held))?;
        }
        Ok(())
    })
}
