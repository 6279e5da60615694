//! The demonstration runs to its end, and its checks hold. Its speed is not checked.

use std::process::{Command, Stdio};
use tranship_testkit::Watchdog;

#[test]
fn the_demonstration_holds_what_it_says() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let input = dir.path().join("input");
    // Compressible, and no two frames alike.
    let bytes: Vec<u8> = (0..3_000_017u32)
        .flat_map(|i| (i / 3).to_le_bytes())
        .collect();
    std::fs::write(&input, bytes).expect("the input");
    let output = Command::new(env!("CARGO_BIN_EXE_tranship"))
        .args(["demo", "--frame", "256KiB", "--stage", "300ms", "--json"])
        .args(["--svg", "picture.svg"])
        .arg(&input)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("the demonstration");
    let said = String::from_utf8_lossy(&output.stderr);
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{report}");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    assert!(
        !checks.is_empty() && checks.iter().all(|c| c["holds"] != false),
        "{report}"
    );
    for check in checks.iter().filter(|c| c["holds"].is_null()) {
        tranship_testkit::skipped(format!("of the demonstration: {check}"));
    }
    let picture = std::fs::read_to_string(dir.path().join("picture.svg"));
    assert!(picture.is_ok_and(|picture| picture.starts_with("<svg")));
}
