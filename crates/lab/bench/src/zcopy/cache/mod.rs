//! `zc-cache`: GETs from a cache server over TCP on loopback, one server core, connections in a closed loop on the other.
//! A server of several threads (`--threads`) has as many cores, and shares the client's if there is no other.
//!
//! `tranship` is ours as it is; `batched` is ours with every reply copied, all that are due in one call; `memcached` is Debian's. All servers of one set of values run at once, filled once; measured in
//! turn.

mod load;
mod served;

pub use load::cpu_of;
pub use served::{child, on_cores};

use super::counters::Counters;
use load::{Carrier, Load, fill, run, told};
use served::{Given, Served, debians};

use super::pairs::Ratio;
use crate::bench::Bench;
use crate::options::{Common, size};
use crate::party;
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row, bytes};
use anyhow::{Context, Result, ensure};

/// Systems that can be named. The last ones run only if they are named.
const SYSTEMS: [&str; 4] = ["tranship", "batched", "memcached", "vmsplice"];
/// Those that are measured unless others are named.
const USUAL: usize = 3;
/// Which values are asked for, and how: the last two are the ZCopy paper's loads, ten thousand values asked for from 36
/// sockets by datagrams, or over a connection for each.
const MODES: [&str; 4] = ["cold", "hot", "udp", "connect"];
/// Values of the paper's loads.
const PAPERS: usize = 10_000;
/// The client's use of the values.
const CLIENTS: [&str; 2] = ["drop", "copy"];
/// Largest value of the paper's load by datagrams.
const LARGEST: usize = 2048;
/// Bytes of the hot set.
const HOT: usize = 1 << 20;
/// Bytes of the cold set, and with `--quick`.
const COLD: usize = 512 << 20;
const QUICK: usize = 8 << 20;

#[derive(Debug, clap::Args)]
pub struct Cache {
    /// A set of 512 MiB, or one of 1 MiB; datagrams, or connections of one request [default: all].
    #[arg(long, value_delimiter = ',', value_parser = MODES)]
    mode: Vec<String>,
    /// What the client does with the values [default: both].
    #[arg(long, value_delimiter = ',', value_parser = CLIENTS)]
    client: Vec<String>,
    /// Bytes of a value.
    #[arg(long, value_delimiter = ',', value_parser = size,
        default_values = ["512", "1K", "2K", "4K", "16K", "64K", "256K", "1M"])]
    payload: Vec<usize>,
    /// Requests under way on each connection.
    #[arg(long, value_delimiter = ',', default_values = ["1", "8"])]
    depth: Vec<usize>,
    /// Threads of the server, on a core each.
    #[arg(long, value_delimiter = ',', default_values = ["1"])]
    threads: Vec<usize>,
}

/// Servers that hold the same values.
struct Rig {
    servers: Vec<(&'static str, Served)>,
    value: usize,
    count: usize,
    threads: usize,
    client_core: usize,
}

impl Bench for Cache {
    const REFERENCES: &'static [&'static str] = &["batched", "memcached"];

    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let systems = systems(common, &mut outcome);
        if let Err(why) = Counters::of(std::process::id()) {
            eprintln!(
                "SKIPPED: of zc-cache, misses of the cache: no counters of the processor: {why}"
            );
        }
        for mode in MODES {
            if !common.is_named(&self.mode, mode) {
                continue;
            }
            for value in common.some_of(&self.payload) {
                let set = match mode {
                    "hot" => HOT,
                    "udp" | "connect" if common.is_quick() => PAPERS / 20 * value,
                    "udp" | "connect" => PAPERS * value,
                    _ if common.is_quick() => QUICK,
                    _ => COLD,
                };
                if mode == "udp" && value > LARGEST {
                    continue;
                }
                for &threads in &self.threads {
                    match Rig::start(common, &systems, (value, set), threads) {
                        Ok(rig) => rig.measure(common, self, mode, &mut outcome),
                        Err(error) => {
                            outcome.failures += 1;
                            eprintln!("FAILED: zc-cache, values of {}: {error:#}", bytes(value));
                        }
                    }
                }
            }
        }
        outcome.verdicts = verdicts(&outcome.rows);
        Ok(outcome)
    }
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
    match debians() {
        None if systems.contains(&"memcached") => {
            eprintln!("SKIPPED: memcached: not here: apt-get install memcached");
            systems.retain(|name| *name != "memcached");
        }
        Some(program) => {
            let said = std::process::Command::new(program).arg("-V").output();
            let version = said
                .ok()
                .and_then(|said| String::from_utf8(said.stdout).ok());
            let version = version.map(|it| it.trim().trim_start_matches("memcached ").to_owned());
            let version = version.map(|it| ("memcached".to_owned(), it));
            outcome.peers.extend(version);
        }
        None => {}
    }
    systems
}

