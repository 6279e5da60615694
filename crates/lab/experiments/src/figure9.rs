//! Figure 9: a web server's throughput by the size of answers, against its peers.
//!
//! A point is the median of alternating rounds. It counts answers for each second of processor time that all of the
//! server's processes took together.

use crate::args::ExperimentArgs;
use crate::machine::{Machine, cores};
use crate::orderings::{Ordering, percent};
use crate::output::{self, Table};
use crate::report::{SCHEMA, show};
use crate::web::{CONNECTIONS, Client, PAYLOADS, Server, System, has, load};
use anyhow::{Result, bail};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// Rounds, and the length of a run of one, at scale 1.
const ROUNDS: usize = 7;
const RUN: Duration = Duration::from_secs(2);
/// Below this scale there is one round, of `wrk` and one size.
const QUICK: f64 = 0.2;
const FEW_ROUNDS: usize = 3;
const FEW_PAYLOADS: [u64; 3] = [64, 4 << 10, 64 << 10];
const QUICK_PAYLOADS: [u64; 1] = [4 << 10];
/// A client whose processor is busier than this may be what is measured.
const CLIENT_FREE: f64 = 0.9;

/// Measurements of one server that are taken together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    system: System,
    client: Client,
    payload: u64,
    connections: u32,
}

/// One point of the figure.
#[derive(Clone, Debug, Serialize)]
struct Point {
    system: System,
    client: Client,
    payload_bytes: u64,
    connections: u32,
    /// Answers for each second of processor time of the server.
    per_processor_second: f64,
    per_second: f64,
    bytes_per_second: f64,
    /// Processor time of the server for each second.
    server_busy: f64,
    /// Busy share of the client, in its busiest round.
    client_busy: f64,
    /// Requests without a complete answer, in all rounds.
    failed: u64,
    rounds: usize,
}

pub(crate) fn run(args: &ExperimentArgs) -> Result<bool> {
    if args.simulated || !args.policy.is_empty() {
        bail!("cbuf-fig9 compares web servers: there is no policy in it, and nothing to simulate");
    }
    let machine = Machine::now();
    let (server_core, client_core) = cores();
    let systems: Vec<System> = match args.system.is_empty() {
        true => System::ALL.to_vec(),
        false => args.system.clone(),
    };
    for program in ["wrk", "ab"] {
        if !has(program) {
            bail!("no client: {program} is not installed (Debian: wrk, apache2-utils)");
        }
    }
    let mut servers = Vec::new();
    for system in systems {
        servers.extend(Server::start(system, server_core)?.map(|server| (system, server)));
    }
    let cases = cases(servers.iter().map(|(system, _)| *system), args.scale);
    let rounds = match args.scale {
        1.0.. => ROUNDS,
        QUICK.. => FEW_ROUNDS,
        _ => 1,
    };
    let mut seen: Vec<Vec<Point>> = vec![Vec::new(); cases.len()];
    for round in 0..rounds {
        output::stage(args.json, "throughput", round, rounds);
        for (case, seen) in cases.iter().zip(&mut seen) {
            let server = servers.iter().find(|(system, _)| *system == case.system);
            if let Some((_, server)) = server {
                seen.push(measure(case, server, RUN.mul_f64(args.scale), client_core)?);
            }
        }
    }
    let points: Vec<Point> = seen.iter().filter_map(|rounds| median(rounds)).collect();
    let orderings = orderings(&points, machine.debug_build);
    let held = orderings.iter().all(Ordering::held);
    let processes: Vec<_> = servers
        .iter()
        .map(|(s, it)| (s.name(), it.pids().len()))
        .collect();
    if args.json {
        output::json(&json!({
            "schema": SCHEMA,
            "experiment": "cbuf-fig9",
            "simulated": false,
            "scale": args.scale,
            "machine": machine,
            "server_core": server_core,
            "client_core": client_core,
            "processes": processes.iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
            "points": points,
            "orderings": orderings,
            "held": held,
        }))?;
    } else {
        println!(
            "cbuf-fig9: {rounds} rounds (scale {}); server on processor {server_core}, client on {client_core}\n{}\n",
            args.scale,
            machine.text()
        );
        table(&points).print();
        show(&orderings);
    }
    Ok(held)
}

