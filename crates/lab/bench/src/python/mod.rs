//! `python`: arrays to and fro between two processes in Python, by the product's face and by what else there is, next to Rust's round trip.
//!
//! Each system is a small program in `programs/`. `run.py` runs both sides, `spread.py` those of several readers, `loader.py`
//! loaders of batches. Each starts the other sides itself.

mod environment;
mod system;

use crate::bench::Bench;
use crate::case::{Case, Wait};
use crate::options::{Common, size};
use crate::peer::Entry;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::Measured;
use crate::systems::{self, tranship};
use crate::{messages, party};
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Stdio;

use environment::Environment;
use system::{ARRAYS, BATCH_BYTES, BOTH, LOADER, PAIR, RUST, SPREAD, SYSTEMS, System, name_of};

/// Most bytes of one sender's buffers, but for [`FEWEST`] of them.
const POOL_BYTES: usize = 16 << 20;
const BUFFERS: usize = 256;
const FEWEST: usize = 4;
/// Largest array with `--quick`.
const QUICK: usize = 64 << 10;

#[derive(Debug, clap::Args)]
pub struct Python {
    /// How the sides wait [default: spin, then block].
    #[arg(long, value_enum)]
    mode: Vec<Wait>,
    /// Sizes of the arrays, e.g. 64,4K,64K,1M.
    #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M"])]
    payload: Vec<usize>,
    /// Numbers of readers that each read every array, e.g. 1,4,8. 0 leaves these measurements out.
    #[arg(long, value_delimiter = ',', default_values = ["1", "4", "8"])]
    readers: Vec<usize>,
    /// Sizes of the arrays that several readers read.
    #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["1K", "1M", "60M"])]
    spread: Vec<usize>,
    /// The interpreter [default: of the tests' environment under the target folder, else python3].
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

impl Bench for Python {
    const REFERENCES: &'static [&'static str] = &[ARRAYS];

    fn systems(&self) -> Vec<&'static str> {
        let python = SYSTEMS.iter().map(|system| system.name);
        [RUST].into_iter().chain(python).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let wanted = SYSTEMS.iter().filter(|one| common.wants(one.name));
        let needs = wanted.flat_map(|one| &one.needs).copied().collect();
        let environment = Environment::find(self.python.as_deref(), &needs)?;
        let environment = environment.as_ref();
        let mut outcome = Outcome {
            peers: environment.map_or_else(Default::default, Environment::versions),
            ..Outcome::default()
        };
        // The cells of a program's systems that can run here.
        let cells = |program: &'static str, case: &Case, key: &Key, readers: Option<usize>| {
            let systems = SYSTEMS.iter().filter(move |one| one.program == program);
            let able = systems.filter(|one| common.wants(one.name));
            let able = able.filter(|one| one.spins || case.wait == Wait::Block);
            let able = able.filter_map(|one| Some((one, environment.filter(|it| it.has(one))?)));
            let cells = able.map(|(system, environment)| {
                let (case, key) = (case.clone(), key.clone());
                Cell::of(system.name, key, move |number| {
                    once(environment, system, &case, readers, number)
                })
            });
            cells.collect::<Vec<_>>()
        };
        for wait in messages::waits(&self.mode) {
            for payload in sizes(common, &self.payload) {
                let fit = (POOL_BYTES / payload).max(FEWEST);
                let case = Case {
                    payload,
                    buffers: BUFFERS.min(fit).next_power_of_two(),
                    ..messages::trip(common, *wait)
                };
                let rust = systems::all().into_iter().filter(|one| one.name == RUST);
                let rust = rust.filter(|one| common.wants(one.name));
                let mut all: Vec<_> = rust.map(|one| in_rust(one, &case)).collect();
                all.extend(cells(PAIR, &case, &key(&case), None));
                outcome.group(common.runs(), all);
            }
        }
        let asleep = messages::trip(common, Wait::Block);
        for payload in sizes(common, &self.spread) {
            for &readers in self.readers.iter().filter(|readers| **readers > 0) {
                let case = Case {
                    payload,
                    ..asleep.clone()
                };
                let key = key(&case).with("receivers", readers);
                outcome.group(common.runs(), cells(SPREAD, &case, &key, Some(readers)));
            }
        }
        // Loaders run on all cores.
        let case = Case {
            payload: BATCH_BYTES,
            ..asleep
        };
        let key = Key::of(case.mode()).payload(case.payload);
        outcome.group(common.runs(), cells(LOADER, &case, &key, None));
        Ok(outcome)
    }
}

/// With `--quick` one that is not large, as each takes as many processes as there are systems.
fn sizes(common: &Common, given: &[usize]) -> Vec<usize> {
    if !common.is_quick() {
        return given.to_vec();
    }
    let small = given.iter().filter(|bytes| **bytes <= QUICK).max();
    small.or(given.iter().min()).into_iter().copied().collect()
}

fn key(case: &Case) -> Key {
    let key = Key::of(case.mode()).payload(case.payload);
    key.with("cores", case.cores_used())
}

fn in_rust(entry: Entry, case: &Case) -> Cell<'static> {
    let case = case.clone();
    Cell::of(entry.name, key(&case), move |number| {
        let mut all = Vec::new();
        for &touch in BOTH {
            let case = Case {
                touch,
                ..case.clone()
            };
            let mut measured = messages::once(&entry, &case, number, false)?;
            for one in &mut measured {
                one.op = name_of(touch).to_owned();
            }
            all.extend(measured);
        }
        Ok(all)
    })
}

/// One run of a system in Python.
fn once(
    environment: &Environment,
    system: &System,
    case: &Case,
    readers: Option<usize>,
    number: u64,
) -> Result<Vec<Measured>> {
    let touches: Vec<_> = system
        .touches()
        .iter()
        .map(|touch| name_of(*touch))
        .collect();
    let wait = match case.wait {
        Wait::Spin => "spin",
        Wait::Block => "block",
    };
    let (bytes, chunk_bytes, slots) = tranship::shape_of(case.buffers, case.payload);
    let given = serde_json::json!({
        "pool": {"max_bytes": bytes, "chunk_bytes": chunk_bytes, "slots": slots},
        "module": system.module,
        "variant": system.variant,
        "wait": wait,
        "touches": touches,
        "payload": case.payload,
        "readers": readers,
        "buffers": case.buffers,
        "cores": case.cores,
        "sample_ms": case.budget.as_millis(),
        "run": number,
        "folder": party::folder(number),
    });
    party::each(number, &case.cores[..1], |_, _| {
        let mut python = environment.command();
        let program = environment.program(system.program);
        python.arg(program).arg(given.to_string());
        let done = python.stdin(Stdio::null()).output();
        let done = done.context("starting Python")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{}: {}", done.status, said.trim());
        serde_json::from_slice(&done.stdout).context("what it measured")
    })
}
