//! `zc-memcached`: the paper's own port. Debian's memcached, built of its source package as it is (`stock`) and with its values from
//! `zc_malloc` (`ported`, by `libtranship_zcopy.so`), under the loads of figures 6 and 8: GETs of ten thousand values by UDP from 36
//! sockets, and by TCP with one request for each connection.

mod ask;
mod source;
pub mod suite;

use super::cache::{self, CPU, Load, Place, Served, fill};
use super::pairs::Ratio;
use crate::bench::Bench;
use crate::options::{Common, size};
use crate::plan::{Cell, Outcome};
use crate::report::{Key, bytes};
use crate::stats::Measured;
use anyhow::{Context, Result};
use ask::{Datagrams, OneGet};
use source::Built;
use std::path::{Path, PathBuf};
use tranship_zcopy::{Counts, Report};

/// What can be named.
const SYSTEMS: [&str; 2] = ["ported", "stock"];
/// How the values are asked for.
const CARRIERS: [&str; 2] = ["udp", "tcp"];
/// Values, as in the paper; with `--quick` fewer.
const COUNT: usize = 10_000;
const QUICK: usize = 500;

#[derive(Debug, clap::Args)]
pub struct Memcached {
    /// By UDP from 36 sockets, or by TCP with one request for each connection [default: both].
    #[arg(long, value_delimiter = ',', value_parser = CARRIERS)]
    carrier: Vec<String>,
    /// Bytes of a value.
    #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["256", "512", "768", "1K", "2K"])]
    payload: Vec<usize>,
    /// Worker threads of the server: with one it has one core, with more both.
    #[arg(long, value_delimiter = ',', default_values = ["1", "2"])]
    threads: Vec<usize>,
    /// Where the package is unpacked and built [default: zc-memcached, beside this program].
    #[arg(long)]
    folder: Option<PathBuf>,
}

impl Bench for Memcached {
    const REFERENCES: &'static [&'static str] = &["stock"];

    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let folder = folder(self.folder.as_deref());
        let built = match folder.and_then(|it| source::built(&it, !common.is_quick())) {
            Ok(built) => built,
            Err(error) => {
                eprintln!("SKIPPED: zc-memcached: {error:#}");
                return Ok(outcome);
            }
        };
        for carrier in CARRIERS {
            if !common.is_named(&self.carrier, carrier) {
                continue;
            }
            for threads in common.some_of(&self.threads) {
                for value in common.some_of(&self.payload) {
                    if let Err(error) = group(common, &built, carrier, threads, value, &mut outcome)
                    {
                        outcome.failures += 1;
                        let value = bytes(value);
                        eprintln!("FAILED: zc-memcached, {carrier}, {value}: {error:#}");
                    }
                }
            }
        }
        Ok(outcome)
    }
}

fn folder(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = named {
        return Ok(folder.to_owned());
    }
    let exe = std::env::current_exe()?;
    Ok(exe.parent().context("no folder")?.join("zc-memcached"))
}

fn group(
    common: &Common,
    built: &Built,
    carrier: &'static str,
    threads: usize,
    value: usize,
    outcome: &mut Outcome,
) -> Result<()> {
    let place = |udp| Place {
        cores: common.cores(),
        threads,
        memory: 128 << 20,
        udp,
    };
    let mut servers = Vec::new();
    for system in SYSTEMS.into_iter().filter(|name| common.wants(name)) {
        let (program, library) = match system {
            "ported" => (&built.ported, Some(&*built.library)),
            _ => (&built.stock, None),
        };
        let served = Served::memcached(program, library, place(carrier == "udp"))?;
        let load = Load {
            port: served.port,
            pid: served.pid(),
            value,
            count: if common.is_quick() { QUICK } else { COUNT },
            depth: 1,
            copies: true,
            budget: common.budget(),
        };
        let tcp = Load {
            port: served.tcp_port,
            ..load
        };
        fill(&tcp).with_context(|| format!("filling {system}"))?;
        servers.push((system, served, load));
    }
    let key = Key {
        mode: carrier,
        payload_bytes: Some(value),
        threads: Some(threads),
        ..Key::default()
    };
    let first = outcome.rows.len();
    let cells = servers.iter().map(|(system, _, load)| Cell {
        system,
        key: key.clone(),
        measure: Box::new(move |number| run(number, common.cores()[1], *load, carrier)),
    });
    outcome.group(common.runs_or(9), cells.collect());
    let ported = servers.iter().find(|(system, ..)| *system == "ported");
    if let Some((_, served, _)) = ported {
        // Without a report it has sent nothing: what is short goes to the kernel as it came.
        let report = Report::of_process(served.pid());
        let counts = report.map_or_else(|_| Counts::default(), |report| report.counts);
        outcome.verdicts.push(format!(
            "{carrier}, {}, {threads} worker: of values sent by the library {} KiB were copied, {} KiB went by reference",
            bytes(value),
            counts.copied_bytes >> 10,
            counts.referred_bytes >> 10
        ));
    }
    if let [ours, theirs] = &outcome.rows[first..] {
        let cost = Ratio::of(theirs, ours, |run| {
            run.facts.get(CPU).copied().unwrap_or(f64::NAN)
        });
        let rate = Ratio::of(ours, theirs, |run| run.per_second);
        for (what, ratio) in [("rate", rate), ("for the same processor time", cost)] {
            outcome.verdicts.extend(ratio.map(|ratio| {
                format!(
                    "{carrier}, {}, {threads} worker: ported over stock, {what}: {}",
                    bytes(value),
                    ratio.text()
                )
            }));
        }
    }
    Ok(())
}

fn run(number: u64, core: usize, load: Load, carrier: &str) -> Result<Vec<Measured>> {
    match carrier {
        "udp" => cache::ask::<Datagrams>(number, core, load, ""),
        _ => cache::ask::<OneGet>(number, core, load, ""),
    }
}
