//! Memory of caches, and memory that is kept for requests: admitted, visible, and given back when the manager asks.

use crate::kit::{self, watchdog};
use std::sync::Arc;
use tranship_block::front::Forwarding;
use tranship_block::{Blocking, Cache, Cached, Data, Fault, Info, Job, Lease, Op, Request, Store};
use tranship_core::admin::{HeapStat, StatRecord};
use tranship_core::heap::{Heap, HeapOptions};
use tranship_core::{Domain, ErrorKind, Trust};
use tranship_manager::{Config, Embedded};
use tranship_testkit::until;

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Returns the most that an account has beyond its used bytes: twice a step, which is an eighth of them or 256 KiB.
fn spare(used: u64) -> u64 {
    2 * (used / 8).max(256 << 10)
}

fn heaps(domain: &Domain, name: &str) -> Vec<HeapStat> {
    let stat = domain.admin().stat().expect("stat").into_iter();
    let heaps = stat.filter_map(|record| match record {
        StatRecord::Heap(heap) => Some(heap),
        _ => None,
    });
    heaps.filter(|heap| heap.name == name).collect()
}

fn heap(domain: &Domain) -> HeapStat {
    heaps(domain, "block cache").remove(0)
}

/// A disk whose blocks say which they are; it does everything at once.
#[derive(Debug)]
struct Numbers(u64);

impl Store for Numbers {
    fn info(&self) -> Result<Info, Fault> {
        Ok(Info {
            size: self.0,
            read_only: true,
            boot: 0,
        })
    }
    fn is_checked(&self) -> bool {
        false
    }
    fn lease(&self) -> Lease {
        Lease::forever()
    }
    fn data(&self, _: Op, len: usize) -> Result<Data, Fault> {
        Ok(Data::heap(len))
    }
    fn piece(&self, len: usize) -> usize {
        len
    }
    fn submit(&self, job: Job) {
        let Job {
            request,
            mut data,
            done,
        } = job;
        for at in (0..u64::from(request.len)).step_by(4096) {
            let number = ((request.offset + at) / BLOCK).to_le_bytes();
            data.write(usize::try_from(at).expect("small"), &number)
                .expect("in bounds");
        }
        done(data, Ok(Vec::new()));
    }
    fn kick(&self) {}
}

/// Reads all blocks once; each is its own.
fn read_all(store: &impl Store, bytes: u64) {
    let (tell, told) = std::sync::mpsc::channel();
    for block in 0..bytes / BLOCK {
        let tell = tell.clone();
        store.submit(Job {
            request: Request::new(Op::Read, block * BLOCK, 4096),
            data: Data::heap(4096),
            done: Box::new(move |data, result| {
                let mut number = [0; 8];
                data.read(0, &mut number).expect("in bounds");
                let _ = tell.send((result.is_ok(), u64::from_le_bytes(number)));
            }),
        });
        assert_eq!(told.recv().expect("an answer"), (true, block));
    }
}

fn charged(domain: &Domain, bytes: u64) -> (Arc<Cache>, Cached<Numbers>) {
    let cache = Cache::new(bytes);
    cache.charge_to(domain).expect("a heap");
    let store = Cached::new(&cache, Numbers(bytes));
    (cache, store)
}

fn with_total(total: u64) -> Domain {
    kit::embedded(Config {
        total: Some(total),
        ..kit::config()
    })
}

#[test]
fn blocks_are_admitted_and_go_back_when_the_manager_asks() {
    let _dog = watchdog();
    let domain = kit::embedded(kit::config());
    let (cache, store) = charged(&domain, 8 * MIB);
    assert_eq!((cache.held_bytes(), heap(&domain).admitted_bytes), (0, 0));
    // A manager on a busy machine may not answer in time: then there is less for a while.
    until(|| {
        read_all(&store, 8 * MIB);
        cache.held_bytes() == 8 * MIB
    });
    let stat = heap(&domain);
    assert!(
        (8 * MIB..=8 * MIB + spare(8 * MIB)).contains(&stat.admitted_bytes),
        "{stat:?}"
    );
    domain
        .admin()
        .set_quota(stat.heap, 2 * MIB)
        .expect("a quota");
    until(|| domain.turn().is_ok() && cache.held_bytes() <= 2 * MIB);
    let held = cache.held_bytes();
    assert!(held >= MIB, "no more goes than is asked for: {held}");
    until(|| heap(&domain).admitted_bytes == held);
    // The blocks that are left are right, and the others are read again, without more memory.
    read_all(&store, 8 * MIB);
    assert!(cache.held_bytes() <= 2 * MIB);
    // The heap may have the memory again.
    domain
        .admin()
        .set_quota(stat.heap, 8 * MIB)
        .expect("a quota");
    until(|| {
        read_all(&store, 8 * MIB);
        cache.held_bytes() == 8 * MIB
    });
    drop((cache, store));
    assert!(heaps(&domain, "block cache").is_empty());
}

