//! Figure 7: what a page costs, collections included, by the pool's size and by how many domains it is sent to.

use crate::args::{ExperimentArgs, PartRole};
use crate::lines::{Cost, SMALL};
use crate::machine::Machine;
use crate::orderings::{Ordering, percent};
use crate::output::{self, Table};
use crate::processes::Process;
use crate::report::{SCHEMA, show};
use anyhow::{Context, Result};
use serde_json::json;
use std::time::Duration;
use tranship::Domain;

/// Operations of the paper.
const OPERATIONS: f64 = 100_000.0;
/// Domains that each page is sent to.
const READERS: [u32; 4] = [0, 1, 2, 4];
/// Number of pool sizes for each of them.
const SIZES: usize = 7;
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn run(args: &ExperimentArgs) -> Result<bool> {
    let machine = Machine::now();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // bounded by what a scale may be
    let operations = (OPERATIONS * args.scale) as u64;
    let mut all: Vec<Cost> = Vec::new();
    for (number, readers) in READERS.into_iter().enumerate() {
        output::stage(args.json, &readers_text(readers), number, READERS.len());
        all.extend(measure(readers, operations)?);
    }
    let orderings = orderings(&all);
    let about = format!(
        "cbuf-fig7: real processes, {operations} allocations for each point (scale {}); a page is {}",
        args.scale,
        output::size(SMALL)
    );
    let held = orderings.iter().all(Ordering::held);
    if args.json {
        output::json(&json!({
            "schema": SCHEMA,
            "experiment": "cbuf-fig7",
            "simulated": false,
            "scale": args.scale,
            "page_bytes": SMALL,
            "machine": machine,
            "points": all,
            "orderings": orderings,
            "held": held,
        }))?;
    } else {
        println!("{about}\n{}\n", machine.text());
        table(&all).print();
        show(&orderings);
    }
    Ok(held)
}

fn measure(readers: u32, operations: u64) -> Result<Vec<Cost>> {
    let domain = Domain::builder().name("experiment");
    let domain = domain.embedded().context("starting a manager")?;
    let socket = domain.socket_path().context("the manager's socket")?;
    let others = (1..=readers)
        .map(|number| Process::<Cost>::start(PartRole::Reader, number, 0, &socket))
        .collect::<Result<Vec<_>>>()?;
    let writer = Process::start(PartRole::Writer, readers, operations, &socket)?;
    let all = (0..SIZES).map(|_| writer.next(PATIENCE)).collect();
    drop((writer, others));
    all
}

fn of(all: &[Cost], readers: u32) -> Vec<&Cost> {
    all.iter().filter(|c| c.readers == readers).collect()
}

fn orderings(all: &[Cost]) -> Vec<Ordering> {
    let mut found = Vec::new();
    for readers in READERS.into_iter().filter(|r| *r > 0) {
        let costs = of(all, readers);
        let (Some(small), Some(large)) = (costs.first(), costs.last()) else {
            continue;
        };
        let who = readers_text(readers);
        found.push(Ordering::new(
            format!("{who}: a page of the largest pool costs no more than one of the smallest"),
            format!("{:.0} and {:.0} ns", large.ns, small.ns),
            large.ns <= small.ns,
        ));
        // The paper's collection searches the whole pool, and finds more pages in a larger one. Ours is bounded, and
        // stops with some left.
        found.push(Ordering {
            always: true,
            ..Ordering::new(
                format!("{who}: a collection finds no fewer pages in the largest pool than in the smallest"),
                format!(
                    "{:.0} and {:.0}",
                    per_collection(large),
                    per_collection(small)
                ),
                per_collection(large) >= 0.9 * per_collection(small),
            )
        });
    }
    // A page that no domain gets does not come back by a collection: that is another path.
    for pair in READERS[1..].windows(2) {
        let cost = |readers| of(all, readers).last().map_or(0.0, |c| c.ns);
        let (less, more) = (cost(pair[0]), cost(pair[1]));
        found.push(Ordering::new(
            format!(
                "{} costs no less than {}",
                readers_text(pair[1]),
                readers_text(pair[0])
            ),
            format!("{more:.0} and {less:.0} ns"),
            more >= 0.95 * less,
        ));
    }
    found
}

fn per_collection(cost: &Cost) -> f64 {
    #[allow(clippy::cast_precision_loss)] // for people
    let (allocs, collections) = (cost.allocs as f64, cost.collections as f64);
    allocs / collections.max(1.0)
}

fn readers_text(readers: u32) -> String {
    match readers {
        0 => "not sent".to_owned(),
        1 => "sent to 1 domain".to_owned(),
        n => format!("sent to {n} domains"),
    }
}

fn table(all: &[Cost]) -> Table {
    let heading = [
        "each page",
        ">pool, pages",
        ">ns a page",
        ">pages a collection",
        ">collecting",
    ];
    let mut table = Table::new(&heading);
    for cost in all {
        table.row(vec![
            readers_text(cost.readers),
            cost.pages.to_string(),
            format!("{:.1}", cost.ns),
            match cost.collections {
                0 => "-".to_owned(),
                _ => format!("{:.0}", per_collection(cost)),
            },
            percent(cost.collecting),
        ]);
    }
    table
}
