use super::*;
use crate::domain::{LeakReport, Leaks};
use crate::{ChannelOptions, PoolOptions, Receiver, Sender};
use tranship_testkit::Watchdog;

/// A channel within one process, of two domains.
fn pair(leaks: Leaks) -> (Domain, Domain, crate::Pool, crate::Sender, crate::Receiver) {
    let one = Domain::builder().leaks(leaks).embedded().expect("a domain");
    let socket = one.socket_path().expect("a socket");
    let builder = Domain::builder().name("reader").socket(socket);
    let two = builder.leaks(leaks).connect().expect("another");
    let pool = one
        .create_pool(PoolOptions::new(4 << 20).name("frames"))
        .expect("a pool");
    let listener = one
        .listen_with::<Sender>("film", ChannelOptions::new())
        .expect("listens");
    let receiver = std::thread::scope(|s| {
        let opens = s.spawn(|| two.open::<Receiver>("film").expect("opens"));
        let mut sender = listener.accept().expect("accepts");
        let assigns = s.spawn(move || {
            sender.assign(&pool).expect("assigned");
            (sender, pool)
        });
        let receiver = opens.join().expect("no panic");
        while !assigns.is_finished() {
            two.turn().expect("turn");
            std::thread::yield_now();
        }
        let (sender, pool) = assigns.join().expect("no panic");
        (sender, pool, receiver)
    });
    let (sender, pool, receiver) = receiver;
    (one, two, pool, sender, receiver)
}

#[test]
fn what_is_held_is_named_with_where_it_came_from() {
    let _dog = Watchdog::new();
    let (one, two, pool, mut sender, mut receiver) = pair(Leaks::Backtrace);
    for n in 0..3usize {
        let buf = pool.alloc(1000 * (n + 1)).expect("room");
        sender.send(buf.freeze()).expect("sent");
    }
    let first = receiver.recv().expect("one");
    let second = receiver
        .recv()
        .expect("two")
        .into_buffer()
        .expect("a buffer");
    let (third, again) = (receiver.recv().expect("three"), second.clone());
    drop(first);
    let report = two.admin().leaks();
    assert_eq!((report.held.len(), report.own.len()), (2, 0), "{report}");
    let held = report.held.iter().find(|h| h.id == second.id());
    let held = held.expect("the second");
    assert_eq!(
        (held.pool, held.writer, held.handles),
        (pool.id(), one.id(), 2)
    );
    assert!(held.bytes >= 2000, "{held:?}");
    let got = held.got.as_ref().expect("noted");
    assert_eq!(
        got.channel.as_ref().map(|(_, name)| name.as_str()),
        Some("film")
    );
    let place = got.backtrace.as_ref().expect("a place");
    assert!(place.contains("recv"), "{place}");
    let text = report.to_string();
    for part in ["\"reader\" still has 2 buffers", "by channel", "2 handles"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A buffer that was sent and dropped here is no leak of the writer's.
    assert!(one.admin().leaks().is_empty(), "{}", one.admin().leaks());
    drop((second, again, third));
    assert!(two.admin().leaks().is_empty(), "{}", two.admin().leaks());
}

#[test]
fn own_buffers_that_are_not_freed_are_named() {
    let _dog = Watchdog::new();
    let (one, two, pool, mut sender, mut receiver) = pair(Leaks::Report);
    let written = pool.alloc(500).expect("room");
    let frozen = pool.alloc(600).expect("room").freeze();
    let copy = frozen.clone();
    let huge = pool.alloc(1 << 20).expect("room");
    drop(pool.alloc(700).expect("room"));
    drop(pool.alloc(700).expect("room").freeze());
    let moved = pool.alloc(800).expect("room");
    sender.send(moved).expect("moved");
    let ids = |report: &LeakReport| {
        let mut ids: Vec<u64> = report.own.iter().map(|o| o.id.0).collect();
        ids.sort_unstable();
        ids
    };
    let mut expected = [written.id().0, frozen.id().0, huge.id().0];
    expected.sort_unstable();
    let report = one.admin().leaks();
    assert_eq!(ids(&report), expected, "{report}");
    let own = report.own.iter().find(|o| o.id == huge.id()).expect("it");
    assert!(own.bytes >= 1 << 20 && own.pool_name == "frames", "{own:?}");
    assert!(own.got.channel.is_none() && own.got.backtrace.is_none());
    drop((written, huge, frozen));
    assert_eq!(one.admin().leaks().own.len(), 1, "a handle is left");
    let back = copy.try_into_mut().expect("nobody else has it");
    assert_eq!(one.admin().leaks().own.len(), 1);
    drop(back);
    assert!(one.admin().leaks().is_empty(), "{}", one.admin().leaks());
    // The moved one is the other's.
    let moved = receiver.recv().expect("moved");
    assert_eq!(two.admin().leaks().held.len(), 1);
    drop(moved);
    assert!(two.close().is_empty());
}

#[test]
fn what_is_held_is_known_without_notes() {
    let _dog = Watchdog::new();
    let (one, two, pool, mut sender, mut receiver) = pair(Leaks::Off);
    let kept = pool.alloc(500).expect("room");
    sender
        .send(pool.alloc(500).expect("room").freeze())
        .expect("sent");
    let held = receiver.recv().expect("one");
    let report = two.admin().leaks();
    let [only] = &report.held[..] else {
        panic!("{report}");
    };
    assert_eq!((only.handles, &only.got), (1, &None));
    assert!(one.admin().leaks().is_empty(), "own ones are not noted");
    drop((kept, held));
}