/// Every case, in the order in which a round measures them: systems alternate.
fn cases(systems: impl Iterator<Item = System>, scale: f64) -> Vec<Case> {
    let systems: Vec<System> = systems.collect();
    let payloads: &[u64] = match scale {
        1.0.. => &PAYLOADS,
        QUICK.. => &FEW_PAYLOADS,
        _ => &QUICK_PAYLOADS,
    };
    let mut all = Vec::new();
    let mut each = |client, payload, connections, with: fn(System) -> bool| {
        let systems = systems.iter().copied().filter(|system| with(*system));
        all.extend(systems.map(|system| Case {
            system,
            client,
            payload,
            connections,
        }));
    };
    for payload in payloads {
        each(Client::Wrk, *payload, CONNECTIONS, |_| true);
    }
    if scale < QUICK {
        return all;
    }
    for client in [Client::AbKept, Client::Ab] {
        for payload in [4 << 10, 64 << 10] {
            each(client, payload, CONNECTIONS, |s| !s.serves_files());
        }
    }
    for connections in [1, 8, 64] {
        for payload in [4 << 10, 64 << 10] {
            each(Client::Wrk, payload, connections, System::is_ours);
        }
    }
    all
}

fn measure(case: &Case, server: &Server, time: Duration, core: usize) -> Result<Point> {
    let url = server.url(case.payload);
    let before = server.ran();
    let load = load(case.client, &url, case.connections, time, core)?;
    let ran = server.ran().saturating_sub(before).as_secs_f64();
    #[allow(clippy::cast_precision_loss)] // counts of seconds
    let (answered, payload) = (load.answered as f64, case.payload as f64);
    let per_second = answered / load.seconds;
    Ok(Point {
        system: case.system,
        client: case.client,
        payload_bytes: case.payload,
        connections: case.connections,
        per_processor_second: answered / ran.max(1e-3),
        per_second,
        bytes_per_second: per_second * payload,
        server_busy: ran / load.seconds,
        client_busy: load.client_busy,
        failed: load.failed,
        rounds: 1,
    })
}

/// Returns the round in the middle, with the busiest client and all failures.
fn median(rounds: &[Point]) -> Option<Point> {
    let mut sorted: Vec<&Point> = rounds.iter().collect();
    sorted.sort_by(|a, b| a.per_processor_second.total_cmp(&b.per_processor_second));
    let middle = *sorted.get(sorted.len() / 2)?;
    Some(Point {
        client_busy: rounds.iter().map(|p| p.client_busy).fold(0.0, f64::max),
        failed: rounds.iter().map(|p| p.failed).sum(),
        rounds: rounds.len(),
        ..middle.clone()
    })
}

