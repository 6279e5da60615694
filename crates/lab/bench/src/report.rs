//! Rows, as JSON and as a table with ratios.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::machine::Machine;
use crate::stats::{Facts, Measured, median};

/// In place of a reference's name: the fastest of the others, the product, `mmap` and `raw` apart.
pub const FASTEST: &str = "fastest";

/// Names of counts, and their names for people. `depth`: requests under way at a time; `hops`: domains between the first
/// and the last.
const COUNTS: [(&str, &str); 6] = [
    ("buffers", "buffers"),
    ("receivers", "receivers"),
    ("threads", "threads"),
    ("cores", "cores"),
    ("depth", "under way"),
    ("hops", "between"),
];

/// Subject of a row. Fields that do not concern the row are left out of the JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Key {
    pub mode: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
    /// Numbers of what there is, by the names in [`COUNTS`].
    #[serde(flatten)]
    pub counts: BTreeMap<&'static str, usize>,
    /// The level of trust of what is moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<&'static str>,
    /// How the two cores lay, where that is told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<&'static str>,
}

/// One row: the median over the runs of each run's median, 99th percentile and rate; 0, and left out of the JSON, of what
/// was counted and not timed.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub system: String,
    #[serde(flatten)]
    pub key: Key,
    #[serde(skip_serializing_if = "is_none")]
    pub median_ns: f64,
    #[serde(skip_serializing_if = "is_none")]
    pub p99_ns: f64,
    #[serde(skip_serializing_if = "is_none")]
    pub per_second: f64,
    /// These and what follows only of benches that take every sample by itself.
    #[serde(skip_serializing_if = "is_none")]
    pub mean_ns: f64,
    #[serde(skip_serializing_if = "is_none")]
    pub p999_ns: f64,
    /// A cache line there and back between the samples.
    #[serde(skip_serializing_if = "is_none")]
    pub line_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Of all placements together: not known which it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discarded_samples: Option<u64>,
    /// The median over each reference's of the same placement.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub over: BTreeMap<&'static str, f64>,
    #[serde(flatten)]
    pub facts: Facts,
    /// Each run, in their order.
    #[serde(skip)]
    pub runs: Vec<Measured>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's way")]
fn is_none(measured: &f64) -> bool {
    *measured == 0.0
}

impl Row {
    pub fn of(system: &str, key: Key, runs: &[Measured]) -> Self {
        let over = |f: fn(&Measured) -> f64| median(runs.iter().map(f));
        let round = |x: f64| (x * 100.0).round() / 100.0;
        let is_sampled = runs.iter().any(|m| m.samples > 0);
        let fact = |name: &Cow<'static, str>| {
            let all = runs.iter().filter_map(|run| run.facts.get(name).copied());
            (name.clone(), round(median(all)))
        };
        Self {
            system: system.to_owned(),
            key,
            median_ns: round(over(|m| m.median_ns)),
            p99_ns: round(over(|m| m.p99_ns)),
            per_second: over(|m| m.per_second).round(),
            mean_ns: match is_sampled {
                true => round(over(|m| 1e9 / m.per_second)),
                false => 0.0,
            },
            p999_ns: round(over(|m| m.p999_ns)),
            line_ns: round(over(|m| m.line_ns)),
            samples: is_sampled.then(|| runs.iter().map(|m| m.samples).sum()),
            discarded_samples: None,
            over: BTreeMap::new(),
            facts: runs
                .iter()
                .flat_map(|run| run.facts.keys())
                .map(fact)
                .collect(),
            runs: runs.to_vec(),
        }
    }

    /// As in the table: levels of trust are compared with each other, and with systems that have none.
    fn name(&self) -> String {
        match self.key.trust {
            Some(trust) => format!("{} {trust}", self.system),
            None => self.system.clone(),
        }
    }
}

/// Everything that a bench says.
#[derive(Debug, Serialize)]
pub struct Report {
    pub bench: &'static str,
    pub machine: Machine,
    pub rows: Vec<Row>,
    /// Conclusions of the bench, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<String>,
}

