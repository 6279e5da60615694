//! A policy outside of the manager: one at a time, from a user that the rules allow. Whatever it says, no pool has less
//! than its minimum, and the sum is at most the total. Its last quotas stay.

use crate::ask::{CHUNK, create_heap};
use crate::house::House;
use crate::pool::{OTHER, OWNER, TOTAL, Writer, ruled};
use tranship_manager::state::{ClientId, Input};
use tranship_proto::{Event, PoolId, RefusalCode, Req, Request};
use tranship_testkit::Random;

fn answer(house: &House, events: &[Event]) -> Result<(), RefusalCode> {
    house.state.audit().expect("no contradiction");
    let found = events.iter().find_map(|e| match e {
        Event::Steering { .. } | Event::QuotasSet { .. } => Some(Ok(())),
        Event::Refused { refusal, .. } => Some(Err(refusal.code)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{events:?}"))
}

fn steer(house: &mut House, client: ClientId, take: bool) -> Result<(), RefusalCode> {
    let req = Req(8);
    let events = house.ask(client, Request::Steer { req, take }, None);
    answer(house, &events)
}

fn set(house: &mut House, client: ClientId, chunks: &[(PoolId, u64)]) -> Result<(), RefusalCode> {
    let quotas = chunks.iter().map(|(id, n)| (*id, n * CHUNK)).collect();
    let req = Req(9);
    let events = house.ask(client, Request::SetQuotas { req, quotas }, None);
    answer(house, &events)
}

fn quotas(house: &House, writers: [&Writer; 2]) -> [u64; 2] {
    writers.map(|w| house.quotas[&w.pool] / CHUNK)
}

#[test]
fn its_last_word_stays_and_the_next_one_takes_over() {
    let mut house = ruled("");
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    let (first, _) = house.join(OWNER, None);
    let (second, _) = house.join(0, None);
    assert_eq!(set(&mut house, first, &[]), Err(RefusalCode::State));
    assert_eq!(steer(&mut house, first, true), Ok(()));
    assert_eq!(steer(&mut house, first, true), Err(RefusalCode::Steered));
    assert_eq!(steer(&mut house, second, true), Err(RefusalCode::Steered));
    assert_eq!(steer(&mut house, second, false), Err(RefusalCode::Steered));
    assert_eq!(set(&mut house, second, &[]), Err(RefusalCode::State));
    assert_eq!(
        set(&mut house, first, &[(one.pool, 50), (two.pool, 14)]),
        Ok(())
    );
    // A new pool gets the memory that no other was given, and a chunk at least.
    let three = Writer::join(&mut house, OWNER, TOTAL);
    assert_eq!(house.quotas[&three.pool], CHUNK);
    house.part(first);
    house.state.audit().expect("no contradiction");
    assert_eq!(quotas(&house, [&one, &two]), [50, 14]);
    assert_eq!(steer(&mut house, second, true), Ok(()));
    assert_eq!(set(&mut house, second, &[(one.pool, 10)]), Ok(()));
    assert_eq!(steer(&mut house, second, false), Ok(()));
    assert_eq!(set(&mut house, second, &[]), Err(RefusalCode::State));
    assert_eq!(quotas(&house, [&one, &two]), [10, 14]);
}

#[test]
fn rules_say_whose_it_may_be() {
    let mut house = ruled("");
    let (other, _) = house.join(OTHER, None);
    assert_eq!(steer(&mut house, other, true), Err(RefusalCode::Access));
    let mut house = ruled(&format!("[[policy_run]]\nuid = {OTHER}\n"));
    let [other, third] = [OTHER, 77].map(|uid| house.join(uid, None).0);
    assert_eq!(steer(&mut house, third, true), Err(RefusalCode::Access));
    assert_eq!(steer(&mut house, other, true), Ok(()));
    // The manager has a policy of its own.
    let mut house = ruled("policy = \"qos\"");
    let (owner, _) = house.join(OWNER, None);
    assert_eq!(steer(&mut house, owner, true), Err(RefusalCode::Steered));
}

#[test]
fn what_breaks_a_rule_changes_nothing() {
    let mut house = ruled("[[pool]]\nname = \"pool\"\nmin = \"256KiB\"\nmax = \"3MiB\"");
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    let heap = create_heap(24 * CHUNK, 24 * CHUNK);
    let events = house.ask(one.client, heap, None);
    let heap = events.iter().find_map(|e| match e {
        Event::HeapCreated { heap, .. } => Some(*heap),
        _ => None,
    });
    let (policy, _) = house.join(OWNER, None);
    steer(&mut house, policy, true).expect("the right");
    let good = [(one.pool, 20), (two.pool, 20)];
    assert_eq!(set(&mut house, policy, &good), Ok(()));
    for (bad, why) in [
        // The heap has 24 of the 64.
        (vec![(one.pool, 20), (two.pool, 21)], RefusalCode::Total),
        (vec![(two.pool, 21)], RefusalCode::Total),
        (
            vec![(one.pool, 10), (two.pool, 49)],
            RefusalCode::BadArgument,
        ),
        (vec![(one.pool, 3)], RefusalCode::BadArgument),
        (vec![(one.pool, 5), (one.pool, 6)], RefusalCode::BadArgument),
        (
            vec![(one.pool, 5), (heap.expect("a heap"), 6)],
            RefusalCode::NotYours,
        ),
    ] {
        assert_eq!(set(&mut house, policy, &bad), Err(why), "{bad:?}");
        assert_eq!(quotas(&house, [&one, &two]), [20, 20], "{bad:?}");
    }
    // A pool that is gone is skipped; quotas set by hand stay, and count.
    let (req, pool, quota_bytes) = (Req(6), one.pool, 30 * CHUNK);
    let by_hand = Request::SetQuota {
        req,
        pool,
        quota_bytes,
    };
    house.ask(policy, by_hand, None);
    let gone = PoolId(4711);
    let all = [(one.pool, 5), (two.pool, 9), (gone, 9)];
    assert_eq!(set(&mut house, policy, &all), Ok(()));
    assert_eq!(quotas(&house, [&one, &two]), [30, 9]);
    let more = [(one.pool, 5), (two.pool, 11)];
    assert_eq!(set(&mut house, policy, &more), Err(RefusalCode::Total));
}

/// Under `static` the former quotas may have any sum: the sum must not rise, and may fall.
#[test]
fn whatever_it_says_the_sum_does_not_rise_beyond_the_limit() {
    for seed in 0..50 {
        let mut random = Random::seeded(seed);
        let mut house = ruled("[[pool]]\nname = \"pool\"\nmin = \"128KiB\"");
        let writers: Vec<Writer> = (0..5)
            .map(|_| Writer::join(&mut house, OWNER, TOTAL))
            .collect();
        let (policy, _) = house.join(OWNER, None);
        steer(&mut house, policy, true).expect("the right");
        let sum = |house: &House| house.quotas.values().sum::<u64>() / CHUNK;
        let mut done = 0;
        for _ in 0..200 {
            let before = sum(&house);
            let all = writers.iter().filter_map(|w| {
                let n = random.next() >> random.below(64);
                random.one_in(2).then_some((w.pool, n % 80))
            });
            let all: Vec<_> = all.collect();
            done += u32::from(set(&mut house, policy, &all).is_ok());
            let after = sum(&house);
            assert!(after <= before.max(TOTAL), "{seed}: {before}, {after}");
            assert!(house.quotas.values().all(|q| *q >= 2 * CHUNK), "{seed}");
        }
        assert!(done > 10, "{seed}: {done}");
    }
}

/// However it leaves.
#[test]
fn the_place_is_free_when_its_process_has_ended() {
    let mut house = ruled("");
    let (first, _) = house.join(OWNER, None);
    let (second, _) = house.join(OWNER, None);
    let (third, domain) = house.join(OWNER, None);
    steer(&mut house, first, true).expect("the right");
    house.ask(first, Request::Goodbye, None);
    house.state.audit().expect("no contradiction");
    assert_eq!(steer(&mut house, third, true), Ok(()));
    house.step(Input::ProcessDied { domain });
    house.state.audit().expect("no contradiction");
    assert_eq!(steer(&mut house, second, true), Ok(()));
}
