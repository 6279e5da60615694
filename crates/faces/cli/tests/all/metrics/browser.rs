//! A browser, if there is one.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::skipped;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/metrics/browser.py");
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "chromium-headless-shell",
];

fn there(program: &&str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|s| s.success())
}

/// Opens a page; nothing, after saying so, where it cannot be done.
pub fn open(page: &str, dir: &Path, wanted: &Value) -> Option<Value> {
    let Some(browser) = BROWSERS.into_iter().find(there) else {
        skipped("no Chromium here (scripts/deps.sh more)");
        return None;
    };
    if !there(&"python3") {
        skipped("no python3 here");
        return None;
    }
    let mut command = Command::new("python3");
    command
        .arg(SCRIPT)
        .args([browser, page])
        .arg(dir.join("profile"))
        .arg(wanted.to_string());
    // The browser makes files at home otherwise.
    command.env("HOME", dir).env("XDG_RUNTIME_DIR", dir);
    let output = command.stdin(Stdio::null()).output().expect("python3");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    Some(serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}")))
}
