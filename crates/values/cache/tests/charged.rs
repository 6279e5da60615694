//! A server whose values are charged to a domain: it evicts when the manager wants memory back, and serves on where it
//! is refused some.

mod client;

use client::{Client, resident};
use std::net::SocketAddr;
use std::path::Path;
use tranship_cache::{Options, Server};
use tranship_core::Domain;
use tranship_core::admin::{HeapStat, StatRecord};
use tranship_core::heap::{Heap, HeapOptions};
use tranship_manager::{Config, Embedded, PressureConfig};
use tranship_testkit::{Watchdog, until};

const MIB: u64 = 1 << 20;
/// A pageblock's worth.
const VALUE: usize = 64 << 10;

fn server(domain: &Domain, change: impl FnOnce(&mut Options)) -> Server {
    let mut options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads: 1,
        domain: Some(domain.clone()),
        ..Options::default()
    };
    change(&mut options);
    Server::start(options).expect("a server")
}

fn join(manager: &Embedded, name: &str) -> Domain {
    let member = Domain::builder().name(name).socket(manager.path());
    member.helper_thread(true).connect().expect("connect")
}

fn manager(total: u64, path: &Path) -> Embedded {
    let config = Config {
        total: Some(total),
        pressure: PressureConfig {
            watch: false,
            ..PressureConfig::default()
        },
        ..Config::default()
    };
    Embedded::start(config, Some(path)).expect("a manager")
}

fn heaps(domain: &Domain) -> Vec<HeapStat> {
    let stat = domain.admin().stat().unwrap_or_default().into_iter();
    let heaps = stat.filter_map(|record| match record {
        StatRecord::Heap(heap) => Some(heap),
        _ => None,
    });
    heaps.filter(|heap| heap.name == "zcopy").collect()
}

/// Sets a value of its own for each key.
fn set(client: &mut Client, key: usize) {
    client.set(key, &[key.to_le_bytes()[0]; VALUE]);
}

/// Returns whether it is there; then its value is the one that was set.
fn get(client: &mut Client, key: usize) -> bool {
    let value = client.get(key);
    value.is_some_and(|value| {
        assert!(value == [key.to_le_bytes()[0]; VALUE]);
        true
    })
}

#[test]
fn a_server_evicts_down_to_what_the_manager_leaves_it() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("dir");
    let manager = manager(256 * MIB, &dir.path().join("socket"));
    let domain = join(&manager, "cache");
    let server = server(&domain, |_| {});
    let mut client = Client::new(&server);
    let mut keys = 0..;
    until(|| {
        set(&mut client, keys.next().expect("endless"));
        resident(&server) >= 24 * MIB
    });
    let heap = heaps(&domain).remove(0);
    assert!(heap.admitted_bytes >= resident(&server), "{heap:?}");
    domain
        .admin()
        .set_quota(heap.heap, 8 * MIB)
        .expect("a quota");
    // No client asks the server for anything meanwhile.
    until(|| resident(&server) <= 8 * MIB);
    until(|| heaps(&domain)[0].admitted_bytes <= 8 * MIB);
    let late = keys.start - 64..keys.start;
    let kept = late.filter(|key| get(&mut client, *key)).count();
    assert!(kept >= 32, "what came last goes last: {kept} of 64");
    assert!(!get(&mut client, 0));
    // The server serves on, within that limit.
    for _ in 0..400 {
        let key = keys.next().expect("endless");
        set(&mut client, key);
        assert!(get(&mut client, key));
    }
    assert!(resident(&server) <= 8 * MIB, "{}", resident(&server));
}

#[test]
fn a_server_that_is_refused_memory_evicts_and_fails_nothing() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("dir");
    let manager = manager(8 * MIB, &dir.path().join("socket"));
    let (domain, other) = (join(&manager, "cache"), join(&manager, "other"));
    let other = Heap::create(&other, HeapOptions::new(8 * MIB)).expect("heap");
    other.admit(4 * MIB, 4 * MIB).expect("there is so much");
    let server = server(&domain, |_| {});
    let mut client = Client::new(&server);
    for key in 0..400 {
        set(&mut client, key);
        assert!(get(&mut client, key));
    }
    assert!(resident(&server) <= 4 * MIB, "{}", resident(&server));
    // Memory that another domain gives back is had after a while.
    other.give_back(4 * MIB);
    let mut keys = 400..;
    until(|| {
        set(&mut client, keys.next().expect("endless"));
        resident(&server) > 6 * MIB
    });
}

