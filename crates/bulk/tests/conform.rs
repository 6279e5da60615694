//! Every backend does what the model says: the same results, errors, traces, states, permissions (tried by touching
//! the memory) and bytes, for random sequences of right and wrong operations.

#[path = "spec/aim.rs"]
mod aim;
#[path = "conform/apart.rs"]
mod apart;
#[path = "conform/crew.rs"]
mod crew;
#[path = "spec/deaths.rs"]
mod deaths;
#[path = "conform/gathered.rs"]
mod gathered;
#[path = "suite/late.rs"]
mod late;
#[path = "conform/mapped.rs"]
mod mapped;
#[path = "spec/ops.rs"]
mod ops;
#[path = "conform/probe.rs"]
mod probe;
#[path = "suite/prompt.rs"]
mod prompt;
#[path = "spec/setup.rs"]
mod setup;
#[path = "spec/states.rs"]
mod states;
#[path = "conform/walk.rs"]
mod walk;
#[path = "conform/world.rs"]
mod world;

use crew::Crew;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use states::Case;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tranship_bulk::Shm;
use tranship_bulk::Trust;
use tranship_bulk::spec::Op;
use tranship_testkit::Random;
use tranship_transport::{Backend, Copying, Local};
use walk::{Amount, walk};
use world::World;

/// Runs random sequences over one backend; a failure shrinks to the shortest that still fails.
/// From `seal_from` bytes on, buffers of level `none` are sealed instead of copied out.
fn conforms(name: &str, seal_from: u64, backend: impl Fn() -> Arc<dyn Backend>) {
    random(name, (120, 20_000), Deaths::Any, || {
        World::new(ops::DOMAINS, backend(), seal_from)
    });
}

/// Whether processes are killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deaths {
    Any,
    /// Over a network: what was sent and has not left the process, or not been read by the other end's kernel, is lost with it. What then
    /// arrives is the kernel's choice, and not the model's.
    None,
}

/// As many random sequences, each in a new world.
fn random(name: &str, (cases, shrinks): (u32, u32), deaths: Deaths, new: impl Fn() -> World) {
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let config = ProptestConfig {
        cases: if torture { 40 * cases } else { cases },
        rng_seed: RngSeed::Fixed(Random::printed(name).seed()),
        failure_persistence: None,
        max_shrink_iters: shrinks,
        ..ProptestConfig::default()
    };
    let sequences = (
        0..4usize,
        any::<bool>(),
        prop::collection::vec(aim::shot(), 1..250),
    );
    let outcome = TestRunner::new(config).run(&sequences, |(trust, prepared, ops)| {
        let mut world = new();
        if prepared {
            world.prepare(Trust::ALL[trust]);
        }
        for shot in ops {
            let op = world.aimed(&shot);
            if deaths == Deaths::None && matches!(op, Op::Kill { .. }) {
                continue;
            }
            world.step(&op).map_err(TestCaseError::fail)?;
        }
        world.end().map_err(TestCaseError::fail)
    });
    if let Err(what) = outcome {
        panic!("{what}");
    }
}

const NEVER: u64 = u64::MAX;

#[test]
fn what_random_runs_find_rarely() {
    let manager = tranship_core::Domain::embedded().expect("a manager");
    let backends: [Arc<dyn Backend>; 5] = [
        Arc::new(Local),
        Arc::new(Shm::over(&manager).expect("joined")),
        Arc::new(Copying),
        Arc::new(prompt::Prompt::plain()),
        Arc::new(prompt::Prompt::tls()),
    ];
    let sealed = |b| Trust::ALL.map(|trust| [(b, 0, trust), (b, NEVER, trust)]);
    let ways = backends.iter().flat_map(sealed).flatten();
    for (backend, seal_from, trust) in ways {
        named(trust, || {
            World::new(ops::DOMAINS, Arc::clone(backend), seal_from)
        });
    }
}

#[test]
fn local_sealed() {
    conforms("local, sealed", 0, || Arc::new(Local));
}

#[test]
fn shm_sealed() {
    let manager = tranship_core::Domain::embedded().expect("a manager");
    conforms("shm, sealed", 0, || {
        Arc::new(Shm::over(&manager).expect("joined"))
    });
}

#[test]
fn copy_sealed() {
    conforms("copy, sealed", 0, || Arc::new(Copying));
}

#[test]
fn local() {
    conforms("local", NEVER, || Arc::new(Local));
}

