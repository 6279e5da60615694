//! Producers, consumers and their manager, killed while items flow: each item comes once, comes again and says so, or is
//! reported; nothing leaks, and the survivors are served.
//!
//! Payloads carry their id and a checksum. A consumer verifies each at receipt and again before it drops it.
//!
//! NOT here: liars (`hostile`), interleavings (the models in `ring`).

mod cast;
mod log;
mod stage;

use stage::{Role, Stage};
use tranship_testkit::{Exit, Random, Watchdog};

/// Steps of the protocol at which a process dies, and the processes that reach them.
const POINTS: [(&str, Role); 16] = [
    ("readers.connected", Role::Consumer(0)),
    ("readers.connected:2", Role::Consumer(0)),
    ("queue.announced", Role::Consumer(0)),
    ("queue.announced:30", Role::Consumer(1)),
    ("queue.taken", Role::Consumer(2)),
    ("queue.taken:40", Role::Consumer(0)),
    ("queue.kept:20", Role::Consumer(1)),
    ("queue.acks:10", Role::Consumer(2)),
    ("queue.acked:20", Role::Consumer(2)),
    ("queue.asleep:3", Role::Consumer(0)),
    ("queue.left", Role::Consumer(1)),
    ("queue.published:50", Role::Producer(0)),
    ("queue.given_back", Role::Producer(0)),
    ("readers.joined", Role::Producer(1)),
    ("readers.joined:3", Role::Producer(0)),
    ("readers.leaves", Role::Producer(1)),
];

#[test]
fn at_each_step() {
    let dog = Watchdog::new();
    let mut stage = Stage::new(&mut Random::printed("at_each_step"));
    for (point, role) in POINTS {
        dog.step(format_args!("{point} of {role:?}"));
        stage.replace_doomed(role, point);
        if matches!(role, Role::Producer(_)) {
            // A newcomer has it say where to begin, and one that goes has it give back.
            stage.replace(Role::Consumer(2));
        }
        let exit = stage.of(role).wait();
        assert_eq!(exit, Exit::Signal(libc::SIGKILL), "{point}");
        stage.flows(Some(role));
        stage.replace(role);
        stage.flows(None);
    }
    stage.ends();
}

#[test]
fn at_random() {
    let dog = Watchdog::new();
    let mut random = Random::printed("at_random");
    let mut stage = Stage::new(&mut random);
    for n in 0..tranship_testkit::kills(60, 2000) {
        let role = match random.below(10) {
            0 | 1 => Role::Producer(0),
            2 => Role::Producer(1),
            3 => Role::Manager,
            other => Role::Consumer(usize::try_from(other % 3).unwrap_or(0)),
        };
        dog.step(format_args!("{n}: {role:?}"));
        random.instant(std::time::Duration::from_millis(4));
        stage.kill(role);
        if role != Role::Manager {
            stage.flows(Some(role));
        }
        stage.replace(role);
        stage.flows(None);
    }
    dog.step("all kills");
    stage.ends();
}

#[test]
fn a_consumer_that_hangs_is_named() {
    let _dog = Watchdog::new();
    let mut stage = Stage::new(&mut Random::printed("a_consumer_that_hangs_is_named"));
    let (pid, texts) = stage.hangs();
    let name = format!("process {pid}");
    assert!(
        texts.iter().any(|text| text.contains(&name)),
        "{pid}: {texts:?}"
    );
    stage.flows(None);
    stage.ends();
}

#[test]
fn a_death_is_seen_while_the_manager_hangs() {
    let _dog = Watchdog::new();
    let stage = Stage::new(&mut Random::printed(
        "a_death_is_seen_while_the_manager_hangs",
    ));
    stage.ends_beside_a_manager_that_hangs();
}
