//! Benches still run to their end, and what moves arrives whole: they check each message themselves. How fast is not looked at.

use std::process::Command;
use std::time::Duration;
use tranship_testkit::Watchdog;

fn runs(args: &[&str]) {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return tranship_testkit::skipped("benches need two processors");
    }
    let _dog = Watchdog::new(Duration::from_secs(300));
    let bench = Command::new(env!("CARGO_BIN_EXE_tranship-bench"))
        .args(args)
        .args(["--runs", "1", "--sample-ms", "2", "--json"])
        .output()
        .expect("the bench");
    let said = String::from_utf8_lossy(&bench.stderr);
    assert!(bench.status.success(), "{args:?}: {said}");
    let report: serde_json::Value = serde_json::from_slice(&bench.stdout).expect("JSON");
    let rows = report["rows"].as_array().map_or(0, Vec::len);
    assert!(rows > 0, "{args:?}: no rows: {said}");
}

#[test]
fn messages() {
    runs(&["roundtrip", "--payload", "4K"]);
    runs(&["stream", "--payload", "4K"]);
    runs(&["ops"]);
}

#[test]
fn bulk_channels() {
    runs(&["bulk-rtt", "--payload", "4K"]);
    runs(&["bulk-throughput", "--payload", "4K", "--buffers", "16"]);
    runs(&["trust", "--payload", "4K,64K"]);
    runs(&["hops"]);
}
