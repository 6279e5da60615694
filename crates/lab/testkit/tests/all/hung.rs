//! A manager that is stopped: every call that only asks it something ends, reports that it was not answered, and leaves
//! nothing when the manager goes on.

use std::time::Duration;

use tranship_core::admin::StatRecord;
use tranship_core::error::{Awaited, TimedOut};
use tranship_core::heap::{Heap, HeapOptions};
use tranship_core::{Domain, Error, ErrorKind, PoolOptions, Receiver, Sender};
use tranship_testkit::{Watchdog, start_manager};

const MAX: u64 = 1 << 20;
/// Of the domain that meets a stopped manager.
const LIMIT: Duration = Duration::from_millis(50);

/// Repeats a call as often as it takes: a manager that is well may need longer than the limit, too.
fn had<T>(mut what: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match what() {
            Ok(had) => return had,
            Err(error) => assert_eq!(error, ErrorKind::TimedOut, "{error}"),
        }
    }
}

#[track_caller]
fn late<T>(result: Result<T, Error>, asked: &'static str) {
    let error = result.map(drop).expect_err("nobody answers");
    assert_eq!(error, ErrorKind::TimedOut, "{error}");
    let waited = error.find::<TimedOut>().expect("what, and for how long");
    assert_eq!(waited.awaited, Awaited::Manager(asked), "{error}");
    let limit = u64::try_from(LIMIT.as_millis()).unwrap();
    assert!(waited.waited_ms >= limit, "{error}");
    assert!(error.to_string().ends_with(asked), "{error}");
}

#[test]
fn who_only_asks_is_told_and_nothing_is_left() {
    let dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("m.sock");
    let manager = start_manager(&path, "watchdog = \"1h\"");
    let join = || Domain::builder().name("waits").socket(&path);
    let domain = had(|| join().manager_timeout(LIMIT).connect());
    let other = Domain::builder().name("other").socket(&path).connect();
    let other = other.unwrap();
    let pool = had(|| domain.create_pool(PoolOptions::new(MAX)));
    let listener = other.listen::<Sender>("there").unwrap();
    let mut receiver = std::thread::scope(|s| {
        let accepted = s.spawn(|| listener.accept().unwrap());
        let receiver = domain.open::<Receiver>("there").unwrap();
        std::mem::forget(accepted.join());
        receiver
    });
    // Pools and heaps.
    let there = || {
        let all = other.admin().stat().unwrap().into_iter();
        all.filter(|r| matches!(r, StatRecord::Pool(_) | StatRecord::Heap(_)))
            .count()
    };
    while there() != 1 {
        domain.turn().unwrap(); // the answer that came too late above
    }

    manager.stop();
    dog.step("stopped");
    late(
        domain.create_pool(PoolOptions::new(MAX)),
        "a request for a pool",
    );
    late(
        Heap::create(&domain, HeapOptions::new(MAX)),
        "a request for a heap",
    );
    late(domain.listen::<Sender>("new"), "a request for a name");
    late(
        pool.allow_forward(other.id()),
        "a request to allow forwarding",
    );
    late(receiver.arm(), "a request for a descriptor to wait on");
    late(domain.admin().stat(), "a question for what there is");
    late(
        domain.admin().pool_figures(),
        "a question for pools' figures",
    );
    late(
        domain.admin().set_quota(pool.id(), MAX),
        "a request to set quotas",
    );
    late(
        domain.admin().trace(pool.id(), true, true),
        "a request for a trace",
    );
    late(domain.admin().traces(), "a question for traces");
    late(
        domain.admin().steer(),
        "a request for the right to set quotas",
    );
    late(join().manager_timeout(LIMIT).connect(), "hello");

    manager.resume();
    dog.step("on again");
    // Requests are answered in their order: all that was asked above is done by then. While a list asked for above is
    // still on its way, another one is refused.
    while let Err(error) = domain.admin().stat() {
        let is_early = error == ErrorKind::TimedOut || error == ErrorKind::ChannelState;
        assert!(is_early, "{error}");
    }
    // Objects that were made for a caller that waits no longer go, as soon as the answers are read.
    let again = loop {
        domain.turn().unwrap();
        match other.listen::<Sender>("new") {
            Ok(listener) => break listener,
            Err(error) => assert_eq!(error, ErrorKind::NameTaken, "{error}"),
        }
    };
    while there() != 1 {
        domain.turn().unwrap();
    }
    dog.step("another steers");
    let steers = loop {
        domain.turn().unwrap();
        match other.admin().steer() {
            Ok(steering) => break steering,
            Err(error) => assert_eq!(error, ErrorKind::Refused, "{error}"),
        }
    };
    drop((again, steers));
    // All of the pool can be allocated.
    had(|| receiver.arm());
    drop(had(|| domain.create_pool(PoolOptions::new(MAX))));
    drop(had(|| Heap::create(&domain, HeapOptions::new(MAX))));
    drop(had(|| domain.listen::<Sender>("newer")));
}

/// The manager is stopped: the manager does nothing, not a receiver that sits in `recv`.
#[test]
fn a_stopped_manager_is_not_blamed_on_the_receiver() {
    let dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("m.sock");
    let manager = start_manager(&path, "watchdog = \"1h\"");
    let join = |name| {
        let builder = Domain::builder().name(name).socket(&path);
        builder.helper_thread(true).connect().unwrap()
    };
    let (a, b) = (join("a"), join("b"));
    let pool = a.create_pool(PoolOptions::new(MAX)).unwrap();
    let mut frame = pool.alloc(100).unwrap();
    frame.fill(1);
    let frame = frame.freeze();
    let listener = a.listen::<Sender>("x").unwrap();
    std::thread::scope(|s| {
        let receives = s.spawn(|| b.open::<Receiver>("x").unwrap().recv().unwrap().to_vec());
        let mut sender = listener.accept().unwrap();
        assert!(a.admin().is_managed());
        manager.stop();
        dog.step("stopped");
        let failed = sender.send_timeout(frame.clone(), Duration::from_millis(300));
        let failed = failed.expect_err("the manager does nothing");
        let (kind, text) = (failed.kind(), failed.error.to_string());
        let managed = a.admin().is_managed();
        manager.resume();
        dog.step("on again");
        assert_eq!(kind, ErrorKind::ManagerAway, "{text}");
        assert!(
            text.contains("the manager") && !text.contains("receiver"),
            "{text}"
        );
        assert!(!managed, "{text}");
        drop(failed);
        sender.send(frame).unwrap();
        assert_eq!(receives.join().unwrap(), [1; 100]);
    });
    assert!(a.admin().is_managed());
}
