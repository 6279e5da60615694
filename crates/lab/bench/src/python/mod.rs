//! `python`: arrays to and fro between two processes in Python, by the product's face and by what else there is, next to Rust's round trip.
//!
//! Each system is a small program in `programs/`, of which `run.py` runs both sides.

mod environment;
mod picture;
mod run;
mod system;
mod verdicts;

use crate::case::{Case, Pattern, Touch, Wait};
use crate::options::Common;
use crate::peer::Entry;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::{messages, systems};
use anyhow::Result;
use std::path::Path;

pub use picture::save as pictures;

use environment::Environment;
use system::{BOTH, RUST, SYSTEMS, System, name_of};

/// Most bytes of one sender's buffers, but for [`FEWEST`] of them.
const POOL_BYTES: usize = 16 << 20;
const BUFFERS: usize = 256;
const FEWEST: usize = 4;
/// Largest array with `--quick`.
const QUICK: usize = 64 << 10;

/// What can be named.
pub fn names() -> Vec<&'static str> {
    let python = SYSTEMS.iter().map(|system| system.name);
    [RUST].into_iter().chain(python).collect()
}

/// What to vary.
#[derive(Debug)]
pub struct Grid<'a> {
    pub modes: &'a [Wait],
    pub payloads: &'a [usize],
    pub python: Option<&'a Path>,
}

pub fn bench(common: &Common, grid: &Grid<'_>) -> Result<Outcome> {
    let modes = match grid.modes {
        [] => &[Wait::Spin, Wait::Block],
        some => some,
    };
    let wanted = SYSTEMS.iter().filter(|one| common.wants(one.name));
    let needs = wanted.flat_map(|one| one.needs).copied().collect();
    let environment = Environment::find(grid.python, common.is_quick(), &needs)?;
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
    for wait in modes {
        for payload in sizes(common, grid.payloads) {
            let fit = (POOL_BYTES / payload).max(FEWEST);
            let case = Case {
                pattern: Pattern::RoundTrip,
                wait: *wait,
                touch: Touch::Word,
                payload,
                buffers: BUFFERS.min(fit).next_power_of_two(),
                loans: 1,
                cores: match wait {
                    Wait::Spin => common.cores(),
                    Wait::Block => common.blocking_cores(),
                },
                helper: true,
                budget: common.budget(),
            };
            let rust = rust.filter(|one| common.wants(one.name));
            let mut cells: Vec<Cell<'_>> =
                rust.map(|one| in_rust(one, &case)).into_iter().collect();
            for system in able.iter().filter(|one| one.spins || *wait == Wait::Block) {
                let (case, environment) = (case.clone(), environment.as_ref());
                cells.push(Cell {
                    system: system.name,
                    key: key(&case),
                    measure: Box::new(move |number| run::once(environment, system, &case, number)),
                });
            }
            outcome.group(common.runs(), cells);
        }
    }
    outcome.verdicts = verdicts::of(&outcome.rows);
    Ok(outcome)
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
