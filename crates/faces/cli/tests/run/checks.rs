//! Faults of a file that are found before anything starts.

use crate::stage::Stage;
use tranship_testkit::{Said, Watchdog, has, is_root};

fn is_refused(text: &str, line: usize, part: &str) {
    let stage = Stage::new(text);
    for arguments in [&["--check"][..], &[]] {
        let place = format!("test.toml:{line}: ");
        Said::from(stage.run(arguments)).ends(2, &[&place, part]);
    }
    assert!(!stage.dir.path().join("started").exists());
    stage.nothing_is_left();
}

#[test]
fn faults_are_found_before_anything_starts() {
    let _dog = Watchdog::new();
    let first = "[component.a]\nrun = [\"touch\", \"DIR/started\"]\nsandbox.write = [\"DIR\"]\n";
    is_refused(
        &format!("{first}[component.b]\nrun = [\"no-such-program\"]\n"),
        5,
        "no program `no-such-program`",
    );
    is_refused(
        &format!("{first}[component.a]\nrun = [\"true\"]\n"),
        4,
        "duplicate key",
    );
    let circle = "[component.b]\nrun = [\"true\"]\n[channel.x]\nfrom = \"a\"\nto = \"b\"\n[channel.y]\nfrom = \"b\"\nto = \"a\"\n";
    is_refused(
        &format!("{first}{circle}"),
        6,
        "a circle without room: a -> b -> a",
    );
}

/// Whatever the kernel refuses is found by trying it.
#[test]
fn an_impossible_sandbox_is_found() {
    let _dog = Watchdog::new();
    // Fewer descriptors than are open: no library could be loaded either.
    let text = "[component.a]\nrun = [\"true\"]\n[component.b]\nrun = [\"true\"]\nsandbox.uid = 4294967294\nsandbox.limits.descriptors = 0\n";
    is_refused(text, if is_root() { 3 } else { 5 }, "");
}

#[test]
fn a_check_draws_the_program() {
    let _dog = Watchdog::new();
    let stage = Stage::new(
        "[component.a]\nrun = [\"true\"]\n[component.b]\nrun = [\"true\"]\n[channel.x]\nfrom = \"a\"\nto = \"b\"\nwhen_full = \"drop\"\n",
    );
    let picture = stage.dir.path().join("picture.svg");
    let said = Said::from(stage.run(&["--check", "--draw", &picture.to_string_lossy()]));
    has(&said.well(), &["  a --[channel x, drops when full]--> b\n"]);
    let picture = std::fs::read_to_string(picture).expect("a picture");
    assert!(
        picture.contains(">a</text>") && picture.ends_with("</svg>\n"),
        "{picture}"
    );
    has(
        &Said::from(stage.run(&["--dry-run"])).out,
        &["  send `x`: "],
    );
}
