//! Topics: what a subscriber gets, misses and keeps, and the ends.

use crate::{Way, World, cases};
use std::thread;
use std::time::Duration;
use tranship_core::{
    Aggregate, Body, Buffer, Domain, ErrorKind, Message, Outcome, PollItem, PoolOptions, Wait, poll,
};
use tranship_queue::Queues;
use tranship_testkit::{Random, block_on};
use tranship_topic::{Publisher, Subscriber, SubscriberOptions, TopicOptions, Topics, WhenBehind};

cases![
    each_subscriber_gets_all_in_order,
    aggregates_and_bytes_arrive,
    a_late_subscriber_gets_the_history,
    what_is_overwritten_is_counted,
    the_latest_value_skips_those_before,
    new_messages_are_dropped_for_a_reliable_subscriber,
    a_reliable_subscriber_that_is_behind_loses_its_rank,
    kept_buffers_stay_as_they_are,
    memory_that_subscribers_keep_is_said,
    an_ended_topic_is_read_to_its_end,
    another_publisher_is_found,
    a_subscriber_that_leaves_is_seen_to,
    other_types_are_refused,
    a_name_has_one_kind_and_one_publisher,
    a_waiting_subscriber_is_woken,
    a_task_is_woken,
    the_domains_descriptor_is_readable,
    buffers_of_other_pools_are_refused,
    threads_keep_and_drop_at_random,
];

fn publish(world: &World, options: TopicOptions) -> Publisher {
    let publisher = world.here.publish_with(&world.address("camera"), options);
    publisher.expect("publish")
}

/// A subscriber that has joined.
fn subscribe(world: &World, publisher: &mut Publisher, options: SubscriberOptions) -> Subscriber {
    let (subscriber, early) = subscribe_late(world, publisher, options);
    assert_eq!(early, [0; 0], "nothing yet");
    subscriber
}

/// A subscriber that has joined, and what it has received meanwhile.
fn subscribe_late(
    world: &World,
    publisher: &mut Publisher,
    options: SubscriberOptions,
) -> (Subscriber, Vec<u64>) {
    let before = publisher.subscribers();
    let subscriber = world
        .there
        .subscribe_with(&world.address("camera"), options);
    let mut subscriber = subscriber.expect("subscribe");
    let mut words = Vec::new();
    while publisher.subscribers() == before || !subscriber.status().joined {
        words.extend(subscriber.try_recv().expect("no error").map(|it| it.word));
        publisher.tend().expect("tend");
    }
    (subscriber, words)
}

fn both(world: &World, options: TopicOptions) -> (Publisher, Subscriber) {
    let mut publisher = publish(world, options);
    let subscriber = subscribe(world, &mut publisher, SubscriberOptions::new());
    (publisher, subscriber)
}

fn frame(publisher: &mut Publisher, n: u64) -> Buffer {
    let mut frame = publisher.alloc(8).expect("a buffer");
    frame.copy_from_slice(&n.to_le_bytes());
    frame.freeze()
}

fn send(publisher: &mut Publisher, n: u64) -> Outcome {
    let frame = frame(publisher, n);
    publisher.send((frame, n)).expect("send")
}

/// The number in a message, which its word says too.
fn number(message: &Message) -> u64 {
    let bytes = message.to_vec().try_into().expect("8 bytes");
    let number = u64::from_le_bytes(bytes);
    assert_eq!(number, message.word);
    number
}

/// The numbers of what is there: one message at least, whose memory the manager may have still to show.
fn rest(subscriber: &mut Subscriber) -> Vec<u64> {
    let first = subscriber.recv().expect("a message");
    let next = || subscriber.try_recv().expect("a message");
    let rest = std::iter::from_fn(next);
    std::iter::once(first)
        .chain(rest)
        .map(|it| number(&it))
        .collect()
}

fn buffer(message: Message) -> Buffer {
    match message.body {
        Body::Buffer(buffer) => buffer,
        other => panic!("not a buffer: {other:?}"),
    }
}

fn each_subscriber_gets_all_in_order(world: &World) {
    let mut publisher = publish(world, TopicOptions::new());
    let mut all: Vec<Subscriber> = (0..3)
        .map(|_| subscribe(world, &mut publisher, SubscriberOptions::new()))
        .collect();
    for n in 0..300 {
        assert_eq!(send(&mut publisher, n), Outcome::Sent);
        for subscriber in &mut all {
            assert_eq!(number(&subscriber.recv().expect("a frame")), n);
            let from = subscriber.source().map(|from| from.0);
            assert_eq!(from, Some(world.here.id()));
        }
    }
    let seen = publisher.status().subscribers;
    assert!(
        seen.iter().all(|it| it.domain == world.there.id()),
        "{seen:?}"
    );
    assert_eq!((seen.len(), all[0].missed()), (3, 0));
    let buffers = publisher.status().buffers;
    assert!(
        buffers <= 16 + 64 + 12,
        "{buffers} buffers are not collected"
    );
}

