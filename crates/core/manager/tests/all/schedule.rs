//! A policy at work: the writers' figures move the quotas.

use crate::ask::{CHUNK, create_heap};
use crate::house::House;
use crate::pool::{OWNER, TOTAL, Writer, ruled};
use std::time::Duration;
use tranship_manager::Config;
use tranship_manager::state::{Figures, Input};
use tranship_proto::{Event, PoolId, RefusalCode, Req, Request};

const PERIOD: Duration = Duration::from_millis(250);

fn scheduled(policy: &str, rules: &str) -> House {
    let mut house = ruled(&format!("policy = \"{policy}\"\n{rules}"));
    // Earlier domains have come back by then.
    house.now = Config::default().grace;
    house
}

/// Ends a period in which pools had these numbers of chunks in use and of waiting callers.
fn period(house: &mut House, pools: &[(PoolId, u64, u64)]) -> Vec<Event> {
    house.now += PERIOD;
    for (pool, used, waiting) in pools {
        let f = house.figures.entry(*pool).or_default();
        f.blocked_ns += waiting * 250_000_000;
        (f.live_bytes, f.live_buffers) = (used * CHUNK, *used);
        f.allocs += 1000;
    }
    let events = house.step(Input::Tick);
    house.state.audit().expect("no contradiction");
    let sum: u64 = house.quotas.values().sum();
    assert!(
        sum <= TOTAL * CHUNK,
        "{sum} bytes of quotas: {:?}",
        house.quotas
    );
    events
}

fn quota(house: &House, writer: &Writer) -> u64 {
    house.quotas[&writer.pool] / CHUNK
}

#[test]
fn who_waits_gets_what_nobody_needs_and_gives_it_back() {
    let mut house = scheduled("throughput", "");
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    assert_eq!(
        (quota(&house, &one), quota(&house, &two)),
        (TOTAL, 1),
        "first come"
    );
    assert_eq!(one.grant(&mut house, 40).0, Ok(40));
    assert_eq!(two.grant(&mut house, 2).0, Ok(1));
    assert_eq!(two.grant(&mut house, 1).0, Err(RefusalCode::Quota));
    // The first pool still uses 4 of its 40 chunks; 30 callers wait for the second.
    for _ in 0..8 {
        period(&mut house, &[(one.pool, 4, 0), (two.pool, 1, 30)]);
    }
    let quotas = (quota(&house, &one), quota(&house, &two));
    assert!(quotas.0 <= 6 && quotas.1 > 30, "{quotas:?}");
    assert_eq!(
        two.grant(&mut house, 23).0,
        Ok(23),
        "what is free of the total"
    );
    // Then the other way round.
    for _ in 0..8 {
        period(&mut house, &[(one.pool, 4, 50), (two.pool, 2, 0)]);
    }
    let quotas = (quota(&house, &one), quota(&house, &two));
    assert!(quotas.0 > 50 && quotas.1 <= 4, "{quotas:?}");
}

#[test]
fn who_gives_is_told_before_who_gets() {
    let mut house = scheduled("throughput", "");
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    assert_eq!(one.grant(&mut house, 64).0, Ok(64));
    let needs = [(one.pool, 64, 8), (two.pool, 1, 8)];
    period(&mut house, &needs);
    let events = period(&mut house, &needs);
    let shrink = events.iter().position(
        |e| matches!(e, Event::Shrink { pool, target_bytes } if *pool == one.pool && *target_bytes < 64 * CHUNK),
    );
    let more = events.iter().position(
        |e| matches!(e, Event::Quota { pool, quota_bytes } if *pool == two.pool && *quota_bytes > CHUNK),
    );
    assert!(shrink.is_some() && more > shrink, "{events:?}");
}

#[test]
fn what_was_set_by_hand_is_not_moved() {
    let mut house = scheduled("throughput", "");
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    let set = Request::SetQuota {
        req: Req(9),
        pool: one.pool,
        quota_bytes: 10 * CHUNK,
    };
    house.ask(one.client, set, None);
    for _ in 0..10 {
        period(&mut house, &[(one.pool, 10, 99), (two.pool, 1, 99)]);
        assert_eq!(quota(&house, &one), 10);
    }
    assert_eq!(quota(&house, &two), 54);
}

