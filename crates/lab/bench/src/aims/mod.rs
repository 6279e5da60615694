//! `report`: what the design promises, row by row, measured in one sitting with product and peers in turn, and judged. What falls
//! short says by how much.

mod claim;
mod compare;
mod done;
mod fast;
mod growth;
mod page;
mod parts;
mod sitting;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::line;
use crate::machine::Machine;
use crate::options::Common;
use sitting::Sitting;

/// Measures the wanted parts; prints; writes `PREFIX.md` and `PREFIX.json`. True if all could be measured, reached or not.
pub fn bench(common: &Common, save: Option<&Path>) -> Result<bool> {
    common.check(&parts::names())?;
    let begun = Instant::now();
    let line_ns = line::round_trip(common.cores(), common.runs())?;
    let wanted = parts::ALL.iter().filter(|part| common.wants(part.name));
    let wanted: Vec<_> = wanted.collect();
    let (mut claims, mut rows, mut failures) = (Vec::new(), Vec::new(), 0);
    for (number, part) in wanted.iter().enumerate() {
        let seconds = begun.elapsed().as_secs();
        let (place, all) = (number + 1, wanted.len());
        eprintln!("report: {place} of {all}, {}, after {seconds} s", part.name);
        match (part.measure)(common) {
            Ok(mut done) => {
                claims.append(&mut done.claims);
                rows.append(&mut done.rows);
                failures += done.failures;
            }
            Err(error) => {
                failures += 1;
                eprintln!("FAILED: {}: {error:#}", part.name);
            }
        }
    }
    let mut machine = Machine::look(common.cores(), common.runs(), common.sample_ms());
    machine.cache_line_ns = line_ns;
    let sitting = Sitting {
        bench: "report",
        machine,
        minutes: (begun.elapsed().as_secs_f64() / 6.0).round() / 10.0,
        claims,
        rows,
    };
    let json = serde_json::to_string(&sitting)? + "\n";
    let page = page::markdown(&sitting);
    if let Some(prefix) = save {
        for (extension, text) in [("md", &page), ("json", &json)] {
            let path = prefix.with_added_extension(extension);
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    print!("{}", if common.json { json } else { page });
    Ok(failures == 0)
}
