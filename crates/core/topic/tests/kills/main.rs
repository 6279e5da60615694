//! A publisher, subscribers and their manager, killed while messages flow: nothing is reused early, nothing leaks, and
//! the survivors are served.
//!
//! Payloads carry their id and a checksum. A subscriber verifies each at receipt and again before it drops it.
//!
//! NOT here: liars (`hostile`), interleavings (the models in `ledger`).

mod cast;
mod hostile;
mod stage;

use cast::Order;
use stage::{Role, Stage, kills};
use tranship_testkit::{Exit, Random, Watchdog};

/// Steps of the protocol at which a process dies, and the processes that reach them.
const POINTS: [(&str, Role); 8] = [
    ("topic.connected", Role::Subscriber(0)),
    ("topic.claimed", Role::Subscriber(0)),
    ("topic.claimed:30", Role::Subscriber(1)),
    ("topic.held:40", Role::Subscriber(2)),
    ("topic.kept:40", Role::Subscriber(0)),
    ("topic.published:50", Role::Publisher),
    ("topic.joined", Role::Publisher),
    ("topic.joined:3", Role::Publisher),
];

#[test]
fn at_each_step() {
    let dog = Watchdog::new();
    let mut stage = Stage::new(&mut Random::printed("at_each_step"));
    for (point, role) in POINTS {
        dog.step(format_args!("{point} of {role:?}"));
        stage.kill(role);
        stage.replace_doomed(role, point);
        if role == Role::Publisher {
            // A newcomer has it say where to begin.
            stage.kill(Role::Subscriber(2));
            stage.replace(Role::Subscriber(2));
        }
        let exit = stage.of(role).wait();
        assert_eq!(exit, Exit::Signal(libc::SIGKILL), "{point}");
        stage.replace(role);
        stage.flows();
    }
    stage.ends();
}

#[test]
fn at_random() {
    let dog = Watchdog::new();
    let mut random = Random::printed("at_random");
    let mut stage = Stage::new(&mut random);
    for n in 0..kills() {
        let role = match random.below(8) {
            0 | 1 => Role::Publisher,
            2 => Role::Manager,
            other => Role::Subscriber(usize::try_from(other % 3).unwrap_or(0)),
        };
        dog.step(format_args!("{n}: {role:?}"));
        random.instant(std::time::Duration::from_millis(4));
        stage.kill(role);
        if role != Role::Publisher && role != Role::Manager {
            stage.others_go_on(role);
        }
        stage.replace(role);
        stage.flows();
    }
    dog.step("all kills");
    stage.ends();
}

/// Nearly all subscribers die in one moment, some of them in the middle of a receipt.
#[test]
fn most_of_many_at_once() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("most_of_many_at_once");
    let mut stage = Stage::with(&mut random, stage::MANY);
    stage.flows();
    for n in 1..stage::MANY {
        stage.of(Role::Subscriber(n)).signal(libc::SIGKILL);
    }
    for n in 1..stage::MANY {
        stage.kill(Role::Subscriber(n));
    }
    let alone = stage.of(Role::Publisher).send(&Order::Alone(1));
    alone.expect("sent");
    stage.done(Role::Publisher);
    stage.flows();
    stage.ends();
}
