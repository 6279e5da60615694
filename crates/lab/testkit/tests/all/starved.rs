//! A writer whose surroundings do not take part: a reader that stands still, a manager that is gone. It goes on with
//! the memory that the others leave it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tranship_core::error::{Awaited, PoolPending, TimedOut};
use tranship_core::{Domain, ErrorKind, PollItem, Pool, PoolOptions, Receiver, Sender, poll};
use tranship_testkit::{Control, Peer, Watchdog, child, start_manager};

const CHUNK: usize = 64 << 10;

fn dog() -> Watchdog {
    Watchdog::new()
}

fn join(path: &Path, name: &str) -> Domain {
    let builder = Domain::builder().name(name).socket(path);
    builder.connect().expect("connect")
}

// Commands: how many messages to take. Says the first byte of each. 0: it looks, and finds nothing that it can take.
child!(
    fn reader(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = join(&path, "reader");
        let mut receiver = domain.open::<Receiver>("frames").unwrap();
        // While there is a manager: the first `arm` asks it for the descriptor.
        receiver.arm().unwrap();
        receiver.disarm();
        while let Some(messages) = ctl.recv::<usize>().unwrap() {
            if messages == 0 {
                for _ in 0..100 {
                    assert!(receiver.try_recv().expect("no error").is_none());
                }
                let soon = Some(Duration::from_millis(20));
                let ready = poll(&mut [PollItem::receiver(&mut receiver)], soon);
                assert!(ready.unwrap().is_empty());
                assert!(receiver.arm().unwrap(), "it may sleep");
                receiver.disarm();
                let soon = receiver.recv_timeout(Duration::from_millis(20));
                let error = soon.expect_err("its memory is missing");
                let late: Option<&TimedOut> = error.find();
                let memory = late.is_some_and(|late| matches!(late.awaited, Awaited::Memory(_)));
                assert!(memory, "{error}");
            }
            let take = |_| receiver.recv().expect("no error").to_vec()[0];
            let first: Vec<u8> = (0..messages).map(take).collect();
            ctl.send(&first).unwrap();
        }
    }
);

/// A manager, a writer in this process, and readers that have taken a message each.
struct Set {
    manager: Peer,
    path: PathBuf,
    writer: Domain,
    pool: Pool,
    readers: Vec<(Peer, Sender)>,
    _dir: tempfile::TempDir,
}

fn set(options: PoolOptions, readers: usize) -> Set {
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("manager.sock");
    let manager = start_manager(&path, "");
    let writer = join(&path, "writer");
    let pool = writer.create_pool(options).expect("pool");
    let listener = writer.listen::<Sender>("frames").expect("listen");
    let readers = (0..readers).map(|_| {
        let reader = reader().start().expect("a reader");
        reader.send(&path).expect("send");
        let mut sender = listener.accept().expect("accept");
        reader.send(&1usize).expect("send");
        sender.send(filled(&pool, 1).freeze()).expect("send");
        assert_eq!(reader.expect::<Vec<u8>>(), [1]);
        (reader, sender)
    });
    let readers = readers.collect();
    Set {
        manager,
        path,
        writer,
        pool,
        readers,
        _dir: dir,
    }
}

fn filled(pool: &Pool, byte: u8) -> tranship_core::BufferMut {
    let mut buf = pool.alloc(CHUNK).expect("alloc");
    buf.fill(byte);
    buf
}

/// More chunks than any queue to a reader holds.
const MANY: u64 = 900;

