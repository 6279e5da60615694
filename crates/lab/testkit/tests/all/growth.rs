//! A pool that grows by many chunks at once, between processes. Its readers see them all, and a process that dies
//! meanwhile leaves nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tranship_core::admin::StatRecord;
use tranship_core::{Body, Domain, ErrorKind, Pool, PoolOptions, Receiver, Sender};
use tranship_testkit::syscalls::SyscallCounter;
use tranship_testkit::{Control, Exit, Launch, Peer, Watchdog, child, payload, start_manager};

const CHUNK: usize = 64 << 10;
/// Two of these have one chunk.
const SMALL: usize = 16 << 10;
/// A run of as many chunks as one message carries.
const CHUNKS: usize = 16;
const RUN: usize = CHUNKS * CHUNK;
/// Those chunks, the one chunk that a pool has before, and not enough for another run.
const TOTAL: usize = CHUNKS + 4;
const SEED: u64 = 7;

fn join(name: &str, path: &PathBuf) -> Domain {
    let builder = Domain::builder().name(name).socket(path);
    builder.helper_thread(true).connect().unwrap()
}

fn pool(domain: &Domain, chunks: usize) -> Pool {
    let options = PoolOptions::new((chunks * CHUNK) as u64).chunk_bytes(CHUNK as u64);
    domain.create_pool(options).unwrap()
}

child!(
    /// Sends a buffer of the length that it is told, when it can have it; `false`: not now.
    fn writer(ctl: Control) {
        let domain = join("writer", &ctl.recv().unwrap().unwrap());
        let pool = pool(&domain, CHUNKS + 1);
        let _keeps_the_first_chunk = pool.alloc(SMALL).unwrap();
        let listener = domain.listen::<Sender>("x").unwrap();
        ctl.send(&true).unwrap();
        let mut sender = listener.accept().unwrap();
        let mut id = 0;
        while let Some((len, waits)) = ctl.recv::<(usize, bool)>().unwrap() {
            let got = match waits {
                true => pool.alloc(len),
                false => pool.try_alloc(len),
            };
            if let Ok(mut buf) = got {
                id += 1;
                payload::fill(&mut buf, id, SEED);
                sender.send(buf.freeze()).unwrap();
                ctl.send(&true).unwrap();
            } else {
                ctl.send(&false).unwrap();
            }
        }
    }
);

child!(
    /// Says how long each buffer is that it gets, and keeps the last one: a writer gives back what nobody holds.
    fn reader(ctl: Control) {
        let domain = join("reader", &ctl.recv().unwrap().unwrap());
        let mut receiver = domain.open::<Receiver>("x").unwrap();
        let (mut id, mut last) = (0, None);
        while let Ok(message) = receiver.recv() {
            let Body::Buffer(buf) = message.body else {
                panic!("{:?}", message.body)
            };
            id += 1;
            payload::verify(&buf.to_vec(), id).unwrap();
            let len = last.insert(buf).len();
            ctl.send(&len).unwrap();
        }
        drop(last);
        // The writer is gone. Its chunks go when the manager says so; the helper thread takes that.
        let _: Option<()> = ctl.recv().unwrap();
    }
);

struct Stage {
    path: PathBuf,
    manager: Peer,
    writer: Peer,
    reader: Peer,
    _dir: TempDir,
    dog: Watchdog,
}

fn serve(path: &Path) -> Peer {
    let config = format!("total = {}\norphan_interval = \"20ms\"", TOTAL * CHUNK);
    start_manager(path, &config)
}

/// A pool with one chunk and a reader, about to grow.
fn stage(writer: Launch) -> Stage {
    let dog = Watchdog::new();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("m.sock");
    let start = |launch: Launch| {
        let peer = launch.start().unwrap();
        peer.send(&path).unwrap();
        peer
    };
    let manager = serve(&path);
    let writer = start(writer);
    assert!(writer.expect::<bool>());
    let stage = Stage {
        manager,
        writer,
        reader: start(reader()),
        path,
        _dir: dir,
        dog,
    };
    assert!(stage.writer.ask::<bool>(&(SMALL, true)));
    assert_eq!(stage.reader.expect::<usize>(), SMALL);
    stage
}

/// Returns the memory that the manager has granted, in chunks.
fn granted(domain: &Domain) -> u64 {
    let books = domain.admin().stat().unwrap();
    let all = books.iter().find_map(|record| match record {
        StatRecord::Manager(manager) => Some(manager.granted_bytes),
        _ => None,
    });
    all.unwrap() / CHUNK as u64
}

#[test]
fn a_reader_has_all_chunks_of_a_buffer_after_one_message() {
    let stage = stage(writer());
    let counter = SyscallCounter::attach(stage.writer.pid()).unwrap();
    let messages = |len: usize| {
        let mark = counter.counts();
        assert!(stage.writer.ask::<bool>(&(len, true)));
        let number = u64::try_from(libc::SYS_sendmsg).unwrap();
        let count = counter.since(&mark).get(&number).copied();
        assert_eq!(stage.reader.expect::<usize>(), len);
        count.unwrap_or(0)
    };
    // Its messages to this test come on top.
    assert_eq!(messages(SMALL) + 1, messages(RUN));
    drop(counter);
    // Another domain does not get a part of a run, and the chunks that were made for it are gone.
    let other = join("other", &stage.path);
    let run = pool(&other, CHUNKS);
    let error = run.alloc_timeout(RUN, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(run.stats().chunk_bytes_present, 0);
    drop(run.alloc((TOTAL - CHUNKS - 1) * CHUNK).unwrap());
}

/// At whichever of its steps.
#[test]
fn of_a_writer_that_dies_while_it_grows_nothing_is_left() {
    for point in [
        "grow.after_make:9",
        "grow.after_make:17",
        "grow.after_show:2",
        "grow.after_answer:2",
    ] {
        let stage = stage(writer().crash_at(point));
        stage.dog.step(point);
        stage.writer.send(&(RUN, true)).unwrap();
        assert_eq!(stage.writer.wait(), Exit::Signal(libc::SIGKILL), "{point}");
        // All that there is: whatever is left of the other is missed.
        let other = join("other", &stage.path);
        let all = pool(&other, TOTAL).alloc(TOTAL * CHUNK).unwrap();
        assert_eq!(granted(&other), TOTAL as u64, "{point}");
        drop(all);
    }
}

/// The reader has been shown chunks, and has not looked at them.
#[test]
fn of_a_manager_that_dies_while_a_pool_grows_nothing_is_missed() {
    let mut stage = stage(writer());
    stage.manager.stop();
    assert!(!stage.writer.ask::<bool>(&(RUN, false)), "nobody answers");
    stage.manager.kill();
    stage.manager = serve(&stage.path);
    stage.writer.send(&(RUN, true)).unwrap();
    assert!(stage.writer.expect::<bool>());
    assert_eq!(stage.reader.expect::<usize>(), RUN);
    let other = join("other", &stage.path);
    assert_eq!(granted(&other), CHUNKS as u64 + 1);
    // The next manager learns it as well.
    stage.manager.kill();
    stage.manager = serve(&stage.path);
    while !other.admin().is_managed() || granted(&other) != CHUNKS as u64 + 1 {
        std::thread::yield_now();
    }
    assert!(stage.writer.ask::<bool>(&(SMALL, true)));
    assert_eq!(stage.reader.expect::<usize>(), SMALL);
}
