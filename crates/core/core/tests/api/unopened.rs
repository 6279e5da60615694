//! A sink that is told late, or never, that it may take: the news went with the manager that had it, or is on its way.

use crate::kit::*;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tranship_core::{Body, Domain, ErrorKind, Receiver, Released, Sender};
use tranship_proto::Event;
use tranship_sys::socket;
use tranship_testkit::{Control, child};

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

/// Between a manager and a domain: each hears what the other says, but not that a pool is open, as long as that is kept back.
struct Between {
    client: OwnedFd,
    manager: OwnedFd,
    keeps: AtomicBool,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Between {
    /// Until one side ends.
    fn pass_on(&self) {
        std::thread::scope(|s| {
            s.spawn(|| while passes_on(&self.client, &self.manager, |_| false) {});
            while passes_on(&self.manager, &self.client, |bytes| self.keeps_back(bytes)) {}
        });
    }

    fn keeps_back(&self, bytes: &[u8]) -> bool {
        let opens = matches!(tranship_proto::decode(bytes), Ok(Event::PoolOpen { .. }));
        // Ordering: acquire; partner: the store by the test, before such a pool exists.
        let keeps = opens && self.keeps.load(Ordering::Acquire);
        if keeps {
            let mut kept = self.kept.lock().expect("no panic");
            kept.push(bytes.to_vec());
        }
        keeps
    }

    /// Says what it has kept back, when there is some.
    fn says_it(&self) {
        until(|| !self.kept.lock().expect("no panic").is_empty());
        for bytes in self.kept.lock().expect("no panic").drain(..) {
            socket::sendmsg(&self.client, &bytes, &[], false).expect("a domain that listens");
        }
    }
}

/// Passes on one message; false at the end.
fn passes_on(from: &OwnedFd, to: &OwnedFd, keeps_back: impl Fn(&[u8]) -> bool) -> bool {
    let mut bytes = vec![0; tranship_proto::MAX_MESSAGE_BYTES];
    let Ok(got) = socket::recvmsg(from, &mut bytes, false) else {
        return false;
    };
    let bytes = &bytes[..got.bytes];
    if keeps_back(bytes) {
        return true;
    }
    let fds: Vec<_> = got.fds.iter().map(AsFd::as_fd).collect();
    !bytes.is_empty() && socket::sendmsg(to, bytes, &fds, false).is_ok()
}

/// A domain of that manager, and what is between them.
fn join_behind(manager: &Path, keeps: bool) -> (Domain, Arc<Between>) {
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("between.sock");
    let listener = socket::listen(&path, 0o600).expect("listen");
    let manager = manager.to_owned();
    let (tell, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let between = Arc::new(Between {
            client: socket::accept(&listener).expect("accept"),
            manager: socket::connect(&manager).expect("connect"),
            keeps: AtomicBool::new(keeps),
            kept: Mutex::default(),
        });
        tell.send(Arc::clone(&between)).expect("somebody listens");
        between.pass_on();
    });
    let domain = Domain::builder().name("sink").socket(&path).connect();
    let domain = domain.expect("connect");
    (domain, hear.recv().expect("what is between"))
}

#[test]
fn it_takes_what_a_dead_writer_had_sent() {
    let _dog = dog();
    let manager = Domain::builder().name("a").embedded().expect("embedded");
    let manager = manager.socket_path().expect("socket");
    let process = source().start().expect("a child");
    process.send(&manager).expect("a child that listens");
    process.expect::<()>();
    let (sink, _between) = join_behind(&manager, true);
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
    let _dog = dog();
    let source = embedded();
    let (sink, between) = join_behind(&source.socket_path().expect("socket"), false);
    let pool = pool(&source, 1);
    let (mut first, mut from_first) = link(&source, &sink, "first");
    let (mut second, mut from_second) = link(&source, &sink, "second");
    let got = std::thread::scope(|s| {
        s.spawn(|| first.send(filled(&pool, KIB, 7)).expect("send"));
        buf(from_first.recv().expect("recv"))
    });
    // Ordering: release, partner in `keeps_back`.
    between.keeps.store(true, Ordering::Release);
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
    between.says_it();
    block_on(released).expect("it is open");
    let told = second.try_recv_back().expect("no lie").expect("a word");
    assert!(matches!(told.body, Body::Released(Some(_))) && told.word == 3);
}
