//! Every backend does what the model says: the same results, errors, traces, states, permissions (tried by touching
//! the memory) and bytes, for random sequences of right and wrong operations.

#[path = "suite/late.rs"]
mod late;
#[path = "spec/ops.rs"]
mod ops;
#[path = "conform/probe.rs"]
mod probe;
#[path = "spec/setup.rs"]
mod setup;
#[path = "conform/world.rs"]
mod world;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use std::sync::Arc;
use tranship_bulk::backend::{Backend, Copying, Local, Shm};
use tranship_testkit::Random;
use world::World;

/// Runs random sequences over one backend; a failure shrinks to the shortest that still fails.
fn conforms(name: &str, backend: impl Fn() -> Arc<dyn Backend>) {
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let config = ProptestConfig {
        cases: if torture { 5000 } else { 60 },
        rng_seed: RngSeed::Fixed(Random::printed(name).seed()),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    };
    let sequences = (
        0..4usize,
        any::<bool>(),
        prop::collection::vec(ops::op(), 1..250),
    );
    let outcome = TestRunner::new(config).run(&sequences, |(trust, prepared, ops)| {
        let mut world = World::new(ops::DOMAINS, backend());
        if prepared {
            world.prepare(tranship_bulk::Trust::ALL[trust]);
        }
        for op in ops {
            world.step(&op).map_err(TestCaseError::fail)?;
        }
        world.end().map_err(TestCaseError::fail)
    });
    if let Err(what) = outcome {
        panic!("{what}");
    }
}

#[test]
fn local() {
    conforms("local", || Arc::new(Local));
}

#[test]
fn shm() {
    let manager = tranship_core::Domain::embedded().expect("a manager");
    conforms("shm", || Arc::new(Shm::over(&manager).expect("joined")));
}

#[test]
fn copy() {
    conforms("copy", || Arc::new(Copying));
}

#[test]
fn late_and_out_of_order() {
    conforms("late", || Arc::new(late::Late::default()));
}
