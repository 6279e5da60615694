//! Long random runs; a failure shrinks. The seed is printed; `TRANSHIP_SEED` repeats it.

use crate::setup::{channel, pool, wish};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tranship_bulk::spec::{BufferId, Model, Op};
use tranship_bulk::{Direction, Trust};
use tranship_testkit::Random;

const DOMAINS: u8 = 4;
const CHANNELS: u8 = 7;

fn trust() -> impl Strategy<Value = Trust> {
    prop_oneof![4 => Just(Trust::None), 1 => Just(Trust::Full)]
}

fn op() -> impl Strategy<Value = Op> {
    let (domain, channel, pool) = (0..DOMAINS, 0..CHANNELS, 0..3u8);
    let buffer = (0..3u8, 0..2u8).prop_map(|(pool, index)| BufferId { pool, index });
    let at = (domain.clone(), channel.clone());
    let transfer = (domain.clone(), channel.clone(), buffer.clone(), any::<u8>());
    let direction = prop_oneof![Just(Direction::Source), Just(Direction::Sink)];
    prop_oneof![
        40 => at.clone().prop_map(|(domain, channel)| Op::Deliver { domain, channel }),
        3 => (domain.clone(), direction, trust())
            .prop_map(|(domain, direction, t)| Op::Create { domain, direction, wish: wish(t) }),
        6 => (domain.clone(), channel.clone(), trust())
            .prop_map(|(domain, channel, t)| Op::Bind { domain, channel, wish: wish(t) }),
        1 => (domain.clone(), any::<bool>()).prop_map(|(domain, forward)| Op::NewPool {
            domain, buffers: 2, buffer_bytes: 4096, forward }),
        1 => (domain.clone(), pool.clone()).prop_map(|(domain, pool)| Op::DestroyPool { domain, pool }),
        1 => (at.clone(), any::<bool>())
            .prop_map(|((domain, channel), veto)| Op::Veto { domain, channel, veto: veto && domain == 0 }),
        8 => (at.clone(), pool.clone())
            .prop_map(|((domain, channel), pool)| Op::Assign { domain, channel, pool }),
        1 => (at.clone(), pool).prop_map(|((domain, channel), pool)| Op::Remove { domain, channel, pool }),
        4 => (domain.clone(), buffer.clone(), any::<u8>())
            .prop_map(|(domain, buffer, data)| Op::Write { domain, buffer, data }),
        8 => transfer.clone().prop_map(|(domain, channel, buffer, meta)| Op::Move { domain, channel, buffer, meta }),
        8 => transfer.clone().prop_map(|(domain, channel, buffer, meta)| Op::Pass { domain, channel, buffer, meta }),
        12 => transfer.clone().prop_map(|(domain, channel, buffer, meta)| Op::Copy { domain, channel, buffer, meta }),
        12 => transfer.prop_map(|(domain, channel, buffer, _)| Op::Release { domain, channel, buffer }),
        2 => (at.clone(), buffer.clone(), buffer)
            .prop_map(|((domain, channel), from, to)| Op::FullCopy { domain, channel, from, to, meta: 0 }),
        1 => at.prop_map(|(domain, channel)| Op::Close { domain, channel }),
        1 => (domain, 0..20u8).prop_map(|(domain, often)| match often {
            0 => Op::Kill { domain },
            _ => Op::Deliver { domain, channel: 0 },
        }),
    ]
}

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
        ops in proptest::collection::vec(op(), 1..500),
    ) {
        let mut model = match prepared {
            true => start(),
            false => Model::new(DOMAINS),
        };
        for op in ops {
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
