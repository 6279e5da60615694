//! Messages: sending them, and receiving all, some or the newest.

use super::{World, buffer, frame};
use tranship_core::{Aggregate, Body, Domain, ErrorKind, Receiver, Sender};
use tranship_testkit::Watchdog;
use tranship_topic::{Publisher, SubscriberOptions, TopicOptions, Topics};

#[test]
fn late_joiners_get_the_history_and_others_the_newest() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, first) = world.both(TopicOptions::new().history(3));
    for n in 0..10u64 {
        publisher.send((b"x", n)).expect("send");
    }
    let (mut late, mut words) = world.subscribe_late(&mut publisher, SubscriberOptions::new());
    while words.len() < 3 {
        words.push(late.recv().expect("a message").word);
    }
    assert_eq!(words, [7, 8, 9]);
    let latest = SubscriberOptions::new().latest();
    let (mut newest, mut words) = world.subscribe_late(&mut publisher, latest);
    while words.is_empty() {
        words.push(newest.recv().expect("a message").word);
    }
    assert_eq!((words, newest.missed()), (vec![9], 2));
    let less = SubscriberOptions::new().history(1);
    let (mut less, mut words) = world.subscribe_late(&mut publisher, less);
    while words.is_empty() {
        words.push(less.recv().expect("a message").word);
    }
    assert_eq!((words, less.missed()), (vec![9], 0));
    drop(first);
    while publisher.subscribers() == 4 {
        publisher.tend().expect("tend");
    }
}

#[test]
fn an_aggregate_is_one_message() {
    let _dog = Watchdog::new();
    let world = World::new();
    let options = TopicOptions::new().depth(4).pieces(3).keep(4);
    let (mut publisher, mut subscriber) = world.both(options);
    let aggregate = |publisher: &mut Publisher, pieces: &[&[u8]]| {
        let mut all = Aggregate::new();
        for piece in pieces {
            all.push_back(frame(publisher, piece)).expect("few");
        }
        all
    };
    let mut kept = None;
    for n in 0..200u64 {
        let all = aggregate(&mut publisher, &[b"one ", &n.to_le_bytes(), b" three"]);
        let bytes = all.to_vec();
        publisher.send((all, n)).expect("send");
        let message = subscriber.recv().expect("a message");
        assert_eq!((message.word, message.to_vec()), (n, bytes));
        let Body::Aggregate(all) = message.body else {
            panic!("not an aggregate");
        };
        if n == 7 {
            kept = Some(all);
        }
    }
    let kept = kept.expect("the seventh");
    let pieces = [&b"one "[..], &7u64.to_le_bytes(), b" three"].concat();
    assert_eq!(kept.to_vec(), pieces, "each piece is held");
    assert_eq!(publisher.status().keepers().len(), 1);
    let all = aggregate(&mut publisher, &[b"1", b"2", b"3", b"4"]);
    let failed = publisher.send(all).expect_err("too many pieces");
    assert_eq!(failed.kind(), ErrorKind::TooLarge);
    assert!(
        failed.error.to_string().contains("4 pieces"),
        "{}",
        failed.error
    );
    assert_eq!(failed.unsent.pieces().len(), 4, "it comes back");
    // As many pieces as may be held, and one more message: it stays the next one.
    let mut held = vec![kept];
    let error = loop {
        let all = aggregate(&mut publisher, &[b"a", b"b", b"c"]);
        publisher.send(all).expect("send");
        match subscriber.recv() {
            Ok(message) => match message.body {
                Body::Aggregate(all) => held.push(all),
                other => panic!("{other:?}"),
            },
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), held.len()), (ErrorKind::Limit, 5), "{error}");
    held.clear();
    assert_eq!(subscriber.recv().expect("now").to_vec(), b"abc");
    drop(subscriber);
    for _ in 0..4 {
        publisher.send(b"x").expect("send");
    }
    while publisher.status().buffers != 0 {
        std::thread::yield_now(); // the helper thread collects
    }
}

#[test]
fn an_aggregate_that_nobody_could_keep_is_not_allowed() {
    let here = Domain::embedded().expect("a domain");
    let publish = |options| here.publish_with("camera", options).map(drop);
    let error = publish(TopicOptions::new().keep(0).pieces(13)).expect_err("too many");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    let text = error.to_string();
    assert!(text.contains("13 pieces") && text.contains("12"), "{text}");
    publish(TopicOptions::new().keep(0).pieces(12)).expect("as many as the desk has room for");
}

#[test]
fn a_topics_buffers_go_to_its_subscribers_only() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new());
    let pool = world
        .here
        .create_pool(tranship_core::PoolOptions::new(1 << 20))
        .expect("a pool");
    let other = pool.copy(b"another pool's").expect("a buffer").freeze();
    let refused = publisher
        .send((other, 3))
        .expect_err("it is another pool's");
    assert_eq!(
        (refused.kind(), refused.unsent.1),
        (ErrorKind::BufferInvalid, 3)
    );
    let listener = world.here.listen::<Sender>("video").expect("listen");
    let there = world.join();
    let opening = std::thread::spawn(move || there.open::<Receiver>("video").expect("open"));
    let mut video = listener.accept().expect("accept");
    let receiver = opening.join().expect("opened");
    let sent = frame(&mut publisher, b"a topic's");
    let refused = video.send(sent).expect_err("it is a topic's");
    assert_eq!(refused.kind(), ErrorKind::Refused, "{}", refused.error);
    // Nor does a subscriber send on what it received.
    publisher.send(refused.unsent).expect("send");
    let received = buffer(subscriber.recv().expect("a message"));
    assert_eq!(received.to_vec(), b"a topic's");
    let too_long = publisher.send(&[0u8; 41][..]).expect_err("too long");
    assert_eq!(too_long.kind(), ErrorKind::TooLarge);
    drop((video, receiver));
}