fn aggregates_and_bytes_arrive(world: &World) {
    let (mut publisher, mut subscriber) = both(world, TopicOptions::new());
    let pieces = [1, 2, 3].map(|n| frame(&mut publisher, n));
    let mut all = Aggregate::new();
    for piece in &pieces {
        all.push_back(piece.clone()).expect("of this domain");
    }
    publisher.send((all, 7)).expect("send");
    publisher.send((b"bytes", 8)).expect("send");
    let message = subscriber.recv().expect("an aggregate");
    let Body::Aggregate(got) = message.body else {
        panic!("not an aggregate: {message:?}");
    };
    let got: Vec<Vec<u8>> = got.pieces().iter().map(Buffer::to_vec).collect();
    assert_eq!(got, pieces.map(|piece| piece.to_vec()));
    let message = subscriber.recv().expect("bytes");
    assert_eq!((message.word, message.to_vec()), (8, b"bytes".to_vec()));
}

fn a_late_subscriber_gets_the_history(world: &World) {
    let mut publisher = publish(world, TopicOptions::new().history(2));
    (0..5).for_each(|n| assert_eq!(send(&mut publisher, n), Outcome::Sent));
    let options = SubscriberOptions::new();
    let (mut subscriber, mut words) = subscribe_late(world, &mut publisher, options);
    if words.len() < 2 {
        words.extend(rest(&mut subscriber));
    }
    assert_eq!((words, subscriber.missed()), (vec![3, 4], 0));
}

fn what_is_overwritten_is_counted(world: &World) {
    let (mut publisher, mut subscriber) = both(world, TopicOptions::new().depth(4));
    (0..10).for_each(|n| assert_eq!(send(&mut publisher, n), Outcome::Sent));
    let numbers = rest(&mut subscriber);
    assert!(numbers.ends_with(&[8, 9]), "{numbers:?}");
    assert_eq!(numbers.len() as u64 + subscriber.missed(), 10);
}

fn the_latest_value_skips_those_before(world: &World) {
    let mut publisher = publish(world, TopicOptions::new());
    let options = SubscriberOptions::new().latest();
    let mut subscriber = subscribe(world, &mut publisher, options);
    (0..5).for_each(|n| assert_eq!(send(&mut publisher, n), Outcome::Sent));
    assert_eq!(rest(&mut subscriber), [4]);
    assert_eq!(subscriber.missed(), 4);
}

fn new_messages_are_dropped_for_a_reliable_subscriber(world: &World) {
    let options = TopicOptions::new()
        .depth(4)
        .when_behind(WhenBehind::DropNew);
    let mut publisher = publish(world, options);
    let options = SubscriberOptions::new().reliable();
    let mut subscriber = subscribe(world, &mut publisher, options);
    let sent = (0..6).map(|n| send(&mut publisher, n) == Outcome::Sent);
    assert_eq!(
        sent.collect::<Vec<_>>(),
        [true, true, true, true, false, false]
    );
    assert_eq!(publisher.status().dropped, 2);
    assert_eq!(rest(&mut subscriber), [0, 1, 2, 3]);
    assert_eq!(
        (subscriber.missed(), subscriber.status().reliable),
        (0, true)
    );
}

fn a_reliable_subscriber_that_is_behind_loses_its_rank(world: &World) {
    let wait = WhenBehind::Wait(Duration::from_millis(1));
    let mut publisher = publish(world, TopicOptions::new().depth(4).when_behind(wait));
    let options = SubscriberOptions::new().reliable();
    let mut subscriber = subscribe(world, &mut publisher, options);
    assert!(subscriber.status().reliable);
    for n in 0..6 {
        assert_eq!(send(&mut publisher, n), Outcome::Sent);
    }
    assert_eq!(publisher.status().demoted, 1);
    let numbers = rest(&mut subscriber);
    assert!(numbers.ends_with(&[4, 5]), "{numbers:?}");
    assert_eq!(numbers.len() as u64 + subscriber.missed(), 6);
    assert!(!subscriber.status().reliable);
}

