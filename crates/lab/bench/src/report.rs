//! Rows, as JSON and as a table with ratios.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::histogram;
use crate::machine::Machine;
use crate::stats::{Facts, Measured, Sampled, median};

/// In place of a reference's name: the fastest of the others, the product, `mmap` and `raw` apart.
pub const FASTEST: &str = "fastest";

/// What a row is about. Fields that do not concern it are left out of the JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Key {
    pub mode: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receivers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
    /// Domains between the first and the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops: Option<usize>,
    /// Requests under way at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
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
    /// Against each reference of the same placement.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub over: BTreeMap<&'static str, Over>,
    /// Pairs: so many nanoseconds or less, but more than the pair before, took so many operations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(f64, u64)>,
    #[serde(flatten)]
    pub facts: Facts,
    /// Each run, in their order.
    #[serde(skip)]
    pub runs: Vec<Measured>,
}

/// One row's times over another's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Over {
    pub median: f64,
    pub mean: f64,
    pub p99: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's way")]
fn is_none(measured: &f64) -> bool {
    *measured == 0.0
}

impl Row {
    pub fn of(system: &str, key: Key, runs: &[Measured]) -> Self {
        let over = |f: fn(&Measured) -> f64| median(runs.iter().map(f));
        let round = |x: f64| (x * 100.0).round() / 100.0;
        let each: Vec<&Sampled> = runs.iter().filter_map(|m| m.sampled.as_ref()).collect();
        let is_sampled = !each.is_empty();
        let of_each = |f: fn(&Sampled) -> f64| match is_sampled {
            true => round(median(each.iter().copied().map(f))),
            false => 0.0,
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
            p999_ns: of_each(|s| s.p999_ns),
            line_ns: of_each(|s| s.line_ns),
            samples: is_sampled.then(|| each.iter().map(|s| s.samples).sum()),
            discarded_samples: None,
            over: BTreeMap::new(),
            histogram: Vec::new(),
            facts: runs
                .iter()
                .flat_map(|run| run.facts.keys())
                .map(|name| {
                    let all = runs.iter().filter_map(|run| run.facts.get(name).copied());
                    (*name, round(median(all)))
                })
                .collect(),
            runs: runs.to_vec(),
        }
    }
}

