//! `malloc`: whole allocators as programs meet them, ours among them, each preloaded into a fresh process: one thread, and
//! blocks freed on another thread.

mod sized;

use std::time::Duration;

use sized::Blocks;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::alloc;
use crate::bench::Bench;
use crate::clock;
use crate::options::{Common, size};
use crate::plan::{Cell, Outcome};
use crate::report::{FASTEST, Key};
use crate::stats::Measured;
use crate::systems::allocators;

/// Sizes when none are asked for.
const SIZES: [usize; 8] = [64, 256, 1024, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Works, blocks at a time, threads.
const WORKS: [(&str, usize, usize); 3] = [("hot", 1, 1), ("hot", 32, 1), ("cross", 1024, 2)];

#[derive(Debug, clap::Args)]
pub struct Malloc {
    /// Sizes in bytes [default: 64 to 4K, 16K, 64K, 256K, 1M].
    #[arg(long, value_delimiter = ',', value_parser = size)]
    payload: Vec<usize>,
}

/// What a process is to measure.
#[derive(Debug, Serialize, Deserialize)]
pub struct Given {
    system: String,
    mode: String,
    bytes: usize,
    buffers: usize,
    cores: [usize; 2],
    sample_ms: u64,
}

impl Bench for Malloc {
    const REFERENCES: &'static [&'static str] = &["glibc", FASTEST];

    fn systems(&self) -> Vec<&'static str> {
        allocators::MALLOCS.map(|(name, _)| name).to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let sizes = match &self.payload[..] {
            [] => &SIZES,
            some => some,
        };
        let wanted = allocators::MALLOCS
            .iter()
            .filter(|(name, _)| common.wants(name));
        let ready: Vec<_> = wanted
            .filter_map(|(name, preload)| Some((*name, alloc::library(name, *preload)?)))
            .collect();
        let mut keys = Vec::new();
        for (mode, buffers, threads) in WORKS {
            keys.extend(common.some_of(sizes).iter().map(|bytes| Key {
                mode,
                payload_bytes: Some(*bytes),
                buffers: Some(buffers),
                threads: Some(threads),
                ..Key::default()
            }));
        }
        let mut outcome = Outcome::default();
        for key in &keys {
            let cells = ready.iter().map(|(system, library)| Cell {
                system,
                key: key.clone(),
                measure: Box::new(move |_| {
                    let given = Given {
                        system: (*system).to_owned(),
                        mode: key.mode.to_owned(),
                        bytes: key.payload_bytes.unwrap_or(0),
                        buffers: key.buffers.unwrap_or(0),
                        cores: common.cores(),
                        sample_ms: common.sample_ms(),
                    };
                    let measured: Measured = alloc::run_child("malloc", &given, library.as_ref())?;
                    Ok(vec![measured])
                }),
            });
            outcome.group(common.runs(), cells.collect());
        }
        Ok(outcome)
    }
}

/// The process's side: measures, and prints what it measured.
pub fn child(given: Given) -> Result<()> {
    alloc::adopt_clock();
    let Given { cores, buffers, .. } = given;
    let mut all = allocators::MALLOCS.into_iter();
    let (_, preload) = all
        .find(|(name, _)| *name == given.system)
        .with_context(|| format!("no allocator {}", given.system))?;
    alloc::check_preload(preload)?;
    let ticks = clock::in_ticks(Duration::from_millis(given.sample_ms));
    let blocks = &Blocks { bytes: given.bytes };
    let measured = match &*given.mode {
        "hot" => sized::single(blocks, cores[0], ticks, buffers)?,
        "cross" => sized::cross(blocks, cores, ticks)?,
        mode => bail!("no work {mode}"),
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}
