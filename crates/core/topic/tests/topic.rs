//! Publishers and subscribers of one process, each in a domain of its own.

use std::time::Duration;
use tranship_core::{Body, Buffer, Domain, ErrorKind, Message, Outcome, Receiver, Sender};
use tranship_testkit::Watchdog;
use tranship_topic::{Publisher, Subscriber, SubscriberOptions, TopicOptions, Topics, WhenBehind};

/// A domain with a manager, and a way to join it.
struct World {
    here: Domain,
}

impl World {
    fn new() -> World {
        let here = Domain::embedded().expect("a domain");
        World { here }
    }

    fn join(&self) -> Domain {
        let socket = self.here.socket_path().expect("a socket");
        Domain::builder().socket(socket).connect().expect("join")
    }

    /// A publisher, and a subscriber that has joined.
    fn both(&self, options: TopicOptions) -> (Publisher, Subscriber) {
        let mut publisher = self.here.publish_with("camera", options).expect("publish");
        let subscriber = self.subscribe(&mut publisher, SubscriberOptions::new());
        (publisher, subscriber)
    }

    fn subscribe(&self, publisher: &mut Publisher, options: SubscriberOptions) -> Subscriber {
        let before = publisher.subscribers();
        let mut subscriber = self
            .join()
            .subscribe_with("camera", options)
            .expect("subscribe");
        while publisher.subscribers() == before {
            // It connects, says what it wishes, and is let begin.
            assert!(subscriber.try_recv().expect("nothing yet").is_none());
            publisher.tend().expect("tend");
        }
        // The publisher is heard by the channel, and its pool is announced by the manager: either may come first.
        while publisher.status().published == 0 && !subscriber.status().joined {
            assert!(subscriber.try_recv().expect("nothing yet").is_none());
        }
        subscriber
    }
}

fn frame(publisher: &mut Publisher, bytes: &[u8]) -> Buffer {
    let mut frame = publisher.alloc(bytes.len()).expect("a buffer");
    frame.copy_from_slice(bytes);
    frame.freeze()
}

/// The words of what is there, in order.
fn rest(subscriber: &mut Subscriber) -> Vec<u64> {
    let next = || subscriber.try_recv().expect("a message");
    let words: Vec<u64> = std::iter::from_fn(next)
        .map(|message| message.word)
        .collect();
    assert!(words.is_sorted());
    words
}

fn buffer(message: Message) -> Buffer {
    match message.body {
        Body::Buffer(buffer) => buffer,
        other => panic!("not a buffer: {other:?}"),
    }
}

#[test]
fn what_is_published_is_received() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new());
    for n in 0..1000u64 {
        let bytes = n.to_le_bytes();
        let sent = frame(&mut publisher, &bytes);
        assert_eq!(publisher.send((sent, n)).expect("send"), Outcome::Sent);
        publisher.send((&b"in the line"[..], n)).expect("send");
        let message = subscriber.recv().expect("a buffer");
        assert_eq!((message.word, message.to_vec()), (n, bytes.to_vec()));
        let message = subscriber.recv().expect("bytes");
        assert_eq!(
            (message.word, message.to_vec()),
            (n, b"in the line".to_vec())
        );
    }
    assert_eq!(subscriber.missed(), 0);
    assert!(subscriber.try_recv().expect("nothing").is_none());
    let buffers = publisher.status().buffers;
    assert!(
        buffers <= 16 + 64 + 12,
        "{buffers} buffers are not collected"
    );
}

#[test]
fn a_subscriber_that_is_late_counts_what_it_missed() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new().depth(4));
    for n in 0..10u64 {
        let sent = frame(&mut publisher, &n.to_le_bytes());
        publisher.send((sent, n)).expect("send");
    }
    let words = rest(&mut subscriber);
    assert!(words.ends_with(&[8, 9]), "{words:?}");
    assert_eq!(words.len() as u64 + subscriber.missed(), 10);
}

