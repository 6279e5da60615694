//! Large buffers of pools of level `none`. Whichever process dies at whatever instant, nothing of them is left. Memory
//! that a liar shows instead of one is refused, by the manager and by the receiver.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use tranship_core::admin::StatRecord;
use tranship_core::{
    Buffer, ChannelOptions, Domain, ErrorKind, Pool, PoolOptions, Receiver, Sender, Trust,
};
use tranship_proto::Role;
use tranship_proto::{BufferId, Event, RefusalCode, Request};
use tranship_region::{Opts, Sealing, make};
use tranship_sys::memfd::{self, Seals};
use tranship_testkit::hostile::SOCKET;
use tranship_testkit::hostile::raw::{Bait, CHUNK, Channel, Raw, SLOTS};
use tranship_testkit::{Control, Exit, Peer, Random, Watchdog, child, payload};

const LEN: usize = 64 << 10;
const _: () = assert!(LEN as u64 == CHUNK);
/// More than a chunk now and then.
const LONGEST: u64 = 2 * CHUNK;

fn chunks(domain: &Domain, name: &str, chunks: u64) -> Pool {
    let options = PoolOptions::new(chunks * CHUNK).chunk_bytes(CHUNK);
    let options = options.trust(Trust::None).seal_from(CHUNK / 2);
    domain.create_pool(options.name(name)).expect("a pool")
}

fn join(name: &str) -> Domain {
    let socket = std::env::var_os(SOCKET).expect("a socket");
    let builder = Domain::builder().name(name).socket(socket);
    builder.connect().expect("connect")
}

child!(
    /// Sends large buffers for ever, to each listener in turn; when one dies, to the next.
    fn writes(_ctl: Control) {
        let (domain, mut random) = (join("writer"), Random::printed("writer"));
        let pool = chunks(&domain, "sealed", 8);
        loop {
            let Ok(mut to) = domain.open::<Sender>("sealed") else {
                continue;
            };
            // Each new reader may read the pool.
            if to.assign(&pool).is_err() {
                continue;
            }
            loop {
                let id = random.next();
                let len = CHUNK / 2 + payload::mix(id) % (LONGEST - CHUNK / 2);
                let len = usize::try_from(len).expect("small");
                let mut buf = match pool.alloc_timeout(len, Duration::from_millis(20)) {
                    Ok(buf) => buf,
                    Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                        if to.status().peer_gone {
                            break;
                        }
                        continue;
                    }
                    Err(other) => panic!("alloc: {other}"),
                };
                payload::fill(&mut buf, id, payload::mix(id));
                match to.send((buf.freeze(), id)) {
                    Ok(_) => {}
                    Err(failed) if failed.kind() == ErrorKind::PeerGone => break,
                    Err(failed) => panic!("send: {failed}"),
                }
            }
        }
    }
);

child!(
    /// Takes from each client, keeps some, verifies each twice, and reports their number when it is asked.
    fn reads(ctl: Control) {
        let (domain, mut random) = (join("reader"), Random::printed("reader"));
        let soon = Duration::from_millis(5);
        let options = ChannelOptions::new().arrivals(PoolOptions::new(CHUNK));
        let listener = domain.listen_with::<Receiver>("sealed", options);
        let listener = listener.expect("listen");
        let (mut links, mut kept) = (Vec::<Receiver>::new(), Vec::<(Buffer, u64)>::new());
        let mut count = 0u64;
        loop {
            if ctl.is_ready() {
                if ctl.recv::<()>().expect("the test").is_none() {
                    return;
                }
                ctl.send(&count).expect("the test");
            }
            if let Ok(link) = listener.accept_timeout(soon) {
                links.push(link);
            }
            let mut came = Vec::new();
            links.retain_mut(|link| match link.recv_timeout(soon) {
                Ok(message) => {
                    let word = message.word;
                    came.push((message.into_buffer().expect("a buffer"), word));
                    true
                }
                Err(error) if error == ErrorKind::TimedOut => true,
                Err(error) if matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::Lost) => {
                    false
                }
                Err(other) => panic!("recv: {other}"),
            });
            let most = if came.is_empty() { 0 } else { random.below(3) };
            for (buf, id) in came {
                verify(&buf, id);
                kept.push((buf, id));
                count += 1;
            }
            while kept.len() as u64 > most {
                let (buf, id) = kept.remove(0);
                verify(&buf, id);
            }
        }
    }
);

/// Verifies a buffer: memory that the kernel lets no process change is a slice.
fn verify(buf: &Buffer, id: u64) {
    let bytes = buf.bytes().expect("sealed");
    payload::verify_seed(bytes, id, payload::mix(id)).expect("whole");
}

/// Bytes of chunks that the manager counts.
fn data_bytes(domain: &Domain) -> u64 {
    let records = domain.admin().stat().expect("stat");
    let manager = records.iter().find_map(|record| match record {
        StatRecord::Manager(stat) => Some(stat.data_bytes),
        _ => None,
    });
    manager.expect("the manager")
}