fn kept_buffers_stay_as_they_are(world: &World) {
    let (mut publisher, mut subscriber) = both(world, TopicOptions::new().depth(4).keep(64));
    let mut kept = Vec::new();
    for n in 0..400 {
        send(&mut publisher, n);
        let message = subscriber.recv().expect("a frame");
        if n < 40 {
            kept.push(message);
        }
    }
    let numbers: Vec<u64> = kept.iter().map(number).collect();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    // Clones outlive the subscriber.
    let clone = buffer(kept.pop().expect("the last"));
    let whose = clone.bytes().is_some();
    assert_eq!(whose, world.is_inside(), "{:?}", world.way);
    drop((kept, subscriber));
    for n in 0..400 {
        send(&mut publisher, n);
    }
    assert_eq!(clone.to_vec(), 39u64.to_le_bytes());
}

fn memory_that_subscribers_keep_is_said(world: &World) {
    let pool = PoolOptions::new(1 << 20).slots(16);
    let options = TopicOptions::new().depth(4).pool(pool);
    let (mut publisher, mut subscriber) = both(world, options);
    let mut kept = Vec::new();
    let error = loop {
        match publisher.try_alloc(8) {
            Ok(mut frame) => {
                frame.fill(1);
                publisher.send(frame).expect("send");
                kept.extend(subscriber.try_recv().expect("a frame"));
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error, ErrorKind::OutOfMemory);
    let text = error.to_string();
    assert!(text.contains("topic") && kept.len() >= 8, "{text}");
    if world.is_inside() {
        // The desk shows the last one until the next look.
        let others = format!("this process keeps {} others", kept.len() - 1);
        assert!(text.contains(&others), "{text}");
    }
    drop(kept);
    publisher.alloc(8).expect("it is back");
}

fn an_ended_topic_is_read_to_its_end(world: &World) {
    let (mut publisher, mut subscriber) = both(world, TopicOptions::new());
    (0..5).for_each(|n| assert_eq!(send(&mut publisher, n), Outcome::Sent));
    drop(publisher);
    // Memory that nobody has would be used by others.
    let pool = world
        .here
        .create_pool(PoolOptions::new(1 << 20))
        .expect("a pool");
    let others: Vec<_> = (0..32)
        .map(|_| pool.copy(&[7; 8]).expect("a buffer"))
        .collect();
    let first = subscriber.recv().expect("a frame");
    let got: Vec<u64> = (1..5)
        .map(|_| number(&subscriber.recv().expect("a frame")))
        .collect();
    assert_eq!((number(&first), got), (0, vec![1, 2, 3, 4]));
    let error = subscriber.recv().expect_err("the end");
    assert_eq!(error, ErrorKind::PeerGone, "{error}");
    let error = subscriber.recv_timeout(Duration::from_millis(1));
    assert_eq!(error.expect_err("nobody"), ErrorKind::TimedOut);
    assert_eq!(number(&first), 0);
    drop(others);
}

fn another_publisher_is_found(world: &World) {
    let (publisher, mut subscriber) = both(world, TopicOptions::new());
    drop(publisher);
    assert_eq!(subscriber.recv().expect_err("the end"), ErrorKind::PeerGone);
    let mut publisher = publish(world, TopicOptions::new());
    while publisher.subscribers() == 0 || !subscriber.status().joined {
        assert!(subscriber.try_recv().expect("no error").is_none());
        publisher.tend().expect("tend");
    }
    send(&mut publisher, 9);
    assert_eq!(number(&subscriber.recv().expect("a frame")), 9);
}

fn a_subscriber_that_leaves_is_seen_to(world: &World) {
    let (mut publisher, subscriber) = both(world, TopicOptions::new());
    drop(subscriber);
    while publisher.subscribers() > 0 || !publisher.status().subscribers.is_empty() {
        publisher.tend().expect("tend");
    }
}

fn other_types_are_refused(world: &World) {
    let mut publisher = publish(world, TopicOptions::new().message_type("frame\nu32 width"));
    let address = world.address("camera");
    let other = SubscriberOptions::new().message_type("frame\nu64 width");
    let error = match world.there.subscribe_with(&address, other) {
        Err(error) => error,
        Ok(mut subscriber) => loop {
            publisher.tend().expect("tend");
            if let Err(error) = subscriber.try_recv() {
                break error;
            }
        },
    };
    assert_eq!(error, ErrorKind::ChannelBind);
    let text = error.to_string();
    assert!(
        text.contains("u32 width") && text.contains("u64 width"),
        "{text}"
    );
    let fitting = SubscriberOptions::new().message_type("frame\nu32 width");
    subscribe(world, &mut publisher, fitting);
}

fn a_name_has_one_kind_and_one_publisher(world: &World) {
    let _publisher = publish(world, TopicOptions::new());
    let address = world.address("camera");
    for again in [&world.here, &world.there] {
        let error = again.publish(&address).expect_err("it is taken");
        assert_eq!(error, ErrorKind::NameTaken, "{error}");
    }
    let error = match world.there.consume(&address) {
        Err(error) => error,
        Ok(mut consumer) => consumer.recv().expect_err("it is a topic"),
    };
    assert_eq!(error, ErrorKind::BadArgument);
    assert!(error.to_string().contains("a topic has it"), "{error}");
}

fn a_waiting_subscriber_is_woken(world: &World) {
    for wait in [Wait::Sleep, Wait::SpinThenSleep(100), Wait::Spin] {
        let mut publisher = publish(world, TopicOptions::new());
        let address = world.address("camera");
        thread::scope(|s| {
            let waiting = s.spawn(|| {
                let options = SubscriberOptions::new().wait(wait);
                let subscriber = world.there.subscribe_with(&address, options);
                let mut subscriber = subscriber.expect("subscribe");
                (0..50).for_each(|n| {
                    assert_eq!(number(&subscriber.recv().expect("a frame")), n);
                });
            });
            publisher.wait_for(1, None).expect("it joins");
            for n in 0..50 {
                // Each is waited for: the ring is not deeper.
                while publisher
                    .status()
                    .subscribers
                    .first()
                    .is_some_and(|it| it.behind > 0)
                {
                    thread::yield_now();
                }
                send(&mut publisher, n);
            }
            waiting.join().expect("no panic");
        });
    }
}

fn a_task_is_woken(world: &World) {
    let (mut publisher, mut subscriber) = both(world, TopicOptions::new());
    thread::scope(|s| {
        let waiting = s.spawn(move || {
            for n in 0..20 {
                let message = block_on(subscriber.recv_async()).expect("a frame");
                assert_eq!(number(&message), n);
            }
        });
        for n in 0..20 {
            while publisher
                .status()
                .subscribers
                .first()
                .is_some_and(|it| it.behind > 0)
            {
                thread::yield_now();
            }
            send(&mut publisher, n);
        }
        waiting.join().expect("no panic");
    });
}

fn the_domains_descriptor_is_readable(world: &World) {
    let (mut publisher, mut subscriber) = both(world, TopicOptions::new());
    for n in 0..5 {
        assert!(subscriber.try_recv().expect("no error").is_none());
        assert!(subscriber.arm().expect("armed"));
        send(&mut publisher, n);
        let mut got = None;
        while got.is_none() {
            let mut items = [PollItem::domain(&world.there)];
            poll(&mut items, None).expect("poll");
            subscriber.disarm();
            got = subscriber.try_recv().expect("no error");
            if got.is_none() && !subscriber.arm().expect("armed") {
                got = subscriber.try_recv().expect("no error");
            }
        }
        assert_eq!(got.as_ref().map(number), Some(n));
    }
}

fn buffers_of_other_pools_are_refused(world: &World) {
    let (mut publisher, _subscriber) = both(world, TopicOptions::new());
    let pool = world
        .here
        .create_pool(PoolOptions::new(1 << 20))
        .expect("a pool");
    let other = pool.copy(b"another").expect("a buffer").freeze();
    let error = publisher.send(other).expect_err("it is of another pool");
    assert_eq!(error.error, ErrorKind::BufferInvalid);
    assert_eq!(error.unsent.to_vec(), b"another");
}

/// Kept messages are compared again later: if their memory were free, it would have been used anew.
fn threads_keep_and_drop_at_random(world: &World) {
    const MESSAGES: u64 = 20_000;
    let pool = PoolOptions::new(8 << 20).slots(256);
    let mut publisher = publish(world, TopicOptions::new().depth(8).keep(32).pool(pool));
    let random = Random::printed("topics");
    thread::scope(|s| {
        for reader in 0..3 {
            let seed = random.seed() + reader;
            let address = world.address("camera");
            s.spawn(move || {
                let mut random = Random::seeded(seed);
                let mut kept: Vec<(u64, Buffer)> = Vec::new();
                let mut subscriber = world.there.subscribe(&address).expect("subscribe");
                let mut last = None;
                let error = loop {
                    let message = match subscriber.recv() {
                        Ok(message) => message,
                        Err(error) => break error,
                    };
                    let n = number(&message);
                    assert!(last < Some(n), "{n} after {last:?}");
                    last = Some(n);
                    if kept.len() < 20 && random.one_in(3) {
                        kept.push((n, buffer(message)));
                    }
                    while kept.len() == 20 || !kept.is_empty() && random.one_in(3) {
                        let at = random.below(kept.len() as u64);
                        let at = usize::try_from(at).expect("an index");
                        let (n, buffer) = kept.swap_remove(at);
                        assert_eq!(buffer.to_vec(), n.to_le_bytes(), "changed while kept");
                    }
                };
                assert_eq!(error, ErrorKind::PeerGone, "{error}");
                assert_eq!(last, Some(MESSAGES - 1));
                for (n, buffer) in kept {
                    assert_eq!(buffer.to_vec(), n.to_le_bytes(), "changed while kept");
                }
            });
        }
        publisher.wait_for(3, None).expect("all join");
        (0..MESSAGES).for_each(|n| assert_eq!(send(&mut publisher, n), Outcome::Sent));
        drop(publisher);
    });
}

/// Subscribers of the publisher's domain and of another one see one order.
#[test]
fn subscribers_here_and_elsewhere_see_one_order() {
    let _dog = tranship_testkit::Watchdog::new();
    let world = World::new(Way::Shm);
    let mut publisher = publish(&world, TopicOptions::new());
    let mut all: Vec<Subscriber> = Vec::new();
    for domain in [&world.here, &world.there, &world.here, &world.there] {
        let before = publisher.subscribers();
        let mut subscriber = domain.subscribe("camera").expect("subscribe");
        while publisher.subscribers() == before || !subscriber.status().joined {
            assert!(subscriber.try_recv().expect("no error").is_none());
            publisher.tend().expect("tend");
        }
        all.push(subscriber);
    }
    let mut kept = Vec::new();
    for n in 0..400 {
        send(&mut publisher, n);
        for subscriber in &mut all {
            let message = subscriber.recv().expect("a frame");
            assert_eq!(number(&message), n);
            if n % 10 == 0 {
                kept.push(message);
            }
        }
    }
    assert_eq!(
        kept.iter().map(number).sum::<u64>(),
        4 * (0..400).step_by(10).sum::<u64>()
    );
    let seen = publisher.status().subscribers;
    let ids: Vec<_> = seen.iter().map(|it| it.domain).collect();
    let (here, there) = (world.here.id(), world.there.id());
    assert_eq!(ids, [here, there, here, there]);
}

/// Of a shared name, a subscriber hears its own domain's publisher and another's, also one that comes while it is busy.
#[test]
fn a_shared_name_is_heard_here_and_elsewhere() {
    for way in [Way::Shm, Way::LocalAcross] {
        let _dog = tranship_testkit::Watchdog::new();
        let world = World::new(way);
        let address = world.address("heard");
        let mut subscriber = world.here.subscribe(&address).expect("subscribe");
        assert!(subscriber.try_recv().expect("no error").is_none());
        let publish = |domain: &Domain| {
            let publisher = domain.publish_with(&address, TopicOptions::new().shared());
            publisher.expect("publish")
        };
        let mut first = publish(&world.here);
        while first.subscribers() == 0 || subscriber.status().publishers.is_empty() {
            assert!(subscriber.try_recv().expect("no error").is_none());
            first.tend().expect("tend");
        }
        let again = world
            .here
            .publish_with(&address, TopicOptions::new().shared());
        assert_eq!(again.expect_err("a domain has one"), ErrorKind::NameTaken);
        let alone = world.there.publish(&address).expect_err("it is shared");
        assert_eq!(alone, ErrorKind::NameTaken, "{alone}");
        let mut second = publish(&world.there);
        let mut heard = 0;
        while second.subscribers() == 0 || subscriber.status().publishers.len() < 2 {
            send(&mut first, heard);
            let message = subscriber.recv().expect("a frame");
            assert_eq!(number(&message), heard);
            heard += 1;
            second.tend().expect("tend");
        }
        for (domain, publisher) in [(&world.here, &mut first), (&world.there, &mut second)] {
            send(publisher, heard);
            assert_eq!(number(&subscriber.recv().expect("a frame")), heard);
            assert_eq!(
                subscriber.source().map(|it| it.0),
                Some(domain.id()),
                "{way:?}"
            );
        }
    }
}
