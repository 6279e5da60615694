//! Memory is short outside: idle memory is requested, no pool grows, memory in use stays, and everything comes back.

use crate::ask::{CHUNK, create_heap};
use crate::house::House;
use crate::pool::{OWNER, TOTAL, Writer, ruled};
use std::collections::BTreeMap;
use std::time::Duration;
use tranship_manager::Config;
use tranship_manager::state::{Figures, Input};
use tranship_proto::{Event, PoolId, Pressure, RefusalCode, Request, StatRecord};
use tranship_testkit::Random;

const LOOK: Duration = Duration::from_secs(1);

/// Sets a writer's figures: chunks with buffers in use, and how many of its buffers are cached.
fn says(house: &mut House, writer: &Writer, chunks: u64, live: u64, cached: u64) {
    let figures = Figures {
        allocs: 1000,
        live_bytes: chunks * CHUNK,
        live_buffers: live,
        cached,
        ..Figures::default()
    };
    house.figures.insert(writer.pool, figures);
}

/// Gets and shows `chunks` chunks.
fn fill(house: &mut House, writer: &Writer, chunks: u32) {
    let keys: Vec<(u32, u32)> = (0..chunks).map(|i| (i, i + 1)).collect();
    for keys in keys.chunks(8) {
        let n = u32::try_from(keys.len()).expect("small");
        assert_eq!(writer.show_all(house, keys, n), Ok(n));
    }
}

/// Makes a look; returns the pools that are asked to shrink, and to how many chunks.
fn look(house: &mut House, seen: Pressure) -> Vec<(PoolId, u64)> {
    house.now += LOOK;
    let events = house.step(Input::Pressure(seen));
    house.state.audit().expect("no contradiction");
    let shrink = |e: &Event| match e {
        Event::Shrink { pool, target_bytes } => Some((*pool, target_bytes / CHUNK)),
        _ => None,
    };
    events.iter().filter_map(shrink).collect()
}

/// Returns the level, and the memory that may be granted at present, in chunks.
fn limit(house: &mut House, writer: &Writer) -> (Pressure, u64) {
    let records = house.stat(writer.client);
    let found = records.iter().find_map(|record| match record {
        StatRecord::Manager(m) => Some((m.pressure, m.limit_bytes / CHUNK)),
        _ => None,
    });
    found.expect("the manager's record")
}

#[test]
fn what_is_only_cached_is_asked_for_and_what_is_in_use_is_not() {
    let mut house = ruled("");
    let [one, two, three] = [(); 3].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    for writer in [&one, &two, &three] {
        fill(&mut house, writer, 16);
    }
    says(&mut house, &one, 12, 3, 9); // a quarter of 12
    says(&mut house, &two, 16, 5, 0);
    assert_eq!(look(&mut house, Pressure::None), []);
    // The third writer has sent no figures.
    assert_eq!(look(&mut house, Pressure::Some), [(one.pool, 3)]);
    assert_eq!(limit(&mut house, &one), (Pressure::Some, TOTAL));
    assert_eq!(two.grant(&mut house, 16).0, Ok(16), "there is room");
}

#[test]
fn nobody_grows_only_when_idle_memory_was_not_enough() {
    let mut house = ruled("");
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    fill(&mut house, &one, 32);
    fill(&mut house, &two, 8);
    says(&mut house, &one, 20, 9, 0);
    says(&mut house, &two, 8, 9, 0);
    assert_eq!(look(&mut house, Pressure::Full), [(one.pool, 20)]);
    assert_eq!(limit(&mut house, &one).1, TOTAL);
    look(&mut house, Pressure::Full);
    let (level, mut before) = limit(&mut house, &one);
    assert_eq!(
        (level, before),
        (Pressure::Full, 37),
        "a quarter of 40 - 28 less"
    );
    assert_eq!(two.grant(&mut house, 1).0, Err(RefusalCode::Total));
    for _ in 0..30 {
        look(&mut house, Pressure::Full);
        let now = limit(&mut house, &one).1;
        assert!((28..=before).contains(&now), "{now} after {before}");
        before = now;
    }
    assert_eq!(before, 28, "what is in use");
}

