//! `zc-fault`: the first write to a page that ZCopy protected, beside the first write to a fresh page and the shortest
//! system call (the ZCopy paper's table 2).

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tranship_sys::map;
use tranship_zcopy::{Arena, Options};

use crate::bench::Bench;
use crate::clock;
use crate::options::Common;
use crate::party;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};

const SYSTEMS: [&str; 3] = ["getpid", "tranship", "native-fault"];
/// Pages of one sample.
const PAGES: usize = 256;

#[derive(Debug, clap::Args)]
pub struct Fault;

impl Bench for Fault {
    const REFERENCES: &'static [&'static str] = &["native-fault", "getpid"];

    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let core = common.cores()[0];
        let wanted = SYSTEMS.into_iter().filter(|name| common.wants(name));
        let cells = wanted.map(|system| {
            let budget = common.budget();
            Cell::of(system, Key::of("write"), move |number| {
                party::each(number, &[core], |_, _| {
                    let mut samples = Samples::new(1 << 14, u32::try_from(PAGES)?);
                    let begun = Instant::now();
                    while !samples.are_enough() || begun.elapsed() < budget {
                        if !samples.push(once(system)?) {
                            break;
                        }
                    }
                    let measured: Measured = samples.finish("").context("no samples")?;
                    Ok(vec![measured])
                })
            })
        });
        outcome.group(common.runs_or(9), cells.collect());
        Ok(outcome)
    }
}

/// Returns the ticks of [`PAGES`] operations.
fn once(system: &str) -> Result<u64> {
    let page = rustix::param::page_size();
    match system {
        "getpid" => clock::spent(|| {
            for _ in 0..PAGES {
                // SAFETY: no precondition. Past the C library, which may remember it.
                ensure!(unsafe { libc::syscall(libc::SYS_getpid) } > 0, "getpid");
            }
            Ok(())
        }),
        "native-fault" => {
            let len = page * PAGES;
            let at = map::reserve_private(len, page)?;
            let took = clock::spent(|| {
                // SAFETY: inside the mapping, which is this function's own.
                (0..PAGES).for_each(|n| unsafe { at.add(n * page).write_volatile(1) });
                Ok(())
            });
            // SAFETY: nobody has an address in it.
            unsafe { map::unmap(at, len)? };
            took
        }
        _ => protected(page),
    }
}

/// The first write to each page of values that fill their pageblocks, all of which are protected.
fn protected(page: usize) -> Result<u64> {
    let arena = Arena::with(&Options::default())?;
    let values = (0..PAGES).map(|_| arena.alloc_raw(page));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    for value in &values {
        // SAFETY: a page that was just allocated, and is this function's own.
        unsafe { value.write_bytes(7, page) };
    }
    arena.protect();
    let frozen = arena.stats().frozen_blocks;
    ensure!(frozen > 0, "no pageblock was protected");
    let took = clock::spent(|| {
        // SAFETY: as above.
        values
            .iter()
            .for_each(|value| unsafe { value.write_volatile(1) });
        Ok(())
    });
    for value in values {
        // SAFETY: of this arena, freed once.
        unsafe { arena.free_raw(value) };
    }
    took
}