impl Rig {
    fn start(
        common: &Common,
        systems: &[&'static str],
        (value, set): (usize, usize),
        threads: usize,
    ) -> Result<Rig> {
        let count = (set / value).max(1);
        let mut cores = common.processors();
        ensure!(
            (1..=cores.len()).contains(&threads),
            "--threads {threads}: 1 to {}, the processors here",
            cores.len()
        );
        // The client is on the second one.
        if cores.len() > 1 {
            cores[1..].rotate_left(1);
        }
        cores.truncate(threads);
        let place = &Given {
            cores,
            // Memory beside the values, and slabs that are not full.
            memory: (count * (value + 256)) as u64 * 3 / 2 + (96 << 20),
        };
        let mut servers = Vec::new();
        for &system in systems {
            let served = match system {
                "memcached" => {
                    let program = debians().context("no memcached")?;
                    Served::memcached(&program, place)
                }
                ours => Served::ours(ours, place),
            };
            servers.push((system, served.with_context(|| system.to_owned())?));
        }
        let rig = Rig {
            servers,
            value,
            count,
            threads,
            client_core: common.cores()[1],
        };
        for (system, served) in &rig.servers {
            fill(&rig.load(common, served, Carrier::Kept))
                .with_context(|| format!("filling {system}"))?;
        }
        Ok(rig)
    }

    fn load(&self, common: &Common, served: &Served, carrier: Carrier) -> Load {
        Load {
            carrier,
            udp: served.udp,
            port: served.port,
            pid: served.pid(),
            value: self.value,
            count: self.count,
            depth: 1,
            copies: false,
            budget: common.budget(),
        }
    }

    fn measure(&self, common: &Common, grid: &Cache, mode: &'static str, outcome: &mut Outcome) {
        let carrier = match mode {
            "udp" => Carrier::Datagrams,
            "connect" => Carrier::Fresh,
            _ => Carrier::Kept,
        };
        let (clients, depths) = match carrier {
            Carrier::Kept => (&CLIENTS[..], common.some_of(&grid.depth)),
            // One question at a time on each, and its answer is read.
            _ => (&CLIENTS[1..], vec![1]),
        };
        for client in clients
            .iter()
            .filter(|name| carrier != Carrier::Kept || common.is_named(&grid.client, name))
        {
            for &depth in &depths {
                let cells = self.servers.iter().map(|(system, served)| {
                    let load = Load {
                        depth,
                        copies: *client == "copy",
                        ..self.load(common, served, carrier)
                    };
                    let key = Key::of(mode).op(client).payload(self.value);
                    let key = key.with("depth", depth).with("threads", self.threads);
                    let core = self.client_core;
                    Cell::of(system, key, move |number| {
                        let rows = party::each(number, &[core], |_, _| run(load))?;
                        Ok(told(rows, client))
                    })
                });
                outcome.group(common.runs_or(9), cells.collect());
            }
        }
    }
}

/// Ours over each other server, pair by pair.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let mut out = Vec::new();
    for row in rows.iter().filter(|row| row.system == "tranship") {
        let key = &row.key;
        for other in rows.iter().filter(|other| other.key == *key) {
            let Some(ratio) = Ratio::of(row, other, |run| run.per_second) else {
                continue;
            };
            if other.system != row.system {
                out.push(format!(
                    "{} {}, threads: {}, {} under way, {}, over {}: {}",
                    key.mode,
                    bytes(key.payload_bytes.unwrap_or(0)),
                    key.counts.get("threads").unwrap_or(&1),
                    key.counts.get("depth").unwrap_or(&1),
                    key.op,
                    other.system,
                    ratio.text()
                ));
            }
        }
    }
    out
}
