//! `zc-send`: replies out of a set of values, over TCP on loopback: one server with one core, a client with the other, connections
//! in a closed loop.
//!
//! `batched` is what a good server does without zero-copy: all replies that are due on a connection in one sendmsg(2). `naive` has a
//! call for each reply. The others send the same pieces by [`tranship_zcopy::Sender`]: `tranship` chooses the way, `vmsplice` and
//! `sendfile` are told. `send-zc` is no way of it: io_uring's SEND_ZC out of a registered buffer (`ring`).

pub mod cache;
mod client;
mod counters;
pub mod fault;
pub mod memcached;
mod pairs;
pub mod paper;
mod ring;
mod server;
pub mod shm;
mod tun;
pub mod udp;
pub mod varnish;
mod work;

use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::Measured;
use anyhow::{Context, Result};
use tranship_zcopy::Way;
use work::Work;

/// What can be named.
pub const SYSTEMS: [&str; 6] = [
    "tranship", "vmsplice", "sendfile", "batched", "naive", "send-zc",
];
/// Which values are asked for.
pub const MODES: [&str; 2] = ["cold", "hot"];
/// What the client does with them.
pub const CLIENTS: [&str; 2] = ["drop", "copy"];

/// Where replies go: to a client by loopback, or into a device as a card is.
pub const SINKS: [&str; 2] = ["loopback", "tun"];

/// Bytes of the hot set.
const HOT: usize = 1 << 20;
/// Bytes of the cold set with `--quick`, at most.
const QUICK: usize = 8 << 20;

/// What to vary.
#[derive(Debug)]
pub struct Grid<'a> {
    pub modes: &'a [String],
    pub clients: &'a [String],
    pub payloads: &'a [usize],
    pub depths: &'a [usize],
    /// Bytes of the cold set.
    pub set: usize,
    /// Of [`SINKS`].
    pub sink: &'a str,
}

pub fn bench(common: &Common, grid: &Grid<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    counters::say_missing("zc-send");
    let mut systems: Vec<_> = SYSTEMS
        .into_iter()
        .filter(|name| common.wants(name))
        .collect();
    let largest = if common.is_quick() {
        grid.set.min(QUICK)
    } else {
        grid.set
    };
    if systems.contains(&"send-zc")
        && let Err(error) = ring::possible(largest)
    {
        eprintln!("SKIPPED: of zc-send, send-zc: {error:#}");
        systems.retain(|name| *name != "send-zc");
    }
    let tun = grid.sink == "tun";
    if tun {
        // It has no client that could copy, and a ring of its own server.
        systems.retain(|name| *name != "send-zc");
        if let Err(missing) = tun::possible() {
            eprintln!("SKIPPED: zc-send, sink tun: {missing}");
            return outcome;
        }
    }
    for mode in MODES {
        if !wanted(grid.modes, mode) {
            continue;
        }
        for client in CLIENTS {
            if !wanted(grid.clients, client) || (tun && client == "copy") {
                continue;
            }
            for value in common.some_of(grid.payloads) {
                for depth in common.some_of(grid.depths) {
                    let set = match mode {
                        "hot" => HOT,
                        _ if common.is_quick() => grid.set.min(QUICK),
                        _ => grid.set,
                    };
                    let work = Work {
                        value,
                        count: (set / value).max(1),
                        depth,
                        copies: client == "copy",
                        budget: common.budget(),
                    };
                    let cells = systems.iter().map(|&system| Cell {
                        system,
                        key: Key {
                            mode,
                            op: if tun { "tun" } else { client }.to_owned(),
                            payload_bytes: Some(value),
                            depth: Some(depth),
                            ..Key::default()
                        },
                        measure: Box::new(move |number| {
                            let op = if tun { "tun" } else { client };
                            run(number, common.cores(), system, work, op)
                        }),
                    });
                    outcome.group(common.runs_or(9), cells.collect());
                }
            }
        }
    }
    outcome
}

fn wanted(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|one| one == name)
}

fn run(
    number: u64,
    cores: [usize; 2],
    system: &str,
    work: Work,
    op: &str,
) -> Result<Vec<Measured>> {
    let way = match system {
        "vmsplice" => Some(Way::Splice),
        "sendfile" => Some(Way::File),
        "batched" | "naive" => Some(Way::Copy),
        _ => None,
    };
    let serve: fn(&Party, Work, server::How) -> Result<Vec<Measured>> = match system {
        "send-zc" => |party, work, _| ring::serve(party, work),
        _ => server::serve,
    };
    let how = server::How {
        way,
        together: system != "naive",
        tun: op == "tun",
    };
    let ask = if how.tun { tun::ask } else { client::ask };
    let members = vec![
        Member {
            core: cores[0],
            body: Box::new(move |party| serve(party, work, how)),
        },
        Member {
            core: cores[1],
            body: Box::new(move |party| ask(party, work)),
        },
    ];
    let mut results = party::run(number, members)?.into_iter();
    let server = results.next().context("no server")?;
    let mut client = results.next().context("no client")?;
    for row in &mut client {
        row.op = op.to_owned();
        if let Some(cpu) = server.first() {
            row.facts.insert("server_cpu_ns", cpu.median_ns);
        }
    }
    counters::note(&mut client, &server);
    Ok(client)
}
