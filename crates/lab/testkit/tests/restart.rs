//! The manager is killed and started again, several times, while two domains exchange buffers. Their channels go on
//! without it. With the next one new channels, new pools, growth, collection and shrinking work again, and nothing is
//! left behind in the survivors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tranship_core::admin::StatRecord;
use tranship_core::{Domain, ErrorKind, PollItem, Pool, PoolOptions, Receiver, Sender, poll};
use tranship_testkit::{Control, Held, Peer, Watchdog, child, payload, start_manager};

/// Returns the number of restarts: as many as fit into a normal test, or as the torture asks for.
fn restarts() -> u64 {
    if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        20
    } else {
        6
    }
}

/// Messages that have to get through before something else happens.
const SOME: u64 = 200;
const BYTES: usize = 24 << 10;
/// Messages of a fresh channel: far more than its pool has room for.
const FRESH: u64 = 300;

fn join(ctl: &Control, name: &str) -> Domain {
    let path: PathBuf = ctl.recv().unwrap().unwrap();
    Domain::builder().name(name).socket(path).connect().unwrap()
}

fn small_pool(domain: &Domain, name: &str) -> Pool {
    domain
        .create_pool(PoolOptions::new(2 << 20).name(name).chunk_bytes(256 << 10))
        .unwrap()
}

fn send_one(pool: &Pool, sender: &mut Sender, id: u64) {
    let mut buf = pool.alloc(BYTES).unwrap();
    payload::fill(&mut buf, id, payload::mix(id));
    let mut unsent = (buf.freeze(), id);
    // Without a manager a pool cannot be assigned: try again.
    loop {
        match sender.send(unsent) {
            Ok(_) => return,
            Err(error) if error.error.to_string().contains("manager") => unsent = error.unsent,
            Err(error) => panic!("message {id}: {}", error.error),
        }
    }
}

fn receive_one(receiver: &mut Receiver, id: u64) {
    let message = loop {
        match receiver.recv() {
            Ok(message) => break message,
            // The chunk is shown by the next manager.
            Err(error) if error == ErrorKind::ChunkPending => {}
            Err(error) => panic!("message {id}: {error}"),
        }
    };
    assert_eq!(message.word, id);
    payload::verify_seed(&message.to_vec(), id, payload::mix(id)).unwrap();
}

/// The flow of one side: goes on until paused, counts.
struct Flow {
    paused: AtomicBool,
    idle: AtomicBool,
    count: AtomicU64,
}

impl Flow {
    fn start(mut step: impl FnMut(u64) + Send + 'static) -> Arc<Flow> {
        let flow = Arc::new(Flow {
            paused: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            count: AtomicU64::new(0),
        });
        let mine = flow.clone();
        std::thread::spawn(move || {
            loop {
                while mine.paused.load(Ordering::SeqCst) {
                    mine.idle.store(true, Ordering::SeqCst);
                    std::thread::park();
                }
                mine.idle.store(false, Ordering::SeqCst);
                step(mine.count.load(Ordering::SeqCst));
                mine.count.fetch_add(1, Ordering::SeqCst);
            }
        });
        flow
    }
}

child!(
    fn source(ctl: Control) {
        let domain = join(&ctl, "source");
        let pool = small_pool(&domain, "flow");
        let listener = domain.listen::<Sender>("flow").unwrap();
        let fresh = domain.listen::<Sender>("fresh").unwrap();
        ctl.send(&()).unwrap();
        let mut sender = listener.accept().unwrap();
        let flow = Flow::start(move |id| send_one(&pool, &mut sender, id));
        let thread = flow.clone();
        while let Some(command) = ctl.recv::<String>().unwrap() {
            match command.as_str() {
                "pause" => thread.paused.store(true, Ordering::SeqCst),
                "fresh" => {
                    let mut sender = fresh.accept().unwrap();
                    let pool = small_pool(&domain, "fresh");
                    for id in 0..FRESH {
                        send_one(&pool, &mut sender, id);
                    }
                    assert!(pool.stats().collected > 0);
                }
                "turn" => domain.turn().unwrap(),
                _ => {}
            }
            let idle = thread.idle.load(Ordering::SeqCst);
            ctl.send(&(thread.count.load(Ordering::SeqCst), idle))
                .unwrap();
        }
    }
);

child!(
    fn sink(ctl: Control) {
        let domain = join(&ctl, "sink");
        let mut receiver = domain.open::<Receiver>("flow").unwrap();
        let flow = Flow::start(move |id| receive_one(&mut receiver, id));
        ctl.send(&()).unwrap();
        while let Some(command) = ctl.recv::<String>().unwrap() {
            match command.as_str() {
                "fresh" => {
                    let mut receiver = domain.open::<Receiver>("fresh").unwrap();
                    for id in 0..FRESH {
                        receive_one(&mut receiver, id);
                    }
                }
                "turn" => domain.turn().unwrap(),
                _ => {}
            }
            ctl.send(&(flow.count.load(Ordering::SeqCst), false))
                .unwrap();
        }
    }
);

fn ask(peer: &Peer, command: &str) -> (u64, bool) {
    peer.ask(command)
}

/// Waits until that many more messages came through.
fn flows(sink: &Peer) {
    let start = ask(sink, "count").0;
    while ask(sink, "count").0 < start + SOME {}
}