#[test]
fn shm() {
    let manager = tranship_core::Domain::embedded().expect("a manager");
    conforms("shm", NEVER, || {
        Arc::new(Shm::over(&manager).expect("joined"))
    });
}

#[test]
fn copy() {
    conforms("copy", NEVER, || Arc::new(Copying));
}

/// As `conforms`, with a process for each domain.
fn conforms_between_processes(scheme: &'static str, seal_from: u64, deaths: Deaths) {
    let manager = tranship_core::Domain::embedded().expect("a manager");
    let crew = Crew::new(scheme, &manager, ops::DOMAINS, 20);
    let crew = Rc::new(RefCell::new(crew));
    let name = format!("{scheme} between processes, sealed from {seal_from}");
    random(&name, (24, 500), deaths, || World::of(&crew, seal_from));
    if deaths == Deaths::Any {
        for trust in Trust::ALL {
            named(trust, || World::of(&crew, seal_from));
        }
    }
}

/// What random runs find rarely.
fn named(trust: Trust, new: impl Fn() -> World) {
    let from_nothing = [
        deaths::a_removal_that_a_death_overtakes(trust),
        deaths::a_death_after_an_end_was_forgotten(trust),
    ];
    let prepared = deaths::all().map(|ops| (true, ops));
    for (prepared, ops) in prepared
        .into_iter()
        .chain(from_nothing.map(|ops| (false, ops)))
    {
        let mut world = new();
        if prepared {
            world.prepare(trust);
        }
        // Each step compares what every domain may do.
        for op in &ops {
            let done = world.step(op);
            done.unwrap_or_else(|what| panic!("{what}\nin {trust:?}, {ops:?}"));
        }
        world.end().expect("as the model");
    }
}

#[test]
fn shm_between_processes() {
    conforms_between_processes("shm", NEVER, Deaths::Any);
}

#[test]
fn shm_between_processes_sealed() {
    conforms_between_processes("shm", 0, Deaths::Any);
}

#[test]
fn copy_between_processes() {
    conforms_between_processes("copy", NEVER, Deaths::Any);
}

#[test]
fn tcp_plain_between_processes() {
    conforms_between_processes("tcp+plain", NEVER, Deaths::None);
}

#[test]
fn tcp_tls_between_processes() {
    conforms_between_processes("tcp", NEVER, Deaths::None);
}

/// All that the model can do in a small configuration, with a process for each domain.
fn walks_between_processes(name: &str, case: &Case, amount: Amount) {
    let manager = tranship_core::Domain::embedded().expect("a manager");
    let crew = Crew::new("shm", &manager, case.domains, 500);
    let crew = Rc::new(RefCell::new(crew));
    let amount = match states::torture() {
        true => Amount::All,
        false => amount,
    };
    walk(name, case, &amount, || World::of(&crew, NEVER));
}

#[test]
fn all_of_two_domains_from_nothing_between_processes() {
    let case = states::two_domains_one_channel_from_nothing();
    walks_between_processes("from nothing", &case, Amount::All);
}

#[test]
fn all_of_a_circle_between_processes() {
    let case = states::three_domains_in_a_circle();
    walks_between_processes("circle", &case, Amount::All);
}

/// Of 140000 states; all with `TRANSHIP_TORTURE=1`.
#[test]
fn some_of_two_channels_and_a_death_between_processes() {
    let (worlds, steps) = (60, 150);
    let case = states::two_channels_between_two_domains_and_a_death();
    walks_between_processes("two channels", &case, Amount::Some { worlds, steps });
}

/// Of 7500 states; all with `TRANSHIP_TORTURE=1`.
#[test]
fn some_of_a_row_between_processes() {
    let (worlds, steps) = (300, 150);
    let case = states::three_domains_in_a_row_that_close_and_remove();
    walks_between_processes("row", &case, Amount::Some { worlds, steps });
}

#[test]
fn late_and_out_of_order() {
    conforms("late", NEVER, || Arc::new(late::Late::default()));
}

#[test]
fn tcp_plain() {
    // One port for all runs.
    let net: Arc<dyn Backend> = Arc::new(prompt::Prompt::plain());
    conforms("tcp+plain", NEVER, || Arc::clone(&net));
}

#[test]
fn tcp_tls() {
    let net: Arc<dyn Backend> = Arc::new(prompt::Prompt::tls());
    conforms("tcp", NEVER, || Arc::clone(&net));
}

#[test]
fn tcp_tls_sealed() {
    let net: Arc<dyn Backend> = Arc::new(prompt::Prompt::tls());
    conforms("tcp, sealed", 0, || Arc::clone(&net));
}