#[test]
fn a_buffer_that_is_kept_stays_as_it_is() {
    let _dog = Watchdog::new();
    let world = World::new();
    let options = TopicOptions::new().depth(4).keep(20);
    let (mut publisher, mut subscriber) = world.both(options);
    let mut kept = Vec::new();
    for n in 0..32u64 {
        let sent = frame(&mut publisher, &n.to_le_bytes());
        publisher.send((sent, n)).expect("send");
        kept.push(buffer(subscriber.recv().expect("a message")));
    }
    assert_eq!(subscriber.status().held, 32);
    // The next one is too much, and stays the next one.
    let sent = frame(&mut publisher, &[7; 8]);
    publisher.send((sent, 7)).expect("send");
    let error = subscriber.recv().expect_err("no more may be held");
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert!(
        error
            .to_string()
            .contains("holds 32 buffers, and may hold 32"),
        "{error}"
    );
    for n in 0..1000u64 {
        let sent = frame(&mut publisher, &n.to_le_bytes());
        publisher.send((sent, n)).expect("send");
    }
    for (n, kept) in (0u64..).zip(&kept) {
        assert_eq!(kept.to_vec(), n.to_le_bytes(), "{n}");
    }
    // Any thread drops.
    let last = kept.pop();
    std::thread::spawn(move || drop(kept))
        .join()
        .expect("dropped");
    assert_eq!(
        buffer(subscriber.recv().expect("the next one")).to_vec(),
        [7; 8]
    );
    assert_eq!(last.expect("the last").to_vec(), 31u64.to_le_bytes());
    let _ = subscriber.try_recv().expect("one more");
    assert!(subscriber.status().held <= 2, "{:?}", subscriber.status());
}

#[test]
fn the_oldest_messages_give_their_memory_when_nothing_is_free() {
    let _dog = Watchdog::new();
    let world = World::new();
    let pool = tranship_core::PoolOptions::new(1 << 20).chunk_bytes(1 << 16);
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new().depth(64).pool(pool));
    // Sixteen of these are all that there is.
    for n in 0..100u64 {
        let mut sent = publisher.alloc(60_000).expect("a buffer");
        sent[..8].copy_from_slice(&n.to_le_bytes());
        publisher.send((sent, n)).expect("send");
    }
    let mut last = None;
    while let Some(message) = subscriber.try_recv().expect("a message") {
        let word = message.word;
        assert!(last.is_none_or(|last| last < word));
        assert_eq!(buffer(message).to_vec()[..8], word.to_le_bytes());
        last = Some(word);
    }
    assert_eq!(last, Some(99), "{:?}", subscriber.status());
    // What a subscriber keeps is not taken from it, and the error says who has it.
    let mut kept = Vec::new();
    let error = loop {
        match publisher.try_alloc(60_000) {
            Ok(sent) => publisher.send(sent).expect("send"),
            Err(error) => break error,
        };
        kept.push(buffer(subscriber.recv().expect("a message")));
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let pid = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&pid), "{error}");
    drop(kept);
    let _ = subscriber.try_recv().expect("nothing");
    publisher.alloc(60_000).expect("it is free again");
}

#[test]
fn late_joiners_get_the_history_and_others_the_newest() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, first) = world.both(TopicOptions::new().history(3));
    for n in 0..10u64 {
        publisher.send((b"x", n)).expect("send");
    }
    let mut late = world.subscribe(&mut publisher, SubscriberOptions::new());
    let mut newest = world.subscribe(&mut publisher, SubscriberOptions::new().latest());
    let words: Vec<u64> = (0..3)
        .map(|_| late.recv().expect("a message").word)
        .collect();
    assert_eq!(words, [7, 8, 9]);
    assert_eq!(
        (newest.recv().expect("a message").word, newest.missed()),
        (9, 2)
    );
    drop(first);
    while publisher.subscribers() == 3 {
        publisher.tend().expect("tend");
    }
}

#[test]
fn a_reliable_subscriber_holds_the_publisher_back_for_a_time() {
    let _dog = Watchdog::new();
    let world = World::new();
    let drops = TopicOptions::new()
        .depth(4)
        .when_behind(WhenBehind::DropNew);
    let mut publisher = world.here.publish_with("camera", drops).expect("publish");
    let mut subscriber = world.subscribe(&mut publisher, SubscriberOptions::new().reliable());
    let sent = (0..10).map(|n| publisher.send((b"x", n)).expect("send"));
    let sent = sent.filter(|outcome| *outcome == Outcome::Sent).count();
    assert_eq!((sent, publisher.status().dropped), (4, 6));
    let words: Vec<u64> = (0..4)
        .map(|_| subscriber.recv().expect("a message").word)
        .collect();
    assert_eq!((words, subscriber.missed()), (vec![0, 1, 2, 3], 0));
    assert!(subscriber.status().reliable);
    drop((publisher, subscriber));

    let waits = TopicOptions::new()
        .depth(4)
        .when_behind(WhenBehind::Wait(Duration::from_millis(5)));
    let mut publisher = world.here.publish_with("camera", waits).expect("publish");
    let mut subscriber = world.subscribe(&mut publisher, SubscriberOptions::new().reliable());
    for n in 0..6 {
        assert_eq!(publisher.send((b"x", n)).expect("send"), Outcome::Sent);
    }
    assert_eq!(publisher.status().demoted, 1);
    let words = rest(&mut subscriber);
    assert!(words.ends_with(&[4, 5]), "{words:?}");
    assert_eq!(words.len() as u64 + subscriber.missed(), 6);
    assert!(!subscriber.status().reliable);
}