#[test]
fn a_new_manager_hears_of_the_values() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("dir");
    let path = dir.path().join("socket");
    let first = manager(256 * MIB, &path);
    let domain = join(&first, "cache");
    let server = server(&domain, |_| {});
    let mut client = Client::new(&server);
    let mut keys = 0..;
    until(|| {
        set(&mut client, keys.next().expect("endless"));
        resident(&server) >= 8 * MIB
    });
    drop(first);
    for key in 0..keys.start {
        assert!(get(&mut client, key), "{key}");
    }
    let _second = manager(256 * MIB, &path);
    until(|| {
        heaps(&domain)
            .iter()
            .any(|heap| heap.admitted_bytes >= 8 * MIB)
    });
    let heap = heaps(&domain).remove(0);
    domain
        .admin()
        .set_quota(heap.heap, 2 * MIB)
        .expect("a quota");
    until(|| resident(&server) <= 2 * MIB);
}

/// The server was small when the manager ended. It goes on up to its own limit, and the next manager hears of all of
/// it.
#[test]
fn a_server_without_its_manager_grows_to_its_own_limit() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("dir");
    let path = dir.path().join("socket");
    let first = manager(256 * MIB, &path);
    let domain = join(&first, "cache");
    let server = server(&domain, |options| options.memory = 64 * MIB);
    let mut client = Client::new(&server);
    assert_eq!(client.stat("zcopy_manager"), "present");
    set(&mut client, 0);
    drop(first);
    until(|| client.stat("zcopy_manager") == "away");
    for key in 1..500 {
        set(&mut client, key);
    }
    for key in 0..500 {
        assert!(get(&mut client, key), "{key}");
    }
    assert_eq!(client.stat("evictions"), "0");
    let unadmitted = |client: &mut Client| client.stat("zcopy_unadmitted_bytes").parse::<u64>();
    assert!(unadmitted(&mut client).expect("a number") >= 28 * MIB);
    // The server's own limit still holds.
    for key in 500..1500 {
        set(&mut client, key);
    }
    assert!(client.stat("bytes").parse::<u64>().expect("a number") <= 64 * MIB);
    assert_ne!(client.stat("evictions"), "0");
    // Nothing is asked of the server: it finds the next manager by itself.
    let _second = manager(256 * MIB, &path);
    until(|| {
        heaps(&domain)
            .iter()
            .any(|heap| heap.admitted_bytes >= resident(&server))
    });
    until(|| client.stat("zcopy_manager") == "present");
    until(|| unadmitted(&mut client).expect("a number") == 0);
    set(&mut client, 1500);
    assert!(get(&mut client, 1500) && get(&mut client, 1499));
}

/// Memory that was taken while no manager was there has no claim to more than the next manager has.
#[test]
fn a_server_comes_down_to_what_a_smaller_manager_admits() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("dir");
    let path = dir.path().join("socket");
    let first = manager(256 * MIB, &path);
    let domain = join(&first, "cache");
    let server = server(&domain, |_| {});
    let mut client = Client::new(&server);
    set(&mut client, 0);
    drop(first);
    until(|| client.stat("zcopy_manager") == "away");
    for key in 1..500 {
        set(&mut client, key);
    }
    assert!(resident(&server) >= 28 * MIB);
    let _second = manager(8 * MIB, &path);
    until(|| resident(&server) <= 8 * MIB);
    until(|| client.stat("zcopy_unadmitted_bytes") == "0");
    let heap = heaps(&domain).remove(0);
    assert!(heap.admitted_bytes >= resident(&server), "{heap:?}");
    // The server serves on, within that limit.
    for key in 500..700 {
        set(&mut client, key);
        assert!(get(&mut client, key));
    }
    assert!(resident(&server) <= 8 * MIB, "{}", resident(&server));
}

/// The memory is charged to the server that serves.
#[test]
fn a_successor_pays() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("dir");
    let manager = manager(64 * MIB, &dir.path().join("socket"));
    let (one, two) = (join(&manager, "one"), join(&manager, "two"));
    let at = dir.path().join("control");
    let former = server(&one, |options| options.take_over = Some(at.clone()));
    let mut client = Client::new(&former);
    let mut keys = 0..;
    until(|| {
        set(&mut client, keys.next().expect("endless"));
        // With as much again there would be too much memory.
        resident(&former) >= 40 * MIB
    });
    let next = server(&two, |options| options.take_over = Some(at.clone()));
    let taken = next.taken().expect("there was a server");
    assert_eq!(taken.store.values, keys.start as u64);
    let of = |domain: &Domain| {
        let heaps = heaps(domain).into_iter();
        let own = heaps.filter(|heap| heap.owner == domain.id());
        own.map(|heap| heap.admitted_bytes).sum::<u64>()
    };
    until(|| of(&two) >= 40 * MIB);
    assert!(of(&one) <= 2 * MIB, "{}", of(&one));
    let mut client = Client::new(&next);
    for key in 0..keys.start {
        assert!(get(&mut client, key), "{key} of {}", keys.start);
    }
}
