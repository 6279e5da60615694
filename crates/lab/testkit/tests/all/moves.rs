//! Moved buffers between processes, at every level of trust. When the process that has one is killed, at any step, the
//! memory comes back to its pool. Memory that was copied out of a pool of level `none` is the receiver's.

use std::path::PathBuf;
use std::time::Duration;

use tranship_core::admin::StatRecord;
use tranship_core::{
    AggregateMut, Body, ChannelOptions, Domain, ErrorKind, Message, Pool, PoolId, PoolOptions,
    Receiver, Released, Sender, Trust,
};
use tranship_testkit::{Control, Exit, Peer, Watchdog, child};

const CHUNK: usize = 64 << 10;

fn join(path: PathBuf) -> Domain {
    Domain::builder()
        .name("other")
        .socket(path)
        .connect()
        .unwrap()
}

/// Writes all of what was given, if it can be written here: whether it can.
fn write(given: &mut Message, byte: u8) -> bool {
    match &mut given.body {
        Body::BufferMut(buf) => {
            buf.write(0, &[byte; CHUNK]).unwrap();
            true
        }
        Body::AggregateMut(all) => {
            let written = all.pieces_mut().map(|piece| piece.write(0, &[byte; CHUNK]));
            written.for_each(Result::unwrap);
            true
        }
        _ => false,
    }
}

/// Steps of the process that moves and takes back, each the first time and once more when there is something on all
/// ways.
const WRITER_POINTS: [&str; 8] = [
    "send.after_let_go",
    "send.after_generation",
    "send.after_sent",
    "send.after_publish",
    "send.between_pieces",
    "return.after_hold",
    "return.after_uncount",
    "collect.after_bump",
];

/// Steps of the process that receives and sends back; at level `none` it gets memory for its copy.
const RECEIVER_POINTS: [&str; 10] = [
    "recv.after_ref",
    "recv.after_rcvd",
    "recv.after_head",
    "recv.between_pieces",
    "release.after_drop",
    "pass.after_uncount",
    "pass.after_publish",
    "grow.after_make",
    "grow.after_show",
    "grow.after_answer",
];

/// Whether a level's moves pass a point.
fn is_passed(point: &str, trust: Trust) -> bool {
    let copies = point.starts_with("grow.");
    let returns = point.starts_with("pass.") || point.starts_with("return.");
    match trust {
        Trust::None => !returns,
        _ => !copies,
    }
}