fn orderings(points: &[Point], debug: bool) -> Vec<Ordering> {
    let mut found = Vec::new();
    for system in System::ALL.into_iter().filter(|s| s.is_ours()) {
        let of: Vec<_> = points.iter().filter(|p| p.system == system).collect();
        if of.is_empty() {
            continue;
        }
        let failed: u64 = of.iter().map(|p| p.failed).sum();
        found.push(Ordering {
            always: true,
            ..Ordering::new(
                format!("{}: every request has a complete answer", system.name()),
                format!("{failed} without one"),
                failed == 0,
            )
        });
    }
    // An unoptimised build is ahead of nobody.
    let ahead = |mut ordering: Ordering| {
        ordering.always = !debug;
        ordering
    };
    let kept = |payload| (Client::Wrk, payload, CONNECTIONS);
    for payload in [1, 4, 16, 64].map(|kib| kib << 10) {
        let at = kept(payload);
        found.extend(ratio(points, System::Tranship, System::ApacheFcgid, at, 1.0).map(ahead));
        found.extend(ratio(
            points,
            System::Tranship,
            System::ApacheFcgid,
            at,
            6.0,
        ));
        found.extend(ratio(
            points,
            System::Tranship,
            System::ApacheProxy,
            at,
            5.0,
        ));
        let factor = if payload > 4 << 10 { 2.5 } else { 2.0 };
        found.extend(ratio(
            points,
            System::Tranship,
            System::NginxFcgi,
            at,
            factor,
        ));
        found.extend(ratio(
            points,
            System::TranshipStatic,
            System::NginxStatic,
            at,
            0.7,
        ));
        let factor = if payload > 16 << 10 { 0.8 } else { 0.65 };
        found.extend(ratio(
            points,
            System::Tranship,
            System::SingleProcess,
            at,
            factor,
        ));
    }
    for payload in [4 << 10, 64 << 10] {
        let at = (Client::Ab, payload, CONNECTIONS);
        found.extend(ratio(points, System::Tranship, System::NginxFcgi, at, 1.0));
        let at = (Client::Wrk, payload, 64);
        found.extend(ratio(
            points,
            System::Tranship,
            System::SingleProcess,
            at,
            0.8,
        ));
    }
    found
}

/// `one` answers at least `factor` times as many requests for each second of processor time as `other`.
fn ratio(
    points: &[Point],
    one: System,
    other: System,
    at: (Client, u64, u32),
    factor: f64,
) -> Option<Ordering> {
    let of = |system| {
        points
            .iter()
            .find(|p| p.system == system && (p.client, p.payload_bytes, p.connections) == at)
    };
    let (a, b) = (of(one)?, of(other)?);
    let reached = a.per_processor_second / b.per_processor_second.max(1.0);
    let (client, payload, connections) = at;
    let free = a.client_busy.max(b.client_busy) <= CLIENT_FREE;
    let doubt = if free {
        ""
    } else {
        "; the client was busy, too"
    };
    Some(Ordering::new(
        format!(
            "{} at least {factor} times {}: {}, {}, {connections} connections",
            one.name(),
            other.name(),
            output::size(payload),
            client.name()
        ),
        format!("{reached:.2}{doubt}"),
        reached >= factor,
    ))
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        "client",
        ">connections",
        ">answer",
        "system",
        ">thousand/processor s",
        ">thousand/s",
        ">MiB/s",
        ">server busy",
        ">client busy",
        ">failed",
    ]);
    for p in points {
        table.row(vec![
            p.client.name().to_owned(),
            p.connections.to_string(),
            output::size(p.payload_bytes),
            p.system.name().to_owned(),
            format!("{:.1}", p.per_processor_second / 1e3),
            format!("{:.1}", p.per_second / 1e3),
            format!("{:.0}", p.bytes_per_second / f64::from(1 << 20)),
            percent(p.server_busy),
            percent(p.client_busy),
            p.failed.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(system: System, rate: f64) -> Point {
        Point {
            system,
            client: Client::Wrk,
            payload_bytes: 4 << 10,
            connections: CONNECTIONS,
            per_processor_second: rate,
            per_second: rate,
            bytes_per_second: rate * 4096.0,
            server_busy: 1.0,
            client_busy: 0.5,
            failed: 1,
            rounds: 1,
        }
    }

    #[test]
    fn the_round_in_the_middle_counts_and_failures_are_summed() {
        let rounds = [3.0, 9.0, 5.0].map(|rate| point(System::Tranship, rate));
        let median = median(&rounds).expect("a point");
        assert!((median.per_processor_second - 5.0).abs() < 1e-9);
        assert_eq!((median.failed, median.rounds), (3, 3));
    }

    #[test]
    fn what_is_slower_than_it_must_be_is_said() {
        let points = [
            point(System::Tranship, 100.0),
            point(System::ApacheFcgid, 20.0),
        ];
        let found = orderings(&points, false);
        let held: Vec<bool> = found.iter().map(Ordering::held).collect();
        // A failed request; once as fast; not six times.
        assert_eq!(held, [false, true, false]);
    }
}
