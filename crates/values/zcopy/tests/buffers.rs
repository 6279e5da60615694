//! Buffers of shared pools and parts of files: they arrive byte for byte. No process uses a buffer's memory again
//! before the kernel is done with it, whichever end closes, resets or dies.

mod kit;

use kit::{dog, pattern};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tranship_core::{Body, Buffer, Domain, Pool, PoolOptions, Receiver};
use tranship_testkit::{Control, Random, child};
use tranship_zcopy::{Arena, Cause, Piece, Report, Sender, Socket, Value};

const LONG: Duration = Duration::from_secs(600);
const BUFFER: usize = 256 << 10;
const COUNT: usize = 40;

fn pool(domain: &Domain, bytes: u64) -> Pool {
    domain
        .create_pool(PoolOptions::new(bytes).name("frames").keep(bytes))
        .expect("a pool")
}

/// Returns half of the pool, filled.
fn half(pool: &Pool) -> Vec<Buffer> {
    let fill = |number| {
        let mut buffer = pool.alloc(BUFFER).expect("room");
        buffer.write(0, &pattern(number, BUFFER)).expect("writable");
        buffer.freeze()
    };
    (0..COUNT).map(fill).collect()
}

/// Waits until all buffers are back.
fn wait_until_free(pool: &Pool) {
    while pool.in_use() > 0 {
        std::thread::yield_now();
    }
}

/// A connection whose other end takes little that it does not read.
fn narrow() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("a small one");
    let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (far, _) = listener.accept().expect("accept");
    near.set_nonblocking(true).expect("nonblocking");
    (near, far)
}

/// Sends buffers by reference until there is no room. Says how many bytes went.
fn fill(sender: &mut Sender, near: &TcpStream, socket: &mut Socket, buffers: &[Buffer]) -> usize {
    let pieces: Vec<_> = buffers.iter().map(Piece::Buffer).collect();
    let all: usize = pieces.iter().map(Piece::len).sum();
    let mut sent = 0;
    loop {
        match sender.send(near, socket, &Piece::after(&pieces, sent)) {
            Ok(now) => sent += now,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return sent,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < all, "the socket takes more than the whole pool has");
    }
}

/// Overwrites all free memory, as the next user of the pool does. Returns the numbers of the buffers whose memory was
/// free.
fn overwrite_what_is_free(pool: &Pool) -> Vec<u32> {
    let mut free: Vec<_> = std::iter::from_fn(|| pool.try_alloc(BUFFER).ok()).collect();
    for buffer in &mut free {
        buffer.write(0, &[0xff; BUFFER]).expect("writable");
    }
    free.iter().map(|buffer| buffer.id().slot()).collect()
}

/// Returns the expected bytes of these buffers.
fn expected(buffers: usize, len: usize) -> Vec<u8> {
    let mut all: Vec<u8> = (0..buffers).flat_map(|n| pattern(n, BUFFER)).collect();
    all.truncate(len);
    all
}

fn same(got: &[u8], expected: &[u8]) {
    let differ = got.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        got.len() == expected.len() && differ.is_none(),
        "{} bytes of {}, the first other one at {differ:?}",
        got.len(),
        expected.len()
    );
}

/// Takes the lock of all tests by reference: bytes on their way count against one limit for all of a user's sockets
/// (RLIMIT_MEMLOCK).
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Filled {
    _alone: MutexGuard<'static, ()>,
    _domain: Domain,
    pool: Pool,
    /// The slot of the last one sent.
    last: u32,
    /// Buffers that were not sent.
    rest: Vec<Buffer>,
    sender: Sender,
    socket: Socket,
    near: TcpStream,
    far: TcpStream,
    expected: Vec<u8>,
}

/// Returns a connection with as many buffers on their way as it takes, all others in use, and no reader.
fn filled() -> Filled {
    let alone = alone();
    let domain = Domain::builder()
        .name("camera")
        .helper_thread(true)
        .embedded()
        .expect("domain");
    let pool = pool(&domain, 2 * (COUNT * BUFFER) as u64);
    let mut rest = half(&pool);
    let (near, far) = narrow();
    let mut sender = Sender::new().expect("sender");
    let mut socket = Socket::elsewhere(&near).expect("socket");
    let sent = fill(&mut sender, &near, &mut socket, &rest);
    let count = sent.div_ceil(BUFFER);
    let expected = expected(count, sent);
    let last = rest[count - 1].id().slot();
    drop(rest.drain(..count));
    assert!(socket.held_bytes() > 0);
    assert_eq!(sender.counts().referred_bytes, sent as u64);
    Filled {
        _alone: alone,
        _domain: domain,
        pool,
        last,
        rest,
        sender,
        socket,
        near,
        far,
        expected,
    }
}

