//! OpenMetrics 1.0, by rules written here and by a parser that others wrote.

use super::kit::{HOSTILE, text, whole};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use tranship_observe::{FAMILIES, Format, Kind, Tally, render};
use tranship_testkit::skipped;

/// Returns the labels of a sample, unescaped, and the text after them.
fn labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut all = BTreeMap::new();
    let Some(inner) = rest.strip_prefix('{') else {
        return (all, rest);
    };
    rest = inner;
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name:?}"
        );
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("an end") {
                (_, '\\') => match chars.next().expect("what is escaped").1 {
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    c => panic!("\\{c} is no escape"),
                },
                (at, '"') => break at + 1,
                (_, c) => value.push(c),
            }
        };
        assert!(all.insert(name.to_owned(), value).is_none(), "{name} twice");
        match after[end..].chars().next() {
            Some(',') => rest = &after[end + 1..],
            Some('}') => return (all, &after[end + 1..]),
            other => panic!("{other:?} after a label"),
        }
    }
}

/// Checks every rule of the text that needs no other knowledge.
fn check_open(text: &str) {
    let text = text.strip_suffix("# EOF\n").expect("an end");
    let mut at = text.lines().peekable();
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    while let Some(line) = at.next() {
        let (name, kind) = line
            .strip_prefix("# TYPE ")
            .and_then(|l| l.split_once(' '))
            .unwrap_or_else(|| panic!("{line:?}"));
        assert!(families.insert(name.to_owned()), "{name} in two places");
        let family = FAMILIES
            .iter()
            .find(|f| f.name == name)
            .unwrap_or_else(|| panic!("{name}"));
        let suffix = match kind {
            "gauge" => "",
            "counter" => "_total",
            "info" => "_info",
            other => panic!("{other}"),
        };
        let (unit, help) = (format!("# UNIT {name} "), format!("# HELP {name} "));
        if let Some(unit) = at.peek().and_then(|l| l.strip_prefix(&unit)) {
            assert!(name.ends_with(&format!("_{unit}")), "{name} in {unit}");
            at.next();
        }
        assert!(at.next().is_some_and(|l| l.starts_with(&help)), "{name}");
        let mut some = false;
        while let Some(line) = at.next_if(|l| !l.starts_with("# TYPE ")) {
            some = true;
            let rest = line
                .strip_prefix(&format!("{name}{suffix}"))
                .unwrap_or_else(|| panic!("{line:?}"));
            let (labels, value) = labels(rest);
            let wanted = BTreeSet::from_iter(family.labels.iter().copied());
            assert!(labels.keys().map(String::as_str).eq(wanted), "{line:?}");
            let value: f64 = value
                .strip_prefix(' ')
                .and_then(|v| v.parse().ok())
                .unwrap_or_else(|| panic!("{line:?}"));
            assert!(value.is_finite() && value >= 0.0, "{line:?}");
            assert!(
                kind != "info" || (value - 1.0).abs() < f64::EPSILON,
                "{line:?}"
            );
            assert!(series.insert((name.to_owned(), labels)), "{line:?} twice");
        }
        assert!(some, "{name} without a sample");
    }
}

#[test]
fn every_line_is_as_the_standard_says() {
    let whole = text(&whole(), Format::OpenMetrics);
    check_open(&whole);
    for family in FAMILIES.iter() {
        let of_type = format!("# TYPE {} ", family.name);
        assert!(whole.contains(&of_type), "{of_type}is never said");
    }
    let nobody = render(Err("nobody"), &mut Tally::default(), Format::OpenMetrics);
    check_open(&nobody);
}

#[test]
fn names_come_back_as_they_were() {
    let whole = text(&whole(), Format::OpenMetrics);
    for name in HOSTILE {
        let tame = tranship_proto::shown(name).into_owned();
        let of_pools = whole
            .lines()
            .filter_map(|l| l.strip_prefix("tranship_pool_quota_bytes"));
        let found = of_pools
            .map(labels)
            .any(|(l, _)| l["pool"] == tame && l["domain"] == tame);
        assert!(found, "{name:?}");
    }
    assert!(whole.contains("\ntranship_up 1\n") && !whole.contains("\ntranship_up 0"));
}

#[test]
fn the_older_text_names_counters_in_full() {
    let old = text(&whole(), Format::Prometheus);
    assert!(
        !old.contains("# EOF\n") || old.contains("pool=\"# EOF\""),
        "{old}"
    );
    assert!(
        !old.contains("# UNIT ") && !old.contains(" info\n"),
        "{old}"
    );
    for family in FAMILIES.iter() {
        let kind = if family.kind == Kind::Counter {
            "counter"
        } else {
            "gauge"
        };
        assert!(
            old.contains(&format!("# TYPE {} {kind}\n", family.sample_name())),
            "{}",
            family.name
        );
    }
}

const PARSE: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as new
from prometheus_client.parser import text_string_to_metric_families as old
text = sys.stdin.read()
for family in (new if sys.argv[1] == 'new' else old)(text):
    for sample in family.samples:
        print(family.name, family.type, family.unit, sample.name)
";

/// A Python that has it: the first in the path, or the distribution's.
fn python() -> Option<&'static str> {
    let has = |python: &&str| {
        let mut command = Command::new(python);
        command
            .args(["-c", "import prometheus_client.openmetrics.parser"])
            .stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has)
}

/// Returns the parse of the Python library `prometheus_client`, which is strict in OpenMetrics.
fn parsed(text: &str, which: &str) -> Option<String> {
    let Some(python) = python() else {
        skipped("no python3 has prometheus_client (Debian: python3-prometheus-client)");
        return None;
    };
    let mut child = Command::new(python)
        .args(["-c", PARSE, which])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("writing");
    drop(input);
    let output = child.wait_with_output().expect("an answer");
    assert!(output.status.success(), "{which}: see above");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn the_parser_of_the_python_client_takes_both() {
    let _dog = tranship_testkit::Watchdog::new();
    for (which, format) in [("new", Format::OpenMetrics), ("old", Format::Prometheus)] {
        let Some(said) = parsed(&text(&whole(), format), which) else {
            return;
        };
        for family in FAMILIES.iter() {
            let end = format!(" {}", family.sample_name());
            let lines: Vec<_> = said.lines().filter(|l| l.ends_with(&end)).collect();
            assert!(!lines.is_empty(), "{which}:{end}");
            let kind = match (family.kind, format) {
                (Kind::Counter, _) => "counter",
                (Kind::Info, Format::OpenMetrics) => "info",
                _ => "gauge",
            };
            assert!(
                lines.iter().all(|l| l.split(' ').nth(1) == Some(kind)),
                "{which}: {lines:?}"
            );
        }
    }
}
