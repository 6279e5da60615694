//! A manager that is there and does nothing: what exists goes on, and who wants something of it waits no longer than it says.

use crate::kit::*;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tranship_core::{Code, Domain, Pool, Receiver, Role, Sender};
use tranship_manager::{Config, Embedded};
use tranship_proto::{Event, Request};
use tranship_region::layout::BoardRw;
use tranship_sys::socket;

const BUFFER: usize = 16 * KIB;

/// A writer with a pool of two chunks, of which it has one, and a reader; their manager has just died.
struct Left {
    path: PathBuf,
    writer: Domain,
    pool: Pool,
    sender: Sender,
    reader: Domain,
    receiver: Receiver,
    _dir: tempfile::TempDir,
}

fn left() -> Left {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("m.sock");
    let manager = Embedded::start(Config::default(), Some(&path)).expect("a manager");
    let join = |name| {
        let builder = Domain::builder().name(name).socket(&path);
        builder.connect().expect("connect")
    };
    let (writer, reader) = (join("writer"), join("reader"));
    let pool = pool(&writer, 2);
    let (mut sender, mut receiver) = link(&writer, &reader, "link");
    std::thread::scope(|s| {
        let sent = s.spawn(|| sender.send(filled(&pool, BUFFER, 1)).expect("send"));
        receiver.recv().expect("recv");
        sent.join().expect("the source");
    });
    drop(manager);
    Left {
        path,
        writer,
        pool,
        sender,
        reader,
        receiver,
        _dir: dir,
    }
}

impl Left {
    /// Far more messages than the pool has room for, with all that may look for the manager in between.
    fn goes_round(&mut self) {
        for i in 0..40 {
            let _ = (self.writer.turn(), self.reader.turn());
            self.sender
                .send(filled(&self.pool, BUFFER, i))
                .expect("send");
            let got = self.receiver.recv().expect("recv");
            assert_eq!(buf(got).to_vec()[0], i);
        }
    }
}

fn hang(path: &Path) -> OwnedFd {
    socket::listen(path, 0o600).expect("listen")
}

/// Takes one connection, welcomes who comes back by it, and takes up its pools; after that nothing is read.
fn welcome_one(listener: &OwnedFd) -> (OwnedFd, impl Sized) {
    let peer = socket::accept(listener).expect("accept");
    let say = |event: &Event, fd: Option<&OwnedFd>| {
        let fds: Vec<_> = fd.into_iter().map(AsFd::as_fd).collect();
        socket::sendmsg(&peer, &tranship_proto::encode(event), &fds, false).expect("sendmsg");
    };
    let mut bytes = vec![0; tranship_proto::MAX_MESSAGE_BYTES];
    let mut board = None;
    loop {
        let got = socket::recvmsg(&peer, &mut bytes, false).expect("a request");
        match tranship_proto::decode(&bytes[..got.bytes]).expect("a request") {
            Request::Hello {
                resume: Some(domain),
                ..
            } => {
                let (fd, map) = BoardRw::create(8, 77).expect("a board");
                let event = Event::Welcome {
                    domain,
                    instance: 77,
                    resumed: true,
                    board_entries: 8,
                    total_bytes: 1 << 30,
                };
                say(&event, Some(&fd));
                board = Some((fd, map));
            }
            Request::ClaimPool {
                req,
                pool,
                max_bytes: quota_bytes,
                ..
            } => {
                let entry = board.as_ref().and_then(|(_, map)| map.entry(0));
                let entry = entry.expect("a board");
                entry.quota.store(quota_bytes, Ordering::Release);
                entry.epoch.store(1, Ordering::Release);
                let event = Event::PoolCreated {
                    req,
                    pool,
                    entry: 0,
                    quota_bytes,
                };
                say(&event, None);
            }
            Request::ClaimDone { .. } => return (peer, board),
            _ => {}
        }
    }
}

#[test]
fn one_that_does_not_welcome() {
    let _dog = dog();
    let mut left = left();
    let _hung = hang(&left.path);
    left.goes_round();
    let error = left.writer.listen("new", Role::Source).expect_err("hung");
    assert_eq!(error.code(), Code::ManagerAway);
    left.goes_round();
}

#[test]
fn one_whose_queue_is_full() {
    let _dog = dog();
    let mut left = left();
    let hung = hang(&left.path);
    let mut queued = Vec::new();
    while let Ok(fd) = socket::connect_now(&left.path) {
        queued.push(fd);
    }
    left.goes_round();
    drop(hung);
}

#[test]
fn one_that_reads_nothing() {
    let _dog = dog();
    let left = left();
    let hung = hang(&left.path);
    let peers = std::thread::scope(|s| {
        let both = s.spawn(|| (welcome_one(&hung), welcome_one(&hung)));
        until(|| {
            let _ = (left.writer.turn(), left.reader.turn());
            both.is_finished()
        });
        both.join().expect("the manager")
    });
    until(|| {
        let _ = (left.writer.turn(), left.reader.turn());
        left.writer.is_managed() && left.reader.is_managed()
    });
    // Nobody answers what is asked while everything is said that can be.
    for _ in 0..2000 {
        drop(left.writer.open_sender_with(
            "nobody",
            tranship_core::LinkOptions::new().timeout(Duration::ZERO),
        ));
    }
    drop(peers);
}

#[test]
fn one_that_does_not_answer() {
    let _dog = dog();
    let mut left = left();
    let hung = hang(&left.path);
    let peers = std::thread::scope(|s| {
        let both = s.spawn(|| (welcome_one(&hung), welcome_one(&hung)));
        until(|| {
            let _ = (left.writer.turn(), left.reader.turn());
            both.is_finished()
        });
        both.join().expect("the manager")
    });
    // No second chunk is to be had of it: the first one's buffers are all there are.
    let held: Vec<_> = (0..4).map(|i| filled(&left.pool, BUFFER, i)).collect();
    let brief = Duration::from_millis(1);
    let error = left.pool.alloc_timeout(BUFFER, brief).expect_err("hung");
    assert_eq!(error.code(), Code::OutOfMemory);
    let error = left.pool.try_alloc(BUFFER).expect_err("hung");
    assert_eq!(error.code(), Code::OutOfMemory);
    std::thread::scope(|s| {
        let waits = s.spawn(|| filled(&left.pool, BUFFER, 5));
        until(|| left.pool.stats().waiting > 0);
        drop(held);
        assert_eq!(waits.join().expect("memory").to_vec()[0], 5);
    });
    left.goes_round();
    drop(peers);
}