fn embedded() -> (Domain, std::path::PathBuf) {
    let builder = Domain::builder().name("manager").helper_thread(true);
    let domain = builder.embedded().expect("a manager");
    let socket = domain.socket_path().expect("its socket");
    (domain, socket)
}

fn goes_on(reader: &Peer) {
    let count = || reader.ask::<u64>(&());
    let begun = count();
    while count() < begun + 5 {
        std::thread::yield_now();
    }
}

#[test]
fn whoever_dies_leaves_nothing() {
    let dog = Watchdog::new();
    let mut random = Random::printed("whoever_dies_leaves_nothing");
    let (domain, socket) = embedded();
    let start = |launch: tranship_testkit::Launch, random: &mut Random| {
        let seed = random.next().to_string();
        let launch = launch.env(SOCKET, &socket).env("TRANSHIP_SEED", seed);
        launch.start().expect("a child")
    };
    let mut reader = start(reads(), &mut random);
    for point in [
        "seal.after_chunk",
        "seal.after_show",
        "shrink.before_return",
    ] {
        for nth in 1..4 {
            dog.step(format_args!("{point}:{nth}"));
            let doomed = writes().crash_at(format!("{point}:{nth}"));
            let writer = start(doomed, &mut random);
            assert_eq!(writer.wait(), Exit::Signal(libc::SIGKILL), "{point}");
        }
    }
    dog.step("at any instant");
    let rounds = if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        300
    } else {
        8
    };
    let mut writer = start(writes(), &mut random);
    for _ in 0..rounds {
        goes_on(&reader);
        random.instant(Duration::from_millis(10));
        match random.one_in(2) {
            true => {
                writer.kill();
                writer = start(writes(), &mut random);
            }
            false => {
                reader.kill();
                reader = start(reads(), &mut random);
            }
        }
    }
    goes_on(&reader);
    dog.step("nothing is left");
    writer.kill();
    while data_bytes(&domain) > 0 {
        reader.ask::<u64>(&());
    }
    reader.kill();
}

// The liar, as a process of its own: which lie it tells.
child!(
    fn lies(ctl: Control) {
        let which: u32 = ctl.recv().expect("the test").expect("a lie");
        let mut raw = Raw::join("liar");
        let bait = raw.create_pool_at("bait", Trust::None);
        raw.export("bait", Role::Source);
        ctl.send(&()).expect("the test");
        let mut channel = raw.accept(Role::Source);
        raw.assign(&mut channel, bait.id, SLOTS);
        let mut liar = Liar { raw, bait, channel };
        liar.lie(which, &ctl);
        // Its memory stays until the test is done with it.
        let _ = ctl.recv::<()>();
    }
);

struct Liar {
    raw: Raw,
    bait: Bait,
    channel: Channel,
}

/// Of a file's size, filled, with such seals, and the byte in it.
fn chunk(sealing: Sealing, byte: u8) -> OwnedFd {
    let opts = Opts {
        sealing,
        ..Opts::default()
    };
    let (fd, map) = make("bait", LEN, opts).expect("memory");
    // SAFETY: mapped for writing, as long as it is here.
    unsafe { std::ptr::write_bytes(map.base(), byte, LEN) };
    drop(map);
    fd
}

fn sealed(byte: u8) -> OwnedFd {
    let fd = chunk(Sealing::Open, byte);
    memfd::add_seals(&fd, Seals::WRITE | Seals::SEAL).expect("nobody maps it");
    fd
}

impl Liar {
    /// Shows a chunk to the manager; returns its answer.
    fn show(&mut self, (index, serial): (u32, u32), fd: impl AsFd) -> Result<u32, RefusalCode> {
        let (req, pool) = (self.raw.req(), self.bait.id);
        let request = Request::ShowChunks {
            req,
            pool,
            chunks: vec![(index, serial)],
            least: 1,
        };
        self.raw.send(&request, &[fd.as_fd()]);
        let (answer, _) = self.raw.wait(|event| match event {
            Event::ChunksReady { req: r, chunks, .. } if *r == req => Some(Ok(*chunks)),
            Event::Refused { req: r, refusal } if *r == req => Some(Err(refusal.code)),
            _ => None,
        });
        answer
    }

    /// Sends all of the second chunk.
    fn send(&mut self, slot: u32, serial: u32) {
        use std::sync::atomic::Ordering::SeqCst;
        let entry = self.bait.table.slot(slot).expect("a slot");
        entry.offset.store(CHUNK, SeqCst);
        entry.length.store(CHUNK, SeqCst);
        entry.serial.store(serial, SeqCst);
        entry.generation.store(2, SeqCst);
        let id = BufferId::new(self.bait.id, slot, 2);
        self.channel.count(id);
        let line = [2 << 32, 0, id.0, CHUNK, CHUNK, serial.into(), 0, 0];
        self.channel.push(line);
    }

