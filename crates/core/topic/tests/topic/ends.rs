//! Publishers and subscribers that come and go.

use super::{World, block_on, frame};
use std::time::Duration;
use tranship_core::{Domain, ErrorKind};
use tranship_testkit::{Between, Keeps, Watchdog};
use tranship_topic::{Publisher, Subscriber, TopicOptions, Topics};

/// The manager lets the publisher send, and says so to the publisher first.
#[test]
fn a_subscriber_that_hears_late_that_it_may_begin_takes_all_that_a_gone_publisher_sent() {
    let _dog = Watchdog::new();
    let world = World::new();
    let socket = world.here.socket_path().expect("a socket");
    let between = Between::new(&socket, Keeps::AllFromOpen).expect("a socket");
    let there = Domain::builder().socket(between.socket()).connect();
    let there = there.expect("join");
    let mut publisher = world.here.publish("camera").expect("publish");
    let mut subscriber = there.subscribe("camera").expect("subscribe");
    while publisher.subscribers() == 0 {
        assert!(subscriber.try_recv().expect("nothing").is_none());
        publisher.tend().expect("tend");
    }
    let sent = frame(&mut publisher, b"a buffer");
    publisher.send(sent).expect("send");
    publisher.send(b"a few bytes").expect("send");
    drop(publisher);
    for _ in 0..100 {
        assert!(subscriber.try_recv().expect("not yet").is_none());
    }
    between.release();
    let mut next = || loop {
        there.turn().expect("turn"); // the word that there are news came before them
        match subscriber.try_recv() {
            Ok(None) => {}
            next => break next.map(|message| message.expect("a message").to_vec()),
        }
    };
    assert_eq!(next().expect("sent"), b"a buffer");
    assert_eq!(next().expect("sent"), b"a few bytes");
    let error = next().expect_err("it has ended");
    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
}

/// Publishers of several domains, of one name.
#[test]
fn a_subscriber_takes_from_all_publishers_of_a_shared_name() {
    let _dog = Watchdog::new();
    let world = World::new();
    let shared = || TopicOptions::new().shared();
    let domains: Vec<Domain> = (0..3).map(|_| world.join()).collect();
    let publish = |domain: &Domain| domain.publish_with("camera", shared()).expect("publish");
    let mut publishers: Vec<Publisher> = domains[..2].iter().map(publish).collect();
    let taken = domains[2].publish("camera").map(drop);
    let error = taken.expect_err("not for itself");
    assert_eq!(error.kind(), ErrorKind::NameTaken, "{error}");
    let mut subscriber = world.here.subscribe("camera").expect("subscribe");
    let all_joined = |subscriber: &mut Subscriber, publishers: &mut [Publisher]| {
        while publishers.iter().any(|one| one.subscribers() == 0) {
            assert!(subscriber.try_recv().expect("nothing").is_none());
        }
    };
    all_joined(&mut subscriber, &mut publishers);
    // One comes while another one keeps the subscriber busy.
    publishers.push(publish(&domains[2]));
    let mut busy = 0;
    while publishers[2].subscribers() == 0 {
        publishers[0].send((b"x", busy)).expect("send");
        busy += 1;
        let message = subscriber.recv().expect("a message");
        assert_eq!((message.word, subscriber.missed()), (busy - 1, 0));
    }
    assert_eq!(subscriber.status().publishers.len(), 3);
    // In turn, each publisher's in order, and it is known whose they are.
    for n in 0..10u64 {
        for publisher in &mut publishers {
            let bytes = n.to_le_bytes();
            let sent = frame(publisher, &bytes);
            publisher.send((sent, n)).expect("send");
        }
    }
    let mut next = std::collections::HashMap::new();
    let mut sources = Vec::new();
    for _ in 0..30 {
        let message = subscriber.recv().expect("a message");
        let (source, _) = subscriber.source().expect("a publisher");
        let expected = next.entry(source).or_insert(0);
        assert_eq!(message.word, *expected);
        assert_eq!(message.to_vec(), expected.to_le_bytes());
        *expected += 1;
        sources.push(source);
    }
    assert_eq!(next.len(), 3);
    assert!(
        sources
            .chunks(3)
            .all(|three| three[0] != three[1] && three[1] != three[2])
    );
    // One ends: that is said once, and the others go on. It is found again.
    drop(publishers.remove(1));
    let error = subscriber.recv().expect_err("it has ended");
    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
    let gone = domains[1].id().to_string();
    assert!(error.to_string().contains(&gone), "{error}");
    publishers.push(publish(&domains[1]));
    all_joined(&mut subscriber, &mut publishers);
    // The wait is one for all.
    for publisher in &mut publishers {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| subscriber.recv().expect("a message").word);
            publisher.send((b"x", 5)).expect("send");
            assert_eq!(waits.join().expect("no panic"), 5);
        });
    }
}

/// A child maps nothing of its parent's, and hears that it is one before anything is touched.
#[test]
fn a_subscriber_in_a_forked_child_says_so() {
    let _dog = Watchdog::new();
    let world = World::new();
    let (mut publisher, mut subscriber) = world.both(TopicOptions::new());
    publisher.send(b"not the child's").expect("send");
    let child = std::panic::AssertUnwindSafe(|| {
        let soon = Duration::from_millis(1);
        let received = [
            subscriber.try_recv().map(|_| ()),
            subscriber.recv().map(|_| ()),
            subscriber.recv_timeout(soon).map(|_| ()),
            block_on(subscriber.recv_async()).map(|_| ()),
            subscriber.arm().map(|_| ()),
        ];
        subscriber.disarm();
        let _ = format!("{subscriber:?}");
        received
            .iter()
            .all(|one| one.as_ref().is_err_and(|error| *error == ErrorKind::Forked))
    });
    // SAFETY: the child runs nothing but the closure, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a limit for the child, which no watchdog sees.
        unsafe { libc::alarm(100) };
        let is_right = std::panic::catch_unwind(child).unwrap_or(false);
        // SAFETY: it ends this process alone.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = -1;
    // SAFETY: `status` is writable.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, 0));
    assert_eq!(
        subscriber.recv().expect("the parent's").to_vec(),
        b"not the child's"
    );
}