/// A size, for people.
pub fn bytes(n: usize) -> String {
    match n {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

fn time(ns: f64) -> String {
    match ns {
        0.0 => "-".to_owned(),
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

fn rate(n: f64) -> String {
    match n {
        0.0 => "-".to_owned(),
        n if n >= 1e6 => format!("{:.2} M/s", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k/s", n / 1e3),
        n => format!("{n:.1} /s"),
    }
}

impl Key {
    pub fn of(mode: &'static str) -> Key {
        Key {
            mode,
            ..Key::default()
        }
    }

    pub fn op(self, op: &str) -> Key {
        let op = op.to_owned();
        Key { op, ..self }
    }

    pub fn payload(self, bytes: usize) -> Key {
        let payload_bytes = Some(bytes);
        Key {
            payload_bytes,
            ..self
        }
    }

    /// With a count, by its name in [`COUNTS`].
    pub fn with(mut self, name: &'static str, count: usize) -> Key {
        self.counts.insert(name, count);
        self
    }

    /// Returns whether the two rows measure the same operation.
    pub fn is_like(&self, other: &Key) -> bool {
        let of = |key: &Key| Key {
            trust: None,
            ..key.clone()
        };
        of(self) == of(other)
    }

    fn title(&self) -> String {
        let mut out = self
            .payload_bytes
            .map_or_else(String::new, |n| bytes(n) + ", ");
        out += self.mode;
        if !self.op.is_empty() {
            let _ = write!(out, " {}", self.op);
        }
        if let Some(placement) = self.placement {
            let _ = write!(out, ", cores {placement}");
        }
        for (count, name) in COUNTS {
            if let Some(n) = self.counts.get(count) {
                let name = match n {
                    1 => name.trim_end_matches('s'),
                    _ => name,
                };
                let _ = write!(out, ", {n} {name}");
            }
        }
        out
    }
}

/// Compares each row that was timed with each reference's of the same thing.
pub fn compare(rows: &mut [Row], references: &[&'static str]) {
    let all = rows.to_vec();
    for row in rows.iter_mut().filter(|row| row.median_ns > 0.0) {
        let is = |other: &&Row| other.median_ns > 0.0 && other.key.is_like(&row.key);
        let like = || all.iter().filter(is);
        for name in references {
            let is_peer = |row: &&Row| {
                !row.system.starts_with("tranship") && !["mmap", "raw"].contains(&&*row.system)
            };
            let other = match *name {
                FASTEST => like()
                    .filter(is_peer)
                    .min_by(|a, b| a.median_ns.total_cmp(&b.median_ns)),
                name => like().find(|other| other.system == name),
            };
            if let Some(other) = other {
                let ratio = row.median_ns / other.median_ns;
                row.over.insert(name, (ratio * 1000.0).round() / 1000.0);
            }
        }
    }
}

impl Report {
    /// The table: groups of rows about the same thing, with their ratios of medians. Rates are not compared, as they sink with
    /// every time slice that the machine gives to another program.
    pub fn table(&self) -> String {
        let m = &self.machine;
        let guest = match m.virtual_machine {
            true => " (virtual machine)",
            false => "",
        };
        let mut out = format!(
            "{}: {}, {} cores, Linux {}{guest}, shmem huge pages {}; cores {}/{}, median of {} runs of {} ms; cache line to and fro {} ns; {} % of the time stolen\n",
            self.bench,
            m.cpu,
            m.logical_cores,
            m.kernel,
            m.thp_shmem,
            m.cores[0],
            m.cores[1],
            m.runs,
            m.sample_ms,
            m.cache_line_ns,
            m.stolen_percent
        );
        let names = self.rows.iter().map(|row| row.name().len() + 1);
        let names = names.max().unwrap_or(0).max(24);
        let mut seen: Vec<&Key> = Vec::new();
        for row in &self.rows {
            if seen.iter().any(|key| key.is_like(&row.key)) {
                continue;
            }
            seen.push(&row.key);
            let group = self.rows.iter().filter(|r| r.key.is_like(&row.key));
            let _ = write!(out, "\n{}\n  {:<names$}", row.key.title(), "");
            for column in ["median", "mean", "p99", "p99.9", "rate"] {
                let _ = write!(out, "{column:>12}");
            }
            out.push('\n');
            for row in group {
                let _ = write!(out, "  {:<names$}", row.name());
                for ns in [row.median_ns, row.mean_ns, row.p99_ns, row.p999_ns] {
                    let _ = write!(out, "{:>12}", time(ns));
                }
                let _ = write!(out, "{:>12}", rate(row.per_second));
                for (name, ratio) in &row.over {
                    let _ = write!(out, "  x {name} {ratio:.2}");
                }
                for (name, value) in &row.facts {
                    let _ = write!(out, "  {} {value}", name.replace('_', " "));
                }
                out.push('\n');
            }
        }
        if !self.verdicts.is_empty() {
            let _ = writeln!(out, "\n{}", self.verdicts.join("\n"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: &str, payload: usize, ns: f64) -> Row {
        let key = Key {
            mode: "spin",
            payload_bytes: Some(payload),
            ..Key::default()
        };
        let run = |x: f64| Measured {
            p99_ns: x * 2.0,
            ..Measured::rate(1e9 / x)
        };
        Row::of(system, key, &[run(ns * 3.0), run(ns), run(ns / 2.0)])
    }

    fn report() -> Report {
        let mut rows = vec![
            row("raw", 64, 400.0),
            row("iceoryx2", 64, 1200.0),
            row("raw", 4096, 440.0),
        ];
        compare(&mut rows, &["raw", FASTEST]);
        Report {
            bench: "roundtrip",
            machine: Machine::look([0, 1], 3, 60),
            rows,
            verdicts: Vec::new(),
        }
    }

    #[test]
    fn json_has_the_agreed_form() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["bench"], "roundtrip");
        assert!(json["machine"]["kernel"].is_string());
        let want = serde_json::json!({"system": "iceoryx2", "mode": "spin", "payload_bytes": 64,
            "median_ns": 1200.0, "p99_ns": 2400.0, "per_second": 833_333.0,
            "over": {"raw": 3.0, "fastest": 1.0}});
        assert_eq!(json["rows"][1], want);
    }

    #[test]
    fn what_was_not_timed_has_no_times() {
        let mut counted = row("exact-size", 64, 0.0);
        counted.per_second = 0.0;
        counted.facts.insert("wasted_bytes_per_packet".into(), 7.0);
        let json = serde_json::to_value(counted).unwrap();
        let want = serde_json::json!({"system": "exact-size", "mode": "spin", "payload_bytes": 64,
            "wasted_bytes_per_packet": 7.0});
        assert_eq!(json, want);
    }

    #[test]
    fn the_table_has_ratios() {
        let table = report().table();
        let mut lines = table.lines().map(str::trim_start);
        let line = lines.find(|l| l.starts_with("iceoryx2")).unwrap();
        assert!(line.ends_with("x fastest 1.00  x raw 3.00"), "{line}");
    }
}
