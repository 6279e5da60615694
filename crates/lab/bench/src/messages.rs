//! `roundtrip`, `stream` and `service`.

use anyhow::Result;
use clap::Args;
use tranship_core::Trust;

use crate::bench::Bench;
use crate::case::{Case, Pattern, Touch, Wait};
use crate::options::{Common, size};
use crate::party;
use crate::peer::{Entry, ROLES};
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row};
use crate::stats::Measured;
use crate::systems;

/// Most bytes of one sender's buffers when all bytes are touched: they should fit into a last-level cache.
const TOUCHED_BYTES: usize = 16 << 20;

#[derive(Debug, Args)]
pub struct Roundtrip {
    /// How the sides wait [default: spin, then block].
    #[arg(long, value_enum)]
    mode: Vec<Wait>,
    /// Payload sizes, e.g. 64,4K,64K,1M.
    #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["64", "4K", "64K", "1M"])]
    payload: Vec<usize>,
}

impl Bench for Roundtrip {
    const REFERENCES: &'static [&'static str] = &["raw", "iceoryx2"];

    fn systems(&self) -> Vec<&'static str> {
        systems::all().iter().map(|e| e.name).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        Ok(trips(common, &self.mode, &self.payload, systems::all))
    }
}

/// Measures round trips of these sizes, waited for in these ways.
fn trips(
    common: &Common,
    modes: &[Wait],
    payloads: &[usize],
    systems: fn() -> Vec<Entry>,
) -> Outcome {
    let mut outcome = Outcome::default();
    for wait in waits(modes) {
        for payload in common.some_of(payloads) {
            let case = Case {
                payload,
                buffers: 256,
                ..trip(common, *wait)
            };
            outcome.group(common.runs(), cells(common, &case, systems()));
        }
    }
    outcome
}

/// Those that are given, else both.
pub fn waits(given: &[Wait]) -> &[Wait] {
    match given {
        [] => &[Wait::Spin, Wait::Block],
        some => some,
    }
}

/// A round trip of 8 bytes, to be changed.
pub fn trip(common: &Common, wait: Wait) -> Case {
    Case {
        pattern: Pattern::RoundTrip,
        wait,
        touch: Touch::Word,
        payload: 8,
        buffers: 2,
        loans: 1,
        cores: match wait {
            Wait::Spin => common.cores(),
            Wait::Block => common.blocking_cores(),
        },
        way: ("shm", Trust::Producer),
        helper: true,
        budget: common.budget(),
    }
}

#[derive(Debug, Args)]
pub struct Service {
    /// How the sides wait [default: spin, then block].
    #[arg(long, value_enum)]
    mode: Vec<Wait>,
    /// Sizes of argument and result, e.g. 64,64K,1M.
    #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["64", "64K", "1M"])]
    payload: Vec<usize>,
}

impl Bench for Service {
    const REFERENCES: &'static [&'static str] = &["tranship"];

    fn systems(&self) -> Vec<&'static str> {
        systems::of_services().iter().map(|e| e.name).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = trips(common, &self.mode, &self.payload, systems::of_services);
        let said = outcome.rows.iter().filter(|row| row.system == SERVICE);
        outcome.verdicts = said.filter_map(|row| verdict(row, &outcome.rows)).collect();
        Ok(outcome)
    }
}

const SERVICE: &str = "tranship-service";

/// A call beside a channel's round trip, and beside other systems' calls.
fn verdict(service: &Row, rows: &[Row]) -> Option<String> {
    let Key {
        mode,
        payload_bytes,
        placement,
        ..
    } = &service.key;
    let of = |system: &str| {
        let is = |row: &&Row| {
            let key = (&row.key.mode, &row.key.payload_bytes, &row.key.placement);
            row.system == system && key == (mode, payload_bytes, placement)
        };
        rows.iter().find(is)
    };
    let mut said = format!(
        "{mode} {}, {} bytes: a service's round trip is {:.2}x a channel's",
        placement.unwrap_or("one core"),
        payload_bytes.unwrap_or_default(),
        service.median_ns / of("tranship")?.median_ns
    );
    if let Some(row) = of("grpc") {
        let times = service.per_second / row.per_second;
        said += &format!(", its rate {times:.1}x gRPC's");
    }
    Some(said)
}

#[derive(Debug, Args)]
pub struct Stream {
    /// How much of the payload is written and read [default: untouched, then touched].
    #[arg(long, value_parser = ["untouched", "touched"])]
    mode: Vec<String>,
    /// Payload sizes, e.g. 64,4K,64K,1M.
    #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["64", "4K", "64K", "1M"])]
    payload: Vec<usize>,
}

impl Bench for Stream {
    const REFERENCES: &'static [&'static str] = &["raw", "iceoryx2"];

    fn systems(&self) -> Vec<&'static str> {
        systems::all().iter().map(|e| e.name).collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for (name, touch) in [("untouched", Touch::Untouched), ("touched", Touch::Touched)] {
            if !common.is_named(&self.mode, name) {
                continue;
            }
            for payload in common.some_of(&self.payload) {
                let fit = (TOUCHED_BYTES / payload).max(8).next_power_of_two();
                let case = Case {
                    pattern: Pattern::Stream,
                    touch,
                    payload,
                    buffers: match touch {
                        Touch::Touched => fit.min(64),
                        _ => 64,
                    },
                    ..trip(common, Wait::Spin)
                };
                outcome.group(common.runs(), cells(common, &case, systems::all()));
            }
        }
        Ok(outcome)
    }
}

/// A cell for each system that is wanted and can do it.
pub fn cells(common: &Common, case: &Case, systems: Vec<Entry>) -> Vec<Cell<'static>> {
    let mut cells = Vec::new();
    for entry in systems.into_iter().filter(|e| common.wants(e.name)) {
        let (mode, payload) = (case.mode(), case.payload);
        if let Some(why) = (entry.refuses)(case) {
            eprintln!("skipped: {} {mode} of {payload} bytes: {why}", entry.name);
            continue;
        }
        let key = Key::of(mode).payload(payload);
        let key = key.with("buffers", case.buffers);
        let key = key.with("cores", case.cores_used());
        let case = case.clone();
        cells.push(Cell::of(entry.name, key, move |number| {
            once(&entry, &case, number, true)
        }));
    }
    cells
}

/// One run of one system; `looks`: a measurement for each placement of the cores.
pub fn once(entry: &Entry, case: &Case, number: u64, looks: bool) -> Result<Vec<Measured>> {
    party::each(number, &case.cores, |me, party| {
        (entry.serve)(case, ROLES[me], party, looks)
    })
}
