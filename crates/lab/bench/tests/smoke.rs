//! Every bench still runs to its end, and what moves arrives whole: they check each message themselves. How fast is not looked at.

use std::process::Command;
use std::time::Duration;
use tranship_testkit::{Watchdog, artifact, skipped};

/// What it prints, and what it says on the side.
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

/// What a bench could not measure here; that needs features which tests do not build with is another matter.
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

/// What `--help` lists, so that none is forgotten.
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
        ("tranship-capi", "libtranship.so"),
        ("tranship-py", "libtranship_py.so"),
        ("tranship-zcopy-preload", "libtranship_zcopy.so"),
    ] {
        let _ = artifact(package, file);
    }
    let dog = Watchdog::within(Duration::from_secs(900));
    let mut names = names();
    assert!(names.len() >= 17, "{names:?}");
    // These have a test of their own, or run for minutes whatever they are told.
    names.retain(|name| !["report", "zc-suite"].contains(&&**name));
    for name in names {
        let (report, said) = bench(&[&name, "--quick", "--runs", "1", "--json"]);
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
    let dog = Watchdog::within(Duration::from_secs(900));
    let core = rustix::thread::sched_getcpu().to_string();
    for name in ["roundtrip", "stream", "tail"] {
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

/// Every row of the design's table is there, with a verdict, whether a peer is here or not.
#[test]
fn the_report_has_every_row_and_says_what_it_could_not_measure() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skipped("benches need two processors");
    }
    let _dog = Watchdog::within(Duration::from_secs(900));
    let folder = tranship_testkit::folder().expect("a folder");
    let prefix = folder.path().join("2026-01-01-report");
    let save = prefix.to_str().expect("text");
    let (page, said) = bench(&["report", "--quick", "--runs", "1", "--save", save]);
    let saved = |extension| std::fs::read(prefix.with_added_extension(extension));
    assert!(saved("md").expect("the page") == page.as_bytes());
    let json = saved("json").expect("the numbers");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let claims = json["claims"].as_array().expect("claims");
    let rows = [
        ("round trip, busy-polling", 8),
        ("one alloc, send, receive or release", 1),
        ("a message of 4 KiB, stepped through", 4),
        ("the waiter blocks, one core", 1),
        ("round trip of forwarded buffers", 2),
        ("stream, payload untouched", 6),
        ("stream, all bytes written and read, 4 KiB and more", 4),
        ("`move_buffer` and back", 2),
        ("alloc and free, cached", 2),
        ("alloc including collection, 1 receiver", 2),
        ("growing a pool by n chunks", 1),
        ("manager's answer beside 8 hostile clients", 1),
        ("GET, one server core, client drops", 3),
        ("memory after a spike", 1),
        ("`m_getcl` and `m_freem`", 1),
        ("10 000 kills of real programs", 1),
    ];
    for (what, count) in rows {
        let of = claims.iter().filter(|claim| claim["what"] == what);
        assert_eq!(of.count(), count, "{what}");
        assert!(page.contains(&format!("| {what} |")), "{page}");
    }
    assert_eq!(
        claims.len(),
        rows.iter().map(|(_, count)| count).sum::<usize>()
    );
    for claim in claims {
        let number = claim["number"].as_str().unwrap_or_default();
        // What needs a peer that may not be here, what is measured elsewhere, and how the cores may never have lain.
        let may_miss = ["iceoryx2", "DPDK", "leaked", "cores near", "cores far"];
        let found = claim["found"].as_array().map_or(0, Vec::len);
        let stepped = claim["what"] == "a message of 4 KiB, stepped through";
        let may_not_step = stepped && said.contains("SKIPPED: instructions: ");
        assert!(
            found > 0 || may_not_step || may_miss.iter().any(|peer| number.contains(peer)),
            "{claim}: {said}"
        );
    }
    for promise in [
        "reached",
        "not measured",
        "For the README",
        "written and read",
    ] {
        assert!(page.contains(promise), "{promise}: {page}");
    }
    assert!(said.contains("report: 15 of 15, kills"), "{said}");
    let one_size = "| the same, 1 MiB";
    let cells = page.lines().find(|line| line.starts_with(one_size));
    assert!(cells.is_some_and(|cells| !cells.contains(" to ")), "{page}");
    let (page, _) = bench(&["report", "--quick", "--runs", "1", "--only", "growth,kills"]);
    assert!(!page.contains("round trip"), "{page}");
    let one = "| growing a pool by n chunks | messages to the manager | at most 1 | 1.00 |";
    assert!(page.contains(one), "{page}");
}
