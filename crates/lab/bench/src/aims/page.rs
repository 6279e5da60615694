//! The page: promises with what was found, and the README's table, in Markdown.

use std::fmt::Write as _;

use super::claim::{Bound, Claim};
use super::sitting::Sitting;
use crate::met;
use crate::placement;
use crate::report::Row;

pub fn markdown(sitting: &Sitting) -> String {
    let m = &sitting.machine;
    let near = match m.cache_line_ns {
        ns if ns < placement::NEAR_NS => "near",
        _ => "far",
    };
    let mut out = format!(
        "{}, {} cores{}, Linux {}, huge pages for shared memory: {}; a bare cache line between the two cores and back {} ns ({near}); \
         {} % of the time stolen. One sitting of {} minutes, {} runs of {} ms each, product and peers in turn.\n\n",
        m.cpu,
        m.logical_cores,
        if m.virtual_machine {
            " (virtual machine)"
        } else {
            ""
        },
        m.kernel,
        m.thp_shmem,
        m.cache_line_ns,
        m.stolen_percent,
        sitting.minutes,
        m.runs,
        m.sample_ms,
    );
    let lay = met::said(&sitting.rows);
    if !lay.is_empty() {
        let _ = write!(out, "How the cores lay: {}.\n\n", lay.join(". "));
    }
    out.push_str("What is promised: the worst size's median over the runs, and the range of single runs.\n\n");
    out.push_str("| what | number | aim | found | single runs | worst at | |\n|---|---|---|---|---|---|---|\n");
    let mut last = "";
    for claim in &sitting.claims {
        let what = if claim.what == last { "" } else { claim.what };
        last = claim.what;
        let _ = writeln!(out, "{}", line(what, claim));
    }
    let readme = readme(&sitting.rows);
    if !readme.is_empty() {
        let _ = write!(out, "\nFor the README:\n\n{readme}");
    }
    out
}

fn line(what: &str, claim: &Claim) -> String {
    let unit = match claim.unit {
        "" => String::new(),
        "x" => "x".to_owned(),
        unit => format!(" {unit}"),
    };
    let (sign, bound) = match claim.bound {
        Bound::AtMost(bound) => ("at most", bound),
        Bound::AtLeast(bound) => ("at least", bound),
    };
    let (found, range, at) = match claim.worst() {
        None => Default::default(),
        Some(worst) => (
            format!("{}{unit}", short(worst.value)),
            format!("{} to {}", short(worst.least), short(worst.most)),
            worst.at.clone(),
        ),
    };
    let (number, verdict) = (&claim.number, claim.verdict());
    format!("| {what} | {number} | {sign} {bound}{unit} | {found} | {range} | {at} | {verdict} |")
}

/// Three digits.
fn short(value: f64) -> String {
    match value.abs() {
        n if n < 10.0 => format!("{value:.2}"),
        n if n < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

const COLUMNS: [(&str, &str); 5] = [
    ("tranship", "tranship"),
    ("raw ring", "raw"),
    ("iceoryx2 0.10", "iceoryx2"),
    ("pipe", "pipe"),
    ("Unix stream", "stream"),
];

/// Rows of the placement that most of them met, and how it is called: a line of the table is of one.
fn most_met<'a>(rows: &[&'a Row]) -> (Vec<&'a Row>, String) {
    let count = |place: Option<&str>| rows.iter().filter(|row| row.key.placement == place).count();
    let places = placement::ALL.map(|place| Some(place.name()));
    let place = places
        .into_iter()
        .chain([None])
        .rev()
        .max_by_key(|place| count(*place));
    let place = place.flatten();
    let of = rows
        .iter()
        .copied()
        .filter(|row| row.key.placement == place);
    let name = place.map_or(String::new(), |place| format!(", cores {place}"));
    (of.collect(), name)
}

