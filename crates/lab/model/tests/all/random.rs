//! Long random runs; a failure shrinks. The seed is printed; `TRANSHIP_SEED` repeats it.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tranship_model::draw::{aimed, shot};
use tranship_model::explore::{circle, same_but_agreed, torture};
use tranship_model::{BufferId, Hold, Model, Op, Trust, Way};
use tranship_testkit::Random;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if torture() { 10_000 } else { 300 },
        rng_seed: RngSeed::Fixed(Random::printed("model").seed()),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    }
}

/// Returns whether a domain reads it, or is about to.
fn is_shared(model: &Model, id: BufferId) -> bool {
    let buffer = model.buffers.get(&id);
    let shared = |hold: &Hold| matches!(hold, Hold::Shared { .. });
    buffer.is_some_and(|buffer| buffer.holds.values().any(shared)) || model.is_under_way(id)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_is_tried_the_invariants_hold(
        way in 0..3usize,
        trust in 0..4usize,
        shots in proptest::collection::vec(shot(), 1..200),
    ) {
        let mut model = Model::new([Way::Inside, Way::Shared, Way::Carried][way], 4);
        circle(&mut model, Trust::ALL[trust]);
        for shot in shots {
            let Some(op) = aimed(&model, &shot) else { continue };
            let before = model.clone();
            match model.step(&op) {
                Err(_) => prop_assert!(same_but_agreed(&model, &before), "a refused {:?} changed something", op),
                Ok(_) => model.check().map_err(|e| TestCaseError::fail(format!("after {op:?}: {e}")))?,
            }
            for (id, buffer) in &before.buffers {
                if is_shared(&before, *id) && is_shared(&model, *id) && !matches!(op, Op::Alloc { .. }) {
                    prop_assert_eq!(model.buffers[id].data, buffer.data, "{:?} changed while shared, by {:?}", id, op);
                }
            }
        }
    }
}