#[test]
fn who_is_refused_keeps_less_and_nothing_fails() {
    let _dog = watchdog();
    let domain = with_total(4 * MIB);
    let other: Heap = Heap::create(&domain, HeapOptions::new(4 * MIB)).expect("heap");
    other.admit(3 * MIB, 3 * MIB).expect("there is so much");
    let (cache, store) = charged(&domain, 8 * MIB);
    until(|| {
        read_all(&store, 8 * MIB);
        cache.held_bytes() >= MIB / 2
    });
    assert!(cache.held_bytes() <= MIB, "{}", cache.held_bytes());
    assert!(heap(&domain).admitted_bytes <= MIB);
}

#[test]
fn a_manager_that_gives_no_heap_is_heeded() {
    let _dog = watchdog();
    let mut config = kit::config();
    config.limits.pools = 1;
    let domain = kit::embedded(config);
    let _only = Heap::create(&domain, HeapOptions::new(MIB)).expect("heap");
    let cache = Cache::new(MIB);
    let store = Cached::new(&cache, Numbers(MIB));
    read_all(&store, MIB);
    assert_eq!(cache.held_bytes(), MIB, "nobody to ask");
    let refused = cache.charge_to(&domain).expect_err("no heap");
    assert_eq!(refused.kind(), ErrorKind::Limit);
    assert_eq!(cache.held_bytes(), 0);
    read_all(&store, MIB);
    assert_eq!(cache.held_bytes(), 0);
}

#[test]
fn what_was_kept_before_is_charged_as_far_as_it_is_admitted() {
    let _dog = watchdog();
    let domain = with_total(2 * MIB);
    let cache = Cache::new(8 * MIB);
    let store = Cached::new(&cache, Numbers(8 * MIB));
    read_all(&store, MIB);
    cache.charge_to(&domain).expect("a heap");
    assert_eq!(cache.held_bytes(), MIB);
    assert!(heap(&domain).admitted_bytes >= MIB);
    cache.charge_to(&domain).expect("once is enough");
    assert_eq!(heaps(&domain, "block cache").len(), 1);

    let large = Cache::new(8 * MIB);
    read_all(&Cached::new(&large, Numbers(8 * MIB)), 8 * MIB);
    large.charge_to(&domain).expect("a heap");
    assert!(large.held_bytes() <= MIB, "{}", large.held_bytes());
}

#[test]
fn a_new_manager_hears_of_it() {
    let _dog = watchdog();
    let dir = tranship_testkit::folder().expect("dir");
    let path = dir.path().join("socket");
    let start = || Embedded::start(kit::config(), Some(&path)).expect("manager");
    let first = start();
    let domain = Domain::builder().socket(&path).connect().expect("connect");
    let (cache, store) = charged(&domain, 4 * MIB);
    until(|| {
        read_all(&store, 4 * MIB);
        cache.held_bytes() == 4 * MIB
    });
    drop(first);
    read_all(&store, 4 * MIB);
    let _second = start();
    until(|| domain.turn().is_ok() && domain.admin().is_managed());
    until(|| {
        let heaps = heaps(&domain, "block cache");
        heaps.iter().any(|heap| heap.admitted_bytes >= 4 * MIB)
    });
    let id = heap(&domain).heap;
    domain.admin().set_quota(id, MIB).expect("a quota");
    until(|| domain.turn().is_ok() && cache.held_bytes() <= MIB);
}

/// Only the service's own threads do anything.
#[test]
fn an_idle_proxy_gives_back() {
    let _dog = watchdog();
    // No other test has a cache of this size.
    const SIZE: u64 = 5 * MIB;
    let server = kit::serve("shm", Trust::Producer, SIZE);
    let cache = Cache::new(SIZE);
    let proxy = Forwarding::new(&server.at, Some(&cache));
    let store = Blocking(proxy.store());
    let mut bytes = vec![1; 64 << 10];
    until(|| {
        for at in (0..SIZE).step_by(64 << 10) {
            store.read_at(at, &mut bytes).expect("a read");
        }
        cache.held_bytes() == SIZE
    });
    assert!(bytes.iter().all(|byte| *byte == 0));
    let manager = kit::manager();
    let mine = |stat: &HeapStat| stat.max_bytes == SIZE;
    let full = heaps(manager, "block cache").into_iter().find(mine);
    let full = full.expect("the cache's heap");
    assert!(full.admitted_bytes >= SIZE, "{full:?}");
    assert!(!heaps(manager, "block requests").is_empty());
    manager.admin().set_quota(full.heap, MIB).expect("a quota");
    until(|| cache.held_bytes() <= MIB);
}
