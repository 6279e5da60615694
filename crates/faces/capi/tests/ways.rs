//! Topics, services and queues from C: the promises of their headers.

mod common;

use common::{c, compiled, good, has};
use std::process::Command;
use tranship_testkit::Watchdog;

const SANITIZED: &[&str] = &[
    "-std=c11",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];

#[test]
fn the_headers_promises_are_kept() {
    let _dog = Watchdog::new();
    let said = Command::new(c("tests/programs/ways.c")).output();
    assert_eq!(good(said.expect("it runs")), "all as promised\n");
}

#[test]
fn they_are_kept_under_what_finds_mistakes_in_memory() {
    let _dog = Watchdog::new();
    if !has("cc", "gcc") {
        return;
    }
    let said = Command::new(compiled("cc", "tests/programs/ways.c", SANITIZED)).output();
    assert_eq!(good(said.expect("it runs")), "all as promised\n");
}
