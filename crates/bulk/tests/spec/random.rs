//! Long random runs; a failure shrinks. The seed is printed; `TRANSHIP_SEED` repeats it.

use crate::aim::{aimed, shot};
use crate::ops::DOMAINS;
use crate::setup::{channel, pool};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tranship_bulk::Trust;
use tranship_bulk::spec::{BufferId, Model};
use tranship_testkit::Random;

/// Five channels with a circle, two pools on most of them.
fn start() -> Model {
    let mut model = Model::new(DOMAINS);
    let ways = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0)];
    let c = ways.map(|(a, b)| channel(&mut model, a, b, Trust::None));
    let all = [(0, c[0]), (1, c[1]), (2, c[2]), (3, c[3]), (1, c[4])];
    pool(&mut model, 0, 2, true, &all);
    pool(&mut model, 1, 2, false, &[(1, c[0]), (1, c[1])]);
    model
}

fn config() -> ProptestConfig {
    let seed = Random::printed("model").seed();
    ProptestConfig {
        cases: cases(),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn cases() -> u32 {
    match std::env::var_os("TRANSHIP_TORTURE") {
        Some(_) => 20_000,
        None => 1000,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_is_tried_the_invariants_hold(
        prepared in any::<bool>(),
        ops in proptest::collection::vec(shot(), 1..500),
    ) {
        let mut model = match prepared {
            true => start(),
            false => Model::new(DOMAINS),
        };
        for shot in ops {
            let op = aimed(&model, &shot);
            let before = model.clone();
            let frozen: Vec<_> = before.buffers.iter()
                .filter(|(_, b)| b.copies.values().any(|c| c.out > 0))
                .map(|(id, b)| (*id, b.data)).collect();
            match model.step(&op) {
                Err(_) => prop_assert_eq!(&model, &before, "a refused {:?} changed something", op),
                Ok(_) => model.check().map_err(|e| TestCaseError::fail(format!("after {op:?}: {e}")))?,
            }
            let still = |id: &BufferId| model.buffers.get(id)
                .filter(|b| b.copies.values().any(|c| c.out > 0));
            for (id, data) in frozen {
                if let Some(now) = still(&id) {
                    prop_assert_eq!(now.data, data, "{:?} changed while copied by {:?}", id, op);
                }
            }
        }
    }
}