#[test]
fn a_buffer_is_not_given_back_before_its_bytes_are_read() {
    let _dog = dog();
    let mut one = filled();
    // The last one sent is surely not through: most of it has no room at the other end.
    one.sender
        .settle(&one.near, &mut one.socket)
        .expect("settle");
    let held = one.socket.held_bytes();
    assert!(held > 0);
    let free = overwrite_what_is_free(&one.pool);
    assert!(
        !free.contains(&one.last),
        "slots {free:?} are free with {held} bytes held, the last one of slot {}",
        one.last
    );
    assert!(!one.socket.finish(Duration::ZERO).expect("looks"));
    let mut got = vec![0; one.expected.len()];
    one.far.read_exact(&mut got).expect("read");
    same(&got, &one.expected);
    assert!(one.socket.finish(LONG).expect("notifications"));
    assert_eq!(one.socket.held_bytes(), 0);
    drop(one.rest);
    wait_until_free(&one.pool);
    // The connection is as before.
    assert_eq!(
        sockopt::socket_linger(&one.near).expect("an option"),
        None,
        "it is closed as the program wants it"
    );
}

#[test]
fn a_socket_that_the_program_lets_go_of_is_served_to_its_end() {
    let _dog = dog();
    let one = filled();
    let pool = one.pool;
    drop((one.socket, one.near, one.sender, one.rest));
    let mut got = Vec::new();
    let mut far = one.far;
    let mut part = vec![0; 64 << 10];
    while got.len() < one.expected.len() / 2 {
        let now = far.read(&mut part).expect("read");
        got.extend_from_slice(&part[..now]);
        // Memory that is free is written over.
        overwrite_what_is_free(&pool);
    }
    far.read_to_end(&mut got).expect("up to its end");
    same(&got, &one.expected);
    wait_until_free(&pool);
}

#[test]
fn a_reader_that_goes_gives_the_buffers_back() {
    let _dog = dog();
    let mut one = filled();
    // Bytes are unread, so the connection is reset.
    drop(one.far);
    assert!(one.socket.finish(LONG).expect("notifications"));
    let piece = [Piece::Buffer(&one.rest[0])];
    let error = one
        .sender
        .send(&one.near, &mut one.socket, &piece)
        .expect_err("nobody is there");
    assert!(
        matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        ),
        "{error}"
    );
    drop(one.rest);
    wait_until_free(&one.pool);
}

