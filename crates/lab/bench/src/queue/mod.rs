//! `queue`: items from several producers to several consumers, each to one of them; and an item there and back.
//!
//! Producers are pinned to one core, consumers to the other. All processes block when there is nothing to do, but for the mode `spin`.

mod kernel;
mod ours;
mod python;
mod way;

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::case::{Case, Wait};
use crate::messages;
use crate::options::Common;
use crate::peer::entry;
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row};
use crate::stats::Measured;
use crate::systems::kernel::{Bytes, Pipe};
use way::ITEM;

const SIDES: [usize; 3] = [1, 2, 4];
const PAYLOADS: [usize; 4] = [64, 4096, 65_536, 1 << 20];

type Stream = fn(usize, &Common, u64) -> Result<Vec<Measured>>;
const SYSTEMS: [(&str, Stream); 5] = [
    ("tranship", ours::stream),
    ("pipe", kernel::pipe),
    ("seqpacket", kernel::seqpacket),
    ("mqueue", kernel::mqueue),
    ("multiprocessing.Queue", python::stream),
];

#[derive(Debug, clap::Args)]
pub struct Queue;

impl Bench for Queue {
    const REFERENCES: &'static [&'static str] = &["tranship", "pipe"];

    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.map(|(name, _)| name).to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [core, other] = common.cores();
        ensure!(
            core != other,
            "two cores: one for producers, one for consumers"
        );
        for sides in common.some_of(&SIDES) {
            let key = Key::of("stream")
                .payload(ITEM)
                .with("threads", sides)
                .with("receivers", sides);
            let wanted = SYSTEMS.iter().filter(|(name, _)| common.wants(name));
            let cells = wanted.map(|&(system, stream)| {
                Cell::of(system, key.clone(), move |number| {
                    stream(sides, common, number)
                })
            });
            outcome.group(common.runs(), cells.collect());
        }
        for wait in [Wait::Spin, Wait::Block] {
            for payload in common.some_of(&PAYLOADS) {
                let case = Case {
                    payload,
                    ..messages::trip(common, wait)
                };
                let systems = vec![entry::<ours::Trip>(), entry::<Bytes<Pipe>>()];
                outcome.group(common.runs(), messages::cells(common, &case, systems));
            }
        }
        outcome.verdicts = verdicts(&outcome.rows);
        Ok(outcome)
    }
}

/// The rate of many beside that of one.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let rate = |sides| {
        let is_it =
            |row: &&Row| row.system == "tranship" && row.key.counts.get("threads") == Some(&sides);
        rows.iter().find(is_it).map(|row| row.per_second)
    };
    let many = SIDES[1..].iter().filter_map(|&sides| {
        let ratio = rate(sides)? / rate(1)?;
        Some(format!(
            "{sides} x {sides} has {ratio:.2}x the rate of 1 x 1"
        ))
    });
    many.collect()
}
