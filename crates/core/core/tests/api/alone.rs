//! Pools while no manager lives, or none that knows them: their writers collect all the same.

use crate::kit::*;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use tranship_core::{Domain, Pool, Receiver, Sender};
use tranship_manager::Embedded;
use tranship_proto::{Event, Refusal, RefusalCode, Request};
use tranship_region::layout::ControlPageRw;
use tranship_sys::socket;
use tranship_testkit::{Control, child};

const BUFFER: usize = 16 * KIB;

/// A manager, and a writer and a reader of a pool with room for four buffers.
struct Set {
    manager: Embedded,
    path: PathBuf,
    writer: Domain,
    pool: Pool,
    sender: Sender,
    reader: Domain,
    receiver: Receiver,
    _dir: tempfile::TempDir,
}

fn set() -> Set {
    let (dir, path) = place();
    let manager = a_manager(&path);
    let (writer, reader) = (bare(&path, "writer"), bare(&path, "reader"));
    let pool = pool(&writer, 1);
    let (mut sender, mut receiver) = link(&writer, &reader, "link");
    std::thread::scope(|s| {
        let sent = s.spawn(|| sender.send(filled(&pool, BUFFER, 1)).expect("send"));
        receiver.recv().expect("recv");
        sent.join().expect("the source");
    });
    Set {
        manager,
        path,
        writer,
        pool,
        sender,
        reader,
        receiver,
        _dir: dir,
    }
}

/// Far more messages than the pool has room for. Without collection this never ends.
fn goes_round(pool: &Pool, sender: &mut Sender, receiver: &mut Receiver) {
    for i in 0..40 {
        sender.send(filled(pool, BUFFER, i)).expect("send");
        assert_eq!(buf(receiver.recv().expect("recv")).to_vec()[0], i);
    }
}

/// Welcomes a domain that comes back, with an empty control page.
fn welcome(listener: &OwnedFd) -> (OwnedFd, ControlPageRw) {
    let peer = socket::accept(listener).expect("accept");
    let Some(Request::Hello {
        resume: Some(domain),
        ..
    }) = request(&peer)
    else {
        panic!("no hello of somebody who comes back");
    };
    let (shown, control_page) = ControlPageRw::create(8, 77).expect("a control page");
    let event = Event::Welcome {
        domain,
        instance: 77,
        resumed: true,
        control_page_entries: 8,
        total_bytes: 1 << 30,
    };
    let bytes = tranship_proto::encode(&event);
    socket::sendmsg(&peer, &bytes, &[shown.as_fd()], false).expect("welcome");
    (peer, control_page)
}

fn request(peer: &OwnedFd) -> Option<Request> {
    let mut bytes = vec![0; tranship_proto::MAX_MESSAGE_BYTES];
    let got = socket::recvmsg(peer, &mut bytes, false).ok()?;
    (got.bytes > 0).then(|| tranship_proto::decode(&bytes[..got.bytes]).expect("a request"))
}

#[test]
fn a_manager_that_dies_before_it_knows_the_pool() {
    let _dog = dog();
    let mut set = set();
    drop(set.manager);
    goes_round(&set.pool, &mut set.sender, &mut set.receiver);
    let listener = socket::listen(&set.path, 0o600).expect("listen");
    let short_lived = std::thread::spawn(move || {
        drop(welcome(&listener)); // whoever comes first,
        drop(welcome(&listener)); // and the other
    });
    until(|| {
        let _ = set.writer.turn();
        let _ = set.reader.turn();
        short_lived.is_finished()
    });
    goes_round(&set.pool, &mut set.sender, &mut set.receiver);
}

/// Welcomes a writer and refuses its pool.
fn refuse(listener: &OwnedFd, code: RefusalCode) -> OwnedFd {
    let (peer, _) = welcome(listener);
    while let Some(request) = request(&peer) {
        let Request::ClaimPool { req, .. } = request else {
            continue;
        };
        let refusal = Refusal {
            code,
            asked: 0,
            available: 0,
        };
        let bytes = tranship_proto::encode(&Event::Refused { req, refusal });
        socket::sendmsg(&peer, &bytes, &[], false).expect("refuse");
        break;
    }
    peer
}

