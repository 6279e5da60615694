//! Sleeping, awaiting, and the helper thread.

use super::{World, block_on, frame, is_late};
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;
use tranship_core::{Aggregate, ErrorKind, Outcome, PollItem, PoolOptions, poll};
use tranship_testkit::Watchdog;
use tranship_topic::{SubscriberOptions, TopicOptions, Topics, WhenBehind};

/// Nobody calls for the publisher: the domain's helper thread takes subscribers in and memory back.
#[test]
fn an_idle_publisher_is_tended() {
    let _dog = Watchdog::new();
    let world = World::new();
    let mut publisher = world.here.publish("camera").expect("publish");
    let there = world.join();
    let mut subscriber = there.subscribe("camera").expect("subscribe");
    while !subscriber.status().joined {
        let waited = subscriber.recv_timeout(Duration::from_millis(1));
        assert_eq!(waited.expect_err("nothing").kind(), ErrorKind::TimedOut);
    }
    assert_eq!(publisher.subscribers(), 1);
    let sent = frame(&mut publisher, b"kept");
    publisher.send(sent).expect("send");
    let kept = subscriber.recv().expect("a message");
    for _ in 0..16 {
        publisher.send(b"x").expect("send");
    }
    assert_eq!(publisher.status().buffers, 1);
    drop(kept);
    while publisher.status().buffers != 0 {
        subscriber.try_recv().expect("messages");
    }
    drop(subscriber);
    while publisher.subscribers() != 0 {
        std::thread::yield_now();
    }
}

#[test]
fn messages_are_awaited() {
    let _dog = Watchdog::new();
    let world = World::new();
    let waits = WhenBehind::Wait(Duration::from_secs(1000));
    let options = TopicOptions::new().depth(4).when_behind(waits);
    let mut publisher = world.here.publish_with("camera", options).expect("publish");
    let there = world.join();
    let mut subscriber = there
        .subscribe_with("camera", SubscriberOptions::new().reliable())
        .expect("subscribe");
    std::thread::scope(|scope| {
        let reads = scope.spawn(move || {
            for n in 0..300u64 {
                let message = block_on(subscriber.recv_async()).expect("a message");
                assert_eq!(
                    (message.word, message.to_vec()),
                    (n, n.to_le_bytes().to_vec())
                );
            }
            let error = block_on(subscriber.recv_async()).expect_err("the end");
            assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
        });
        publisher.wait_for(1, None).expect("one");
        for n in 0..300u64 {
            if n % 100 == 0 {
                // The reader goes to sleep.
                let more = publisher.wait_for(2, Duration::from_millis(20));
                assert!(more.is_err());
            }
            let mut frame = block_on(publisher.alloc_async(8)).expect("a buffer");
            frame.copy_from_slice(&n.to_le_bytes());
            let sent = block_on(publisher.send_async((frame, n))).expect("sent");
            assert_eq!(sent, Outcome::Sent);
        }
        drop(publisher);
        reads.join().expect("no panic");
    });
}

/// A call between two polls drops the future, as Python's do. The next future goes on with the wait.
#[test]
fn a_wait_for_room_goes_on_in_the_next_future() {
    let _dog = Watchdog::new();
    let world = World::new();
    let waits = WhenBehind::Wait(Duration::from_millis(20));
    let options = TopicOptions::new().depth(4).when_behind(waits);
    let mut publisher = world.here.publish_with("camera", options).expect("publish");
    let stopped = world.subscribe(&mut publisher, SubscriberOptions::new().reliable());
    for n in 0..4 {
        publisher.send((b"x", n)).expect("send");
    }
    let mut context = Context::from_waker(Waker::noop());
    while pin!(publisher.send_async((b"x", 4)))
        .poll(&mut context)
        .is_pending()
    {
        assert_eq!(publisher.status().published, 4);
    }
    assert_eq!(publisher.status().demoted, 1);
    drop(stopped);
}

/// The list of an aggregate's pieces has a buffer of its own.
#[test]
fn an_aggregate_awaits_the_memory_of_its_list() {
    let _dog = Watchdog::new();
    let world = World::new();
    let pool = PoolOptions::new(1 << 20).slots(8);
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new().depth(2).pool(pool));
    let mut all = Aggregate::new();
    for piece in [&b"head"[..], b"bytes"] {
        let piece = frame(&mut publisher, piece);
        all.push_back(piece).expect("a piece");
    }
    let mut others = Vec::new();
    loop {
        match publisher.try_alloc(1) {
            Ok(other) => others.push(other),
            Err(error) if is_late(&error) => {}
            Err(_) => break,
        }
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut sends = publisher.send_async((all, 7));
    assert!(Pin::new(&mut sends).poll(&mut context).is_pending());
    drop(others);
    assert_eq!(block_on(sends).expect("sent"), Outcome::Sent);
    let message = subscriber.recv().expect("a message");
    assert_eq!((message.word, message.to_vec()), (7, b"headbytes".to_vec()));
}

/// It joins while it is polled, beside something else; each message and the end make it ready.
#[test]
fn a_subscriber_is_polled() {
    let _dog = Watchdog::new();
    let world = World::new();
    let mut publisher = world.here.publish("camera").expect("publish");
    let there = world.join();
    let mut subscriber = there.subscribe("camera").expect("subscribe");
    let (quiet, _open) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let now = poll(&mut [subscriber.poll_item()], Some(Duration::ZERO));
    assert!(now.expect("poll").is_empty());
    std::thread::scope(|scope| {
        let (taken, is_taken) = std::sync::mpsc::channel();
        let reads = scope.spawn(move || {
            let mut next = || {
                let mut items = [PollItem::readable(&quiet), subscriber.poll_item()];
                assert_eq!(poll(&mut items, None).expect("poll"), [1]);
                subscriber.try_recv()
            };
            for n in 0..40u64 {
                let message = next().expect("no error").expect("a message");
                assert_eq!(message.word, n);
                taken.send(()).expect("the publisher waits");
            }
            let error = next().expect_err("it has ended");
            assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
        });
        publisher.wait_for(1, None).expect("joined");
        for n in 0..40u64 {
            publisher.send((b"x", n)).expect("send");
            is_taken.recv().expect("taken");
        }
        drop(publisher);
        reads.join().expect("no panic");
    });
}
