//! Every bench still runs to its end, and what moves arrives whole: they check each message themselves. How fast is not looked at.

use std::process::Command;
use std::time::Duration;
use tranship_testkit::{Watchdog, skipped};

/// What it prints, and what it says on the side.
fn bench(args: &[&str]) -> (String, String) {
    let bench = Command::new(env!("CARGO_BIN_EXE_tranship-bench"))
        .args(args)
        .output()
        .expect("the bench");
    let said = String::from_utf8_lossy(&bench.stderr);
    assert!(bench.status.success(), "{args:?}: {said}");
    let report = String::from_utf8(bench.stdout).expect("text");
    (report, said.into_owned())
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
    let dog = Watchdog::new(Duration::from_secs(900));
    let names = names();
    assert!(names.len() >= 16, "{names:?}");
    for name in names {
        let (report, said) = bench(&[&name, "--quick", "--runs", "1", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        let rows = report["rows"].as_array().map_or(0, Vec::len);
        let whole = format!("SKIPPED: {name}: ");
        match said.lines().find_map(|line| line.strip_prefix(&whole)) {
            Some(why) if rows == 0 => skipped(format!("bench {name}: {why}")),
            _ => assert!(rows > 0, "{name}: no rows: {said}"),
        }
        dog.step(name);
    }
}