/// A new channel, a new pool, growth beyond its quota's worth of messages, and everything gone again.
fn fresh(source: &Peer, sink: &Peer) {
    source.send("fresh").unwrap();
    ask(sink, "fresh");
    source.expect::<(u64, bool)>();
}

/// Waits until the manager knows the flow's channel, with its name: both ends are back.
fn known(path: &Path, source: &Peer, sink: &Peer) {
    let looker = Domain::builder().name("looker").socket(path).connect();
    let looker = looker.unwrap();
    loop {
        let _ = (ask(source, "turn"), ask(sink, "turn"));
        let channels = looker
            .admin()
            .stat()
            .unwrap()
            .into_iter()
            .filter_map(|r| match r {
                StatRecord::Channel(c) if c.source.is_some() && c.sink.is_some() => Some(c.name),
                _ => None,
            });
        let channels: Vec<_> = channels.collect();
        assert!(channels.iter().all(|name| !name.is_empty()));
        if channels.iter().any(|name| name == "flow") {
            return;
        }
    }
}

/// Returns the resources of both processes, except memory up to which a pool may grow: descriptors, and memory by kind.
fn held(source: &Peer, sink: &Peer) -> (usize, BTreeMap<String, usize>) {
    let held = Held::by([source.pid(), sink.pid()]).unwrap();
    let mut kinds = BTreeMap::new();
    for memfd in held.memfds.values() {
        // Control pages of earlier managers stay mapped: one page each.
        if !memfd.name.contains("control-page") {
            *kinds.entry(memfd.name.clone()).or_default() += 1;
        }
    }
    (held.fds, kinds)
}

#[test]
fn the_manager_is_killed_again_and_again() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("manager.sock");
    let mut daemon = start_manager(&path, "");
    let (source, sink) = (source().start().unwrap(), sink().start().unwrap());
    source.ask::<()>(&path);
    sink.ask::<()>(&path);
    flows(&sink);
    fresh(&source, &sink);
    let mut first = None;
    for round in 0..restarts() {
        eprintln!("restart {round}");
        daemon.kill();
        flows(&sink);
        daemon = start_manager(&path, "");
        flows(&sink);
        known(&path, &source, &sink);
        fresh(&source, &sink);
        flows(&sink);
        if round == 0 {
            first = Some(held(&source, &sink));
        }
    }
    // The flow stands, all of it is received, and memory that it needs no more goes back.
    let _ = ask(&source, "pause");
    while !ask(&source, "count").1 || ask(&source, "count").0 != ask(&sink, "count").0 {}
    let (fds, kinds) = first.unwrap();
    loop {
        let _ = (ask(&source, "turn"), ask(&sink, "turn"));
        let (fds_now, kinds_now) = held(&source, &sink);
        let fits = |kind: &String, n: &usize| kinds.get(kind).is_some_and(|most| n <= most);
        if fds_now <= fds && kinds_now.iter().all(|(kind, n)| fits(kind, n)) {
            break;
        }
        eprintln!("{fds_now} of {fds} descriptors, {kinds_now:?} of {kinds:?}");
    }
}

// Waits for a connection by `poll` alone, and says when it has no manager.
child!(
    fn waits(ctl: Control) {
        let domain = join(&ctl, "waits");
        let listener = domain.listen::<Receiver>("late").unwrap();
        ctl.send(&"listens").unwrap();
        let mut said = false;
        loop {
            let mut set = [PollItem::listener(&listener)];
            let ready = poll(&mut set, Some(Duration::from_millis(20))).unwrap();
            if !ready.is_empty() {
                break;
            }
            if !said && !domain.admin().is_managed() {
                ctl.send(&"away").unwrap();
                said = true;
            }
        }
        let mut receiver = listener.accept().unwrap();
        ctl.send(&receiver.recv().unwrap().word).unwrap();
    }
);

#[test]
fn who_only_polls_a_listener_joins_the_next_manager() {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().unwrap();
    let path = folder.path().join("manager.sock");
    let first = start_manager(&path, "");
    let waits = waits().start().unwrap();
    assert_eq!(waits.ask::<String>(&path), "listens");
    first.kill();
    assert_eq!(waits.expect::<String>(), "away");
    let _second = start_manager(&path, "");
    let domain = Domain::builder().socket(&path).connect().unwrap();
    let mut sender = domain.open::<Sender>("late").unwrap();
    sender.send((b"", 7)).unwrap();
    assert_eq!(waits.expect::<u64>(), 7);
}

/// A listener like a camera between two frames: each wait is shorter than the time after which a thread looks for the
/// manager.
#[test]
fn a_listener_that_never_waits_long_joins_the_next_manager() {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().unwrap();
    let path = folder.path().join("m.sock");
    let first = start_manager(&path, "");
    let join = |name: &str| Domain::builder().name(name).socket(&path).connect();
    let camera = join("camera").unwrap();
    let listener = camera.listen::<Sender>("video").unwrap();
    first.kill();
    let _next = start_manager(&path, "");
    let viewer = join("viewer").unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| viewer.open::<Receiver>("video"));
        let sender = loop {
            match listener.accept_timeout(Duration::from_millis(10)) {
                Ok(sender) => break sender,
                Err(error) if error == ErrorKind::TimedOut || error == ErrorKind::ManagerAway => {}
                Err(error) => panic!("{error}"),
            }
        };
        opening.join().unwrap().unwrap();
        drop(sender);
    });
}
