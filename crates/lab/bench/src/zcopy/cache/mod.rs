//! `zc-cache`: GETs from a cache server over TCP on loopback, one server core, connections in a closed loop on the other.
//!
//! `tranship` is ours as it is; `batched` is ours with every reply copied, all that are due in one call; `naive` is ours with replies
//! put together in a buffer before; `memcached` is Debian's. All servers of one set of values run at once, filled once; measured in
//! turn.

mod load;
mod served;

pub use load::{CPU, Load, Numbers, answer, cpu_of, fill, get, rows, told};
pub use served::{Place, Served, child, on_cores};

use load::{ask, overwrite};
use served::debians;

use super::pairs::Ratio;
use super::{CLIENTS, HOT, MODES, QUICK, wanted};
use crate::options::Common;
use crate::party::{self, Member};
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row, bytes};
use crate::stats::Measured;
use anyhow::{Context, Result};

/// What can be named; the last two only are where they are named.
pub const SYSTEMS: [&str; 6] = [
    "tranship",
    "batched",
    "naive",
    "memcached",
    "vmsplice",
    "sendfile",
];
/// Those that are measured unless others are named.
const USUAL: usize = 4;
/// Part of the rate of `batched` at which the processor time is compared.
const OFFERED: f64 = 0.5;
/// Of a hundred requests that many store, in the mixed load.
const SETS: u64 = 50;

/// What to vary.
#[derive(Debug)]
pub struct Grid<'a> {
    pub modes: &'a [String],
    pub clients: &'a [String],
    pub payloads: &'a [usize],
    pub depths: &'a [usize],
    /// Bytes of the cold set.
    pub set: usize,
    /// Look for the size from which on references pay.
    pub break_even: bool,
}

/// Servers that hold the same values.
struct Rig {
    servers: Vec<(&'static str, Served)>,
    value: usize,
    count: usize,
    client_core: usize,
}

pub fn bench(common: &Common, grid: &Grid<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let systems = systems(common, &mut outcome);
    for mode in MODES.into_iter().filter(|mode| wanted(grid.modes, mode)) {
        for value in common.some_of(grid.payloads) {
            let set = match mode {
                "hot" => HOT,
                _ if common.is_quick() => grid.set.min(QUICK),
                _ => grid.set,
            };
            match Rig::start(common, &systems, value, set) {
                Ok(rig) => rig.measure(common, grid, mode, &mut outcome),
                Err(error) => {
                    outcome.failures += 1;
                    eprintln!("FAILED: zc-cache, values of {}: {error:#}", bytes(value));
                }
            }
        }
    }
    outcome.verdicts = verdicts(&outcome.rows);
    if grid.break_even {
        match break_even(common, grid) {
            Ok(found) => outcome.verdicts.push(found),
            Err(error) => {
                outcome.failures += 1;
                eprintln!("FAILED: zc-cache, break-even: {error:#}");
            }
        }
    }
    outcome
}

fn systems(common: &Common, outcome: &mut Outcome) -> Vec<&'static str> {
    // Named by nobody: `--only` was not given.
    let usual = if common.wants("") {
        USUAL
    } else {
        SYSTEMS.len()
    };
    let mut systems = SYSTEMS[..usual].to_vec();
    systems.retain(|name| common.wants(name));
    if systems.contains(&"memcached") && debians().is_none() {
        eprintln!("SKIPPED: memcached: not here: apt-get install memcached");
        systems.retain(|name| *name != "memcached");
    }
    if systems.contains(&"memcached") {
        let version = debians().and_then(|program| version(&program).ok());
        outcome
            .peers
            .extend(version.map(|it| ("memcached".to_owned(), it)));
    }
    systems
}

fn version(program: &std::path::Path) -> Result<String> {
    let said = std::process::Command::new(program).arg("-V").output()?;
    let said = String::from_utf8(said.stdout)?;
    Ok(said.trim().trim_start_matches("memcached ").to_owned())
}