#[test]
fn stopped_reliable_subscribers_cost_one_limit_together() {
    const LIMIT: Duration = Duration::from_millis(200);
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
    assert!((LIMIT..5 * LIMIT).contains(&took), "{took:?}");
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
    assert!((LIMIT..5 * LIMIT).contains(&took), "{took:?}");
    assert_eq!(publisher.status().demoted, 7);
}

#[test]
fn ended_subscriptions_of_one_domain_do_not_add_up() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, first) = world.both(TopicOptions::new());
    drop(first);
    let there = world.join();
    let mut kept = Vec::new();
    for n in 0..40 {
        let mut subscriber = there.subscribe("camera").expect("subscribe");
        while !subscriber.status().joined {
            assert!(subscriber.try_recv().expect("nothing").is_none());
            publisher.tend().expect("tend");
        }
        let sent = frame(&mut publisher, &[n; 8]);
        publisher.send(sent).expect("send");
        kept.push(buffer(subscriber.recv().expect("a message")));
    }
    while publisher.status().subscribers.len() > 1 {
        publisher.tend().expect("tend");
    }
    for n in 0..500u64 {
        let sent = frame(&mut publisher, &n.to_le_bytes());
        publisher.send(sent).expect("send");
    }
    for (n, kept) in (0u8..).zip(&kept) {
        assert_eq!(kept.to_vec(), [n; 8], "{n}");
    }
    drop(kept);
    while !publisher.status().subscribers.is_empty() {
        publisher.tend().expect("tend");
    }
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
    let error = world
        .here
        .subscribe("camera")
        .expect("subscribe")
        .recv()
        .expect_err("its own");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    let mut nobody = there.subscribe("nobody").expect("subscribe");
    let error = nobody
        .recv_timeout(Duration::from_millis(1))
        .expect_err("none");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("no publisher"), "{error}");
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

#[test]
fn a_publisher_that_ends_is_told_of_and_the_next_one_found() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new());
    let sent = frame(&mut publisher, b"the last one");
    publisher.send(sent).expect("send");
    let kept = buffer(subscriber.recv().expect("a message"));
    let sent = frame(&mut publisher, b"not yet taken");
    publisher.send(sent).expect("send");
    drop(publisher);
    assert_eq!(
        subscriber.recv().expect("what the ring has").to_vec(),
        b"not yet taken"
    );
    let error = subscriber.recv().expect_err("it has ended");
    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
    let mut publisher = world.here.publish("camera").expect("publish again");
    while publisher.subscribers() == 0 {
        assert!(subscriber.try_recv().expect("nothing").is_none());
        publisher.tend().expect("tend");
    }
    publisher.send(b"again").expect("send");
    assert_eq!(subscriber.recv().expect("a message").to_vec(), b"again");
    assert_eq!(kept.to_vec(), b"the last one");
}

#[test]
fn buffers_outlive_their_subscription() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new().depth(2));
    let mut kept = Vec::new();
    for n in 0..20u64 {
        let sent = frame(&mut publisher, &n.to_le_bytes());
        publisher.send(sent).expect("send");
        kept.push(buffer(subscriber.recv().expect("a message")));
    }
    drop(subscriber);
    while publisher.subscribers() > 0 {
        publisher.tend().expect("tend");
    }
    assert_eq!(
        publisher.status().subscribers.len(),
        1,
        "its desk is still looked at"
    );
    for n in 0..500u64 {
        let sent = frame(&mut publisher, &(n + 1000).to_le_bytes());
        publisher.send(sent).expect("send");
    }
    for (n, kept) in (0u64..).zip(&kept) {
        assert_eq!(kept.to_vec(), n.to_le_bytes(), "{n}");
    }
    drop(kept);
    while !publisher.status().subscribers.is_empty() {
        publisher.tend().expect("tend");
    }
}

#[test]
fn a_sleeper_is_woken() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new());
    let (said, heard) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for _ in 0..200 {
            said.send(subscriber.recv().expect("a message").word)
                .expect("told");
        }
    });
    for n in 0..200 {
        publisher.send((b"x", n)).expect("send");
        assert_eq!(heard.recv().expect("heard"), n);
    }
    reader.join().expect("read all");
}