#[test]
fn minimums_weights_and_targets_come_from_the_configuration() {
    let rules = "[[pool]]\nname = \"pool\"\nmin = \"1MiB\"\nmax = \"2MiB\"\n";
    let mut house = scheduled("throughput", rules);
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    for _ in 0..12 {
        period(&mut house, &[(one.pool, 0, 0), (two.pool, 1, 99)]);
    }
    assert_eq!((quota(&house, &one), quota(&house, &two)), (16, 32));
}

#[test]
fn heaps_are_not_divided_among_pools() {
    let mut house = scheduled("throughput", "");
    let writer = Writer::join(&mut house, OWNER, TOTAL);
    house.ask(writer.client, create_heap(48 * CHUNK, 48 * CHUNK), None);
    for _ in 0..10 {
        period(&mut house, &[(writer.pool, 4, 99)]);
    }
    assert_eq!(quota(&house, &writer), 16);
}

/// A program with a pool for each of two threads: one quota, which goes to the pool that uses it.
#[test]
fn pools_of_a_group_have_one_quota() {
    let rules = "[[pool]]\nname = \"pool\"\ngroup = \"threads\"\ngroup_max = \"1MiB\"\n";
    let mut house = scheduled("throughput", rules);
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    let quotas = |house: &House| (quota(house, &one), quota(house, &two));
    assert_eq!(quotas(&house), (16, 1), "first come");
    for (busy, idle) in [(&one, &two), (&two, &one), (&one, &two)] {
        // Longer than missed memory is kept.
        for n in 0..100 {
            period(&mut house, &[(busy.pool, 14, 30), (idle.pool, 1, 0)]);
            let (a, b) = quotas(&house);
            // A pool has its first chunk in any case.
            assert!(a + b <= 16 || n == 0, "{a} and {b} of 16 chunks");
        }
        let (most, least) = (quota(&house, busy), quota(&house, idle));
        assert!(most >= 13 && least <= 3, "{most} and {least}");
    }
}

/// A heap with figures has a quota like a pool: refused memory counts as wanted, and allocated memory stays.
#[test]
fn a_heap_that_says_how_it_does_takes_part() {
    const MIB: u64 = 1 << 20;
    let config = Config::parse("policy = \"throughput\"").expect("a configuration");
    let mut house = House::with(config, 64 * MIB);
    house.state.set_owner(OWNER);
    house.now = Config::default().grace;
    let writer = Writer::join(&mut house, OWNER, 64 * MIB / CHUNK);
    let events = house.ask(writer.client, create_heap(64 * MIB, 8 * MIB), None);
    let [Event::HeapCreated { heap, .. }] = events[..] else {
        panic!("{events:?}");
    };
    let mut quota = 0;
    let mut turn = |house: &mut House, live: u64, cached: u64, waiting: u64| {
        let figures = Request::HeapFigures {
            heap,
            live_bytes: live,
            cached_bytes: cached,
        };
        house.ask(writer.client, figures, None);
        house.now += PERIOD;
        let f = house.figures.entry(writer.pool).or_default();
        f.blocked_ns += waiting * 250_000_000;
        (f.live_bytes, f.live_buffers) = (4 * MIB, 4 * MIB / CHUNK);
        f.allocs += 1000;
        let events = house.step(Input::Tick);
        house.state.audit().expect("no contradiction");
        for event in events {
            if let Event::Quota { pool, quota_bytes } = event
                && pool == heap
            {
                quota = quota_bytes;
            }
        }
        let sum = quota + house.quotas[&writer.pool];
        (quota, sum)
    };
    // The pool's callers wait for all the memory; of the heap 6 of 8 MiB are in use.
    let mut last = (0, 0);
    for _ in 0..12 {
        last = turn(&mut house, 6 * MIB, 2 * MIB, 900);
    }
    assert!((6 * MIB..=9 * MIB).contains(&last.0), "{last:?}");
    assert!(last.1 <= 64 * MIB, "{last:?}");
    // It is refused more than that, again and again: then it gets it.
    for _ in 0..12 {
        let admit = Request::Admit {
            req: Req(6),
            heap,
            bytes: 20 * MIB,
            least_bytes: 20 * MIB,
        };
        house.ask(writer.client, admit, None);
        last = turn(&mut house, 6 * MIB, 2 * MIB, 0);
    }
    assert!(last.0 >= 28 * MIB, "{last:?}");
}

