//! A manager that is stopped while it has memory of messages still to show: the messages stay where they are.

use crate::cast::{self, Done, Start, TOPIC};
use tranship_core::{Domain, ErrorKind, PoolOptions};
use tranship_testkit::Watchdog;
use tranship_topic::{Subscriber, SubscriberOptions, TopicOptions, Topics, WhenBehind};

/// Bytes of a chunk, and of a message.
const CHUNK: usize = 64 << 10;
/// More chunks than the manager sends to a domain that takes none of its news.
const MANY: u64 = 400;
/// Bytes of the pool. Few of them are touched.
const POOL: u64 = 80 << 20;

/// Receives what is there, in order, from a message on. Returns the next one's number.
fn take(subscriber: &mut Subscriber, from: u64) -> u64 {
    let mut next = from;
    while let Some(message) = subscriber.try_recv().expect("no error") {
        assert_eq!((message.word, subscriber.missed()), (next, 0));
        next += 1;
    }
    next
}

fn stays_the_next_one(ends: bool) {
    let _dog = Watchdog::new();
    let folder = tranship_testkit::folder().expect("a folder");
    let socket = folder.path().join("manager");
    let manager = cast::manager().start().expect("a process");
    let start = Start {
        socket: socket.clone(),
        incarnation: 1,
        seed: 7,
        total: 2 * POOL,
        many: false,
    };
    manager.send(&start).expect("sent");
    let Done = manager.expect();
    let join = || Domain::builder().socket(&socket).connect().expect("join");
    let (here, there) = (join(), join());
    let pool = PoolOptions::new(POOL).chunk_bytes(CHUNK as u64);
    // The pool grows as fast as the manager answers; no message is withdrawn for its memory meanwhile.
    let waits = WhenBehind::Wait(std::time::Duration::from_hours(1));
    let options = TopicOptions::new().depth(1024).when_behind(waits);
    let options = options.pool(pool.slots(2048));
    let mut publisher = here.publish_with(TOPIC, options).expect("publish");
    let reliable = SubscriberOptions::new().reliable();
    let mut subscriber = there.subscribe_with(TOPIC, reliable).expect("subscribe");
    while publisher.subscribers() == 0 || !subscriber.status().joined {
        assert!(subscriber.try_recv().expect("nothing").is_none());
        publisher.tend().expect("tend");
    }
    for n in 0..MANY {
        let sent = publisher.alloc(CHUNK).expect("memory");
        publisher.send((sent, n)).expect("send");
    }
    manager.stop();
    // The socket has some chunks, and the manager the others.
    let next = take(&mut subscriber, 0);
    assert!(next < MANY, "all chunks were shown");
    let late = subscriber.recv_timeout(std::time::Duration::from_millis(150));
    let late = late.expect_err("its memory is not shown");
    assert_eq!((late.kind(), subscriber.missed()), (ErrorKind::TimedOut, 0));
    assert!(late.to_string().contains("memory"), "{late}");
    if ends {
        drop(publisher);
        drop(here);
        manager.resume();
    } else {
        manager.resume();
        let message = subscriber.recv().expect("its memory is shown");
        assert_eq!((message.word, subscriber.missed()), (next, 0));
        drop((publisher, here));
    }
    let next = next + u64::from(!ends);
    for n in next..MANY {
        let message = subscriber.recv().expect("a message");
        assert_eq!((message.word, subscriber.missed()), (n, 0));
    }
    let error = subscriber.recv().expect_err("it has ended");
    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
}

#[test]
fn a_message_whose_memory_is_not_shown_stays_the_next_one() {
    stays_the_next_one(false);
}

#[test]
fn also_if_its_publisher_has_ended() {
    stays_the_next_one(true);
}