fn small_pool(domain: &Domain, trust: Trust) -> Pool {
    let options = PoolOptions::new(2 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    domain.create_pool(options.trust(trust)).unwrap()
}

/// Checks that every byte is the message's, whichever process wrote it.
fn is_whole(bytes: &[u8], word: u64) {
    let byte = word.to_le_bytes()[0];
    let written = [byte, byte.wrapping_add(100)];
    assert!(bytes.len() == CHUNK && written.contains(&bytes[0]));
    assert!(bytes.iter().all(|b| *b == bytes[0]), "torn: {word}");
}

/// Checks a reply: a buffer that came back is as it was written; of a release there is only the message.
fn looks_at(reply: Message) {
    if !matches!(reply.body, Body::Released(_)) {
        is_whole(&reply.to_vec(), reply.word);
    }
}

/// Moves buffers, each other one as an aggregate, and takes them back, until the receiver is gone.
fn writes(pool: &Pool, lists: &Pool, mut to: Sender) {
    let mut word = 0u64;
    loop {
        while let Some(reply) = to.try_recv_back().unwrap() {
            looks_at(reply);
        }
        match pool.alloc_timeout(CHUNK, Duration::from_millis(1)) {
            Ok(mut buf) => {
                word += 1;
                let byte = word.to_le_bytes()[0];
                buf.write(0, &[byte; CHUNK]).unwrap();
                let error = match word % 2 {
                    1 => to.send((buf, word)).err().map(|e| e.error),
                    _ => {
                        let mut all = AggregateMut::new();
                        all.push_back(buf).unwrap();
                        all.set_list_pool(lists);
                        to.send((all, word)).err().map(|e| e.error)
                    }
                };
                if let Some(error) = error {
                    assert_eq!(error.kind(), ErrorKind::PeerGone, "{error}");
                    break;
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
        }
        if to.status().peer_gone {
            break;
        }
    }
    while let Some(reply) = to.try_recv_back().unwrap() {
        looks_at(reply);
    }
}

/// Takes them, and writes them if it may. Sends back a buffer that is not a copy of its own, or releases it with a
/// message, until the sender is gone.
fn takes(mut from: Receiver, copies: PoolId) -> ErrorKind {
    loop {
        let mut message = match from.recv() {
            Ok(message) => message,
            Err(error) => return error.kind(),
        };
        let word = message.word;
        is_whole(&message.to_vec(), word);
        write(&mut message, word.to_le_bytes()[0].wrapping_add(100));
        is_whole(&message.to_vec(), word);
        let body = match message.body {
            Body::AggregateMut(all) => Body::BufferMut(all.into_pieces().pop_front().unwrap()),
            Body::Aggregate(mut all) => Body::Buffer(all.remove(0).unwrap()),
            body => body,
        };
        let handed = match body {
            body if word.is_multiple_of(3) => from
                .send_back((Released(body), word))
                .map_err(|failed| failed.error),
            Body::BufferMut(buf) if buf.id().pool() == copies => from
                .send_back((Released(buf), word))
                .map_err(|failed| failed.error),
            Body::BufferMut(buf) => from.send_back((buf, word)).map_err(|failed| failed.error),
            Body::Buffer(buf) => from.send_back((buf, word)).map_err(|failed| failed.error),
            other => panic!("{other:?}"),
        };
        if let Err(error) = handed {
            assert!(matches!(
                error.kind(),
                ErrorKind::Full | ErrorKind::PeerGone
            ));
        }
    }
}

fn copying(copies: &Pool) -> ChannelOptions {
    ChannelOptions::new().lines(4).snapshots(copies.id())
}

child!(
    fn mover(ctl: Control) {
        let (path, trust): (PathBuf, Trust) = ctl.recv().unwrap().unwrap();
        let domain = join(path);
        let pool = small_pool(&domain, trust);
        let to = domain.open_with::<Sender>("x", ChannelOptions::new().lines(4));
        let lists = small_pool(&domain, Trust::Producer);
        writes(&pool, &lists, to.unwrap());
    }
);

child!(
    fn taker(ctl: Control) {
        let (path, _): (PathBuf, Trust) = ctl.recv().unwrap().unwrap();
        let domain = join(path);
        let copies = small_pool(&domain, Trust::Producer);
        let from = domain.open_with::<Receiver>("x", copying(&copies));
        takes(from.unwrap(), copies.id());
    }
);

fn begins(peer: &Peer, trust: Trust, domain: &Domain) {
    peer.send(&(domain.socket_path().unwrap(), trust)).unwrap();
}

/// All of it can be had at once.
fn has_all(pool: &Pool) {
    drop(pool.alloc(2 * CHUNK).unwrap());
}

/// The manager's books have this domain and nothing of the dead.
fn nothing_is_left(domain: &Domain) {
    let is_over = |record: StatRecord| match record {
        StatRecord::Manager(m) => m.granted_bytes == 0 && m.stranded_bytes == 0,
        StatRecord::Pool(_) | StatRecord::Channel(_) => false,
        _ => true,
    };
    while !domain.admin().stat().unwrap().into_iter().all(is_over) {
        std::thread::yield_now();
    }
}

fn survivor() -> Domain {
    let builder = Domain::builder().name("survivor").helper_thread(true);
    builder.embedded().unwrap()
}

const ALL_LEVELS: [Trust; 4] = [Trust::None, Trust::Producer, Trust::Half, Trust::Full];

fn each_point(points: &[&str], dog: &Watchdog, test: impl Fn(&str, Trust)) {
    for trust in ALL_LEVELS {
        for point in points.iter().filter(|point| is_passed(point, trust)) {
            let most = if point.starts_with("grow.") { 1 } else { 2 };
            for nth in 1..=most {
                let point = format!("{point}:{nth}");
                dog.step(format_args!("{point} at level {trust}"));
                test(&point, trust);
            }
        }
    }
}

#[test]
fn who_moves_dies_at_every_step() {
    let dog = Watchdog::new();
    each_point(&WRITER_POINTS, &dog, |point, trust| {
        let domain = survivor();
        let copies = small_pool(&domain, Trust::Producer);
        let sink = domain.listen_with::<Receiver>("x", copying(&copies));
        let peer = mover().crash_at(point).start().unwrap();
        begins(&peer, trust, &domain);
        let from = sink.unwrap().accept().unwrap();
        let end = takes(from, copies.id());
        assert_eq!(end, ErrorKind::PeerDied, "{point} at level {trust}");
        assert_eq!(peer.wait(), Exit::Signal(libc::SIGKILL));
        has_all(&copies);
        drop(copies);
        nothing_is_left(&domain);
    });
}

#[test]
fn who_receives_and_passes_back_dies_at_every_step() {
    let dog = Watchdog::new();
    each_point(&RECEIVER_POINTS, &dog, |point, trust| {
        let domain = survivor();
        let pool = small_pool(&domain, trust);
        let source = domain.listen_with::<Sender>("x", ChannelOptions::new().lines(4));
        let peer = taker().crash_at(point).start().unwrap();
        begins(&peer, trust, &domain);
        let to = source.unwrap().accept().unwrap();
        let lists = small_pool(&domain, Trust::Producer);
        writes(&pool, &lists, to);
        assert_eq!(peer.wait(), Exit::Signal(libc::SIGKILL), "{point} {trust}");
        has_all(&pool);
        has_all(&lists);
        drop((pool, lists));
        nothing_is_left(&domain);
    });
}
