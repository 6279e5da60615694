//! What is promised of the Python face, and what was found.

use super::system::{ARRAYS, BUFFER, FOREIGN, RUST};
use crate::report::{Row, bytes};

/// Nanoseconds that a message may take longer than Rust's.
const ON_TOP: f64 = 3000.0;
/// From this size on it is faster than every peer.
const FASTER_FROM: usize = 4 << 10;
const QUEUE: &str = "multiprocessing.Queue";
/// Times as fast as that queue: which of ours, at which size.
const TIMES: [(&str, usize, f64); 3] = [
    (ARRAYS, 1 << 20, 10.0),
    (ARRAYS, 16 << 20, 50.0),
    (FOREIGN, 1 << 20, 3.0),
];

/// 8 bytes written and read.
pub(super) fn of(rows: &[Row]) -> Vec<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.key.op == "word").collect();
    let mut out = Vec::new();
    for mode in ["spin", "block"] {
        let of: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| row.key.mode == mode)
            .collect();
        out.extend(
            [BUFFER, ARRAYS]
                .into_iter()
                .filter_map(|ours| on_top(mode, ours, &of)),
        );
        out.extend(faster(mode, &of));
        out.extend(
            TIMES
                .into_iter()
                .filter_map(|promise| times(mode, promise, &of)),
        );
    }
    out
}

fn find<'a>(rows: &[&'a Row], system: &str, payload: Option<usize>) -> Option<&'a Row> {
    let is = |row: &&&Row| row.system == system && row.key.payload_bytes == payload;
    rows.iter().find(is).copied()
}

/// A round trip is two messages.
fn on_top(mode: &str, ours: &str, rows: &[&Row]) -> Option<String> {
    let more = |row: &&Row| {
        let rust = find(rows, RUST, row.key.payload_bytes)?;
        Some((row.median_ns - rust.median_ns) / 2.0)
    };
    let all = rows
        .iter()
        .filter(|row| row.system == ours)
        .filter_map(more);
    let (low, high) = all.fold((f64::MAX, f64::MIN), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    (low <= high).then(|| {
        format!(
            "{mode}: {ours}: {:.2} to {:.2} us a message on top of Rust's, at most {:.0}: {}",
            low / 1e3,
            high / 1e3,
            ON_TOP / 1e3,
            verdict(high <= ON_TOP)
        )
    })
}

/// Arrays born in a pool against whatever is measured with arrays.
fn faster(mode: &str, rows: &[&Row]) -> Option<String> {
    let least = Some(FASTER_FROM);
    let at = |row: &&Row| row.key.payload_bytes >= least && !row.system.starts_with("tranship");
    let peers = rows.iter().copied().filter(at).filter_map(|row| {
        let ours = find(rows, ARRAYS, row.key.payload_bytes)?;
        Some((row.median_ns / ours.median_ns, row))
    });
    let (times, peer) = peers.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "{mode}: {ARRAYS}, from {} on: every peer takes at least {times:.2} times as long ({}, {}): {}",
        bytes(FASTER_FROM),
        peer.system,
        bytes(peer.key.payload_bytes.unwrap_or(0)),
        verdict(times > 1.0)
    ))
}

fn times(mode: &str, (ours, payload, wanted): (&str, usize, f64), rows: &[&Row]) -> Option<String> {
    let queue = find(rows, QUEUE, Some(payload))?.median_ns;
    let times = queue / find(rows, ours, Some(payload))?.median_ns;
    Some(format!(
        "{mode}: {ours}, {}: {QUEUE} takes {times:.1} times as long, at least {wanted:.0}: {}",
        bytes(payload),
        verdict(times >= wanted)
    ))
}

fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "NOT reached" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Key;
    use crate::stats::Measured;

    fn row(system: &str, payload: usize, ns: f64) -> Row {
        let key = Key {
            mode: "block",
            op: "word".into(),
            payload_bytes: Some(payload),
            ..Key::default()
        };
        let run = Measured {
            op: "word".into(),
            median_ns: ns,
            p99_ns: ns,
            per_second: 1.0,
            facts: Default::default(),
            sampled: None,
        };
        Row::of(system, key, &[run])
    }

    #[test]
    fn promises_are_judged_by_what_was_measured() {
        let mut rows = vec![
            row(RUST, 1 << 20, 4_000.0),
            row(ARRAYS, 1 << 20, 9_000.0),
            row(QUEUE, 1 << 20, 180_000.0),
            row("pyzmq", 1 << 10, 1.0),
        ];
        let found = of(&rows).join("\n");
        assert!(
            found.contains("2.50 to 2.50 us a message on top of Rust's, at most 3: reached"),
            "{found}"
        );
        assert!(
            found.contains("at least 20.00 times as long (multiprocessing.Queue, 1 MiB): reached"),
            "{found}"
        );
        assert!(
            found.contains("takes 20.0 times as long, at least 10: reached"),
            "{found}"
        );
        rows.push(row("pyzmq", 1 << 20, 8_000.0));
        rows[0].median_ns = 1_000.0;
        let found = of(&rows).join("\n");
        assert!(
            found.contains("4.00 us a message on top of Rust's, at most 3: NOT reached"),
            "{found}"
        );
        assert!(
            found.contains("0.89 times as long (pyzmq, 1 MiB): NOT reached"),
            "{found}"
        );
        assert!(of(&[]).is_empty());
    }
}
