//! What was counted, as text: a line of the report, and a file that is kept, so that a change shows in review.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::names::Name;
use super::tracer::Tally;

/// Functions named for each operation in a report; the file has all.
const NAMED: usize = 12;
/// Less of a message than this is not named.
const LEAST: f64 = 0.5;

/// One operation of one system, for each message.
#[derive(Debug)]
pub struct Counted {
    pub system: &'static str,
    pub op: &'static str,
    pub instructions: f64,
    /// Those of them that are the bench's own: its stamp, its results, its calls.
    pub bench: f64,
    pub locked: f64,
    /// Those of them that collect: what was sent before and nobody holds any more.
    pub collecting: f64,
    pub calls: f64,
    /// By name.
    functions: BTreeMap<String, f64>,
}

impl Counted {
    pub fn of(
        system: &'static str,
        op: &'static str,
        tally: &[&Tally],
        names: &BTreeMap<u64, Name>,
        messages: f64,
    ) -> Counted {
        let sum = |f: fn(&Tally) -> u64| tally.iter().map(|t| f(t)).sum::<u64>() as f64 / messages;
        let mut functions: BTreeMap<String, f64> = BTreeMap::new();
        let (mut bench, mut collecting) = (0.0, 0.0);
        for one in tally {
            let (name, times) = (names.get(&one.at), one.times as f64 / messages);
            let text = match name {
                Some(name) if name.is_bench => format!("(bench) {}", name.text),
                Some(name) => name.text.clone(),
                None => "?".to_owned(),
            };
            *functions.entry(text).or_default() += times;
            if name.is_some_and(|name| name.is_bench) {
                bench += times;
            }
            if one.is_locked && name.is_some_and(|name| name.is_collection) {
                collecting += times;
            }
        }
        Counted {
            system,
            op,
            instructions: sum(|t| t.times),
            bench,
            locked: sum(|t| t.times * u64::from(t.is_locked)),
            collecting,
            calls: sum(|t| t.times * u64::from(t.is_call)),
            functions,
        }
    }

    /// One line: which functions, the most expensive first.
    pub fn line(&self) -> String {
        let mut all: Vec<_> = self.functions.iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(a.1));
        let parts = all.iter().filter(|(_, each)| **each >= LEAST).take(NAMED);
        let parts: Vec<_> = parts
            .map(|(name, each)| format!("{each:.1} {name}"))
            .collect();
        format!("{} {}: {}", self.system, self.op, parts.join(", "))
    }
}

/// The file: functions by name, numbers rounded, so that only what has changed differs.
pub fn file(all: &[Counted]) -> String {
    let mut out = String::from(
        "What one message of 4 KiB executes, by operation and function, stepped through: docs/benchmarks/README.md says how to make this file.\n",
    );
    for one in all {
        let _ = writeln!(
            out,
            "\n{} {}: {:.0} instructions, {:.0} of them the bench's, {:.1} locked, {:.1} of them in collection, {:.1} system calls",
            one.system, one.op, one.instructions, one.bench, one.locked, one.collecting, one.calls
        );
        let named = |each: f64| each >= LEAST;
        for (name, each) in one.functions.iter().filter(|(_, each)| named(**each)) {
            let _ = writeln!(out, "{each:>6.0}  {name}");
        }
        let rest = one.functions.values().filter(|each| !named(**each));
        let rest: f64 = rest.sum();
        if rest >= 0.05 {
            let _ = writeln!(out, "{rest:>6.1}  in functions with less than half of one");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_sorted_by_name_and_rounded() {
        let tally = |at, times, is_locked| Tally {
            op: 1,
            at,
            times,
            is_locked,
            is_call: false,
        };
        let all = [
            tally(1, 100, false),
            tally(2, 2001, true),
            tally(3, 1, false),
            tally(9, 30, false),
        ];
        let names = [(1, "b"), (2, "a"), (3, "rare")];
        let name = |text: &str| Name {
            text: text.to_owned(),
            is_bench: text == "b",
            is_collection: text == "a",
        };
        let names = names.map(|(at, text)| (at, name(text))).into();
        let one = Counted::of("ours", "send", &all.each_ref(), &names, 10.0);
        assert_eq!(one.line(), "ours send: 200.1 a, 10.0 (bench) b, 3.0 ?");
        let file = file(&[one]);
        let want = "ours send: 213 instructions, 10 of them the bench's, 200.1 locked, 200.1 of them in collection, 0.0 system calls\n    10  (bench) b\n     3  ?\n   200  a\n   0.1  in functions";
        assert!(file.contains(want), "{file}");
    }
}
