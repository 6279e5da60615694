//! Buffers that subscribers keep, and memory that comes back.

use super::{World, buffer, frame, is_late};
use tranship_core::{ErrorKind, Message};
use tranship_testkit::Watchdog;
use tranship_topic::{SubscriberOptions, TopicOptions, Topics, WhenBehind};

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
            .contains("holds 32 buffers of one publisher, as many as it may"),
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
            Err(error) if is_late(&error) => continue,
            Err(error) => break error,
        };
        kept.push(buffer(subscriber.recv().expect("a message")));
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let pid = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&pid), "{error}");
    let enough = "leave 4 spare for each of 1 subscribers (TopicOptions::pool)";
    assert!(error.to_string().contains(enough), "{error}");
    drop(kept);
    let _ = subscriber.try_recv().expect("nothing");
    publisher.alloc(60_000).expect("it is free again");
}

/// Sends large messages, of which each is taken before the next. Returns the most buffers that the topic had, and the next message.
fn large_in_turn(when_behind: WhenBehind, history: u32) -> (usize, Message) {
    let world = World::new();
    let pool = tranship_core::PoolOptions::new(64 << 20).chunk_bytes(1 << 18);
    let options = TopicOptions::new().depth(16).history(history).pool(pool);
    let options = options.when_behind(when_behind);
    let mut publisher = world.here.publish_with("camera", options).expect("publish");
    let mut subscriber = world.subscribe(&mut publisher, SubscriberOptions::new().reliable());
    let mut most = 0;
    for n in 0..40u64 {
        let mut sent = publisher.alloc(200_000).expect("a buffer");
        sent[..8].copy_from_slice(&n.to_le_bytes());
        publisher.send((sent, n)).expect("send");
        most = most.max(publisher.status().buffers);
        if n < 39 {
            let message = subscriber.recv().expect("a message");
            assert_eq!(buffer(message).to_vec()[..8], n.to_le_bytes());
        }
    }
    // Not yet taken: no further buffer takes its memory.
    let _more: Vec<_> = (0..8).map(|_| publisher.alloc(200_000)).collect();
    (most, subscriber.recv().expect("a message"))
}

#[test]
fn memory_of_large_messages_that_all_have_taken_comes_before_new_memory() {
    let _dog = Watchdog::new();
    let (most, last) = large_in_turn(WhenBehind::DropNew, 0);
    assert!(most <= 4, "{most} buffers");
    assert_eq!(last.word, 39);
    assert_eq!(buffer(last).to_vec()[..8], 39u64.to_le_bytes());
    // Others may still want them: a subscriber to come, and one that may miss messages.
    assert!(large_in_turn(WhenBehind::DropNew, 8).0 >= 16);
    assert!(large_in_turn(WhenBehind::Overwrite, 0).0 >= 16);
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