#[test]
fn a_level_stays_for_a_while_and_then_everybody_has_his_own_again() {
    let mut house = ruled("[pressure]\ncalm = \"5s\"");
    let one = Writer::join(&mut house, OWNER, TOTAL);
    fill(&mut house, &one, 32);
    says(&mut house, &one, 4, 9, 0);
    for _ in 0..40 {
        look(&mut house, Pressure::Full);
    }
    assert_eq!(limit(&mut house, &one), (Pressure::Full, 4));
    for _ in 0..4 {
        assert_eq!(look(&mut house, Pressure::None), [(one.pool, 4)]);
        assert_eq!(limit(&mut house, &one), (Pressure::Full, 4));
    }
    house.now += LOOK;
    let events = house.step(Input::Pressure(Pressure::None));
    let quota = Event::Quota {
        pool: one.pool,
        quota_bytes: TOTAL * CHUNK,
    };
    assert!(events.contains(&quota), "{events:?}");
    for chunks in (12..=60).step_by(8).chain([64, 64]) {
        assert_eq!(limit(&mut house, &one), (Pressure::None, chunks));
        look(&mut house, Pressure::None);
    }
    assert_eq!(one.grant(&mut house, 32).0, Ok(32));
}

#[test]
fn minimums_stay_and_heaps_are_asked_bit_by_bit() {
    let mut house = ruled("[[pool]]\nname = \"pool\"\nmin = \"640KiB\"");
    let one = Writer::join(&mut house, OWNER, TOTAL);
    fill(&mut house, &one, 32);
    says(&mut house, &one, 1, 1, 0);
    house.ask(one.client, create_heap(16 * CHUNK, 16 * CHUNK), None);
    let asked = look(&mut house, Pressure::Some);
    assert_eq!(asked[0], (one.pool, 10));
    assert_eq!(asked[1].1, 14);
}

#[test]
fn a_policy_divides_what_the_limit_leaves() {
    let mut house = ruled("policy = \"throughput\"");
    house.now = Config::default().grace;
    let one = Writer::join(&mut house, OWNER, TOTAL);
    fill(&mut house, &one, 32);
    says(&mut house, &one, 8, 9, 0);
    for _ in 0..40 {
        look(&mut house, Pressure::Full);
        house.step(Input::Tick);
    }
    assert_eq!(limit(&mut house, &one).1, 8);
    assert!(house.quotas[&one.pool] <= 8 * CHUNK, "{:?}", house.quotas);
}

/// Returns each pool's memory, in chunks.
fn granted(house: &mut House, writer: &Writer) -> BTreeMap<PoolId, u64> {
    let records = house.stat(writer.client).into_iter();
    let pools = records.filter_map(|record| match record {
        StatRecord::Pool(p) => Some((p.pool, p.granted_bytes / CHUNK)),
        _ => None,
    });
    pools.collect()
}

fn below(random: &mut Random, n: u64) -> usize {
    usize::try_from(random.below(n)).expect("small")
}

/// This holds for any figures, and for any words and actions of writers.
#[test]
fn the_limit_stays_between_what_is_in_use_and_the_total() {
    for seed in 0..64 {
        let mut random = Random::seeded(seed);
        let mut house = ruled(match seed % 2 {
            0 => "",
            _ => "policy = \"priority\"",
        });
        house.now = Config::default().grace;
        let writers: Vec<Writer> = (0..4)
            .map(|_| Writer::join(&mut house, OWNER, TOTAL))
            .collect();
        let mut reached = 0;
        for step in 0..300 {
            let w = &writers[below(&mut random, 4)];
            match random.below(4) {
                0 => drop(w.grant(
                    &mut house,
                    1 + u32::try_from(random.below(9)).expect("small"),
                )),
                1 => {
                    let chunks = u32::try_from(random.below(9)).expect("small");
                    let pool = w.pool;
                    house.ask(w.client, Request::Ungrant { pool, chunks }, None);
                }
                2 => {
                    let [chunks, live, cached] = [(); 3].map(|()| random.below(40));
                    says(&mut house, w, chunks, live, cached);
                }
                _ => drop(house.tick()),
            }
            let levels = [Pressure::None, Pressure::Some, Pressure::Full];
            let seen = match step / 60 % 2 {
                0 => levels[below(&mut random, 3)],
                _ => Pressure::None,
            };
            let before = granted(&mut house, &writers[0]);
            for (pool, target) in look(&mut house, seen) {
                let f = house.figures.get(&pool).copied().unwrap_or_default();
                let busy = (f.live_bytes / CHUNK).min(before[&pool]);
                let part = busy * f.live_buffers / (f.live_buffers + f.cached).max(1);
                // (Of the period's policy the quota may be less.)
                assert!(
                    seed % 2 == 1 || target >= part,
                    "{seed}: {target} of {part}"
                );
            }
            let now = limit(&mut house, &writers[0]);
            assert!(now.1 <= TOTAL, "{seed}: {now:?}");
            if now.0 == Pressure::Full {
                reached += 1;
            }
            if step / 60 % 2 == 1 && step % 60 > 20 {
                assert_eq!(now, (Pressure::None, TOTAL), "{seed}");
            }
        }
        assert!(reached > 0, "{seed}: never short");
    }
}