#[test]
fn whatever_a_writer_says_of_its_pool_it_has_no_more_than_is_its_due() {
    let mut house = scheduled("throughput", "");
    let [honest, liar] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    assert_eq!(honest.grant(&mut house, 32).0, Ok(32));
    for n in 1..20u64 {
        let all = n * (u64::MAX / 20);
        let lies = Figures {
            blocked_ns: all,
            collect_ns: all,
            allocs: all,
            live_bytes: all,
            peak_bytes: all,
            cached: all,
            live_buffers: all,
            waiters: all,
            garbage_bytes: all,
            cached_bytes: all,
            padding_bytes: all,
            collections: all,
        };
        house.figures.insert(liar.pool, lies);
        period(&mut house, &[(honest.pool, 32, 9)]);
    }
    let quotas = (quota(&house, &honest), quota(&house, &liar));
    assert!(quotas.0 >= TOTAL / 2 - 1, "{quotas:?}");
}

#[test]
fn without_a_policy_nothing_is_read_and_nothing_moves() {
    let mut house = ruled("");
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    house.now += Duration::from_secs(10);
    assert_eq!(house.state.deadline(), None);
    assert!(house.step(Input::Tick).is_empty());
    assert_eq!((quota(&house, &one), quota(&house, &two)), (TOTAL, TOTAL));
}

#[test]
fn a_manager_that_just_started_waits_for_those_who_were_there() {
    let mut house = ruled("policy = \"qos\"");
    assert_eq!(house.state.deadline(), None, "nobody is there");
    Writer::join(&mut house, OWNER, TOTAL);
    assert_eq!(house.state.deadline(), Some(Config::default().grace));
}

#[test]
fn what_the_policy_is_told_can_be_asked_for() {
    let rules = "[[pool]]\nname = \"pool\"\ntarget = 0.05\ngroup = \"all\"\n";
    let mut house = scheduled("qos", rules);
    let writers: Vec<Writer> = (0..40)
        .map(|_| Writer::join(&mut house, OWNER, TOTAL))
        .collect();
    period(&mut house, &[(writers[0].pool, 1, 3)]);
    let (mut after, mut all) = (PoolId(0), Vec::new());
    loop {
        let ask = Request::Figures { req: Req(3), after };
        let events = house.ask(writers[0].client, ask, None);
        let [
            Event::Figures {
                pools, limit_bytes, ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(*limit_bytes, TOTAL * CHUNK);
        let Some(last) = pools.last() else { break };
        after = last.pool;
        all.extend(pools.iter().cloned());
    }
    let ids: Vec<PoolId> = all.iter().map(|p| p.pool).collect();
    let theirs: Vec<PoolId> = writers.iter().map(|w| w.pool).collect();
    assert_eq!(ids, theirs);
    assert_eq!(
        (all[0].blocked_ns, all[0].target_ppm),
        (750_000_000, Some(50_000))
    );
    assert_eq!(all[0].group.as_deref(), Some("all"));
}

#[test]
fn who_does_not_read_is_told_when_it_does() {
    let mut house = scheduled("throughput", "");
    let [one, two] = [(); 2].map(|()| Writer::join(&mut house, OWNER, TOTAL));
    assert_eq!(one.grant(&mut house, 60).0, Ok(60));
    house.deaf.insert(one.client);
    // Its need varies, and with it the quotas; the queue to it stays short.
    let mut queued = 0;
    for n in 0..2000 {
        let needs = [(one.pool, 40 + n % 20, 5), (two.pool, 1, 5 + n % 30)];
        let events = period(&mut house, &needs);
        let ours = |e: &&Event| matches!(e, Event::Shrink { pool, .. } | Event::Quota { pool, .. } if *pool == one.pool);
        queued += events.iter().filter(ours).count();
    }
    assert!((500..520).contains(&queued), "{queued}");
    let shrinks = |events: &[Event]| {
        let ours = |e: &&Event| matches!(e, Event::Shrink { pool, .. } if *pool == one.pool);
        events.iter().filter(ours).count()
    };
    let needs = [(one.pool, 40, 5), (two.pool, 1, 5)];
    assert_eq!(shrinks(&period(&mut house, &needs)), 0, "its queue is full");
    house.deaf.clear();
    for _ in 0..queued {
        house.step(Input::Sent { client: one.client });
    }
    let told: usize = (0..8).map(|_| shrinks(&period(&mut house, &needs))).sum();
    assert!((1..=3).contains(&told), "{told} times in 2 s");
}
