//! The files for systemd in `dist/`, as systemd reads them.

use std::path::{Path, PathBuf};
use std::process::Command;
use tranship_testkit::{Said, folder, skipped};

/// Worst value that `systemd-analyze security` may report, in tenths; 20 is near the end of its "OK".
const EXPOSURE: &str = "--threshold=20";

/// All files in a folder of their own; the services start the program that was built here.
fn installed() -> (tempfile::TempDir, [PathBuf; 4]) {
    let dir = folder().expect("a folder");
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../dist");
    let program = env!("CARGO_BIN_EXE_tranship");
    let files = [
        "tranship.service",
        "tranship-web.service",
        "tranship.socket",
        "tranship-cache.service",
    ]
    .map(|name| {
        let text = std::fs::read_to_string(dist.join(name)).expect("a unit file");
        let file = dir.path().join(name);
        std::fs::write(&file, text.replace("/usr/bin/tranship", program)).expect("writing");
        file
    });
    (dir, files)
}

/// Runs the analysis. Nothing, after reporting so, where systemd's tools are not.
fn analyze(arguments: &[&str], files: &[PathBuf]) -> Option<Said> {
    let mut command = Command::new("systemd-analyze");
    match command.args(arguments).args(files).output() {
        Ok(output) => Some(output.into()),
        Err(error) => {
            skipped(format!("systemd-analyze: {error}"));
            None
        }
    }
}

#[test]
fn systemd_understands_every_line() {
    let (_dir, files) = installed();
    let Some(output) = analyze(&["verify", "--man=no"], &files) else {
        return;
    };
    // Keys that it does not know, and values, are warnings.
    output.ends(0, &[]);
    let about_ours = output.err.lines().filter(|l| l.contains("tranship"));
    assert_eq!(about_ours.count(), 0, "{output:?}");
}

#[test]
fn the_services_can_do_little() {
    let (_dir, [service, web, _, cache]) = installed();
    for service in [service, web, cache] {
        let arguments = ["security", "--offline=true", "--no-pager", EXPOSURE];
        let Some(output) = analyze(&arguments, &[service]) else {
            return;
        };
        output.ends(0, &[]);
    }
}

/// Stored values have room, and come back after a kill, too.
#[test]
fn the_manager_s_unit_keeps_what_is_stored() {
    let (_dir, [service, ..]) = installed();
    let text = std::fs::read_to_string(service).expect("a unit file");
    let most = text
        .lines()
        .find_map(|l| l.strip_prefix("FileDescriptorStoreMax="));
    let most: u32 = most.and_then(|n| n.parse().ok()).expect("a number");
    assert!(most >= 4000, "as many as the manager stores: {most}");
    assert!(text.contains("\nType=notify\n") && text.contains("\nRestart="));
}
