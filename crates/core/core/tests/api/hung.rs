//! A manager that runs and does nothing: channels go on, and a request to it waits no longer than its time-out.

use crate::kit::*;
use crate::played::*;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tranship_core::error::{Limit, Shortage, TimedOut};
use tranship_core::heap::{Heap, HeapOptions};
use tranship_core::{Domain, Error, ErrorKind, Pool, Receiver, Sender};
use tranship_proto::Role;
use tranship_proto::{ChannelId, DomainId, Event, ExportId, PoolId, RefusalCode, Req, Request};
use tranship_ring::{HalfRw, Side};
use tranship_sys::{pidfd, socket};

const BUFFER: usize = 16 * KIB;

/// A writer with a pool of some chunks, of which it has one, and a reader; their manager has just died.
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
    left_with(2)
}

fn left_with(chunks: usize) -> Left {
    let (dir, path) = place();
    let manager = a_manager(&path);
    let join = |name| {
        let builder = Domain::builder().name(name).socket(&path);
        builder.connect().expect("connect")
    };
    let (writer, reader) = (join("writer"), join("reader"));
    let pool = pool(&writer, chunks);
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

impl Left {
    /// Writer and reader come back to a manager that does nothing from then on.
    fn both_come_back(&self, hung: &OwnedFd) -> [Back; 2] {
        let both = std::thread::scope(|s| {
            let both = s.spawn(|| [welcome_one(hung), welcome_one(hung)]);
            until(|| {
                let _ = (self.writer.turn(), self.reader.turn());
                both.is_finished()
            });
            both.join().expect("the manager")
        });
        until(|| {
            let _ = (self.writer.turn(), self.reader.turn());
            self.writer.admin().is_managed() && self.reader.admin().is_managed()
        });
        both
    }
}

#[test]
fn one_that_does_not_welcome() {
    let _dog = dog();
    let mut left = left();
    let _hung = hang(&left.path);
    left.goes_round();
    let error = left.writer.listen::<Sender>("new").expect_err("hung");
    assert_eq!(error.kind(), ErrorKind::ManagerAway);
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

/// An accept waits for its time-out, and gets the connection when the manager goes on.
#[test]
fn one_that_does_not_confirm_a_connection() {
    let _dog = dog();
    let (_dir, path) = place();
    let hung = hang(&path);
    std::thread::scope(|s| {
        let join = || Domain::builder().socket(&path).connect().expect("connect");
        let domain = s.spawn(join);
        let back = welcome_new(&hung);
        let domain = domain.join().expect("a domain");
        let joined = domain.clone();
        let listens = s.spawn(move || joined.listen::<Receiver>("name").expect("listen"));
        let Request::Export { req, .. } = back.hears() else {
            panic!("no name");
        };
        let export = ExportId(1);
        back.say(&Event::Exported { req, export }, None);
        let listener = listens.join().expect("a listener");
        let lines = 64;
        let (fd, half) = HalfRw::create(Side::Source, lines).expect("a half");
        let channel = ChannelId(1);
        let incoming = Event::Incoming {
            channel,
            export,
            peer: DomainId(9),
            peer_uid: 0,
            peer_pid: 0,
            role: Role::Sink,
            lines,
            topic: false,
        };
        back.say(&incoming, Some(&fd));
        back.rings();
        for wait in [Duration::ZERO, Duration::from_millis(1)] {
            let error = listener.accept_timeout(wait).expect_err("hung");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(error.to_string().contains("name"), "{error}");
        }
        let Request::Accept { req, .. } = back.hears() else {
            panic!("nothing is accepted");
        };
        let us = pidfd::open(std::process::id()).expect("a pidfd");
        back.say(&Event::Accepted { req, channel }, Some(&us));
        listener.accept().expect("it goes on");
        drop(half);
    });
}

/// A joining domain waits as long as for a welcome.
#[test]
fn one_whose_queue_is_full_of_others_who_join() {
    let _dog = dog();
    let (_dir, path) = place();
    let _hung = hang(&path);
    let mut queued = Vec::new();
    while let Ok(fd) = socket::connect_now(&path) {
        queued.push(fd);
    }
    let error = Domain::builder().socket(&path).connect().expect_err("hung");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("10000 ms"), "{error}");
}

#[test]
fn one_that_reads_nothing() {
    let _dog = dog();
    let left = left();
    let hung = hang(&left.path);
    let peers = left.both_come_back(&hung);
    peers.iter().for_each(Back::answer);
    // Nobody answers what is asked while everything is said that can be.
    for _ in 0..2000 {
        drop(left.writer.open_with::<Sender>(
            "nobody",
            tranship_core::ChannelOptions::new().timeout(Duration::ZERO),
        ));
    }
    drop(peers);
}

#[test]
fn one_that_does_not_answer() {
    let _dog = dog();
    let mut left = left();
    let hung = hang(&left.path);
    let peers = left.both_come_back(&hung);
    peers.iter().for_each(Back::answer);
    // No second chunk is to be had of it: the first one's buffers are all there are.
    let held: Vec<_> = (0..4).map(|i| filled(&left.pool, BUFFER, i)).collect();
    let brief = Duration::from_millis(1);
    let error = left.pool.alloc_timeout(BUFFER, brief).expect_err("hung");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let error = left.pool.try_alloc(BUFFER).expect_err("hung");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(
        left.writer.admin().is_managed(),
        "nothing was waited for in vain yet"
    );
    let error = left.writer.admin().stat().expect_err("hung");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(!left.writer.admin().is_managed());
    std::thread::scope(|s| {
        let waits = s.spawn(|| filled(&left.pool, BUFFER, 5));
        until(|| left.pool.stats().waiting > 0);
        drop(held);
        assert_eq!(waits.join().expect("memory").to_vec()[0], 5);
    });
    left.goes_round();
    drop(peers);
}

/// Makes heaps, and answers no request for their memory; returns the number of these requests.
fn gives_no_memory(path: &Path) -> Arc<AtomicU32> {
    let listener = hang(path);
    let asked = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&asked);
    std::thread::spawn(move || {
        loop {
            let back = welcome_new(&listener);
            while let Ok((request, _)) = back.look(false) {
                match request {
                    Request::CreateHeap { req, max_bytes, .. } => {
                        let event = Event::HeapCreated {
                            req,
                            heap: PoolId(1),
                            quota_bytes: max_bytes,
                            admitted_bytes: 0,
                        };
                        back.say(&event, None);
                    }
                    Request::Admit { .. } => _ = counts.fetch_add(1, Ordering::Release),
                    _ => {}
                }
            }
        }
    });
    asked
}

