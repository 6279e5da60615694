//! Subscribers that hold a publisher back, and are named.

use super::{World, is_late};
use std::time::Duration;
use tranship_core::{ErrorKind, Outcome, PoolOptions, Receiver, Sender};
use tranship_testkit::Watchdog;
use tranship_topic::{Subscriber, SubscriberOptions, TopicOptions, Topics, WhenBehind};

/// A caller may have an error, at once or after a time, whatever the options say of a full ring.
#[test]
fn a_message_without_room_may_be_an_error() {
    let _dog = Watchdog::new();
    let world = World::new();
    let waits = WhenBehind::Wait(Duration::from_secs(3600));
    for when in [WhenBehind::DropNew, waits] {
        let options = TopicOptions::new().depth(4).when_behind(when);
        let mut publisher = world.here.publish_with("camera", options).expect("publish");
        let stands = world.subscribe(&mut publisher, SubscriberOptions::new().reliable());
        for n in 0..4 {
            assert_eq!(publisher.try_send((b"x", n)).expect("room"), Outcome::Sent);
        }
        let full = publisher.try_send((b"x", 4)).expect_err("no room");
        let late = publisher.send_timeout((b"x", 4), Duration::from_millis(1));
        let late = late.expect_err("no room");
        assert_eq!(
            (full.kind(), late.kind()),
            (ErrorKind::Full, ErrorKind::TimedOut)
        );
        let process = format!("process {} ", std::process::id());
        for text in [full.to_string(), late.to_string()] {
            assert!(
                text.contains(&process) && text.contains("4 messages behind"),
                "{text}"
            );
        }
        let status = publisher.status();
        assert_eq!((status.published, status.dropped), (4, 0));
        assert_eq!(status.demoted, 0);
        drop((publisher, stands));
    }
}

#[test]
fn stopped_reliable_subscribers_lose_their_rank_together() {
    const LIMIT: Duration = Duration::from_secs(1);
    let _dog = Watchdog::new();
    let world = World::new();
    let pool = tranship_core::PoolOptions::new(1 << 20).chunk_bytes(1 << 16);
    let options = TopicOptions::new()
        .depth(16)
        .pool(pool)
        .when_behind(WhenBehind::Wait(LIMIT));
    let mut publisher = world.here.publish_with("camera", options).expect("publish");
    let reliable = SubscriberOptions::new().reliable();
    let stopped: Vec<Subscriber> = (0..6)
        .map(|_| world.subscribe(&mut publisher, reliable.clone()))
        .collect();
    for n in 0..16 {
        publisher.send((b"x", n)).expect("send");
    }
    let begun = std::time::Instant::now();
    publisher.send((b"x", 16)).expect("send");
    let took = begun.elapsed();
    assert!(took >= LIMIT, "{took:?}");
    // One wait was for all of them.
    assert_eq!(publisher.status().demoted, 6);
    drop(stopped);
    while publisher.subscribers() > 0 {
        publisher.tend().expect("tend");
    }

    // The pool has sixteen such buffers, of which lines have twelve that nobody takes.
    let _stopped = world.subscribe(&mut publisher, reliable);
    let begun = std::time::Instant::now();
    for _ in 0..12 {
        let sent = publisher.alloc(60_000).expect("a buffer");
        publisher.send(sent).expect("send");
    }
    let _kept: Vec<_> = (0..8)
        .map(|_| publisher.alloc(60_000).expect("a buffer"))
        .collect();
    let took = begun.elapsed();
    assert!(took >= LIMIT, "{took:?}");
    assert_eq!(publisher.status().demoted, 7);
}

#[test]
fn the_wrong_party_is_never_blamed() {
    let _dog = Watchdog::new();
    let world = World::new();
    let _publisher = world.here.publish("camera").expect("publish");
    let _listener = world.here.listen::<Sender>("video").expect("listen");
    let there = world.join();
    let error = there.open::<Receiver>("camera").expect_err("it is a topic");
    assert!(error.to_string().contains("a topic has it"), "{error}");
    let mut subscriber = there.subscribe("video").expect("subscribe");
    let error = subscriber.recv().expect_err("it is a channel");
    assert!(error.to_string().contains("a channel has it"), "{error}");
    let error = there.publish("camera").expect_err("it is taken");
    assert_eq!(error.kind(), ErrorKind::NameTaken, "{error}");
    let mut nobody = there.subscribe("nobody").expect("subscribe");
    let error = nobody
        .recv_timeout(Duration::from_millis(1))
        .expect_err("none");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("no publisher"), "{error}");
}

/// Errors and status name the subscriber that holds the publisher back.
#[test]
fn errors_and_status_name_the_subscriber() {
    let _dog = Watchdog::new();
    let world = World::new();
    let waits = WhenBehind::Wait(Duration::from_secs(1000));
    let pool = PoolOptions::new(1 << 20).slots(64);
    let options = TopicOptions::new().depth(4).when_behind(waits).pool(pool);
    let mut publisher = world.here.publish_with("camera", options).expect("publish");
    let mut keeps = world.subscribe(&mut publisher, SubscriberOptions::new().reliable());
    let mut kept = Vec::new();
    let error = loop {
        let mut frame = match publisher.try_alloc(60_000) {
            Ok(frame) => frame,
            Err(error) if is_late(&error) => continue,
            Err(error) => break error,
        };
        frame.fill(1);
        publisher.send(frame).expect("send");
        kept.push(keeps.recv().expect("a message"));
        publisher.tend().expect("tend");
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let (pid, text) = (std::process::id(), error.to_string());
    assert!(
        text.contains(&format!("process {pid} ")) && text.contains(" ms"),
        "{text}"
    );
    let status = publisher.status();
    let keeper = status.keepers()[0];
    assert!(
        keeper.keeps_for > Duration::ZERO && keeper.pid == pid,
        "{keeper}"
    );
    assert_eq!(status.slowest(), None);
    publisher.send(b"x").expect("send");
    publisher.tend().expect("tend");
    let status = publisher.status();
    let slowest = status.slowest().expect("it has one to take");
    assert_eq!(slowest.behind, 1);
    assert!(slowest.process_name().is_some());
}
