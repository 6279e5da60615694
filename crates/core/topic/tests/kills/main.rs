//! A publisher, subscribers and their manager, killed while messages flow: nothing is reused early, nothing leaks, and
//! the survivors are served.
//!
//! Payloads carry their id and a checksum. A subscriber verifies each at receipt and again before it drops it.
//!
//! NOT here: liars (`hostile`), a manager that is stopped (`stopped`), interleavings (the models in `ledger`).

mod cast;
mod hostile;
mod stage;
mod stopped;

use cast::{Done, Order};
use stage::{Role, Stage};
use tranship_core::admin::StatRecord;
use tranship_core::{Domain, ErrorKind};
use tranship_testkit::{Exit, Peer, Random, Watchdog, payload};
use tranship_topic::{Subscriber, Topics};

/// Steps of the protocol at which a process dies, and the processes that reach them.
const POINTS: [(&str, Role); 8] = [
    ("readers.connected", Role::Subscriber(0)),
    ("topic.claimed", Role::Subscriber(0)),
    ("topic.claimed:30", Role::Subscriber(1)),
    ("readers.held:40", Role::Subscriber(2)),
    ("topic.kept:40", Role::Subscriber(0)),
    ("topic.published:50", Role::Publisher),
    ("readers.joined", Role::Publisher),
    ("readers.joined:3", Role::Publisher),
];

#[test]
fn at_each_step() {
    let dog = Watchdog::new();
    let mut stage = Stage::new(&mut Random::printed("at_each_step"));
    for (point, role) in POINTS {
        dog.step(format_args!("{point} of {role:?}"));
        stage.kill(role);
        stage.replace_doomed(role, point);
        if role == Role::Publisher {
            // A newcomer has it say where to begin.
            stage.kill(Role::Subscriber(2));
            stage.replace(Role::Subscriber(2));
        }
        let exit = stage.of(role).wait();
        assert_eq!(exit, Exit::Signal(libc::SIGKILL), "{point}");
        stage.replace(role);
        stage.flows();
    }
    stage.ends();
}

#[test]
fn at_random() {
    let dog = Watchdog::new();
    let mut random = Random::printed("at_random");
    let mut stage = Stage::new(&mut random);
    for n in 0..tranship_testkit::kills(40, 2000) {
        let role = match random.below(8) {
            0 | 1 => Role::Publisher,
            2 => Role::Manager,
            other => Role::Subscriber(usize::try_from(other % 3).unwrap_or(0)),
        };
        dog.step(format_args!("{n}: {role:?}"));
        random.instant(std::time::Duration::from_millis(4));
        stage.kill(role);
        if role != Role::Publisher && role != Role::Manager {
            stage.others_go_on(role);
        }
        stage.replace(role);
        stage.flows();
    }
    dog.step("all kills");
    stage.ends();
}

/// A publisher that has said where to begin, and what it has published since. With `hears`, its subscriber has heard it.
fn published(hears: bool) -> (Domain, Subscriber, Peer) {
    let domain = Domain::builder().helper_thread(true).embedded();
    let domain = domain.expect("a domain");
    let burst = cast::burst().start().expect("a process");
    let start = cast::Start {
        socket: domain.socket_path().expect("a socket"),
        incarnation: 1,
        seed: 7,
        total: cast::TOTAL,
        many: false,
    };
    burst.send(&start).expect("sent");
    let Done = burst.expect();
    let mut subscriber = domain.subscribe(cast::TOPIC).expect("subscribe");
    let is_so = |subscriber: &Subscriber| {
        let status = subscriber.status();
        status.joined || !hears && status.publisher.is_some()
    };
    while !is_so(&subscriber) {
        assert!(subscriber.try_recv().expect("nothing is taken").is_none());
    }
    burst.send(&Order::Advance(cast::BURST)).expect("sent");
    let Done = burst.expect();
    (domain, subscriber, burst)
}

/// All that it has published is received after the manager knows of its end, and then the end is told.
fn is_received(domain: &Domain, mut subscriber: Subscriber, end: ErrorKind) {
    // Once the manager knows of the end it looks for what is dead in the pool.
    let is_known = || {
        let books = domain.admin().stat().expect("stat");
        let names =
            |record: &StatRecord| matches!(record, StatRecord::Domain(d) if d.name == "burst");
        !books.iter().any(names)
    };
    while !is_known() {
        std::thread::yield_now();
    }
    domain.turn().expect("turn");
    for id in 1..=cast::BURST {
        let message = subscriber.recv().expect("a message");
        assert_eq!((message.word, subscriber.missed()), (id, 0));
        payload::verify_seed(&message.to_vec(), id, 7).expect("whole");
    }
    let error = subscriber.recv().expect_err("it is over");
    assert_eq!(error.kind(), end, "{error}");
}

#[test]
fn what_a_dead_publisher_has_published_is_received() {
    let _dog = Watchdog::new();
    let (domain, subscriber, burst) = published(true);
    burst.kill();
    is_received(&domain, subscriber, ErrorKind::PeerDied);
}

/// A program may end right after its last `send`.
#[test]
fn what_a_publisher_has_published_before_it_ended_is_received() {
    let _dog = Watchdog::new();
    let (domain, subscriber, burst) = published(false);
    burst.send(&Order::Quit).expect("sent");
    assert_eq!(burst.wait(), Exit::Code(0));
    is_received(&domain, subscriber, ErrorKind::PeerGone);
}

/// A caller that waits in short turns looks for the death, too.
#[test]
fn a_dead_publisher_is_noticed_while_the_manager_is_away() {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().expect("a folder");
    let start = cast::Start {
        socket: folder.path().join("manager"),
        incarnation: 1,
        seed: 7,
        total: cast::TOTAL,
        many: false,
    };
    let begins = |launch: tranship_testkit::Launch| {
        let peer = launch.start().expect("a process");
        peer.send(&start).expect("sent");
        let Done = peer.expect();
        peer
    };
    let manager = begins(cast::manager());
    let burst = begins(cast::burst());
    let connected = Domain::builder().socket(&start.socket).connect();
    let domain = connected.expect("join");
    let mut subscriber = domain.subscribe(cast::TOPIC).expect("subscribe");
    while !subscriber.status().joined {
        assert!(subscriber.try_recv().expect("nothing is taken").is_none());
    }
    manager.kill();
    burst.kill();
    let error = loop {
        let waited = subscriber.recv_timeout(std::time::Duration::from_millis(1));
        match waited.expect_err("nothing was sent") {
            error if error == ErrorKind::TimedOut => {}
            error => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
}

/// Nearly all subscribers die in one moment, some of them in the middle of a receipt.
#[test]
fn most_of_many_at_once() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("most_of_many_at_once");
    let many = stage::many();
    let mut stage = Stage::with(&mut random, many);
    stage.flows();
    for n in 1..many {
        stage.of(Role::Subscriber(n)).signal(libc::SIGKILL);
    }
    for n in 1..many {
        stage.kill(Role::Subscriber(n));
    }
    let alone = stage.of(Role::Publisher).send(&Order::Alone(1));
    alone.expect("sent");
    stage.done(Role::Publisher);
    stage.flows();
    stage.ends();
}
