//! `malloc`: whole allocators as programs meet them, ours among them, each preloaded into a fresh process: one thread, blocks
//! freed on another thread, and two mixed loads of many sizes, with the memory that they took at most.

mod stress;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::alloc;
use crate::clock;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Facts, Measured};
use crate::systems::heaps::{self, HeapEntry};
use crate::zone;

/// Sizes when none are asked for.
const SIZES: [usize; 8] = [64, 256, 1024, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Works that have a size, and those that have many.
const SIZED: [(&str, usize, usize); 3] = [("hot", 1, 1), ("hot", 32, 1), ("cross", 1024, 2)];
const MIXED: [&str; 2] = ["larson", "mstress"];

/// What a process says.
#[derive(Serialize, Deserialize)]
struct Said {
    measured: Measured,
    /// The most memory that it had, beyond what it began with.
    peak_bytes: Option<f64>,
}

pub fn names() -> Vec<&'static str> {
    heaps::mallocs().iter().map(|entry| entry.name).collect()
}

pub fn bench(common: &Common, sizes: &[usize]) -> Outcome {
    let sizes = if sizes.is_empty() { &SIZES[..] } else { sizes };
    let ready: Vec<_> = heaps::mallocs()
        .into_iter()
        .filter(|entry| common.wants(entry.name))
        .filter_map(|entry| Some((entry, alloc::library(entry.name, entry.preload)?)))
        .collect();
    let mut keys = Vec::new();
    for (mode, buffers, threads) in SIZED {
        keys.extend(common.some_of(sizes).iter().map(|bytes| Key {
            mode,
            payload_bytes: Some(*bytes),
            buffers: Some(buffers),
            threads: Some(threads),
            ..Key::default()
        }));
    }
    keys.extend(MIXED.iter().map(|mode| Key {
        mode,
        threads: Some(2),
        ..Key::default()
    }));
    let mut outcome = Outcome::default();
    for key in &keys {
        let cells = ready.iter().map(|(entry, library)| Cell {
            system: entry.name,
            key: key.clone(),
            measure: Box::new(move |_| {
                let [a, b] = common.cores();
                let numbers = [
                    key.payload_bytes.unwrap_or(0),
                    key.buffers.unwrap_or(0),
                    a,
                    b,
                ];
                let mut arguments = ["malloc-child", entry.name, key.mode]
                    .map(str::to_owned)
                    .to_vec();
                arguments.extend(numbers.map(|number| number.to_string()));
                arguments.push(common.sample_ms().to_string());
                let said: Said = alloc::run_child(&arguments, library.as_ref())?;
                let peak = said.peak_bytes.map(|bytes| ("peak_bytes", bytes));
                Ok(vec![Measured {
                    facts: Facts::from_iter(peak),
                    ..said.measured
                }])
            }),
        });
        outcome.group(common.runs(), cells.collect());
    }
    outcome
}

/// The process's side: measures, and prints what it measured.
pub fn child(
    system: &str,
    mode: &str,
    bytes: usize,
    buffers: usize,
    cores: [usize; 2],
    ms: u64,
) -> Result<()> {
    alloc::adopt_clock();
    let entry = heaps::mallocs().into_iter().find(|e| e.name == system);
    let entry: HeapEntry = entry.with_context(|| format!("no allocator {system}"))?;
    alloc::check_preload(entry.preload)?;
    let time = Duration::from_millis(ms);
    let sized = || (entry.open)(bytes);
    let (measured, peak_bytes) = match mode {
        "hot" => (
            zone::single(&*sized()?, cores[0], clock::in_ticks(time), buffers)?,
            None,
        ),
        "cross" => (zone::cross(&*sized()?, cores, clock::in_ticks(time))?, None),
        "larson" => stress::run(stress::larson, cores, time)?,
        "mstress" => stress::run(stress::mstress, cores, time)?,
        _ => bail!("no work {mode}"),
    };
    let said = Said {
        measured,
        peak_bytes,
    };
    println!("{}", serde_json::to_string(&said)?);
    Ok(())
}
