//! Long random runs; a failure shrinks. The seed is printed; `TRANSHIP_SEED` repeats it.

use crate::aim::{aimed, shot};
use crate::deaths;
use crate::ops::DOMAINS;
use crate::setup::{circle, does};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tranship_bulk::spec::{BufferId, End, Event, Message, Model, Op, Outcome};
use tranship_bulk::{Access, Kind, Trust};
use tranship_testkit::Random;

fn start() -> Model {
    let mut model = Model::new(DOMAINS);
    circle(&mut model, Trust::None);
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

/// Does a living domain count a copy of it as out, hold one, or have one on its way? What the dead had out binds nobody.
fn is_copied(model: &Model, id: BufferId) -> bool {
    let Some(buffer) = model.buffers.get(&id) else {
        return false;
    };
    buffer.copies.iter().any(|(channel, copies)| {
        let [source, sink] = model.channels[channel].ends.each_ref().map(|end| {
            let end = end.as_ref();
            end.filter(|end| model.alive[usize::from(end.domain)])
        });
        let brings = |message: &Message| match message {
            Message::Copy(b, _) => *b == id,
            Message::All(true, pieces, _) => pieces.iter().any(|piece| piece.buffer == id),
            _ => false,
        };
        let arrives = |end: &End| copies.held > 0 || end.queue.iter().any(brings);
        copies.out > 0 && source.is_some() || sink.is_some_and(arrives)
    })
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
                .filter(|(id, _)| is_copied(&before, **id))
                .map(|(id, b)| (*id, b.data)).collect();
            match model.step(&op) {
                Err(_) => prop_assert_eq!(&model, &before, "a refused {:?} changed something", op),
                Ok(_) => model.check().map_err(|e| TestCaseError::fail(format!("after {op:?}: {e}")))?,
            }
            for (id, data) in frozen.into_iter().filter(|(id, _)| is_copied(&model, *id)) {
                // What came back from the dead is not specified.
                if let Some(now) = model.buffers[&id].data {
                    prop_assert_eq!(Some(now), data, "{:?} changed while copied by {:?}", id, op);
                }
            }
        }
    }
}

#[test]
fn where_a_dead_creator_copied_to_nobody_writes() {
    let mut model = start();
    for op in deaths::a_creator_that_copied_on_dies() {
        does(&mut model, op);
    }
    let access = [0, 2].map(|domain| model.access(deaths::LENT, domain));
    assert_eq!(access, [Access::Read; 2]);
    let writes = Op::Write {
        domain: 0,
        buffer: deaths::LENT,
        data: 9,
    };
    assert_eq!(model.step(&writes), Err(Kind::BufferState));
}

#[test]
fn what_was_lent_is_back_with_the_last_channel() {
    let mut model = start();
    let mut told = Vec::new();
    for op in deaths::a_domain_with_two_channels_dies() {
        if let Outcome::Took(events) = does(&mut model, op) {
            told.extend(events.into_iter().filter(|e| matches!(e, Event::Gone(_))));
        }
    }
    assert_eq!(told, [Event::Gone(vec![]), Event::Gone(vec![deaths::LENT])]);
}

#[test]
fn assignments_that_meet_are_refused_both() {
    let mut model = start();
    let mut ends = Vec::new();
    for op in deaths::both_ends_assign_at_once() {
        if let Outcome::Took(events) = does(&mut model, op) {
            ends.extend(events.into_iter().filter_map(|event| match event {
                Event::AssignDone(2, result) => Some(result),
                _ => None,
            }));
        }
    }
    let refused = Err(Kind::PoolAlreadyAssigned);
    assert_eq!(ends, [Ok(()), refused, refused, Ok(())]);
}

#[test]
fn each_rare_sequence_does_what_it_is_there_for() {
    let ends: [&[Option<Kind>]; 7] = [
        &[],
        &[],
        &[],
        &[Some(Kind::PoolInUse), None, None, None],
        &[Some(Kind::PoolInUse), Some(Kind::PoolInUse), None],
        &[Some(Kind::PoolInUse)],
        &[None, None],
    ];
    for (ops, wanted) in deaths::all().into_iter().zip(ends) {
        let mut model = start();
        let mut got = Vec::new();
        for op in ops {
            let done = model.step(&op);
            model.check().expect("the invariants");
            let passed_on = matches!(
                op,
                Op::Assign {
                    domain: 1,
                    channel: 1,
                    ..
                }
            );
            if passed_on || matches!(op, Op::Forget { .. } | Op::DestroyPool { .. }) {
                got.push(done.err());
            }
        }
        assert_eq!(got, wanted);
    }
}

#[test]
fn a_buffer_that_came_meanwhile_keeps_its_pool() {
    let mut model = Model::new(2);
    let mut ends = Vec::new();
    for op in deaths::a_removal_that_a_death_overtakes(Trust::Producer) {
        if let Outcome::Took(events) = does(&mut model, op) {
            ends.extend(events.into_iter().filter_map(|event| match event {
                Event::RemoveDone(_, result) => Some(result),
                _ => None,
            }));
        }
    }
    assert_eq!(ends, [Err(Kind::PoolInUse)]);
}

#[test]
fn what_is_on_its_way_over_a_forgotten_end_is_not_back_yet() {
    let mut model = Model::new(2);
    let mut told = Vec::new();
    for op in deaths::a_death_after_an_end_was_forgotten(Trust::None) {
        if let Outcome::Took(events) = does(&mut model, op) {
            told.extend(events);
        }
    }
    let gone = told.iter().position(|e| *e == Event::Gone(Vec::new()));
    let passed = told.iter().rposition(|e| matches!(e, Event::Passed(..)));
    assert!(gone.is_some() && gone < passed, "{told:?}");
}
