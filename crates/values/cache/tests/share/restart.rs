//! The manager dies and another one comes. Connected readers go on meanwhile, and afterwards the name is there again,
//! for them and for others.

use super::kit::{Did, Do, stage_in, sum, until};
use std::time::{Duration, Instant};
use tranship_core::Domain;
use tranship_testkit::{Exit, Watchdog, payload, start_manager};

#[test]
fn the_name_is_there_again_with_the_next_manager() {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().expect("a folder");
    let at = folder.path().join("m.sock");
    let mut manager = start_manager(&at, "");
    let domain = Domain::builder().name("server").socket(&at).connect();
    let domain = domain.expect("a domain");
    let stage = stage_in(domain, 64 << 20, |_| {}, |_| {});
    let bytes = |n: u64| payload::made(50_000, n, 1);
    stage.set("key", 1, &bytes(0));
    let old = stage.reader();
    old.open().hit("key");
    for round in 1..4 {
        assert_eq!(manager.kill(), Exit::Signal(9));
        // Without a manager.
        assert_eq!(old.hit("key").sum, sum(&bytes(round - 1)), "{round}");
        manager = start_manager(&at, "");
        stage.set("key", 1, &bytes(round));
        let new = stage.reader();
        until(|| new.ask(Do::Open) == Did::Done);
        assert_eq!(new.hit("key").sum, sum(&bytes(round)), "{round}");
        assert_eq!(old.hit("key").sum, sum(&bytes(round)), "{round}");
        // A reader that was there before opens it anew.
        old.ask(Do::Close);
        until(|| old.ask(Do::Open) == Did::Done);
        assert_eq!(old.hit("key").sum, sum(&bytes(round)), "{round}");
    }
}

#[test]
fn a_manager_that_is_late_is_waited_for_and_others_are_answered_meanwhile() {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().expect("a folder");
    let at = folder.path().join("m.sock");
    let manager = start_manager(&at, "");
    let domain = Domain::builder().name("server").socket(&at).connect();
    let domain = domain.expect("a domain");
    let stage = stage_in(domain, 64 << 20, |_| {}, |_| {});
    let (small, large) = (payload::made(500, 1, 1), payload::made(4_000_000, 2, 1));
    stage.set("small", 1, &small);
    stage.set("large", 1, &large);
    let (patient, other) = (stage.reader(), stage.reader());
    patient.open();
    other.open().hit("small");
    manager.stop();
    // The value's copy needs memory that only the manager can give.
    let question = Do::Get("large".into(), "large".into());
    patient.0.send(&question).expect("sent");
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(2) {
        assert_eq!(other.hit("small").sum, sum(&small));
    }
    manager.resume();
    match patient.0.recv().expect("an answer") {
        Did::Hit(got) => assert_eq!(got.sum, sum(&large)),
        wrong => panic!("{wrong:?}"),
    }
}
