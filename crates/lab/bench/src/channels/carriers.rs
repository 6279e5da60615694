//! `carriers`: a buffer is moved and given back, one in flight, by each way that bytes travel; next to a socket that carries them.

use anyhow::Result;

use super::way::{STREAM, Way};
use super::{Level, given_to, has_levels, levels};
use crate::case::Touch;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row};

pub const SYSTEMS: [&str; 6] = ["shm", "local", "copy", "tcp+plain", "tcp", STREAM];

pub fn bench(common: &Common, touches: &[String], given: &[Level], payloads: &[usize]) -> Outcome {
    let mut outcome = Outcome::default();
    for (touch, name) in [(Touch::Untouched, "untouched"), (Touch::Word, "touched")] {
        if !(touches.is_empty() || touches.iter().any(|t| t == name)) {
            continue;
        }
        // All sizes in turn: whether they are alike is what is asked.
        let all = common.some_of(payloads).into_iter().flat_map(|payload| {
            cells(common, name, levels(given), |scheme, level| Way {
                scheme,
                level,
                touch,
                shares: None,
                payload,
                cores: common.cores(),
                budget: common.budget(),
            })
        });
        outcome.group(common.runs(), all.collect());
    }
    outcome
}

/// One size of buffers, whose first 8 bytes are written and read.
pub fn touched(common: &Common, given: &[Level], payload: usize) -> Vec<Cell<'static>> {
    cells(common, "touched", given, |scheme, level| Way {
        scheme,
        level,
        touch: Touch::Word,
        shares: None,
        payload,
        cores: common.cores(),
        budget: common.budget(),
    })
}

fn cells(
    common: &Common,
    mode: &'static str,
    given: &[Level],
    way: impl Fn(&'static str, Level) -> Way,
) -> Vec<Cell<'static>> {
    let mut out = Vec::new();
    for system in SYSTEMS.into_iter().filter(|name| common.wants(name)) {
        for level in given_to(system, given) {
            let way = way(system, *level);
            let key = Key {
                mode,
                payload_bytes: Some(way.payload),
                cores: Some(1 + usize::from(way.cores[0] != way.cores[1])),
                trust: has_levels(system).then(|| level.name()),
                ..Key::default()
            };
            out.push(Cell {
                system,
                key,
                measure: Box::new(move |number| way.measure(number)),
            });
        }
    }
    out
}

/// Latency over the size of the buffer (the report's figure 5.5).
pub fn picture(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let touched = rows.iter().filter(|row| row.key.mode == "touched");
    let touched: Vec<Row> = touched.cloned().collect();
    let name = |row: &Row| {
        let trust = row.key.trust;
        let trust = trust.map_or(String::new(), |trust| format!(", {trust}"));
        let one = match row.key.cores {
            Some(1) => ", one core",
            _ => "",
        };
        Some(format!("{}{trust}{one}", row.system))
    };
    let lines = plot::lines(&touched, name, plot::median_over_payload);
    let title = "A buffer moved and given back: latency over its size";
    plot::save(path, title, Along::Bytes, &lines)
}
