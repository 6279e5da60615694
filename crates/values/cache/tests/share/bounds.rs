//! Limits of a reader's held values, and their fate when it dies.

use super::kit::{Did, Do, Stage, stage, until};
use tranship_cache::Share;
use tranship_testkit::{Exit, Watchdog};

fn tight(share: &mut Share) {
    share.memory = 2 << 20;
    share.readers = 4;
    share.held = 10;
}

fn fill(stage: &Stage, len: usize) {
    for n in 0..12 {
        stage.set(&format!("k{n}"), 0, &vec![b'x'; len]);
    }
}

#[test]
fn so_many_values() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, tight, |_| {});
    fill(&stage, 100);
    let reader = stage.reader();
    reader.open();
    for n in 0..10 {
        reader.hit(&format!("k{n}"));
    }
    // A value that it has already adds nothing.
    reader.hit("k3");
    let why = reader.refusal("k10");
    assert!(
        why.contains("10 values are held") && why.contains("no more than 10"),
        "{why}"
    );
    assert_eq!(reader.ask(Do::Drop("k5".into())), Did::Done);
    reader.hit("k10");
    reader.refusal("k11");
    assert_eq!(
        reader.get("nothing"),
        Did::Missed,
        "a miss is told all the same"
    );
}

#[test]
fn so_many_bytes() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, tight, |_| {});
    fill(&stage, 200_000);
    let (one, two) = (stage.reader(), stage.reader());
    one.open();
    two.open();
    for reader in [&one, &two] {
        reader.hit("k0");
        reader.hit("k1");
        let why = reader.refusal("k2");
        assert!(why.contains("at most 524288"), "{why}");
        reader.ask(Do::Drop("k0".into()));
        reader.hit("k2");
    }
    stage.set("large", 0, &vec![1; 600_000]);
    let why = one.refusal("large");
    assert!(why.contains("600012 more"), "{why}");
}

#[test]
fn so_long() {
    let _dog = Watchdog::new();
    let stage = stage(
        64 << 20,
        |share| share.held_for = std::time::Duration::ZERO,
        |_| {},
    );
    fill(&stage, 100);
    let reader = stage.reader();
    reader.open().hit("k0");
    until(|| match reader.ask(Do::Get("k1".into(), "brief".into())) {
        Did::Hit(_) => reader.ask(Do::Drop("brief".into())) != Did::Done,
        Did::Failed(why) => {
            assert!(why.contains("has been held for"), "{why}");
            true
        }
        other => panic!("{other:?}"),
    });
    reader.ask(Do::Drop("k0".into()));
    reader.hit("k1");
}

/// A reader that holds something keeps a place, whether it is connected or not; a killed reader does not.
#[test]
fn a_place_is_had_until_all_is_let_go_of() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, |share| share.readers = 1, |_| {});
    fill(&stage, 100_000);
    let (one, two) = (stage.reader(), stage.reader());
    one.open().hit("k0");
    let full = |did: Did| matches!(did, Did::Failed(why) if why.contains("1 readers"));
    assert!(full(two.ask(Do::Open)));
    one.ask(Do::Close);
    assert!(full(two.ask(Do::Open)), "it holds a value still");
    // The place is the reader's own.
    one.open();
    one.ask(Do::Close);
    one.ask(Do::Drop("k0".into()));
    until(|| two.ask(Do::Open) == Did::Done);
}

#[test]
fn a_reader_that_is_killed_gives_all_back() {
    let _dog = Watchdog::new();
    let stage = stage(
        64 << 20,
        |share| (share.memory, share.readers) = (2 << 20, 1),
        |_| {},
    );
    for round in 0..5 {
        for n in 0..10 {
            stage.set(&format!("k{n}"), 0, &vec![round; 90_000]);
        }
        let reader = stage.reader();
        until(|| reader.ask(Do::Open) == Did::Done);
        for n in 0..10 {
            reader.hit(&format!("k{n}"));
        }
        assert_eq!(reader.0.kill(), Exit::Signal(9));
    }
}