#[test]
fn a_reader_that_stands_still_delays_nobodys_growth() {
    let dog = dog();
    let options = PoolOptions::new((MANY + 2) * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let mut set = set(options, 2);
    set.readers[0].0.stop();
    let held: Vec<_> = (0..MANY)
        .map(|n| {
            dog.step(n);
            filled(&set.pool, 2)
        })
        .collect();
    // The other one sees the buffers of the youngest chunk, and the first one does when it runs again.
    for at in [1, 0] {
        dog.step(format!("reader {at}"));
        let (reader, sender) = &mut set.readers[at];
        sender.send(filled(&set.pool, 3).freeze()).expect("send");
        reader.resume();
        assert_eq!(reader.ask::<Vec<u8>>(&1usize), [3]);
    }
    drop(held);
}

/// A burst, and its messages to everybody.
fn burst(set: &mut Set, frames: u8) {
    let frames: Vec<_> = (0..frames).map(|byte| filled(&set.pool, byte)).collect();
    let bytes: Vec<u8> = frames.iter().map(|frame| frame[0]).collect();
    for (reader, _) in &set.readers {
        reader.send(&frames.len()).expect("send");
    }
    for frame in frames {
        let frame = frame.freeze();
        for (_, sender) in &mut set.readers {
            sender.send(frame.clone()).expect("send");
        }
    }
    for (reader, _) in &set.readers {
        assert_eq!(reader.expect::<Vec<u8>>(), bytes);
    }
}

#[test]
fn nothing_is_given_back_to_a_manager_that_is_gone() {
    let dog = dog();
    let options = PoolOptions::new(64 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let mut set = set(options, 3);
    burst(&mut set, 48);
    let had = set.pool.stats().chunk_bytes_present;
    set.manager.kill();
    // Long enough for a pool to see that it has more than it uses.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        set.writer.turn().expect("that it is gone is no error");
        burst(&mut set, 1);
    }
    assert!(!set.writer.admin().is_managed());
    assert_eq!(set.pool.stats().chunk_bytes_present, had);
    dog.step("a burst without it");
    burst(&mut set, 48);
    dog.step("more than it has");
    let _manager = start_manager(&set.path, "");
    burst(&mut set, 60);
}

/// The chunk of the message was made while the reader stood still, and shown to a manager that is gone.
#[test]
fn a_message_that_cannot_be_had_without_a_manager_waits_for_the_next_one() {
    let dog = dog();
    let options = PoolOptions::new((MANY + 2) * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let mut set = set(options, 1);
    set.readers[0].0.stop();
    let held: Vec<_> = (0..MANY).map(|_| filled(&set.pool, 2)).collect();
    let (reader, sender) = &mut set.readers[0];
    sender.send(filled(&set.pool, 3).freeze()).expect("send");
    set.manager.kill();
    reader.resume();
    dog.step("without a manager");
    assert!(reader.ask::<Vec<u8>>(&0usize).is_empty());
    reader.send(&1usize).expect("send");
    let _manager = start_manager(&set.path, "");
    dog.step("with the next");
    while !reader.control().is_ready() {
        set.writer.turn().expect("turn");
    }
    assert_eq!(reader.expect::<Vec<u8>>(), [3]);
    drop(held);
}

// Connects, and does not receive before it is told to. Then it says the word of each message.
child!(
    fn idler(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let domain = join(&path, "idler");
        let mut receiver = domain.open::<Receiver>("frames").unwrap();
        ctl.send(&()).unwrap();
        ctl.recv::<()>().unwrap();
        while let Ok(message) = receiver.recv() {
            ctl.send(&message.word).unwrap();
        }
    }
);

#[test]
fn who_has_connected_and_does_not_receive_yet_is_not_waited_for() {
    let _dog = dog();
    let options = PoolOptions::new(16 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let set = set(options, 0);
    let listener = set.writer.listen::<Sender>("frames").expect("listen");
    let idler = idler().start().expect("a reader");
    idler.send(&set.path).expect("send");
    let mut sender = listener.accept().expect("accept");
    idler.expect::<()>();
    assert!(!sender.try_assign(&set.pool).expect("asked"));
    // The sender gives the message back at once, or in time.
    for time in [Duration::ZERO, Duration::from_millis(5)] {
        let error = sender.send_timeout(filled(&set.pool, 2), time);
        let error = error.expect_err("not yet");
        assert!(
            matches!(error.error.find(), Some(&PoolPending { pool, .. }) if pool == set.pool.id()),
            "{error}"
        );
        assert_eq!(error.error.kind(), ErrorKind::PoolPending);
    }
    idler.send(&()).expect("send");
    while !sender.try_assign(&set.pool).expect("asked") {
        set.writer.turn().expect("turn");
    }
    sender
        .try_send((filled(&set.pool, 3).freeze(), 77))
        .expect("room");
    assert_eq!(idler.expect::<u64>(), 77);
}
