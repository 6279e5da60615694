//! The ends of channels behave as the model says, at every address and level of trust. Compared are results, errors,
//! messages, bytes, and the access to each buffer's memory, which the test tries by touching it. The programs are
//! random programs of four domains, with right and wrong steps, and all ways between the states of small
//! configurations. A second form has a process for each domain, which SIGKILL kills where the model has a death. A
//! failing program is reduced to a smaller one.

#[path = "../all/kit.rs"]
#[allow(dead_code, unused_imports, reason = "the other tests use all of it")]
mod kit;
mod mapped;
mod order;
mod party;
mod rare;
mod seat;
#[path = "../all/slow.rs"]
#[allow(dead_code, reason = "as above")]
mod slow;
mod stage;
mod walk;
mod world;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use stage::Stage;
use tranship_model::Trust;
use tranship_model::draw::shot;
use tranship_model::explore::{self, Does, circle, torture, two_ways};
use tranship_testkit::Random;
use walk::{Amount, walk};
use world::World;

const DOMAINS: u8 = 4;

/// Operations that every run of random programs contains.
const DONE: [&str; 14] = [
    "Alloc",
    "Write",
    "Freeze",
    "Clone",
    "Exclusive",
    "Drop",
    "Send",
    "Move",
    "SendAll",
    "MoveAll",
    "Release",
    "Deliver",
    "Deliver: nothing",
    "Close",
];

/// Random programs over one stage, at all levels; a failure shrinks.
fn random(name: &str, amount: (u32, usize), stage: &Stage) {
    random_at(&Trust::ALL, name, amount, stage);
}

fn random_at(levels: &[Trust], name: &str, amount: (u32, usize), stage: &Stage) {
    random_from((circle, DOMAINS), levels, name, amount, stage);
}

fn random_from(
    (start, domains): (fn(&mut dyn Does, Trust), u8),
    levels: &[Trust],
    name: &str,
    (cases, steps): (u32, usize),
    stage: &Stage,
) {
    let dog = kit::dog();
    let seed = Random::printed(name).seed();
    let programs = (0..levels.len(), prop::collection::vec(shot(), 1..steps));
    // Again, with other dice, until they have had everything done once. A runner goes through its cases once.
    for round in 0.. {
        let mut runner = TestRunner::new(ProptestConfig {
            cases: if torture() { 50 * cases } else { cases },
            rng_seed: RngSeed::Fixed(seed.wrapping_add(round)),
            failure_persistence: None,
            max_shrink_iters: 300,
            ..ProptestConfig::default()
        });
        let outcome = runner.run(&programs, |(trust, shots)| {
            dog.step(name);
            let mut world = World::new(stage, domains);
            start(&mut world, levels[trust]);
            for shot in shots {
                world.shoot(&shot).map_err(TestCaseError::fail)?;
            }
            world.end().map_err(TestCaseError::fail)
        });
        outcome.unwrap_or_else(|what| panic!("{what}"));
        if stage.lacks(&DONE).is_empty() {
            break;
        }
    }
    stage.has_done(name, &DONE);
}

#[test]
fn local() {
    random("local", (80, 300), &Stage::threads("local", DOMAINS));
}

#[test]
fn shm() {
    random("shm", (60, 300), &Stage::threads("shm", DOMAINS));
}

/// Walks a world where no process can write a sent buffer and nothing is copied.
#[test]
fn shm_sealed() {
    let stage = Stage::threads("shm", DOMAINS).sealing();
    random_at(&[Trust::None], "shm, sealed", (40, 300), &stage);
}

#[test]
fn shm_sealed_between_processes() {
    let stage = Stage::processes("shm", DOMAINS).sealing();
    random_at(&[Trust::None], "shm, sealed, processes", (40, 200), &stage);
}

#[test]
fn copy() {
    random("copy", (30, 200), &Stage::threads("copy", DOMAINS));
}

/// Over a backend that says everything late.
#[test]
fn late() {
    random("late", (40, 200), &Stage::threads("slow", DOMAINS));
}

#[test]
fn tcp_plain() {
    let stage = Stage::threads("tcp+plain", DOMAINS);
    random("tcp+plain", (30, 200), &stage);
}

#[test]
fn tcp() {
    random("tcp", (20, 200), &Stage::threads("tcp", DOMAINS));
}

/// Receive-master mode: the receiver's pool, its empty buffers over one channel, filled ones back over the other.
#[test]
fn receive_master() {
    for (name, amount) in [
        ("local", (15, 200)),
        ("shm", (20, 200)),
        ("copy", (10, 150)),
        ("slow", (10, 150)),
        ("tcp+plain", (10, 150)),
        ("tcp", (10, 150)),
    ] {
        let stage = Stage::threads(name, 2);
        let name = format!("receive-master over {name}");
        random_from((two_ways, 2), &Trust::ALL, &name, amount, &stage);
    }
}

