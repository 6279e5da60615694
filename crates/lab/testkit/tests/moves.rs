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
const LEVELS: [Trust; 3] = [Trust::Producer, Trust::Half, Trust::Full];

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

child!(
    /// Takes one, writes it if it may, reports what it has, and keeps it.
    fn keeper(ctl: Control) {
        let domain = join(ctl.recv().unwrap().unwrap());
        let mut from = domain.open::<Receiver>("x").unwrap();
        let mut given = from.recv().unwrap();
        let writes = write(&mut given, 2);
        ctl.send(&(writes, given.to_vec()[CHUNK - 1])).unwrap();
        let _: Option<()> = ctl.recv().unwrap();
    }
);

child!(
    /// Agrees to the pool, and takes nothing.
    fn idler(ctl: Control) {
        let domain = join(ctl.recv().unwrap().unwrap());
        let from = domain.open::<Receiver>("x").unwrap();
        while !from.is_ready() {
            domain.turn().unwrap();
        }
        ctl.send(&(false, 0u8)).unwrap();
        let _: Option<()> = ctl.recv().unwrap();
    }
);

child!(
    /// Takes one, writes it if it may, and moves it back.
    fn returner(ctl: Control) {
        let domain = join(ctl.recv().unwrap().unwrap());
        let mut from = domain.open::<Receiver>("x").unwrap();
        let mut back = domain.open::<Sender>("back").unwrap();
        let mut given = from.recv().unwrap();
        let writes = write(&mut given, 2);
        let byte = given.to_vec()[CHUNK - 1];
        match given.into_buffer_mut() {
            Ok(buf) => back.send(buf).map(drop).unwrap(),
            Err(given) => {
                let buf = given.into_buffer().unwrap();
                back.send(buf).map(drop).unwrap();
            }
        }
        ctl.send(&(writes, byte)).unwrap();
        let _: Option<()> = ctl.recv().unwrap();
    }
);

/// A domain with a pool of one buffer, which it has moved to another process.
struct Stage {
    domain: Domain,
    pool: Pool,
    to: Option<Sender>,
    peer: Peer,
}

impl Stage {
    fn new(trust: Trust, peer: Peer, also: impl FnOnce(&Domain, &Pool, &Sender)) -> Stage {
        let builder = Domain::builder().name("writer").helper_thread(true);
        let domain = builder.embedded().unwrap();
        let options = PoolOptions::new(CHUNK as u64).chunk_bytes(CHUNK as u64);
        let pool = domain.create_pool(options.trust(trust)).unwrap();
        let listener = domain.listen_with::<Sender>("x", ChannelOptions::new());
        let listener = listener.unwrap();
        peer.send(&domain.socket_path().unwrap()).unwrap();
        let mut to = listener.accept().unwrap();
        also(&domain, &pool, &to);
        let mut buf = pool.alloc(CHUNK).unwrap();
        buf.write(0, &[1; CHUNK]).unwrap();
        to.send(buf).unwrap();
        Stage {
            domain,
            pool,
            to: Some(to),
            peer,
        }
    }

    fn says(&self, trust: Trust) {
        let said: (bool, u8) = self.peer.expect();
        let byte = u8::from(trust.all_write()) + 1;
        assert_eq!(said, (trust.all_write(), byte), "{trust}");
    }
}

#[test]
fn who_has_it_is_killed() {
    for trust in LEVELS {
        let _dog = Watchdog::new();
        let stage = Stage::new(trust, keeper().start().unwrap(), |_, _, _| {});
        stage.says(trust);
        assert!(stage.pool.try_alloc(CHUNK).is_err(), "it has all there is");
        stage.peer.kill();
        let again = stage.pool.alloc(CHUNK).unwrap();
        let byte = u8::from(trust.all_write()) + 1;
        assert!(again.to_vec() == [byte; CHUNK], "{trust}: as it was left");
    }
}

#[test]
fn who_is_to_take_it_is_killed() {
    for trust in LEVELS {
        for closed in [false, true] {
            let _dog = Watchdog::new();
            let mut stage = Stage::new(trust, idler().start().unwrap(), |_, _, _| {});
            let _: (bool, u8) = stage.peer.expect();
            assert!(stage.pool.try_alloc(CHUNK).is_err(), "it is on its way");
            if closed {
                stage.to = None;
            }
            stage.peer.kill();
            let mut again = stage.pool.alloc(CHUNK).unwrap();
            again.write(0, &[3; CHUNK]).unwrap();
        }
    }
}

#[test]
fn who_moved_it_back_is_killed() {
    for trust in LEVELS {
        let _dog = Watchdog::new();
        let mut back = None;
        let peer = returner().start().unwrap();
        let stage = Stage::new(trust, peer, |domain, pool, to| {
            pool.allow_forward(to.status().peer).unwrap();
            let sink = domain.listen::<Receiver>("back").unwrap();
            back = Some(sink.accept().unwrap());
        });
        stage.says(trust);
        stage.peer.kill();
        let got = back.as_mut().unwrap().recv().unwrap().into_buffer();
        let got = got.unwrap();
        let byte = u8::from(trust.all_write()) + 1;
        assert!(got.to_vec() == [byte; CHUNK]);
        assert!(stage.pool.try_alloc(CHUNK).is_err(), "we have it");
        let id = got.id();
        drop(got);
        assert_ne!(stage.pool.alloc(CHUNK).unwrap().id(), id);
        drop(stage.domain);
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