/// Every column of one sitting; empty if nothing of it was measured.
fn readme(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut add = |title: &str, cells: [String; 5]| {
        if cells.iter().any(|cell| !cell.is_empty()) {
            let _ = writeln!(out, "| {title} | {} |", cells.join(" | "));
        }
    };
    for (mode, payload, title) in [
        (
            "spin",
            4 << 10,
            "round trip, busy-polling, 4 KiB, of which 8 bytes are written and read",
        ),
        ("spin", 1 << 20, "the same, 1 MiB"),
        (
            "block",
            64,
            "round trip, the waiter sleeps, 64 B, one processor",
        ),
    ] {
        let at = |row: &&Row| row.key.mode == mode && row.key.payload_bytes == Some(payload);
        let rows: Vec<&Row> = rows.iter().filter(at).collect();
        let (rows, cores) = most_met(&rows);
        let one = |system| times(rows.iter().copied().filter(|row| row.system == system));
        add(
            &format!("{title}{cores}"),
            COLUMNS.map(|(_, system)| one(system)),
        );
    }
    for (mode, title) in [
        (
            "untouched",
            "stream, per message of 64 B to 1 MiB, payload not touched (pipe and socket copy it)",
        ),
        ("touched", "the same, every byte written and read"),
    ] {
        let rows = rows.iter().filter(|row| row.key.trust.is_none());
        let rows = rows.filter(|row| row.key.mode == mode && row.key.buffers.is_some());
        let (rows, cores) = most_met(&rows.collect::<Vec<_>>());
        let of = |system| times(rows.iter().copied().filter(|row| row.system == system));
        add(
            &format!("{title}{cores}"),
            COLUMNS.map(|(_, system)| of(system)),
        );
    }
    let sizes = [(4 << 10, "4 KiB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB")];
    for (level, title) in [
        ("producer", "a buffer moved and passed back, `producer`"),
        ("none", "the same, `none`: neither trusts the other"),
    ] {
        for (payload, size) in sizes {
            let at = |row: &&Row| row.key.payload_bytes == Some(payload);
            let level = |row: &&Row| row.key.trust == Some(level);
            let stream = |row: &&Row| {
                row.system == "stream" && row.key.mode == "touched" && row.key.buffers.is_none()
            };
            let ours = times(rows.iter().filter(at).filter(level));
            let none = String::new;
            let socket = times(rows.iter().filter(at).filter(stream));
            add(
                &format!("{title}, {size}"),
                [ours, none(), none(), none(), socket],
            );
        }
    }
    if out.is_empty() {
        return out;
    }
    let titles = COLUMNS.map(|(title, _)| title).join(" | ");
    format!("| | {titles} |\n|---|---|---|---|---|---|\n{out}")
}

/// A median, or the range of several.
fn times<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut all: Vec<f64> = rows.map(|row| row.median_ns).collect();
    all.sort_by(f64::total_cmp);
    match all[..] {
        [] => String::new(),
        [one] => time(one),
        [least, .., most] => format!("{} to {}", time(least), time(most)),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aims::claim::Found;
    use crate::report::Key;
    use crate::stats::Measured;

    fn claim(value: Option<f64>) -> Claim {
        let found = value.map(|value| Found {
            at: "1 MiB".to_owned(),
            value,
            least: 0.2,
            most: 1.9,
        });
        Claim {
            what: "round trip",
            number: "median over raw".to_owned(),
            unit: "x",
            bound: Bound::AtMost(1.15),
            found: found.into_iter().collect(),
            missing: None,
        }
    }

    #[test]
    fn a_line_says_aim_and_found_and_how_far_off() {
        assert_eq!(
            line("round trip", &claim(Some(1.61))),
            "| round trip | median over raw | at most 1.15x | 1.61x | 0.20 to 1.90 | 1 MiB | **1.40x off** |"
        );
        assert!(line("", &claim(None)).ends_with("|  |  |  | not measured: its peer is missing |"));
    }

    #[test]
    fn the_readme_says_both_modes_and_has_all_columns() {
        let row = |system: &str, mode, ns| {
            let key = Key {
                mode,
                payload_bytes: Some(4096),
                buffers: Some(256),
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
        };
        let rows = [
            row("tranship", "spin", 455.0),
            row("pipe", "spin", 3400.0),
            row("tranship", "untouched", 94.0),
            row("tranship", "untouched", 115.0),
            row("stream", "touched", 1.2e6),
        ];
        let table = readme(&rows);
        assert!(table.contains("| 455 ns |  |  | 3.4 us |  |"), "{table}");
        assert!(
            table.contains("not touched (pipe and socket copy it) | 94 ns to 115 ns |"),
            "{table}"
        );
        assert!(
            table.contains("written and read |  |  |  |  | 1.2 ms |"),
            "{table}"
        );
        let columns = |line: &str| line.matches('|').count();
        assert!(table.lines().all(|line| columns(line) == 7), "{table}");
        assert_eq!(readme(&[]), "");
    }

    #[test]
    fn a_line_of_the_readme_is_of_one_placement() {
        let row = |placement| {
            let key = Key {
                placement,
                ..Key::default()
            };
            Row::of("tranship", key, &[])
        };
        let rows = [Some("near"), Some("far"), None, Some("far")].map(row);
        let rows = rows.each_ref();
        let (far, name) = most_met(&rows);
        assert_eq!((far.len(), &*name), (2, ", cores far"));
        let (none, name) = most_met(&rows[2..3]);
        assert_eq!((none.len(), &*name), (1, ""));
        let (alike, name) = most_met(&rows[..2]);
        assert_eq!((alike.len(), &*name), (1, ", cores near"));
        assert!(most_met(&[]).0.is_empty());
    }
}