    fn lie(&mut self, which: u32, ctl: &Control) {
        let bad = Err(RefusalCode::BadDescriptor);
        match which {
            // No lie, yet.
            0 => {
                assert_eq!(self.show((1, 2), chunk(Sealing::Open, 7)), Ok(1));
                assert_eq!(self.show((1, 2), sealed(7)), Ok(1));
                self.send(3, 2);
                ctl.recv::<()>().expect("the test").expect("it has it");
                let gone = Request::ReturnChunk {
                    pool: self.bait.id,
                    index: 1,
                    serial: 2,
                };
                self.raw.send(&gone, &[]);
                assert_eq!(self.show((1, 3), chunk(Sealing::OneWriter, 8)), Ok(1));
                self.send(4, 3);
            }
            1 => {
                assert_eq!(self.show((1, 2), chunk(Sealing::Open, 7)), Ok(1));
                self.send(3, 2);
            }
            2 => {
                assert_eq!(self.show((1, 2), chunk(Sealing::Open, 7)), Ok(1));
                let half = make("bait", LEN / 2, Opts::default()).expect("memory").0;
                let all_but_one = chunk(Sealing::Open, 7);
                memfd::add_seals(&all_but_one, Seals::WRITE).expect("nobody maps it");
                let sparse = memfd::create("bait").expect("a memfd");
                memfd::set_len(&sparse, CHUNK).expect("a size");
                let all = Seals::SHRINK | Seals::GROW | Seals::WRITE | Seals::SEAL;
                memfd::add_seals(&sparse, all).expect("nobody maps it");
                let shared = chunk(Sealing::Shared, 7);
                let (open, one) = (chunk(Sealing::Open, 7), chunk(Sealing::OneWriter, 7));
                for wrong in [half, all_but_one, sparse, shared, open, one] {
                    assert_eq!(self.show((1, 2), wrong), bad);
                }
                self.send(3, 2);
                ctl.send(&()).expect("the test");
                ctl.recv::<()>().expect("the test").expect("it was refused");
                // Memory cannot be asked for either: it is out.
                let (req, pool) = (self.raw.req(), self.bait.id);
                let chunks = vec![(1, 2)];
                let request = Request::ShowChunks {
                    req,
                    pool,
                    chunks,
                    least: 1,
                };
                let file = std::fs::File::open("/dev/null").expect("a file");
                let _ = self.raw.try_send(&request, &[file.as_fd()]);
            }
            _ => panic!("no such lie"),
        }
    }
}

/// Returns a liar, and a receiver of its messages.
fn prey(socket: &Path, domain: &Domain, which: u32) -> (Peer, Receiver, Pool) {
    let liar = lies().env(SOCKET, socket).start().expect("a child");
    liar.ask::<()>(&which);
    let copies = chunks(domain, "copies", 4);
    let options = ChannelOptions::new().snapshots(copies.id());
    let receiver = domain.open_with::<Receiver>("bait", options).expect("open");
    (liar, receiver, copies)
}

#[test]
fn what_is_held_stays_what_it_is_whatever_its_writer_does() {
    let _dog = Watchdog::new();
    let (domain, socket) = embedded();
    let (liar, mut receiver, copies) = prey(&socket, &domain, 0);
    let held = receiver
        .recv()
        .expect("no lie")
        .into_buffer()
        .expect("a buffer");
    assert_ne!(held.id().pool(), copies.id());
    let bytes = held.bytes().expect("nobody can write it");
    assert_eq!(bytes, [7; LEN]);
    liar.send(&()).expect("the liar");
    // The memory that is now claimed to be there is not taken, because the other one is held.
    let error = receiver.recv().expect_err("a lie");
    assert_eq!(error.kind(), ErrorKind::PeerViolation, "{error}");
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert_eq!(bytes, [7; LEN]);
    let copy = held.clone();
    drop(held);
    assert_eq!(copy.bytes(), Some(&[7; LEN][..]));
    drop((copy, receiver, copies));
    liar.kill();
    while data_bytes(&domain) > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_not_sealed_reaches_nobody() {
    let _dog = Watchdog::new();
    for which in [1, 2] {
        let (domain, socket) = embedded();
        let (liar, mut receiver, copies) = prey(&socket, &domain, which);
        let error = receiver.recv().expect_err("a lie");
        assert_eq!(error.kind(), ErrorKind::PeerViolation, "{error}");
        if which == 2 {
            liar.expect::<()>(); // and the manager has refused all of them
            liar.send(&()).expect("the liar");
        }
        // The manager lives, and others are served.
        drop(copies.alloc(LEN).expect("room"));
        drop((receiver, copies));
        liar.kill();
        while data_bytes(&domain) > 0 {
            std::thread::yield_now();
        }
    }
}