/// What has no room for it now may have later.
#[test]
fn a_manager_that_has_no_descriptors_left_is_asked_again() {
    let _dog = dog();
    let mut set = set();
    drop(set.manager);
    let listener = socket::listen(&set.path, 0o600).expect("listen");
    let full = std::thread::spawn(move || {
        let first = refuse(&listener, RefusalCode::NoDescriptors);
        (first, refuse(&listener, RefusalCode::Claim))
    });
    until(|| {
        let _ = set.writer.turn();
        full.is_finished()
    });
    goes_round(&set.pool, &mut set.sender, &mut set.receiver);
    drop(full.join());
}

#[test]
fn a_manager_that_refuses_the_pool() {
    let _dog = dog();
    let mut set = set();
    drop(set.manager);
    let listener = socket::listen(&set.path, 0o600).expect("listen");
    let refuses = std::thread::spawn(move || refuse(&listener, RefusalCode::Claim));
    // The reader stays where it is.
    until(|| {
        let _ = set.writer.turn();
        refuses.is_finished()
    });
    goes_round(&set.pool, &mut set.sender, &mut set.receiver);
    drop(refuses.join());
}

/// It has added nobody to the reader set before the pool is on its control page, and may add anybody after that.
#[test]
fn a_manager_that_hangs_before_it_knows_the_pool() {
    let _dog = dog();
    let mut set = set();
    drop(set.manager);
    let listener = socket::listen(&set.path, 0o600).expect("listen");
    let hangs = std::thread::spawn(move || {
        let (peer, control_page) = welcome(&listener);
        while !matches!(request(&peer), Some(Request::ClaimPool { .. })) {}
        (peer, control_page)
    });
    // The reader stays where it is.
    until(|| {
        let _ = set.writer.turn();
        hangs.is_finished()
    });
    let (_peer, control_page) = hangs.join().expect("a manager that hangs");
    goes_round(&set.pool, &mut set.sender, &mut set.receiver);
    let held: Vec<_> = (0..4)
        .map(|i| {
            let sent = filled(&set.pool, BUFFER, i);
            set.sender.send(sent).expect("send");
            set.receiver.recv().expect("recv")
        })
        .collect();
    let listed = &control_page.entries()[0].pool;
    listed.store(set.pool.id().0.into(), Ordering::Release);
    drop(held);
    let early = set.pool.try_alloc(BUFFER);
    assert!(early.is_err(), "others may have been shown these buffers");
    listed.store(0, Ordering::Release);
    set.pool.try_alloc(BUFFER).expect("all are dead");
}

child!(
    fn holder(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = bare(&path, "holder");
        let mut receiver = domain.open::<Receiver>("held").unwrap();
        let held: Vec<_> = (0..4).map(|_| buf(receiver.recv().unwrap())).collect();
        ctl.send(&held.len()).unwrap();
        let _end: Option<()> = ctl.recv().unwrap();
    }
);

#[test]
fn a_reader_that_dies_when_nobody_tells_of_it() {
    let _dog = dog();
    let (_dir, path) = place();
    let manager = a_manager(&path);
    let writer = bare(&path, "writer");
    let pool = pool(&writer, 1);
    let listener = writer.listen::<Sender>("held").expect("listen");
    let reader = holder().start().expect("a child");
    reader.send(&path).expect("a child that listens");
    let mut sender = listener.accept().expect("accept");
    for i in 0..4 {
        sender.send(filled(&pool, BUFFER, i)).expect("send");
    }
    assert_eq!(reader.expect::<usize>(), 4);
    drop(manager);
    std::thread::scope(|s| {
        let waits = s.spawn(|| filled(&pool, BUFFER, 5));
        until(|| pool.stats().waiting > 0);
        reader.kill();
        assert_eq!(waits.join().expect("memory").to_vec()[0], 5);
    });
}