/// Everything that a bench says.
#[derive(Debug, Serialize)]
pub struct Report {
    pub bench: &'static str,
    pub machine: Machine,
    pub rows: Vec<Row>,
    /// What the bench itself concludes, in words.
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

/// Characters of the column that compares with a system.
fn wide(name: &str) -> usize {
    (name.len() + 4).max(14)
}

fn rate(n: f64) -> String {
    match n {
        0.0 => "-".to_owned(),
        n if n >= 1e6 => format!("{:.2} M/s", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k/s", n / 1e3),
        n => format!("{n:.1} /s"),
    }
}

impl Row {
    /// As in the table: levels of trust are compared with each other, and with systems that have none.
    fn name(&self) -> String {
        match self.key.trust {
            Some(trust) => format!("{} {trust}", self.system),
            None => self.system.clone(),
        }
    }
}

impl Key {
    /// Are the two rows about the same thing?
    pub fn is_like(&self, other: &Key) -> bool {
        let of = |key: &Key| Key {
            trust: None,
            ..key.clone()
        };
        of(self) == of(other)
    }

    fn title(&self) -> String {
        let mut out = self.mode.to_owned();
        if !self.op.is_empty() {
            let _ = write!(out, " {}", self.op);
        }
        if let Some(placement) = self.placement {
            let _ = write!(out, ", cores {placement}");
        }
        let mut say = |n: Option<usize>, one: &str, many: &str| {
            if let Some(n) = n {
                let _ = write!(out, ", {n} {}", if n == 1 { one } else { many });
            }
        };
        say(self.pages, "page", "pages");
        say(self.buffers, "buffer", "buffers");
        say(self.receivers, "receiver", "receivers");
        say(self.threads, "thread", "threads");
        say(self.cores, "core", "cores");
        say(self.hops, "hop", "hops");
        say(self.depth, "under way", "under way");
        match self.payload_bytes {
            Some(n) => format!("{}, {out}", bytes(n)),
            None => out,
        }
    }
}

/// A group of rows whose samples were taken one by one: all that is known of them, and ratios of all three kinds.
fn one_by_one(group: &[&Row], references: &[&str], names: usize) -> String {
    let mut out = format!(
        "\n{}\n  {:<names$}{:>12}{:>12}{:>12}{:>12}{:>14}{:>11}{:>11}",
        group[0].key.title(),
        "",
        "median",
        "mean",
        "p99",
        "p99.9",
        "rate",
        "samples",
        "discarded"
    );
    let has = |name: &&&str| group.iter().any(|row| row.over.contains_key(**name));
    let refs: Vec<&&str> = references.iter().filter(has).collect();
    for name in &refs {
        let _ = write!(out, "   x {name}: med mean p99");
    }
    out.push('\n');
    for row in group {
        let times = [row.median_ns, row.mean_ns, row.p99_ns, row.p999_ns].map(time);
        let [mid, mean, p99, p999] = times;
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let _ = write!(
            out,
            "  {:<names$}{mid:>12}{mean:>12}{p99:>12}{p999:>12}{:>14}{:>11}{:>11}",
            row.name(),
            rate(row.per_second),
            number(row.samples),
            number(row.discarded_samples)
        );
        for name in &refs {
            let text = row.over.get(**name).map_or_else(String::new, |over| {
                format!("{:.2} {:.2} {:.2}", over.median, over.mean, over.p99)
            });
            let wide = name.len() + "   x : med mean p99".len();
            let _ = write!(out, "{text:>wide$}");
        }
        for (name, value) in &row.facts {
            let _ = write!(out, "  {} {value}", name.replace('_', " "));
        }
        out.push('\n');
    }
    out
}

/// Compares rows that take every sample by itself with each reference's.
pub fn compare(rows: &mut [Row], references: &[&'static str]) {
    let all: Vec<Row> = rows.to_vec();
    for row in rows.iter_mut().filter(|row| row.mean_ns > 0.0) {
        for name in references {
            let is = |other: &&Row| other.system == *name && other.key.is_like(&row.key);
            let ratio = |a: f64, b: f64| (a / b * 1000.0).round() / 1000.0;
            if let Some(other) = all.iter().find(is) {
                let over = Over {
                    median: ratio(row.median_ns, other.median_ns),
                    mean: ratio(row.mean_ns, other.mean_ns),
                    p99: ratio(row.p99_ns, other.p99_ns),
                };
                row.over.insert(name, over);
            }
        }
    }
}

impl Report {
    /// The table: groups of rows about the same thing; each row's cost as a multiple of each reference's.
    /// Cost is the median: rates sink with every time slice that the machine gives to somebody else.
    pub fn table(&self, references: &[&str]) -> String {
        let m = &self.machine;
        let mut out = format!(
            "{}: {}, {} cores, Linux {}{}, shmem huge pages {}; cores {}/{}, median of {} runs of {} ms; cache line to and fro {} ns; {} % of the time stolen\n",
            self.bench,
            m.cpu,
            m.logical_cores,
            m.kernel,
            if m.virtual_machine {
                " (virtual machine)"
            } else {
                ""
            },
            m.thp_shmem,
            m.cores[0],
            m.cores[1],
            m.runs,
            m.sample_ms,
            m.cache_line_ns,
            m.stolen_percent
        );
        let cost = |r: &Row| r.median_ns;
        let names = self.rows.iter().map(|row| row.name().len() + 1);
        let names = names.max().unwrap_or(0).max(24);
        let mut seen: Vec<&Key> = Vec::new();
        for row in &self.rows {
            if seen.iter().any(|key| key.is_like(&row.key)) {
                continue;
            }
            seen.push(&row.key);
            let like = |r: &&Row| r.key.is_like(&row.key);
            let group: Vec<&Row> = self.rows.iter().filter(like).collect();
            if group.iter().any(|row| row.mean_ns > 0.0) {
                out.push_str(&one_by_one(&group, references, names));
                continue;
            }
            let mut refs: Vec<(&str, f64)> = Vec::new();
            for name in references {
                let others = group.iter().filter(|r| {
                    !r.system.starts_with("tranship") && !["mmap", "raw"].contains(&&*r.system)
                });
                let found = match *name {
                    FASTEST => others.copied().min_by(|a, b| cost(a).total_cmp(&cost(b))),
                    name => group.iter().copied().find(|r| r.system == name),
                };
                refs.extend(found.map(|row| (*name, cost(row))));
            }
            let _ = write!(
                out,
                "\n{}\n  {:<names$}{:>12}{:>12}{:>14}",
                row.key.title(),
                "",
                "median",
                "p99",
                "rate"
            );
            for (name, _) in &refs {
                let _ = write!(out, "{:>1$}", format!("x {name}"), wide(name));
            }
            out.push('\n');
            for row in &group {
                let (mid, p99) = (time(row.median_ns), time(row.p99_ns));
                let _ = write!(
                    out,
                    "  {:<names$}{mid:>12}{p99:>12}{:>14}",
                    row.name(),
                    rate(row.per_second)
                );
                for (name, reference) in &refs {
                    let _ = write!(out, "{:>1$.2}", cost(row) / reference, wide(name));
                }
                for (name, value) in &row.facts {
                    let _ = write!(out, "  {} {value}", name.replace('_', " "));
                }
                out.push('\n');
            }
        }
        out.push_str(&self.flatness(names, cost));
        out.push_str(&self.histograms(names));
        if !self.verdicts.is_empty() {
            let _ = writeln!(out, "\n{}", self.verdicts.join("\n"));
        }
        out
    }

    /// How many of a hundred operations took how long, by powers of two.
    fn histograms(&self, names: usize) -> String {
        let rows = self.rows.iter().filter(|row| !row.histogram.is_empty());
        let one = |row: &Row| {
            let name = format!("{} {}", row.name(), row.key.op);
            let place = row.key.placement.unwrap_or_default();
            let shares = histogram::shares(&row.histogram).into_iter();
            let shares: Vec<_> = shares
                .map(|(ns, share)| format!("{} {share}", time(ns)))
                .collect();
            format!("  {name:<names$}{place:<8}{}\n", shares.join(", "))
        };
        let all: String = rows.map(one).collect();
        match all.is_empty() {
            true => all,
            false => {
                format!("\nof a hundred operations, by the time that each took at most\n{all}")
            }
        }
    }

    /// For each system and mode with several payloads: its slowest over its fastest.
    fn flatness(&self, names: usize, cost: impl Fn(&Row) -> f64) -> String {
        let mut out = String::new();
        let mut seen = Vec::new();
        for row in self.rows.iter().filter(|r| r.key.payload_bytes.is_some()) {
            let id = |r: &'_ Row| {
                let k = &r.key;
                (
                    r.system.clone(),
                    k.mode,
                    k.op.clone(),
                    k.cores,
                    k.threads,
                    k.buffers,
                    (k.hops, k.depth, k.trust, k.placement),
                )
            };
            let row_id = id(row);
            if seen.contains(&row_id) {
                continue;
            }
            seen.push(row_id.clone());
            let costs: Vec<f64> = self
                .rows
                .iter()
                .filter(|r| id(r) == row_id)
                .map(&cost)
                .collect();
            let (low, high) = costs
                .iter()
                .fold((f64::MAX, 0.0f64), |(l, h), c| (l.min(*c), h.max(*c)));
            if costs.len() > 1 {
                let _ = writeln!(
                    out,
                    "  {:<names$}{}{}{} {:.2}",
                    row.name(),
                    row.key.mode,
                    match row.key.op.as_str() {
                        "" => String::new(),
                        op => format!(" {op}"),
                    },
                    match row.key.placement {
                        None => String::new(),
                        Some(placement) => format!(", cores {placement}"),
                    },
                    high / low
                );
            }
        }
        if out.is_empty() {
            out
        } else {
            format!("\nslowest payload over fastest\n{out}")
        }
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
        let run = |x| Measured {
            op: String::new(),
            median_ns: x,
            p99_ns: x * 2.0,
            per_second: 1e9 / x,
            facts: Default::default(),
            sampled: None,
        };
        Row::of(system, key, &[run(ns * 3.0), run(ns), run(ns / 2.0)])
    }

    fn report() -> Report {
        let rows = vec![
            row("raw", 64, 400.0),
            row("iceoryx2", 64, 1200.0),
            row("raw", 4096, 440.0),
        ];
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
        let want = serde_json::json!({"system": "raw", "mode": "spin", "payload_bytes": 64,
            "median_ns": 400.0, "p99_ns": 800.0, "per_second": 2_500_000.0});
        assert_eq!(json["rows"][0], want);
    }

    #[test]
    fn what_was_not_timed_has_no_times() {
        let mut counted = row("exact-size", 64, 0.0);
        counted.per_second = 0.0;
        counted.facts.insert("wasted_bytes_per_packet", 7.0);
        let json = serde_json::to_value(counted).unwrap();
        let want = serde_json::json!({"system": "exact-size", "mode": "spin", "payload_bytes": 64,
            "wasted_bytes_per_packet": 7.0});
        assert_eq!(json, want);
    }

    #[test]
    fn the_table_has_ratios_and_flatness() {
        let table = report().table(&["raw", "iceoryx2"]);
        let line = table
            .lines()
            .find(|l| l.trim_start().starts_with("iceoryx2"))
            .unwrap();
        assert!(line.ends_with("3.00          1.00"), "{line}");
        assert!(
            table.contains("raw                     spin 1.10"),
            "{table}"
        );
    }
}
