//! A policy moves real memory: two writers, one limit. Memory that one does not need any more is the other's, in
//! resident bytes.

use std::collections::VecDeque;
use std::time::Duration;

use tranship_core::admin::StatRecord;
use tranship_core::{BufferMut, Domain, PoolOptions};
use tranship_manager::{Config, PressureConfig};
use tranship_testkit::{Control, Held, Peer, Watchdog, child};

const CHUNK: usize = 256 << 10;
/// Chunks in all.
const TOTAL: u64 = 64;
/// More chunks than there are: a domain that wants so many is never satisfied.
const ALL: usize = 100;

// Commands: how many chunks to hold from now on. A child that cannot have them goes on trying, and uses its chunks in
// turn. A child that has them says so.
child!(
    fn works(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let builder = Domain::builder().name("worker").socket(&socket);
        let domain = builder.helper_thread(true).connect().expect("connect");
        let options = PoolOptions::new((ALL * CHUNK) as u64).chunk_bytes(CHUNK as u64);
        let pool = domain.create_pool(options).expect("pool");
        let mut held: VecDeque<BufferMut> = VecDeque::new();
        while let Some(want) = ctl.recv::<usize>().unwrap() {
            held.truncate(want);
            while held.len() < want && !ctl.is_ready() {
                match pool.alloc_timeout(CHUNK, Duration::from_millis(5)) {
                    Ok(buf) => held.push_back(buf),
                    Err(_) => drop(held.pop_front()),
                }
            }
            if held.len() == want {
                ctl.send(&want).unwrap();
            }
        }
    }
);

/// Returns the chunks that a process has, by the kernel's list of its memfds.
fn chunks(peer: &Peer) -> u64 {
    let held = Held::by([peer.pid()]).expect("held");
    let chunks = held.memfds_named("tranship-chunk");
    chunks.values().map(|m| m.resident).sum::<u64>() / CHUNK as u64
}

fn manager() -> Domain {
    let config = Config {
        total: Some(TOTAL * CHUNK as u64),
        policy: "throughput".to_owned(),
        policy_period: Duration::from_millis(100),
        grace: Duration::from_millis(1),
        pressure: PressureConfig {
            watch: false,
            ..PressureConfig::default()
        },
        ..Config::default()
    };
    let builder = Domain::builder().name("manager").config(config);
    builder.embedded().expect("embedded")
}

/// Nothing beyond the total was granted, and no quotas beyond it are in force.
fn check(manager: &Domain) {
    let (mut granted, mut quotas) = (0, 0);
    for record in manager.admin().stat().expect("statistics") {
        match record {
            StatRecord::Manager(m) => granted = m.granted_bytes + m.stranded_bytes,
            StatRecord::Pool(p) => quotas += p.quota_bytes,
            _ => {}
        }
    }
    let total = TOTAL * CHUNK as u64;
    assert!(
        granted <= total && quotas <= total,
        "{granted} granted, {quotas} quotas"
    );
}

/// Looks until both have so much.
fn until(manager: &Domain, peers: [&Peer; 2], enough: impl Fn(u64, u64) -> bool) -> (u64, u64) {
    loop {
        check(manager);
        let (one, two) = (chunks(peers[0]), chunks(peers[1]));
        if enough(one, two) {
            return (one, two);
        }
        std::thread::yield_now();
    }
}

#[test]
fn what_one_does_not_need_any_more_is_the_others() {
    let _dog = Watchdog::new();
    let manager = manager();
    let socket = manager.socket_path().expect("socket").display().to_string();
    let [one, two] = [(); 2].map(|()| works().start().expect("worker"));
    let both = [&one, &two];
    for peer in both {
        peer.send(&socket).expect("send");
    }
    // The first may have all that there is, as long as it is alone.
    assert_eq!(one.ask::<usize>(&60), 60);
    until(&manager, both, |one, _| one >= 60);
    // Both want all: each has its half, except for a chunk that is on its way.
    for peer in both {
        peer.send(&ALL).expect("send");
    }
    let half = TOTAL / 2;
    until(&manager, both, |one, two| {
        one.abs_diff(half) <= 2 && two.abs_diff(half) <= 2
    });
    // The first needs two: the second gets the rest.
    assert_eq!(one.ask::<usize>(&2), 2);
    until(&manager, both, |one, two| one <= 4 && two >= TOTAL - 6);
    // First the domain that only gains: a chunk that goes over between the two looks is counted once at most.
    let (got, left) = (chunks(&two), chunks(&one));
    assert!(left + got <= TOTAL, "{left} and {got} chunks of {TOTAL}");
    // The memory goes back.
    assert_eq!(two.ask::<usize>(&1), 1);
    one.send(&ALL).expect("send");
    until(&manager, both, |one, two| two <= 3 && one >= TOTAL - 6);
}

/// Without a policy it is an error at once: an allocation larger than the quota can never succeed.
#[test]
fn what_is_larger_than_the_quota_waits_for_a_larger_one() {
    let _dog = Watchdog::new();
    let manager = manager();
    let options = |chunks| PoolOptions::new(chunks * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let first = manager.create_pool(options(TOTAL)).expect("pool");
    let held: Vec<_> = (0..30).map(|_| first.alloc(CHUNK).expect("room")).collect();
    let second = manager.create_pool(options(TOTAL)).expect("pool");
    let need = 40 * CHUNK;
    std::thread::scope(|s| {
        let waits = s.spawn(|| second.alloc(need).expect("room in time"));
        while second.stats().waiting == 0 {
            assert!(!waits.is_finished(), "30 chunks of {TOTAL} are in use");
            manager.turn().expect("turn");
        }
        assert!(second.stats().quota_bytes < need as u64);
        drop(held);
        while !waits.is_finished() {
            manager.turn().expect("turn");
            std::thread::yield_now();
        }
        assert_eq!(waits.join().expect("no panic").len(), need);
    });
    let most = usize::try_from(TOTAL).expect("small") * CHUNK;
    let error = second
        .try_alloc(most + 1)
        .expect_err("more than its maximum");
    assert!(
        error.to_string().contains(&(most as u64).to_string()),
        "{error}"
    );
}
