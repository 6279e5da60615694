//! `trust`: what a level of trust costs. A buffer is moved and given back over shared memory, one in flight, with none or
//! all of its bytes written by the one side and read by the other; next to ways that copy.

use anyhow::Result;

use super::Level;
use super::way::{STREAM, Way};
use crate::case::Touch;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row, bytes};

/// The levels; what copies.
///
/// Two that share instead of moving, with fresh memory for each where it is sealed: `none-shared`, which is copied where it comes, and `none-sealed`.
pub const SYSTEMS: [&str; 8] = [
    "none",
    "producer",
    "half",
    "full",
    "none-shared",
    "none-sealed",
    "copy",
    STREAM,
];

/// How a system goes there.
fn scheme_and_level(system: &'static str) -> (&'static str, Level) {
    match system {
        "full" => ("shm", Level::Full),
        "half" => ("shm", Level::Half),
        "producer" => ("shm", Level::Producer),
        "none" | "none-shared" | "none-sealed" => ("shm", Level::None),
        other => (other, Level::Producer),
    }
}

/// Whether it is shared, and then from how many bytes on it is sealed.
fn shares(system: &str) -> Option<u64> {
    match system {
        "none-shared" => Some(u64::MAX),
        "none-sealed" => Some(0),
        _ => None,
    }
}

pub fn bench(common: &Common, touches: &[String], payloads: &[usize]) -> Outcome {
    let mut outcome = Outcome::default();
    for (touch, mode) in [(Touch::Untouched, "untouched"), (Touch::Touched, "touched")] {
        if !(touches.is_empty() || touches.iter().any(|t| t == mode)) {
            continue;
        }
        for payload in common.some_of(payloads) {
            let wanted = SYSTEMS.into_iter().filter(|name| common.wants(name));
            let cells = wanted.map(|system| {
                let (scheme, level) = scheme_and_level(system);
                let way = Way {
                    scheme,
                    level,
                    touch,
                    shares: shares(system),
                    payload,
                    cores: common.cores(),
                    budget: common.budget(),
                };
                let key = Key {
                    mode,
                    payload_bytes: Some(payload),
                    ..Key::default()
                };
                Cell {
                    system,
                    key,
                    measure: Box::new(move |number| way.measure(number)),
                }
            });
            outcome.group(common.runs(), cells.collect());
        }
    }
    outcome.verdicts = verdicts(&outcome.rows);
    outcome
}

/// What level `none` promises: faster than a socket from some size on, never much slower than the backend that copies.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let mut out = Vec::new();
    for mode in ["untouched", "touched"] {
        let of = |system: &str| -> Vec<(usize, f64)> {
            let own = rows
                .iter()
                .filter(|row| row.system == system && row.key.mode == mode);
            own.filter_map(|row| Some((row.key.payload_bytes?, row.median_ns)))
                .collect()
        };
        let against = |reference: &str| -> Vec<(usize, f64)> {
            let reference = of(reference);
            let pairs = of("none").into_iter().filter_map(|(bytes, own)| {
                let other = reference.iter().find(|(other, _)| *other == bytes)?;
                Some((bytes, own / other.1))
            });
            pairs.collect()
        };
        let socket = against("stream");
        if let Some((largest, _)) = socket.last() {
            let slower = socket.iter().rposition(|(_, ratio)| *ratio >= 1.0);
            let from = socket.get(slower.map_or(0, |at| at + 1));
            out.push(match from {
                Some((from, _)) => format!(
                    "{mode}: none is faster than a Unix stream from {} on",
                    bytes(*from)
                ),
                None => format!(
                    "{mode}: none is not faster than a Unix stream at {}",
                    bytes(*largest)
                ),
            });
        }
        let worst = against("copy");
        if let Some((at, ratio)) = worst.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
            let kept = if *ratio <= 1.1 { "kept" } else { "MISSED" };
            out.push(format!(
                "{mode}: none is at most {ratio:.2} times the copy backend, at {} (the aim is 1.10: {kept})",
                bytes(*at)
            ));
        }
    }
    out
}

/// Latency over the size of the buffer, all bytes written and read.
pub fn picture(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let name = |row: &Row| (row.key.mode == "touched").then(|| row.system.clone());
    let lines = plot::lines(rows, name, plot::median_over_payload);
    let title = "Written, moved, read, given back: what trust costs, over the buffer's size";
    plot::save(path, title, Along::Bytes, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Measured;

    fn row(system: &str, payload: usize, ns: f64) -> Row {
        let key = Key {
            mode: "touched",
            payload_bytes: Some(payload),
            ..Key::default()
        };
        let run = Measured {
            op: String::new(),
            median_ns: ns,
            p99_ns: ns,
            per_second: 1e9 / ns,
            facts: Default::default(),
            sampled: None,
        };
        Row::of(system, key, &[run])
    }

    #[test]
    fn verdicts_name_the_size_and_the_worst_ratio() {
        let rows = [
            row("none", 4096, 10.0),
            row("stream", 4096, 5.0),
            row("copy", 4096, 20.0),
            row("none", 8192, 10.0),
            row("stream", 8192, 11.0),
            row("copy", 8192, 8.0),
        ];
        let said = verdicts(&rows);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].ends_with("from 8 KiB on"), "{said:?}");
        assert!(
            said[1].contains("1.25") && said[1].contains("MISSED"),
            "{said:?}"
        );
        assert!(verdicts(&rows[..3])[0].contains("is not faster"));
    }
}
