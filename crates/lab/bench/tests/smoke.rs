//! Every bench still runs to its end, and what moves arrives whole: they check each message themselves. How fast is not looked at.

use std::process::Command;
use std::time::Duration;
use tranship_testkit::{Watchdog, artifact, skipped};

/// Returns standard output and standard error of a bench.
fn bench(args: &[&str]) -> (String, String) {
    let bench = Command::new(env!("CARGO_BIN_EXE_tranship-bench"))
        .args(args)
        .output()
        .expect("the bench");
    let said = String::from_utf8_lossy(&bench.stderr);
    assert!(bench.status.success(), "{args:?}: {said}");
    missed(args[0], &said).for_each(skipped);
    let report = String::from_utf8(bench.stdout).expect("text");
    (report, said.into_owned())
}

/// Returns the parts that a bench could not measure here, except those whose feature tests do not build.
fn missed(bench: &str, said: &str) -> impl Iterator<Item = String> {
    let lines = said.lines().filter_map(|l| l.strip_prefix("SKIPPED: "));
    let lines = lines.filter(|line| !line.contains("--features"));
    lines.map(move |line| format!("bench {bench}: {line}"))
}

#[test]
fn what_is_missed_is_skipped_aloud() {
    let said = "SKIPPED: a: no liba.so here: apt-get install a\nround 1\n\
        SKIPPED: b: build with --features b (make bench-build)\nSKIPPED: of c, d: why\n";
    let all: Vec<_> = missed("alloc", said).collect();
    let a = "bench alloc: a: no liba.so here: apt-get install a";
    assert_eq!(all, [a, "bench alloc: of c, d: why"]);
}

/// Returns the benches that `--help` lists, so that none is forgotten.
fn names() -> Vec<String> {
    let (help, _) = bench(&["--help"]);
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    // What goes on on the next line is indented further.
    let list = list.filter(|line| !line.starts_with("   "));
    let names = list.filter_map(|line| line.split_whitespace().next());
    names.filter(|n| *n != "help").map(str::to_owned).collect()
}

#[test]
fn every_bench_runs() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skipped("benches need two processors");
    }
    // As they are now: those of an earlier build may be there.
    for (package, file) in [
        ("tranship-py", "libtranship_py.so"),
        ("tranship-zcopy-preload", "libtranship_zcopy.so"),
    ] {
        let _ = artifact(package, file);
    }
    let dog = Watchdog::within(Duration::from_secs(1200));
    let names = names();
    assert!(names.len() >= 13, "{names:?}");
    for name in names {
        // A part of those that take longest.
        let part: &[&str] = match name.as_str() {
            "instructions" => &["--only", "tranship"],
            "zc-cache" => &["--mode", "cold,udp", "--client", "drop"],
            "zc-varnish" => &["--mode", "hot", "--payload", "4K"],
            _ => &[],
        };
        let quick = [&name, "--quick", "--runs", "1", "--json"];
        let (report, said) = bench(&[&quick[..], part].concat());
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        let rows = report["rows"].as_array().map_or(0, Vec::len);
        let whole = format!("SKIPPED: {name}: ");
        let is_whole = said.lines().any(|line| line.starts_with(&whole));
        assert!(rows > 0 || is_whole, "{name}: no rows: {said}");
        dog.step(name);
    }
}

/// On one processor, which is all that some machines have: there is neither near nor far, and what is said says so.
#[test]
fn one_core_is_enough_to_run_and_has_no_placement() {
    let dog = Watchdog::within(Duration::from_secs(1200));
    let core = rustix::thread::sched_getcpu().to_string();
    for name in ["roundtrip", "stream"] {
        let quick = ["--quick", "--runs", "1", "--json", "--cores", &core];
        let common = [name, "--only", "raw,tranship", "--payload", "64,4K"];
        let (report, said) = bench(&[&common[..], &quick].concat());
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        let rows = report["rows"].as_array().expect("rows");
        for system in ["raw", "tranship"] {
            let mut of = rows.iter().filter(|row| row["system"] == system);
            let timed = |row: &serde_json::Value| row["samples"].as_u64() > Some(0);
            assert!(of.clone().count() > 0 && of.all(timed), "{name}: {said}");
        }
        assert!(rows.iter().all(|row| row.get("placement").is_none()));
        let one_core = "both sides were on one core";
        let verdicts = report["verdicts"].as_array().expect("verdicts");
        let has = |text: &serde_json::Value| text.as_str().is_some_and(|t| t.contains(one_core));
        assert!(verdicts.iter().any(has), "{name}: {verdicts:?}");
        dog.step(name.to_owned());
    }
}
