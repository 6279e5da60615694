//! `alloc`: one thread takes and gives back one buffer over and over; nobody touches its bytes.
//!
//! Each run is a fresh process of this program with the allocator under test preloaded, so that every
//! allocator is called in the same way, as programs call it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::clock;
use crate::options::{Common, size};
use crate::party;
use crate::plan::{Cell, Outcome};
use crate::report::{FASTEST, Key};
use crate::stats::{Measured, Samples};
use crate::systems::allocators::{Allocator, MALLOCS, Malloc, Mmap, Preload};
use crate::systems::tranship::Zones;

/// Pairs of alloc and free that one sample covers.
const BATCH: u32 = 64;
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
/// Set in the child: nanoseconds in a tick, so that it need not find out again.
const NS_PER_TICK: &str = "TRANSHIP_BENCH_NS_PER_TICK";

/// An allocator in the list of all.
#[derive(Debug, Clone, Copy)]
struct AllocEntry {
    name: &'static str,
    preload: Option<Preload>,
    measure: fn(usize, u64) -> Result<Vec<Measured>>,
}

fn systems() -> Vec<AllocEntry> {
    let entry = |name, preload, measure| AllocEntry {
        name,
        preload,
        measure,
    };
    let mut all = vec![entry("tranship", None, measure::<Zones>)];
    // Ours apart, which is no pool.
    all.extend(
        MALLOCS[1..]
            .iter()
            .map(|(name, preload)| entry(name, *preload, measure::<Malloc>)),
    );
    all.push(entry("mmap", None, measure::<Mmap>));
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
        let mut ready = Vec::new();
        for entry in systems() {
            if !common.wants(entry.name) {
                continue;
            }
            if let Some(library) = library(entry.name, entry.preload) {
                ready.push((entry, library));
            }
        }
        for bytes in sizes {
            let cells = ready.iter().map(|(entry, library)| Cell {
                system: entry.name,
                key: Key {
                    mode: "hot",
                    payload_bytes: Some(*bytes),
                    threads: Some(1),
                    ..Key::default()
                },
                measure: Box::new(move |_| {
                    let given = Given {
                        system: entry.name.to_owned(),
                        bytes: *bytes,
                        core: common.cores()[0],
                        sample_ms: common.sample_ms().min(20),
                    };
                    run_child("alloc", &given, library.as_ref())
                }),
            });
            outcome.group(common.runs(), cells.collect());
        }
        Ok(outcome)
    }
}

/// What a process is to measure.
#[derive(Debug, Serialize, Deserialize)]
pub struct Given {
    system: String,
    bytes: usize,
    core: usize,
    sample_ms: u64,
}

/// The library that a system must have preloaded, if any; `None`, and a word about it, if it is not here.
pub fn library(name: &str, preload: Option<Preload>) -> Option<Option<PathBuf>> {
    let Some(preload) = preload else {
        return Some(None);
    };
    let found = find(&preload);
    if found.is_none() {
        let Preload { file, get } = preload;
        eprintln!("SKIPPED: {name}: no {file} here: {get}");
    }
    found.map(Some)
}

/// The library's path: beside this program, or where this machine has its libraries.
fn find(preload: &Preload) -> Option<PathBuf> {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?.to_str()?.to_owned();
    [
        beside,
        format!("/usr/lib/{triple}"),
        format!("/lib/{triple}"),
        "/usr/lib64".into(),
        "/usr/lib".into(),
        "/usr/local/lib".into(),
    ]
    .into_iter()
    .map(|dir| PathBuf::from(dir).join(preload.file))
    .find(|path| path.exists())
}

/// Runs this program with that library preloaded, as the child of a bench; returns what it measured.
pub fn run_child<T: serde::de::DeserializeOwned>(
    bench: &str,
    given: &impl Serialize,
    library: Option<&PathBuf>,
) -> Result<T> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["child", bench, &serde_json::to_string(given)?])
        .env(NS_PER_TICK, clock::ns(1).to_string())
        .env_remove("LD_PRELOAD");
    if let Some(path) = library {
        command.env("LD_PRELOAD", path);
    }
    let output = command
        .output()
        .context("starting a process of this program")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.trim());
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The process's side: measures, and prints what it measured.
pub fn child(given: Given) -> Result<()> {
    adopt_clock();
    party::pin(given.core)?;
    let entry = systems().into_iter().find(|e| e.name == given.system);
    let entry = entry.with_context(|| format!("no allocator {}", given.system))?;
    check_preload(entry.preload)?;
    let measured = (entry.measure)(given.bytes, given.sample_ms)?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Takes over what the parent found out about the clock.
pub fn adopt_clock() {
    match std::env::var(NS_PER_TICK)
        .ok()
        .and_then(|text| text.parse().ok())
    {
        Some(ns) => clock::adopt(ns),
        None => clock::calibrate(),
    }
}

/// Fails unless the library is there.
pub fn check_preload(preload: Option<Preload>) -> Result<()> {
    if let Some(preload) = preload {
        // The loader only warns when it cannot preload; then we would measure the wrong one.
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let stem = preload.file.split(".so").next().unwrap_or(preload.file);
        ensure!(maps.contains(stem), "{} was not preloaded", preload.file);
    }
    Ok(())
}

/// The loop itself.
fn measure<A: Allocator>(bytes: usize, sample_ms: u64) -> Result<Vec<Measured>> {
    let mut allocator = A::open(bytes)?;
    let mut samples = Samples::new(1 << 18, BATCH);
    let budget = clock::in_ticks(std::time::Duration::from_millis(sample_ms));
    let begun = clock::ticks();
    let mut before = begun;
    loop {
        for _ in 0..BATCH {
            let mut held = allocator.alloc()?;
            // The address is used for all that the optimiser knows, or it would leave out the pair. Not the handle: what else
            // one consists of may stay in registers, as it may with any caller.
            std::hint::black_box(A::address(&mut held));
            allocator.free(held)?;
        }
        let now = clock::ticks();
        let warm = now - begun < budget / 4;
        if !warm && !samples.push(now - before) || now - begun > budget * 5 / 4 {
            break;
        }
        before = clock::ticks();
    }
    Ok(samples.finish("").into_iter().collect())
}
