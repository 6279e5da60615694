//! A sink that was never told that it may take, for the news went with the manager that had it.

use crate::kit::*;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use tranship_core::{Domain, Kind, Role};
use tranship_proto::Event;
use tranship_sys::socket;
use tranship_testkit::{Control, child};

child!(
    fn source(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder().name("source").socket(path).connect();
        let domain = domain.unwrap();
        let pool = pool(&domain, 1);
        let listener = domain.listen("x", Role::Source).unwrap();
        ctl.send(&()).unwrap();
        let mut sender = listener.accept_sender().unwrap();
        sender.send(filled(&pool, KIB, 7)).unwrap();
        ctl.send(&()).unwrap();
        let _end: Option<()> = ctl.recv().unwrap();
    }
);

/// Passes on what one side says, but not that a pool is open; false at the end.
fn passes_on(from: &OwnedFd, to: &OwnedFd, is_event: bool) -> bool {
    let mut bytes = vec![0; tranship_proto::MAX_MESSAGE_BYTES];
    let Ok(got) = socket::recvmsg(from, &mut bytes, false) else {
        return false;
    };
    let bytes = &bytes[..got.bytes];
    if is_event && matches!(tranship_proto::decode(bytes), Ok(Event::PoolOpen { .. })) {
        return true;
    }
    let fds: Vec<_> = got.fds.iter().map(AsFd::as_fd).collect();
    !bytes.is_empty() && socket::sendmsg(to, bytes, &fds, false).is_ok()
}

#[test]
fn it_takes_what_a_dead_writer_had_sent() {
    let _dog = dog();
    let manager = Domain::builder().name("a").embedded().expect("embedded");
    let manager = manager.socket_path().expect("socket");
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("between.sock");
    let listener = socket::listen(&path, 0o600).expect("listen");
    let between = manager.clone();
    std::thread::spawn(move || {
        let client = socket::accept(&listener).expect("accept");
        let manager = socket::connect(&between).expect("connect");
        std::thread::scope(|s| {
            s.spawn(|| while passes_on(&client, &manager, false) {});
            while passes_on(&manager, &client, true) {}
        });
    });
    let process = source().start().expect("a child");
    process.send(&manager).expect("a child that listens");
    process.expect::<()>();
    let sink = Domain::builder().name("sink").socket(&path).connect();
    let sink = sink.expect("connect");
    let mut receiver = sink.open_receiver("x").expect("open");
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
    assert_eq!(next().expect_err("over").kind(), Kind::PeerDied);
}
