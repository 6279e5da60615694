//! The manager wants memory back: no more is evicted than lies in as much memory.

use super::*;
use tranship_core::admin::StatRecord;
use tranship_testkit::{Random, Watchdog};

const MIB: u64 = 1 << 20;
const LEN: usize = 4000;
const COUNT: u32 = 4096;
const BLOCK: u64 = 64 << 10;

fn name(number: u32) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[test]
fn no_more_is_evicted_than_lies_in_what_is_wanted() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("who asks for what");
    let domain = Domain::embedded().expect("a manager");
    let options = StoreOptions {
        domain: Some(domain.clone()),
        memory: 64 * MIB,
        longest: LONGEST,
        shards: 4,
    };
    let store = Store::new(options).expect("a store");
    for number in 0..COUNT {
        store.put(&name(number), patient(&store, LEN), 0, 0, Mode::Set);
        store.arena().protect();
    }
    // The order in which they are evicted is not that in which they lie there.
    for _ in 0..COUNT * 4 {
        let number = u32::try_from(random.below(COUNT.into())).expect("small");
        store.get(&name(number), None).expect("there");
    }
    let before = store.arena().stats().used_bytes;
    let heap = || {
        let mut stat = domain.admin().stat().expect("stat").into_iter();
        let heap = stat.find_map(|record| match record {
            StatRecord::Heap(heap) => Some(heap),
            _ => None,
        });
        heap.expect("the arena's")
    };
    let quota = before - MIB;
    domain
        .admin()
        .set_quota(heap().heap, quota)
        .expect("a quota");
    while domain.turn().is_err() || heap().admitted_bytes > quota {
        store.tidy();
    }
    let after = store.arena().stats().used_bytes;
    assert!(after <= quota, "{after} of {before}");
    // Relaxed: nobody else counts.
    let evicted = store.counts.evictions.load(Ordering::Relaxed);
    // Sixteen of them lie in a pageblock.
    assert!(evicted <= (MIB + BLOCK) / BLOCK * 16, "{evicted} evicted");
    let there = (0..COUNT).filter(|number| store.peek(&name(*number)).is_some());
    assert_eq!(there.count() as u64, u64::from(COUNT) - evicted);
}

/// Values that have pages of their own are evicted alone, and first those that were asked for longest ago.
#[test]
fn large_values_go_by_themselves() {
    let _dog = Watchdog::new();
    let domain = Domain::embedded().expect("a manager");
    let options = StoreOptions {
        domain: Some(domain.clone()),
        memory: 64 * MIB,
        longest: LONGEST,
        shards: 1,
    };
    let store = Store::new(options).expect("a store");
    for number in 0..64 {
        store.put(&name(number), patient(&store, 1 << 18), 0, 0, Mode::Set);
    }
    store.get(&name(0), None).expect("there");
    let heap = domain.admin().stat().expect("stat").into_iter();
    let mut heap = heap.filter_map(|record| match record {
        StatRecord::Heap(heap) => Some(heap.heap),
        _ => None,
    });
    let heap = heap.next().expect("the arena's");
    domain.admin().set_quota(heap, 12 * MIB).expect("a quota");
    while domain.turn().is_err() || store.arena().stats().used_bytes > 12 * MIB {
        store.tidy();
    }
    let there = (0..64).filter(|number| store.peek(&name(*number)).is_some());
    let there: Vec<_> = there.collect();
    let expected: Vec<_> = [0].into_iter().chain(17..64).collect();
    assert_eq!(there, expected);
}
