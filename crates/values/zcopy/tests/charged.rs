//! An arena that is charged to a domain: its memory is admitted, visible, and goes back when the manager asks.

mod kit;

use kit::dog;
use std::os::fd::AsFd;
use tranship_core::Domain;
use tranship_core::admin::{HeapStat, StatRecord};
use tranship_core::heap::{Heap, HeapOptions};
use tranship_manager::{Config, PressureConfig};
use tranship_testkit::{Random, until};
use tranship_zcopy::{Arena, Error, Options, Value};

const MIB: u64 = 1 << 20;
/// A pageblock, filled by one value of its size.
const BLOCK: usize = 64 << 10;

fn with_total(total: u64) -> Domain {
    let config = Config {
        total: Some(total),
        pressure: PressureConfig {
            watch: false,
            ..PressureConfig::default()
        },
        ..Config::default()
    };
    let domain = Domain::builder().name("cache").config(config).embedded();
    domain.expect("a manager")
}

fn arena(domain: &Domain) -> Arena {
    let options = Options::new().max(256 * MIB).charge_to(domain);
    Arena::with(&options).expect("an arena")
}

fn heaps(domain: &Domain) -> Vec<HeapStat> {
    let stat = domain.admin().stat().expect("stat").into_iter();
    let heaps = stat.filter_map(|record| match record {
        StatRecord::Heap(heap) => Some(heap),
        _ => None,
    });
    heaps.filter(|heap| heap.name == "zcopy").collect()
}

fn admitted(domain: &Domain) -> u64 {
    heaps(domain)[0].admitted_bytes
}

/// Returns the bytes that the kernel has of the arena's file.
fn resident(arena: &Arena) -> u64 {
    let file = arena.descriptor().as_fd().try_clone_to_owned();
    let file = std::fs::File::from(file.expect("a descriptor"));
    std::os::unix::fs::MetadataExt::blocks(&file.metadata().expect("fstat")) * 512
}

fn value(arena: &Arena, len: usize) -> Result<Value, Error> {
    let mut value = arena.alloc(len)?;
    value.fill(7);
    Ok(value.freeze())
}

/// Allocates that many values, and repeats until all are admitted: a manager on a busy machine may not answer in time.
fn values(arena: &Arena, count: usize) -> Vec<Value> {
    let mut values = Vec::new();
    until(|| {
        values.extend(value(arena, BLOCK));
        values.len() == count
    });
    values
}

#[test]
fn what_is_there_is_admitted_and_goes_back_when_the_manager_asks() {
    let _dog = dog();
    let domain = with_total(1 << 30);
    let arena = arena(&domain);
    assert_eq!((admitted(&domain), resident(&arena)), (0, 0));
    let mut values = values(&arena, 64);
    assert_eq!(resident(&arena), 4 * MIB);
    // Beyond the used bytes at most twice an eighth of them.
    let all = admitted(&domain);
    assert!((4 * MIB..=5 * MIB).contains(&all), "{all}");
    let heap = heaps(&domain).remove(0);
    domain.admin().set_quota(heap.heap, MIB).expect("a quota");
    until(|| domain.turn().is_ok() && arena.excess() == 3 * MIB);
    // Memory that is freed now is not kept.
    until(|| {
        values.pop();
        arena.excess() == 0
    });
    assert_eq!((values.len(), resident(&arena)), (16, MIB));
    until(|| admitted(&domain) == MIB);
    assert!(matches!(
        value(&arena, BLOCK),
        Err(Error::NotAdmitted {
            asked: BLOCK,
            used: MIB
        })
    ));
    drop((values, arena));
    assert!(heaps(&domain).is_empty());
}

#[test]
fn what_is_free_and_kept_goes_first() {
    let _dog = dog();
    let domain = with_total(1 << 30);
    let arena = arena(&domain);
    drop(values(&arena, 32));
    assert_eq!(resident(&arena), 2 * MIB, "kept for the next ones");
    assert!(admitted(&domain) >= 2 * MIB);
    let heap = heaps(&domain).remove(0);
    domain.admin().set_quota(heap.heap, MIB).expect("a quota");
    until(|| domain.turn().is_ok() && arena.excess() == 0 && admitted(&domain) <= MIB);
    assert!(resident(&arena) <= MIB, "{}", resident(&arena));
}

#[test]
fn what_is_not_admitted_is_an_error_and_what_is_freed_is_used_again() {
    let _dog = dog();
    let domain = with_total(2 * MIB);
    let other = Heap::create(&domain, HeapOptions::new(2 * MIB)).expect("heap");
    other.admit(MIB, MIB).expect("there is so much");
    let arena = arena(&domain);
    let mut values = values(&arena, 16);
    assert!(matches!(
        value(&arena, BLOCK),
        Err(Error::NotAdmitted { .. })
    ));
    for _ in 0..100 {
        values.pop();
        values.push(value(&arena, BLOCK).expect("its place"));
    }
    other.give_back(MIB);
    until(|| {
        values.extend(value(&arena, BLOCK));
        values.len() == 17
    });
}

/// Values of all lengths come and go: the arena never has more memory than is admitted, and in the end all of it goes
/// back.
#[test]
fn nothing_has_memory_that_is_not_admitted() {
    let _dog = dog();
    let domain = with_total(64 * MIB);
    let arena = arena(&domain);
    let mut random = Random::printed("a charged arena");
    let mut values: Vec<Value> = Vec::new();
    for _ in 0..4000 {
        if random.below(100) < 55 {
            let longest =
                [300, 5000, 70_000, 300_000][usize::try_from(random.below(4)).expect("small")];
            let len = usize::try_from(random.below(longest)).expect("small");
            values.extend(value(&arena, len));
        } else if !values.is_empty() {
            let at = random.below(values.len() as u64);
            values.swap_remove(usize::try_from(at).expect("small"));
        }
        if random.below(50) == 0 {
            arena.protect();
        }
        if random.below(100) == 0 {
            // Memory that was given back is reported after it is the kernel's.
            assert!(resident(&arena) <= admitted(&domain));
        }
    }
    values.clear();
    let heap = heaps(&domain).remove(0);
    domain.admin().set_quota(heap.heap, 4096).expect("a quota");
    until(|| domain.turn().is_ok() && arena.excess() == 0 && resident(&arena) == 0);
    until(|| admitted(&domain) == 0);
}