/// A time-out of the program's own does not end requests for memory: the domain asks again. Only a wait as long as the
/// library's own limit ends them.
#[test]
fn one_that_does_not_answer_in_a_short_time_is_asked_again() {
    const SHORT: Duration = Duration::from_millis(50);
    /// As often as it takes: the test, too, may be late.
    fn had<T>(what: impl Fn() -> Result<T, Error>) -> T {
        loop {
            match what() {
                Ok(had) => return had,
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
            }
        }
    }
    let _dog = dog();
    let (_dir, path) = place();
    let asked = gives_no_memory(&path);
    let builder = Domain::builder().socket(&path).manager_timeout(SHORT);
    let domain = had(|| builder.clone().connect());
    let heap = had(|| Heap::create(&domain, HeapOptions::new(1 << 20)));
    for times in 1..=3 {
        let error = heap.admit(1, 1 << 10).expect_err("nobody answers");
        let late = error.find::<TimedOut>().expect("for how long");
        assert!(late.waited_ms >= 50, "{error}");
        until(|| asked.load(Ordering::Acquire) == times);
    }
}

/// What was asked of it goes on: an answer that comes when nobody waits any more serves the next caller.
#[test]
fn one_that_answers_late() {
    let _dog = dog();
    let left = left();
    let hung = hang(&left.path);
    let peers = left.both_come_back(&hung);
    peers.iter().for_each(Back::answer);
    let pool = peers
        .iter()
        .find_map(|peer| peer.claim.map(|c| (peer, c.1)));
    let (peer, id) = pool.expect("the writer");
    // No second chunk comes by itself.
    let _held: Vec<_> = (0..4).map(|i| filled(&left.pool, BUFFER, i)).collect();
    let late = |_| {
        let error = left.pool.try_alloc(BUFFER).expect_err("late");
        assert_eq!(short(&error), Some(Limit::Late), "{error}");
    };
    (0..10).for_each(late);
    let (req, shown) = peer.is_shown(1);
    assert_eq!(shown.len(), 1);
    // Others have more of it than it has.
    peer.say(&refused(req, RefusalCode::Total), None);
    (0..10).for_each(late);
    assert!(matches!(peer.hears(), Request::Ungrant { .. }));
    let Request::Grant { req, chunks: 1, .. } = peer.hears() else {
        panic!("now it is asked before anything is made");
    };
    peer.say(
        &Event::Granted {
            req,
            pool: id,
            chunks: 1,
        },
        None,
    );
    (0..10).for_each(late);
    let (req, again) = peer.is_shown(1);
    assert!(again[0].1 > shown[0].1, "a serial again: {again:?}");
    peer.takes(req, id, 1);
    let _held = left.pool.try_alloc(BUFFER).expect("it is there");
}