#[test]
fn a_reader_that_is_cut_off_gives_the_buffers_back() {
    let _dog = dog();
    let one = filled();
    one.socket.abort().expect("reset");
    drop(one.rest);
    wait_until_free(&one.pool);
    let mut got = Vec::new();
    let mut far = one.far;
    let error = far.read_to_end(&mut got).expect_err("it was reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    same(&got, &one.expected[..got.len()]);
}

// Receives frames and sends them on by reference, until it is killed.
child!(
    fn sends_on(ctl: Control) {
        let (manager, address): (String, String) = ctl.recv().unwrap().unwrap();
        let builder = Domain::builder().name("server").socket(manager);
        let domain = builder.connect().unwrap();
        let mut receiver = domain.open::<Receiver>("film").unwrap();
        let count: usize = ctl.recv().unwrap().unwrap();
        let frames: Vec<Buffer> = (0..count)
            .map(|_| match receiver.recv().unwrap().body {
                Body::Buffer(frame) => frame,
                other => panic!("{other:?}"),
            })
            .collect();
        let near = TcpStream::connect(address).unwrap();
        near.set_nonblocking(true).unwrap();
        let mut sender = Sender::new().unwrap();
        let mut socket = Socket::elsewhere(&near).unwrap();
        let sent = fill(&mut sender, &near, &mut socket, &frames);
        assert_eq!(sender.counts().referred_bytes, sent as u64);
        ctl.send(&(sent, socket.held_bytes())).unwrap();
        // Its handles are gone, the kept ones are not.
        drop(frames);
        let _: Option<()> = ctl.recv().unwrap();
    }
);

#[test]
fn a_killed_sender_sends_nothing_that_was_written_after_its_death() {
    let _dog = dog();
    let _alone = alone();
    let domain = Domain::builder()
        .name("camera")
        .helper_thread(true)
        .embedded()
        .expect("domain");
    let manager = domain.socket_path().expect("socket").display().to_string();
    let pool = pool(&domain, 2 * (COUNT * BUFFER) as u64);
    let frames = half(&pool);
    let mut slots: HashSet<u32> = frames.iter().map(|frame| frame.id().slot()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("a small one");
    let address = listener.local_addr().expect("address").to_string();
    let film = domain
        .listen::<tranship_core::Sender>("film")
        .expect("listen");
    let server = sends_on().start().expect("start");
    server.send(&(manager, address)).expect("tell");
    server.send(&COUNT).expect("tell");
    let mut film = film.accept().expect("accept");
    for frame in frames {
        film.send(frame).expect("send");
    }
    let (mut far, _) = listener.accept().expect("accept");
    let (sent, held): (usize, usize) = server.expect();
    assert!(held > 0 && held <= sent);
    server.kill();
    // Every one is the camera's again, and is written over before anybody reads.
    let mut again = Vec::new();
    while !slots.is_empty() {
        let mut frame = pool.alloc(BUFFER).expect("waits");
        frame.write(0, &[0xff; BUFFER]).expect("writable");
        slots.remove(&frame.id().slot());
        again.push(frame);
    }
    let mut got = Vec::new();
    let error = far.read_to_end(&mut got).expect_err("it was reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    same(&got, &expected(COUNT, sent)[..got.len()]);
    drop(again);
}

/// Parts of which a list is made.
struct Stock {
    _domain: Domain,
    buffers: Vec<Buffer>,
    values: Vec<Value>,
    bytes: Vec<u8>,
    file: File,
    of_file: Vec<u8>,
}

fn stock() -> Stock {
    let domain = Domain::builder().name("stock").embedded().expect("domain");
    let pool = pool(&domain, 4 << 20);
    let buffers = (0..6)
        .map(|seed| {
            let mut buffer = pool.alloc(60_000).expect("room");
            buffer.write(0, &pattern(seed, 60_000)).expect("writable");
            buffer.freeze()
        })
        .collect();
    let arena = Arena::new().expect("arena");
    let values: Vec<Value> = (0..40)
        .map(|seed| arena.copy(&pattern(100 + seed, 5000)).expect("room"))
        .collect();
    arena.protect();
    let of_file = pattern(1000, 300_000);
    let mut file = File::from(tranship_sys::memfd::create("test").expect("memfd"));
    file.write_all(&of_file).expect("write");
    Stock {
        _domain: domain,
        buffers,
        values,
        bytes: pattern(2000, 10_000),
        file,
        of_file,
    }
}

impl Stock {
    /// Returns a list of pieces of all kinds, and their bytes.
    fn list(&self, random: &mut Random) -> (Vec<Piece<'_>>, Vec<u8>) {
        let (mut pieces, mut all) = (Vec::new(), Vec::new());
        let small = |n: u64| usize::try_from(n).expect("small");
        let part = |random: &mut Random, len: usize| {
            let from = small(random.below(len as u64));
            from..from + small(random.below((len - from) as u64 + 1))
        };
        for _ in 0..1 + random.below(12) {
            match random.below(6) {
                0 => {
                    let range = part(random, 300);
                    pieces.push(Piece::Bytes(&self.bytes[range.clone()]));
                    all.extend_from_slice(&self.bytes[range]);
                }
                1 => {
                    let range = part(random, self.bytes.len());
                    pieces.push(Piece::Bytes(&self.bytes[range.clone()]));
                    all.extend_from_slice(&self.bytes[range]);
                }
                2 => {
                    let value = &self.values[small(random.below(self.values.len() as u64))];
                    pieces.push(Piece::Value(value));
                    all.extend_from_slice(value);
                }
                3 => {
                    let range = part(random, self.of_file.len());
                    let place = range.start as u64..range.end as u64;
                    pieces.push(Piece::File(&self.file, place));
                    all.extend_from_slice(&self.of_file[range]);
                }
                4 => {
                    let buffer = &self.buffers[small(random.below(self.buffers.len() as u64))];
                    pieces.push(Piece::Buffer(buffer));
                    all.extend_from_slice(&buffer.to_vec());
                }
                _ => {
                    let buffer = &self.buffers[small(random.below(self.buffers.len() as u64))];
                    let range = part(random, buffer.len());
                    pieces.push(Piece::BufferPart(buffer, range.clone()));
                    all.extend_from_slice(&buffer.to_vec()[range]);
                }
            }
        }
        (pieces, all)
    }
}

/// Sends all of it, however often it takes.
fn send_all(sender: &mut Sender, near: impl AsFd, socket: &mut Socket, pieces: &[Piece<'_>]) {
    let all: usize = pieces.iter().map(Piece::len).sum();
    let mut sent = 0;
    while sent < all {
        match sender.send(&near, socket, &Piece::after(pieces, sent)) {
            Ok(now) => sent += now,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                sender.settle(&near, socket).expect("settle");
                poll(&mut [PollFd::new(&near, PollFlags::OUT)], None).expect("wait");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(sent, all);
}

/// Lists of all kinds to a reader that takes odd amounts.
fn lists(near: impl AsFd, mut far: impl Read + Send, mut socket: Socket, random: &mut Random) {
    let stock = stock();
    let lists: Vec<_> = (0..30).map(|_| stock.list(random)).collect();
    let expected: Vec<u8> = lists.iter().flat_map(|(_, all)| all.clone()).collect();
    let mut sender = Sender::new().expect("sender");
    let len = expected.len();
    let got = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut got = vec![0; len];
            let mut at = 0;
            while at < len {
                let to = len.min(at + 7001);
                far.read_exact(&mut got[at..to]).expect("read");
                at = to;
            }
            got
        });
        for (pieces, _) in &lists {
            send_all(&mut sender, &near, &mut socket, pieces);
        }
        reader.join().expect("the reader")
    });
    same(&got, &expected);
    assert!(socket.finish(LONG).expect("notifications"));
}

#[test]
fn lists_of_everything_arrive_byte_for_byte() {
    let _dog = dog();
    let _alone = alone();
    let mut random = Random::printed("lists of everything");
    for blocking in [false, true] {
        for elsewhere in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
            sockopt::set_socket_recv_buffer_size(&listener, 30_000).expect("a small one");
            let address = listener.local_addr().expect("address");
            let near = TcpStream::connect(address).expect("connect");
            let (far, _) = listener.accept().expect("accept");
            near.set_nonblocking(!blocking).expect("nonblocking");
            let socket = if elsewhere {
                Socket::elsewhere(&near).expect("socket")
            } else {
                Socket::new(&near).expect("socket")
            };
            lists(&near, &far, socket, &mut random);
        }
        let (near, far) = UnixStream::pair().expect("pair");
        near.set_nonblocking(!blocking).expect("nonblocking");
        let socket = Socket::new(&near).expect("socket");
        lists(&near, &far, socket, &mut random);
    }
}

#[test]
fn on_this_machine_buffers_are_copied_and_let_go_at_once() {
    let _dog = dog();
    let domain = Domain::builder().name("camera").embedded().expect("domain");
    let pool = pool(&domain, 4 << 20);
    let mut buffer = pool.alloc(50_000).expect("room");
    buffer.write(0, &pattern(1, 50_000)).expect("writable");
    let buffer = buffer.freeze();
    let connection = kit::pair::unix();
    let mut sender = Sender::new().expect("sender");
    let mut socket = Socket::new(connection.near()).expect("socket");
    let pieces = [Piece::Bytes(b"head"), Piece::Buffer(&buffer)];
    let sent = sender
        .send(connection.near(), &mut socket, &pieces)
        .expect("send");
    assert_eq!(sent, 50_004);
    let counts = sender.counts();
    assert_eq!((counts.copied_bytes, counts.referred_bytes), (50_004, 0));
    assert_eq!(socket.held_bytes(), 0);
    drop(buffer);
    // The only buffer of the pool, written over before anybody reads.
    let mut again = pool.alloc(4_000_000).expect("all of it");
    again.write(0, &[0xff; 50_000]).expect("writable");
    let mut all = b"head".to_vec();
    all.extend(pattern(1, 50_000));
    kit::exactly(&connection, &all);
    let report = Report::of_process(std::process::id()).expect("a page");
    let shared = report.copied.iter().find(|one| one.cause == Cause::Shared);
    assert!(shared.is_some_and(|one| one.bytes >= 50_000));
}

#[test]
fn a_file_that_ends_too_early_is_an_error_with_figures() {
    let _dog = dog();
    let mut file = File::from(tranship_sys::memfd::create("test").expect("memfd"));
    file.write_all(&pattern(1, 1000)).expect("write");
    let connection = kit::pair::tcp();
    let mut sender = Sender::new().expect("sender");
    let mut socket = Socket::new(connection.near()).expect("socket");
    let pieces = [Piece::Bytes(b"head"), Piece::File(&file, 900..2000)];
    let near = connection.near();
    let sent = sender.send(near, &mut socket, &pieces).expect("a part");
    assert_eq!(sent, 104);
    let rest = Piece::after(&pieces, sent);
    let error = sender
        .send(near, &mut socket, &rest)
        .expect_err("there is no more");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("1000"), "{error}");
    let mut all = b"head".to_vec();
    all.extend_from_slice(&pattern(1, 1000)[900..]);
    kit::exactly(&connection, &all);
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    udp.connect(udp.local_addr().expect("address"))
        .expect("connect");
    let mut socket = Socket::new(&udp).expect("socket");
    let error = sender
        .send_datagrams(&udp, &mut socket, None, &[[Piece::File(&file, 0..10)]])
        .expect_err("no datagram");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
