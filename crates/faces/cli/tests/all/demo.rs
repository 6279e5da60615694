//! The demonstration runs to its end, and its checks hold. Its speed is not checked.

use tranship_testkit::{Said, Watchdog, folder, skipped, tranship};

#[test]
fn the_demonstration_holds_what_it_says() {
    let _dog = Watchdog::new();
    let dir = folder().expect("a folder");
    let input = dir.path().join("input");
    // Compressible, and no two frames alike.
    let bytes: Vec<u8> = (0..3_000_017u32)
        .flat_map(|i| (i / 3).to_le_bytes())
        .collect();
    std::fs::write(&input, bytes).expect("the input");
    let mut demo = tranship(&["demo", "--frame", "256KiB", "--stage", "300ms"]);
    demo.args(["--json", "--svg", "picture.svg"]).arg(&input);
    let report = Said::of(demo.current_dir(dir.path())).json();
    let checks = report["checks"].as_array().expect("checks");
    assert!(
        !checks.is_empty() && checks.iter().all(|c| c["holds"] != false),
        "{report}"
    );
    for check in checks.iter().filter(|c| c["holds"].is_null()) {
        skipped(format!("of the demonstration: {check}"));
    }
    let picture = std::fs::read_to_string(dir.path().join("picture.svg"));
    assert!(picture.is_ok_and(|picture| picture.starts_with("<svg")));
}
