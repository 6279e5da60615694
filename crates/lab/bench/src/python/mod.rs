//! `python`: arrays to and fro between two processes in Python, by the product's face and by what else there is, next to Rust's round trip.
//!
//! Each system is a small program in `programs/`, of which `run.py` runs both sides.

mod environment;
mod run;
mod system;

use crate::bench::Bench;
use crate::case::{Case, Wait};
use crate::options::{Common, size};
use crate::peer::Entry;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::{messages, systems};
use anyhow::Result;
use std::path::PathBuf;

use environment::Environment;
use system::{ARRAYS, BATCH_BYTES, BOTH, LOADERS, RUST, SPREAD, SYSTEMS, System, name_of};

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
        let python = SYSTEMS.iter().chain(&SPREAD).chain(&LOADERS);
        let python = python.map(|system| system.name);
        [RUST].into_iter().chain(python).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        measure(common, self)
    }
}

fn measure(common: &Common, grid: &Python) -> Result<Outcome> {
    let wanted = SYSTEMS.iter().chain(&SPREAD).chain(&LOADERS);
    let wanted = wanted.filter(|one| common.wants(one.name));
    let needs = wanted.flat_map(|one| one.needs).copied().collect();
    let environment = Environment::find(grid.python.as_deref(), &needs)?;
    let rust = systems::all().into_iter().find(|one| one.name == RUST);
    let mut outcome = Outcome {
        peers: environment
            .as_ref()
            .map_or_else(Default::default, Environment::versions),
        ..Outcome::default()
    };
    let able = SYSTEMS.iter().filter(|one| common.wants(one.name));
    let able = able.filter(|one| environment.as_ref().is_some_and(|there| there.has(one)));
    let able: Vec<&System> = able.collect();
    for wait in messages::waits(&grid.mode) {
        for payload in sizes(common, &grid.payload) {
            let fit = (POOL_BYTES / payload).max(FEWEST);
            let case = Case {
                payload,
                buffers: BUFFERS.min(fit).next_power_of_two(),
                ..messages::trip(common, *wait)
            };
            let rust = rust.filter(|one| common.wants(one.name));
            let mut cells: Vec<Cell<'_>> =
                rust.map(|one| in_rust(one, &case)).into_iter().collect();
            for system in able.iter().filter(|one| one.spins || *wait == Wait::Block) {
                let (case, environment) = (case.clone(), environment.as_ref());
                cells.push(Cell {
                    system: system.name,
                    key: key(&case),
                    measure: Box::new(move |number| {
                        run::once(environment, system, (&case, None), number)
                    }),
                });
            }
            outcome.group(common.runs(), cells);
        }
    }
    if let Some(environment) = &environment {
        spread(common, grid, environment, &mut outcome);
        load(common, environment, &mut outcome);
    }
    Ok(outcome)
}

/// Measures loaders of batches, on all cores.
fn load(common: &Common, environment: &Environment, outcome: &mut Outcome) {
    let able = LOADERS.iter().filter(|one| common.wants(one.name));
    let able = able.filter(|one| environment.has(one));
    let case = Case {
        payload: BATCH_BYTES,
        ..messages::trip(common, Wait::Block)
    };
    let cells = able.map(|system| {
        let case = case.clone();
        Cell {
            system: system.name,
            key: Key {
                cores: None,
                ..key(&case)
            },
            measure: Box::new(move |number| {
                run::once(Some(environment), system, (&case, None), number)
            }),
        }
    });
    outcome.group(common.runs(), cells.collect());
}

/// Measures one writer and several readers.
fn spread(common: &Common, grid: &Python, environment: &Environment, outcome: &mut Outcome) {
    let able = SPREAD.iter().filter(|one| common.wants(one.name));
    let able: Vec<&System> = able.filter(|one| environment.has(one)).collect();
    for payload in sizes(common, &grid.spread) {
        for &readers in grid.readers.iter().filter(|readers| **readers > 0) {
            let case = Case {
                payload,
                ..messages::trip(common, Wait::Block)
            };
            let cells = able.iter().map(|system| {
                let case = case.clone();
                Cell {
                    system: system.name,
                    key: Key {
                        receivers: Some(readers),
                        ..key(&case)
                    },
                    measure: Box::new(move |number| {
                        run::once(Some(environment), system, (&case, Some(readers)), number)
                    }),
                }
            });
            outcome.group(common.runs(), cells.collect());
        }
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
    Key {
        mode: case.mode(),
        payload_bytes: Some(case.payload),
        cores: Some(case.cores_used()),
        ..Key::default()
    }
}

fn in_rust(entry: Entry, case: &Case) -> Cell<'static> {
    let case = case.clone();
    Cell {
        system: entry.name,
        key: key(&case),
        measure: Box::new(move |number| {
            let mut all = Vec::new();
            for touch in BOTH {
                let case = Case {
                    touch: *touch,
                    ..case.clone()
                };
                let measured = messages::once(&entry, &case, number, false)?;
                all.extend(measured.into_iter().map(|mut one| {
                    one.op = name_of(*touch).to_owned();
                    one
                }));
            }
            Ok(all)
        }),
    }
}
