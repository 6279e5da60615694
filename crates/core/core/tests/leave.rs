//! A process that joins and leaves all the time has in the end what it had at the beginning: descriptors, mappings, memory. Alone
//! in its process, for others' would count.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tranship_core::heap::{Heap, HeapOptions};
use tranship_core::{Body, Buffer, ChannelOptions, Domain, Pool, PoolOptions, Receiver, Sender};
use tranship_manager::{Config, Embedded};
use tranship_testkit::{Random, Watchdog};

/// The first rounds make what every later one uses again.
const FIRST: usize = 30;
const ROUNDS: usize = 1000;
/// Far less than a domain takes: the room for its manager's messages alone is 16 KiB.
const EACH_BYTES: usize = 6 << 10;

#[derive(Clone, Copy, Debug)]
struct Has {
    descriptors: usize,
    mappings: usize,
    threads: usize,
    bytes: usize,
}

fn entries(of: &str) -> usize {
    std::fs::read_dir(of).expect("/proc").count()
}

fn has() -> Has {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let anonymous = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = anonymous.and_then(|l| l.trim().strip_suffix(" kB")?.parse().ok());
    Has {
        descriptors: entries("/proc/self/fd"),
        mappings: maps.lines().count(),
        threads: entries("/proc/self/task"),
        bytes: kib.unwrap_or(0usize) << 10,
    }
}

fn join(path: &Path, name: &str, helper: bool) -> Domain {
    let builder = Domain::builder().name(name).socket(path);
    builder.helper_thread(helper).connect().expect("connect")
}

fn filled(pool: &Pool) -> Buffer {
    pool.copy(&[7; 1000]).expect("room").freeze()
}

/// Two domains, a link, buffers at both ends; all of it goes in an order of its own, the domains' handles first or in between.
fn with_a_link(path: &Path, helper: bool, random: &mut Random) {
    let (a, b) = (join(path, "a", helper), join(path, "b", helper));
    let pool = PoolOptions::new(1 << 20).chunk_bytes(1 << 16);
    let pool = a.create_pool(pool).expect("a pool");
    let listener = a.listen::<Sender>("x").expect("a listener");
    let (mut sender, mut receiver) = thread::scope(|s| {
        let receiver = s.spawn(|| b.open::<Receiver>("x").expect("a receiver"));
        let sender = listener.accept().expect("a sender");
        (sender, receiver.join().expect("no panic"))
    });
    let (kept, sent) = (filled(&pool), filled(&pool));
    thread::scope(|s| {
        s.spawn(|| sender.send(sent).expect("sent"));
        let got = receiver.recv().expect("received");
        let Body::Buffer(got) = got.body else {
            panic!("{got:?}");
        };
        assert_eq!(got.to_vec(), [7; 1000]);
        let mut all: Vec<Box<dyn std::any::Any + Send>> = vec![
            Box::new(a),
            Box::new(b),
            Box::new(pool),
            Box::new(listener),
            Box::new(kept),
            Box::new(receiver),
            Box::new(got),
        ];
        while !all.is_empty() {
            let at = usize::try_from(random.below(all.len() as u64)).expect("small");
            drop(all.swap_remove(at));
        }
    });
}

/// A thread that waits in a call while the last public handle goes.
fn with_somebody_waiting(path: &Path) {
    let domain = join(path, "waits", false);
    let listener = domain.listen::<Sender>("nobody").expect("a listener");
    thread::scope(|s| {
        s.spawn(move || {
            let brief = Duration::from_millis(1);
            assert!(listener.accept_timeout(brief).is_err());
        });
        drop(domain);
    });
}

fn round(path: &Path, round: usize, random: &mut Random) {
    match round % 6 {
        0 => drop(join(path, "brief", false)),
        1 => with_a_link(path, false, random),
        2 => with_a_link(path, true, random),
        3 => with_somebody_waiting(path),
        4 => drop(Domain::embedded().expect("a manager of its own")),
        _ => {
            let domain = join(path, "heap", false);
            let heap = Heap::create(&domain, HeapOptions::new(1 << 20));
            let nobody = ChannelOptions::new().timeout(Duration::ZERO);
            assert!(domain.open_with::<Receiver>("nobody", nobody).is_err());
            drop(domain);
            drop(heap.expect("a heap"));
        }
    }
}

#[test]
fn joining_and_leaving_costs_nothing_in_the_end() {
    let dog = Watchdog::new();
    let mut random = Random::printed("leave");
    let dir = tranship_testkit::folder().expect("a folder");
    let path: PathBuf = dir.path().join("m.sock");
    let _manager = Embedded::start(Config::default(), Some(&path)).expect("a manager");
    // Descriptors and threads of the next domain that joins, and of helper threads that end by themselves.
    let settled = |most: Option<Has>| loop {
        drop(join(&path, "last", false));
        let has = has();
        let more = most
            .is_some_and(|most| has.descriptors > most.descriptors || has.threads > most.threads);
        if !more {
            return has;
        }
        thread::yield_now();
    };
    for at in 0..FIRST {
        round(&path, at, &mut random);
    }
    let before = settled(None);
    for at in 0..ROUNDS {
        round(&path, at, &mut random);
        dog.step(format!(
            "round {at} of {ROUNDS}, {:?} after {before:?}",
            has()
        ));
    }
    let after = settled(Some(before));
    println!("{before:?}, {after:?}");
    assert!(
        after.mappings < before.mappings + ROUNDS / 10,
        "{before:?}, {after:?}"
    );
    assert!(
        after.bytes < before.bytes + ROUNDS * EACH_BYTES,
        "{before:?}, {after:?}"
    );
}