impl Rig {
    fn start(common: &Common, systems: &[&'static str], value: usize, set: usize) -> Result<Rig> {
        let count = (set / value).max(1);
        let place = Place {
            cores: common.cores(),
            threads: 1,
            // What lies beside the values, and slabs that are not full.
            memory: (count * (value + 256)) as u64 * 3 / 2 + (96 << 20),
            udp: false,
        };
        let mut servers = Vec::new();
        for &system in systems {
            let served = match system {
                "memcached" => {
                    let program = debians().context("no memcached")?;
                    Served::memcached(&program, None, place)
                }
                ours => Served::ours(ours, place),
            };
            servers.push((system, served.with_context(|| system.to_owned())?));
        }
        let rig = Rig {
            servers,
            value,
            count,
            client_core: common.cores()[1],
        };
        for (system, served) in &rig.servers {
            fill(&rig.load(common, served)).with_context(|| format!("filling {system}"))?;
        }
        Ok(rig)
    }

    fn load(&self, common: &Common, served: &Served) -> Load {
        Load {
            port: served.port,
            pid: served.pid(),
            value: self.value,
            count: self.count,
            depth: 1,
            copies: false,
            sets: 0,
            rate: None,
            budget: common.budget(),
        }
    }

    fn measure(&self, common: &Common, grid: &Grid<'_>, mode: &'static str, outcome: &mut Outcome) {
        for client in CLIENTS
            .into_iter()
            .filter(|name| wanted(grid.clients, name))
        {
            for depth in common.some_of(grid.depths) {
                let change = |load: Load| Load {
                    depth,
                    copies: client == "copy",
                    ..load
                };
                self.group(common, mode, client, change, outcome);
                if client != "drop" || depth != 1 {
                    continue;
                }
                // What was sent by reference before has its pages replaced when it is overwritten, once: not what such a load costs.
                for (system, served) in &self.servers {
                    if let Err(error) = overwrite(&self.load(common, served)) {
                        outcome.failures += 1;
                        eprintln!("FAILED: zc-cache, storing anew in {system}: {error:#}");
                        return;
                    }
                }
                let mixed = |load: Load| Load {
                    sets: SETS,
                    ..change(load)
                };
                self.group(common, mode, "half-sets", mixed, outcome);
                let reference = outcome.rows.iter().find(|row| {
                    row.system == "batched"
                        && row.key.op == client
                        && row.key.mode == mode
                        && row.key.payload_bytes == Some(self.value)
                });
                let rate = reference.map(|row| row.per_second * OFFERED);
                // Of a server that was hardly let run nothing can be said.
                let rate = rate.filter(|rate| *rate >= 1.0);
                if rate.is_some() {
                    let paced = |load: Load| Load {
                        rate,
                        ..change(load)
                    };
                    self.group(common, mode, "half-rate", paced, outcome);
                }
            }
        }
    }

    /// All servers in turn.
    fn group(
        &self,
        common: &Common,
        mode: &'static str,
        op: &str,
        change: impl Fn(Load) -> Load,
        outcome: &mut Outcome,
    ) {
        let cells = self.servers.iter().map(|(system, served)| {
            let load = change(self.load(common, served));
            Cell {
                system,
                key: Key {
                    mode,
                    op: op.to_owned(),
                    payload_bytes: Some(self.value),
                    depth: Some(load.depth),
                    ..Key::default()
                },
                measure: Box::new(move |number| run(number, self.client_core, load, op)),
            }
        });
        outcome.group(common.runs_or(9), cells.collect());
    }
}

fn run(number: u64, core: usize, load: Load, op: &str) -> Result<Vec<Measured>> {
    let members = vec![Member {
        core,
        body: Box::new(move |_| ask(load)),
    }];
    told(party::run(number, members)?, op)
}

/// By how much our rate must be that of another at least, if by anything.
fn bound(ours: &Row, theirs: &str) -> Option<f64> {
    let value = ours.key.payload_bytes?;
    let main = ours.key.mode == "cold" && ours.key.depth == Some(1) && ours.key.op == "drop";
    Some(match (theirs, ours.key.op.as_str()) {
        ("batched", "drop") if main => match value {
            4096 => 1.13,
            16384 => 1.32,
            65536 => 1.72,
            262_144.. => 2.14,
            _ => 0.97,
        },
        ("batched", "drop" | "half-sets") => 0.97,
        ("memcached", "drop") if main && value <= 4096 => 1.0,
        ("memcached", "drop") if main && value == 65536 => 1.5,
        _ => return None,
    })
}

fn verdicts(rows: &[Row]) -> Vec<String> {
    let ours = rows.iter().filter(|row| row.system == "tranship");
    let mut out = Vec::new();
    for row in ours {
        for other in rows.iter().filter(|other| other.key == row.key) {
            let Some(at_least) = bound(row, &other.system) else {
                continue;
            };
            let key = &row.key;
            let what = format!(
                "{} {}, {} under way, {}, over {}",
                key.mode,
                bytes(key.payload_bytes.unwrap_or(0)),
                key.depth.unwrap_or(1),
                key.op,
                other.system
            );
            out.extend(
                Ratio::of(row, other, |run| run.per_second)
                    .map(|ratio| ratio.line(&what, at_least)),
            );
        }
    }
    out
}

/// Sizes of values between which the search ends.
const CLOSE: f64 = 1.2;

/// The smallest value that costs less by reference than copied: cold, one request under way, dropped. By halves.
fn break_even(common: &Common, grid: &Grid<'_>) -> Result<String> {
    let gain = |value: usize| -> Result<Ratio> {
        let set = if common.is_quick() {
            grid.set.min(QUICK)
        } else {
            grid.set
        };
        let rig = Rig::start(common, &["vmsplice", "batched"], value, set)?;
        let mut outcome = Outcome::default();
        rig.group(common, "cold", "drop", |load| load, &mut outcome);
        let [ours, theirs] = &outcome.rows[..] else {
            anyhow::bail!("a run failed");
        };
        Ratio::of(ours, theirs, |run| run.per_second).context("no pairs")
    };
    let (mut low, mut high) = (512usize, 64 << 10);
    let mut last = None;
    while high as f64 > low as f64 * CLOSE {
        let middle = (low * high).isqrt() / 64 * 64;
        let ratio = gain(middle)?;
        if ratio.median > 1.0 {
            (high, last) = (middle, Some(ratio));
        } else {
            low = middle;
        }
        if common.is_quick() {
            break;
        }
    }
    Ok(match last {
        Some(ratio) => format!(
            "cold values pay by reference from {high} bytes on ({:.2}x [{:.2}, {:.2}] there), not at {low}",
            ratio.median, ratio.low, ratio.high
        ),
        None => format!("cold values do not pay by reference up to {high} bytes"),
    })
}
