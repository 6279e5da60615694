//! Topics, services and queues from C: the promises of their headers.

mod common;

use common::{SANITIZED, c, compiled, has, runs};
use tranship_testkit::Watchdog;

#[test]
fn the_headers_promises_are_kept() {
    let _dog = Watchdog::new();
    assert_eq!(runs(&c("tests/programs/ways.c")), "all as promised\n");
}

#[test]
fn they_are_kept_under_what_finds_mistakes_in_memory() {
    let _dog = Watchdog::new();
    if !has("cc", "gcc") {
        return;
    }
    assert_eq!(
        runs(&compiled("cc", "tests/programs/ways.c", SANITIZED)),
        "all as promised\n"
    );
}