/// All ways of it, over every backend. Only where memory is shared the levels differ.
#[test]
fn all_of_receive_master() {
    for name in ["local", "shm", "copy", "slow", "tcp+plain", "tcp"] {
        let stage = Stage::threads(name, 2);
        let levels: &[Trust] = match name {
            "shm" => &Trust::ALL,
            _ => &[Trust::Half],
        };
        for trust in levels {
            let case = explore::receive_master(stage.way, *trust);
            walks(&case, Amount::All { one_death_in: 1 }, &stage);
        }
    }
}

#[test]
fn all_of_a_pool_that_is_removed() {
    for name in ["local", "shm"] {
        let stage = Stage::threads(name, 2);
        let case = explore::a_pool_is_removed(stage.way);
        walks(&case, Amount::All { one_death_in: 1 }, &stage);
        stage.has_done(
            name,
            &[
                "Remove",
                "Remove: PoolNotAssigned",
                "Assign",
                "Send: PoolNotAssigned",
            ],
        );
    }
}

#[test]
fn shm_between_processes() {
    random(
        "shm, processes",
        (40, 200),
        &Stage::processes("shm", DOMAINS),
    );
}

/// Each process with a manager of its own, as on another machine. None is killed: which messages of a killed process
/// arrive is the kernel's choice, and not the model's (see `kills.rs` of the other tests).
#[test]
fn copy_between_processes() {
    random(
        "copy, processes",
        (15, 200),
        &Stage::processes("copy", DOMAINS),
    );
}

#[test]
fn tcp_between_processes() {
    random(
        "tcp, processes",
        (15, 200),
        &Stage::processes("tcp+plain", DOMAINS),
    );
}

/// Sequences that random programs find rarely, at each level of trust.
#[test]
fn rare_sequences_between_processes() {
    let dog = kit::dog();
    let stage = Stage::processes("shm", DOMAINS);
    for trust in [Trust::Producer, Trust::Half, Trust::Full] {
        for (name, ops) in rare::all() {
            dog.step(format_args!("{name}, {trust}"));
            let mut world = World::new(&stage, DOMAINS);
            circle(&mut world, trust);
            for op in &ops {
                let done = world.step(op);
                done.unwrap_or_else(|what| panic!("{what}\nin {name}, {trust}"));
            }
            world
                .end()
                .unwrap_or_else(|what| panic!("{what}\nin {name}, {trust}"));
        }
    }
}

fn walks(case: &explore::Case, amount: Amount, stage: &Stage) {
    let dog = kit::dog();
    assert_eq!(case.way, stage.way);
    let amount = match torture() {
        true => Amount::All { one_death_in: 1 },
        false => amount,
    };
    walk(case, &amount, &dog, || World::new(stage, case.domains));
}

#[test]
fn all_of_one_channel_between_processes() {
    let case = explore::two_domains_one_channel();
    let amount = Amount::All { one_death_in: 16 };
    walks(&case, amount, &Stage::processes("shm", case.domains));
}

#[test]
fn some_of_a_circle() {
    let case = explore::three_domains_in_a_circle();
    let (worlds, steps) = (10, 300);
    let amount = Amount::Some { worlds, steps };
    walks(&case, amount, &Stage::threads("shm", case.domains));
}

#[test]
fn some_of_two_channels_and_a_death_between_processes() {
    let case = explore::two_channels_and_a_death();
    let (worlds, steps) = (25, 80);
    let amount = Amount::Some { worlds, steps };
    walks(&case, amount, &Stage::processes("shm", case.domains));
}

#[test]
fn some_of_a_row() {
    let case = explore::three_domains_in_a_row();
    let (worlds, steps) = (20, 100);
    let amount = Amount::Some { worlds, steps };
    walks(&case, amount, &Stage::threads("shm", case.domains));
}

#[test]
fn some_of_sealed_ones_between_processes() {
    let case = explore::sealed_at_the_receiver();
    let (worlds, steps) = (20, 80);
    let amount = Amount::Some { worlds, steps };
    let stage = Stage::processes("shm", case.domains).sealing();
    walks(&case, amount, &stage);
}

#[test]
fn some_of_copies_between_processes() {
    let case = explore::copies_at_the_receiver();
    let (worlds, steps) = (20, 80);
    let amount = Amount::Some { worlds, steps };
    walks(&case, amount, &Stage::processes("shm", case.domains));
}
