//! Rows of two systems made into ratios, run by run.

use super::claim::Found;
use crate::report::{Row, bytes};
use crate::stats::{Measured, median};

/// Time of the middle operation.
pub fn middle(run: &Measured) -> f64 {
    run.median_ns
}

/// Time of one operation on average.
pub fn mean(run: &Measured) -> f64 {
    1e9 / run.per_second
}

pub fn p99(run: &Measured) -> f64 {
    run.p99_ns
}

pub fn rate(run: &Measured) -> f64 {
    run.per_second
}

/// One number of several runs.
pub fn numbers(at: String, runs: impl IntoIterator<Item = f64>) -> Found {
    let runs: Vec<f64> = runs.into_iter().collect();
    found(at, median(runs.iter().copied()), runs)
}

fn found(at: String, value: f64, runs: impl IntoIterator<Item = f64>) -> Found {
    let mut runs = runs.into_iter();
    // None stood side by side: then there is no range.
    let first = runs.next().unwrap_or(value);
    let (least, most) = runs.fold((first, first), |(l, m), run| (l.min(run), m.max(run)));
    Found {
        at,
        value,
        least,
        most,
    }
}

/// Two rows: their medians by `by`, and the least and the most of the runs that stood side by side.
pub fn two(
    at: String,
    [ours, theirs]: [&Row; 2],
    of: fn(&Measured) -> f64,
    by: fn(f64, f64) -> f64,
) -> Found {
    let over = |row: &Row| median(row.runs.iter().map(of));
    let round = |run: &Measured| run.sampled.as_ref().map(|sampled| sampled.round);
    // A run may have met another placement, and then is not there.
    let beside = |number: usize, run: &Measured| match round(run) {
        None => theirs.runs.get(number),
        some => theirs.runs.iter().find(|other| round(other) == some),
    };
    let runs = ours.runs.iter().enumerate();
    let runs = runs.filter_map(|(i, run)| Some(by(of(run), of(beside(i, run)?))));
    found(at, by(over(ours), over(theirs)), runs)
}

/// Ours over theirs, in every row that both have.
pub fn ratios(rows: &[Row], ours: &str, theirs: &str, of: fn(&Measured) -> f64) -> Vec<Found> {
    let rows_of = |system| rows.iter().filter(move |row: &&Row| row.system == system);
    let pairs = rows_of(ours).filter_map(|row| {
        let other = rows_of(theirs).find(|other| other.key.is_like(&row.key))?;
        Some(two(place(row), [row, other], of, |a, b| a / b))
    });
    pairs.collect()
}

/// The slowest size of one system over its fastest.
pub fn flatness(rows: &[Row], system: &str) -> Option<Found> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.system == system).collect();
    let over = |row: &&&Row| median(row.runs.iter().map(mean));
    let slowest = rows.iter().max_by(|a, b| over(a).total_cmp(&over(b)))?;
    let fastest = rows.iter().min_by(|a, b| over(a).total_cmp(&over(b)))?;
    let at = format!("{} over {}", place(slowest), place(fastest));
    Some(two(at, [slowest, fastest], mean, |a, b| a / b))
}

/// What of a row was varied, for people.
pub fn place(row: &Row) -> String {
    let key = &row.key;
    let mut out = Vec::new();
    out.extend(key.payload_bytes.map(bytes));
    if ["cold", "hot"].contains(&key.mode) && key.depth.is_some() {
        out.push(key.mode.to_owned());
    }
    out.extend(key.depth.map(|n| format!("{n} under way")));
    out.extend(key.placement.map(|place| format!("cores {place}")));
    if key.payload_bytes.is_none() {
        let many = |n| if n == 1 { "" } else { "s" };
        out.extend(key.buffers.map(|n| format!("{n} buffer{}", many(n))));
    }
    out.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Key;

    fn row(system: &str, payload: usize, runs: &[f64]) -> Row {
        let runs = runs.iter().map(|&ns| Measured {
            op: String::new(),
            median_ns: ns,
            p99_ns: ns * 2.0,
            per_second: 1e9 / ns,
            facts: Default::default(),
            sampled: None,
        });
        let key = Key {
            mode: "spin",
            payload_bytes: Some(payload),
            ..Key::default()
        };
        Row::of(system, key, &runs.collect::<Vec<_>>())
    }

    #[test]
    fn ratios_are_of_medians_and_their_spread_of_runs_side_by_side() {
        let rows = [
            row("ours", 64, &[10.0, 30.0, 20.0]),
            row("theirs", 64, &[20.0, 20.0, 40.0]),
            row("theirs", 4096, &[1.0]),
        ];
        let found = ratios(&rows, "ours", "theirs", middle);
        let one = Found {
            at: "64 B".to_owned(),
            value: 1.0,
            least: 0.5,
            most: 1.5,
        };
        assert_eq!(found, [one]);
        assert!(ratios(&rows, "ours", "nobody", middle).is_empty());
    }

    #[test]
    fn flat_is_the_slowest_over_the_fastest() {
        let rows = [
            row("ours", 64, &[10.0, 10.0]),
            row("ours", 4096, &[20.0, 30.0]),
            row("theirs", 64, &[1.0]),
        ];
        let flat = flatness(&rows, "ours").expect("two sizes");
        assert_eq!((&*flat.at, flat.value), ("4 KiB over 64 B", 2.5));
        assert_eq!((flat.least, flat.most), (2.0, 3.0));
    }
}
