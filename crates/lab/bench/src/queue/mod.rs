//! `queue`: items from several producers to several consumers, each to one of them; and an item there and back.
//!
//! Producers are pinned to one core, consumers to the other. All processes block when there is nothing to do, but for the mode `spin`.

mod kernel;
mod ours;
mod python;
mod way;

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row};
use way::ITEM;

const SIDES: [usize; 3] = [1, 2, 4];
const PAYLOADS: [usize; 4] = [64, 4096, 65_536, 1 << 20];
#[derive(Debug, clap::Args)]
pub struct Queue;

impl Bench for Queue {
    const REFERENCES: &'static [&'static str] = &["tranship"];

    fn systems(&self) -> Vec<&'static str> {
        vec![
            "tranship",
            "pipe",
            "seqpacket",
            "mqueue",
            "multiprocessing.Queue",
        ]
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [core, other] = common.cores();
        ensure!(
            core != other,
            "two cores: one for producers, one for consumers"
        );
        for sides in common.some_of(&SIDES) {
            outcome.group(common.runs(), streams(sides, common));
        }
        for mode in ["spin", "block"] {
            for payload in common.some_of(&PAYLOADS) {
                outcome.group(common.runs(), trips(mode, payload, common));
            }
        }
        outcome.verdicts = verdicts(&outcome.rows);
        Ok(outcome)
    }
}

fn streams(sides: usize, common: &Common) -> Vec<Cell<'_>> {
    let key = Key {
        mode: "stream",
        payload_bytes: Some(ITEM),
        threads: Some(sides),
        receivers: Some(sides),
        ..Key::default()
    };
    let cell = |system, measure| Cell {
        system,
        key: key.clone(),
        measure,
    };
    let all = vec![
        cell(
            "tranship",
            Box::new(move |n| ours::stream(sides, common, n)) as _,
        ),
        cell(
            "pipe",
            Box::new(move |n| kernel::pipe(sides, common, n)) as _,
        ),
        cell(
            "seqpacket",
            Box::new(move |n| kernel::seqpacket(sides, common, n)) as _,
        ),
        cell(
            "mqueue",
            Box::new(move |n| kernel::mqueue(sides, common, n)) as _,
        ),
        cell(
            "multiprocessing.Queue",
            Box::new(move |_| python::stream(sides, common)) as _,
        ),
    ];
    all.into_iter()
        .filter(|cell| common.wants(cell.system))
        .collect()
}

fn trips<'a>(mode: &'static str, payload: usize, common: &'a Common) -> Vec<Cell<'a>> {
    let key = Key {
        mode,
        op: "trip".into(),
        payload_bytes: Some(payload),
        ..Key::default()
    };
    let cell = |system, measure| Cell {
        system,
        key: key.clone(),
        measure,
    };
    let spins = mode == "spin";
    let all = vec![
        cell(
            "tranship",
            Box::new(move |n| ours::trip(spins, payload, common, n)) as _,
        ),
        cell(
            "pipe",
            Box::new(move |n| kernel::trip(spins, payload, common, n)) as _,
        ),
    ];
    all.into_iter()
        .filter(|cell| common.wants(cell.system))
        .collect()
}

/// The rate of many beside that of one, and round trips beside pipes.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let rate = |sides| {
        let is_it = |row: &&Row| {
            row.system == "tranship" && row.key.mode == "stream" && row.key.threads == Some(sides)
        };
        rows.iter().find(is_it).map(|row| row.per_second)
    };
    let one = rate(1);
    let many = SIDES[1..].iter().filter_map(|&sides| {
        let ratio = rate(sides)? / one?;
        Some(format!(
            "{sides} x {sides} has {ratio:.2}x the rate of 1 x 1"
        ))
    });
    let trips = rows
        .iter()
        .filter(|row| row.key.op == "trip" && row.system == "tranship");
    let beside = trips.filter_map(|ours| {
        let pipe = rows
            .iter()
            .find(|row| row.system == "pipe" && row.key == ours.key)?;
        let (mode, payload) = (ours.key.mode, ours.key.payload_bytes?);
        let ratio = ours.median_ns / pipe.median_ns;
        Some(format!(
            "{mode}, {payload} bytes: a round trip takes {ratio:.2}x a pipe's"
        ))
    });
    many.chain(beside).collect()
}