/// All in one message, and what is not taken of it once more.
#[test]
fn one_that_takes_some() {
    let _dog = dog();
    let left = left_with(20);
    let hung = hang(&left.path);
    let peers = left.both_come_back(&hung);
    peers.iter().for_each(Back::answer);
    let pool = peers
        .iter()
        .find_map(|peer| peer.claim.map(|c| (peer, c.1)));
    let (peer, id) = pool.expect("the writer");
    let run = || left.pool.try_alloc(16 * CHUNK);
    run().expect_err("late");
    let (req, shown) = peer.is_shown(16);
    assert_eq!(shown.len(), 16);
    peer.takes(req, id, 4);
    run().expect_err("late");
    let (req, rest) = peer.is_shown(12);
    assert_eq!(rest, shown[4..]);
    assert_eq!(left.pool.stats().chunk_bytes_present, 5 * CHUNK as u64);
    peer.takes(req, id, 12);
    drop(run().expect("it is there"));
}

/// A buffer of four chunks from a manager that answers whatever it is shown by that.
fn limit_by(answer: fn(Req) -> Event) -> Limit {
    let left = left_with(20);
    let hung = hang(&left.path);
    let mut peers = left.both_come_back(&hung);
    peers.iter().for_each(Back::answer);
    peers.sort_by_key(|peer| peer.claim.is_none());
    let [writers, _readers] = peers;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = vec![0; tranship_proto::MAX_MESSAGE_BYTES];
            while let Ok(got) = socket::recvmsg(&writers.peer, &mut bytes, false)
                && got.bytes > 0
            {
                let said = tranship_proto::decode(&bytes[..got.bytes]).expect("a request");
                if let Request::ShowChunks { req, .. } = said {
                    writers.say(&answer(req), None);
                }
            }
        });
        let error = left
            .pool
            .alloc_now(4 * CHUNK)
            .expect_err("nothing is granted");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        let found = error.find::<Shortage>().expect("the figures").limit;
        drop(left); // and with it the connection
        found
    })
}

#[test]
fn one_that_answers_something_else() {
    let _dog = dog();
    let answer = |req| {
        let export = ExportId(1);
        Event::Exported { req, export }
    };
    assert_eq!(limit_by(answer), Limit::Protocol);
}

#[test]
fn one_that_refuses_for_a_reason_of_its_own() {
    let _dog = dog();
    let limit = limit_by(|req| refused(req, RefusalCode::State));
    assert_eq!(limit, Limit::Refused(RefusalCode::State));
}

/// It hangs between its welcome and its word of what it was shown.
#[test]
fn one_that_does_not_say_that_it_has_the_pool() {
    let _dog = dog();
    let mut left = left();
    let hung = hang(&left.path);
    let peers = left.both_come_back(&hung);
    left.goes_round();
    // It has the pool, and may have told a reader so: no collection before its word of that is heard.
    peers.iter().for_each(Back::list);
    let brief = Duration::from_millis(1);
    let mut sent = 0;
    let error = loop {
        match left.pool.alloc_timeout(BUFFER, brief) {
            Ok(buf) => left.sender.send(buf.freeze()).map(drop).expect("send"),
            Err(error) => break error,
        }
        drop(left.receiver.recv().expect("recv"));
        sent += 1;
        assert!(sent < 40, "collected by an old reader set");
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    peers.iter().for_each(Back::answer);
    left.goes_round();
    drop(peers);
}
