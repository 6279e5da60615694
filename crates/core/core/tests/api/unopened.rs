//! A sink that is told late, or never, that it may take: the news went with the manager that had it, or is on its way.

use crate::kit::*;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tranship_core::{Body, Domain, ErrorKind, Receiver, Released, Sender};
use tranship_testkit::{Between, Control, Keeps, child};

child!(
    fn source(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder().name("source").socket(path).connect();
        let domain = domain.unwrap();
        let pool = pool(&domain, 1);
        let listener = domain.listen::<Sender>("x").unwrap();
        ctl.send(&()).unwrap();
        let mut sender = listener.accept().unwrap();
        sender.send(filled(&pool, KIB, 7)).unwrap();
        ctl.send(&()).unwrap();
        let _end: Option<()> = ctl.recv().unwrap();
    }
);

/// A domain of that manager, and what is between them.
fn join_behind(manager: &Path, keeps: Keeps) -> (Domain, Between) {
    let between = Between::new(manager, keeps).expect("a socket");
    let domain = Domain::builder().name("sink").socket(between.socket());
    (domain.connect().expect("connect"), between)
}

#[test]
fn it_takes_what_a_dead_writer_had_sent() {
    let _dog = dog();
    let manager = Domain::builder().name("a").embedded().expect("embedded");
    let manager = manager.socket_path().expect("socket");
    let process = source().start().expect("a child");
    process.send(&manager).expect("a child that listens");
    process.expect::<()>();
    let (sink, _between) = join_behind(&manager, Keeps::Opens);
    let mut receiver = sink.open::<Receiver>("x").expect("open");
    std::thread::scope(|s| {
        let sent = s.spawn(|| process.expect::<()>());
        until(|| {
            // Its counters are shown in a turn. Between it and the manager messages are late: what says that there are some
            // is seen before they come.
            sink.turn().expect("turn");
            let got = receiver.try_recv().expect("recv");
            assert!(got.is_none(), "it was told all the same");
            sent.is_finished()
        });
    });
    assert!(receiver.try_recv().expect("recv").is_none());
    process.kill();
    let mut next = || {
        let mut next = Ok(None);
        until(|| {
            sink.turn().expect("turn");
            next = receiver.try_recv();
            !matches!(next, Ok(None))
        });
        next
    };
    let message = next().expect("recv").expect("a message");
    assert_eq!(buf(message).to_vec()[0], 7);
    assert_eq!(next().expect_err("over").kind(), ErrorKind::PeerDied);
}

/// A buffer came by one channel and goes back by another, by which its pool came a moment ago.
#[test]
fn what_goes_back_waits_until_its_pool_is_open() {
    let (_dog, source) = watched();
    let (sink, between) = join_behind(&source.socket_path().expect("socket"), Keeps::Nothing);
    let pool = pool(&source, 1);
    let (mut first, mut from_first) = link(&source, &sink, "first");
    let (mut second, mut from_second) = link(&source, &sink, "second");
    let got = std::thread::scope(|s| {
        s.spawn(|| first.send(filled(&pool, KIB, 7)).expect("send"));
        buf(from_first.recv().expect("recv"))
    });
    between.keep(Keeps::Opens);
    std::thread::scope(|s| {
        let assigned = s.spawn(|| second.assign(&pool).expect("assign"));
        until(|| {
            sink.turn().expect("turn");
            assigned.is_finished()
        });
    });
    let failed = from_second
        .send_back((Released(got), 1))
        .expect_err("not open");
    assert_eq!(failed.kind(), ErrorKind::PoolPending, "{failed}");
    let (started, timeout) = (Instant::now(), Duration::from_millis(100));
    let failed = from_second.send_back_timeout((Released(failed.unsent.0), 2), timeout);
    let failed = failed.expect_err("nor later");
    assert_eq!(failed.kind(), ErrorKind::PoolPending, "{failed}");
    assert!(started.elapsed() >= timeout, "it did not wait");
    let mut released = pin!(from_second.send_back_async((Released(failed.unsent.0), 3)));
    let looked = released
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(looked.is_pending(), "{looked:?}");
    until(|| between.has_kept());
    between.release();
    block_on(released).expect("it is open");
    let told = second.try_recv_back().expect("no lie").expect("a word");
    assert!(matches!(told.body, Body::Released(Some(_))) && told.word == 3);
}
