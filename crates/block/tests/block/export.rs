//! NBD: the requests that a client may make, and those that it may not.

use crate::kit;
use crate::nbd::{self, Client, FLUSH, READ, TRIM, WRITE, Wide, ZERO};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use tranship_block::Access;
use tranship_block::nbd::{Address, Export};
use tranship_core::Trust;
use tranship_testkit::Random;

const SIZE: u64 = 1 << 20;

struct Served {
    path: PathBuf,
    export: Export,
    _file: kit::File,
}

fn serve() -> Served {
    let file = kit::file();
    let path = file.path.with_extension("sock");
    // Through the page cache, where most requests are done at once and their answers are ready together.
    let disk = kit::disk(&file, SIZE, Access::Buffered, false);
    let export = Export::start(&Address::Unix(path.clone()), "films", disk).expect("an export");
    Served {
        path,
        export,
        _file: file,
    }
}

#[test]
fn what_is_written_is_read_at_any_place_and_length() {
    let _dog = kit::watchdog();
    let served = serve();
    let mut client = Client::connect(&served.path).expect("connecting");
    assert_eq!(client.size, SIZE);
    for (offset, len) in [(0, 1), (511, 2), (4095, 4098), (SIZE - 700_000, 700_000)] {
        let bytes = vec![0x5b; usize::try_from(len).expect("small")];
        let long = u32::try_from(len).expect("small");
        assert_eq!(client.ask(WRITE, offset, long, &bytes).expect("writing"), 0);
        let mut read = vec![0; bytes.len()];
        assert_eq!(client.read(offset, &mut read).expect("reading"), 0);
        assert!(read == bytes, "{len} bytes at {offset}");
    }
    assert_eq!(client.ask(ZERO, 4095, 2, &[]).expect("zeroes"), 0);
    assert_eq!(client.ask(TRIM, 0, 4096, &[]).expect("trimming"), 0);
    assert_eq!(client.ask(FLUSH, 0, 0, &[]).expect("flushing"), 0);
    let mut read = [1; 2];
    assert_eq!(client.read(4096, &mut read).expect("reading"), 0);
    assert_eq!(read, [0, 0x5b]);
}

#[test]
fn many_requests_at_once_over_several_connections() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Full, SIZE);
    let dir = tranship_testkit::folder().expect("a folder");
    let at = Address::Unix(dir.path().join("s"));
    let remote = kit::connect(&service.at);
    let export = Export::start(&at, "", remote).expect("an export");
    let Address::Unix(path) = export.address() else {
        unreachable!("a Unix socket")
    };
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            scope.spawn(move || {
                let mut client = Client::connect(path).expect("connecting");
                let base = u64::from(number) * SIZE / 4;
                // More requests than there are buffers.
                for n in 0..200 {
                    let bytes = [number + 1; 512];
                    client
                        .send(WRITE, 1, base + n * 512, 512, &bytes)
                        .expect("writing");
                }
                for _ in 0..200 {
                    assert_eq!(client.reply().expect("a reply").0, 0);
                }
                let mut all = vec![0; 200 * 512];
                assert_eq!(client.read(base, &mut all).expect("reading"), 0);
                assert!(all.iter().all(|byte| *byte == number + 1));
            });
        }
    });
}

/// Answers to requests that came together may go together; none waits for bytes that the client has not sent.
#[test]
fn no_answer_waits_for_the_rest_of_a_request() {
    let _dog = kit::watchdog();
    let served = serve();
    let mut client = Client::connect(&served.path).expect("connecting");
    for (command, len, cut) in [(READ, 4096, 5), (WRITE, 8192, 28 + 100)] {
        let mut last = nbd::request(command, 0, 77, 8192, len);
        if command == WRITE {
            last.resize(28 + 8192, 0x77);
        }
        let mut all = Vec::new();
        for number in 0..8u64 {
            all.extend(nbd::request(WRITE, 0, number, number * 4096, 4096));
            all.resize(all.len() + 4096, 0x5b);
        }
        all.extend(&last[..cut]);
        client.stream.write_all(&all).expect("sent");
        let mut cookies: Vec<u64> = (0..8)
            .map(|_| client.reply().expect("a reply"))
            .map(|(error, cookie)| (error == 0).then_some(cookie).expect("no error"))
            .collect();
        cookies.sort_unstable();
        assert!(cookies.into_iter().eq(0..8));
        client.stream.write_all(&last[cut..]).expect("sent");
        assert_eq!(client.reply().expect("a reply"), (0, 77));
        if command == READ {
            let mut bytes = [0; 4096];
            client.stream.read_exact(&mut bytes).expect("the bytes");
            assert!(bytes == [0x5b; 4096]);
        }
    }
}

#[test]
fn wrong_requests_are_errors_and_the_connection_goes_on() {
    let _dog = kit::watchdog();
    let served = serve();
    let mut client = Client::connect(&served.path).expect("connecting");
    let (invalid, page) = (22, [7; 4096]);
    assert_eq!(client.ask(READ, SIZE, 1, &[]).expect("read"), invalid);
    assert_eq!(
        client.ask(READ, u64::MAX, u32::MAX, &[]).expect("read"),
        invalid
    );
    assert_eq!(
        client.ask(READ, 0, (32 << 20) + 1, &[]).expect("read"),
        invalid
    );
    assert_eq!(
        client.ask(WRITE, SIZE - 4095, 4096, &page).expect("write"),
        invalid
    );
    assert_eq!(client.ask(FLUSH, 1, 0, &[]).expect("flush"), invalid);
    assert_eq!(client.ask(77, 0, 0, &[]).expect("unknown"), invalid);
    client
        .send(READ, 1 << 9, 0, 512, &[])
        .expect("a strange flag");
    assert_eq!(client.reply().expect("a reply").0, invalid);
    let mut read = [9; 4096];
    assert_eq!(client.read(SIZE - 4096, &mut read).expect("reading"), 0);
    assert_eq!(read, [0; 4096], "nothing of the write that was refused");
    // The bytes after an invalid request have no known meaning.
    client.stream.write_all(&[0; 28]).expect("sent");
    assert_eq!(client.stream.read(&mut [0; 1]).expect("the end"), 0);
}

#[test]
fn garbage_costs_a_client_its_connection_and_nobody_else_anything() {
    let _dog = kit::watchdog();
    let served = serve();
    let mut random = Random::printed("nbd garbage");
    // A handshake and requests as they should be, to be damaged.
    let mut right = 3u32.to_be_bytes().to_vec();
    for (option, data) in [
        (8u32, &b""[..]),
        (3, b""),
        (6, b"\0\0\0\0\0\x01\0\x03"),
        (7, b"\0\0\0\0\0\0"),
    ] {
        right.extend(b"IHAVEOPT");
        right.extend(option.to_be_bytes());
        right.extend(u32::try_from(data.len()).expect("short").to_be_bytes());
        right.extend(data);
    }
    right.extend(nbd::request(WRITE, 0, 1, 8192, 4096));
    right.extend([0; 4096]);
    right.extend(nbd::request(READ, 0, 2, 8192, 4096));
    right.extend(nbd::request(FLUSH, 0, 3, 0, 0));
    let mut whole = Client::connect(&served.path).expect("connecting");
    let marked = [0xee; 4096];
    assert_eq!(
        whole
            .ask(WRITE, SIZE - 4096, 4096, &marked)
            .expect("writing"),
        0
    );
    for _ in 0..300 {
        let mut bytes = right.clone();
        let below =
            |random: &mut Random, n: usize| usize::try_from(random.below(n as u64)).expect("small");
        // Most damage in the first bytes, where lengths and magic numbers are; never in the bytes that decide where a
        // write goes.
        for _ in 0..1 + below(&mut random, 4) {
            let at = below(&mut random, 140);
            bytes[at] = random.next().to_le_bytes()[0];
        }
        if random.one_in(2) {
            bytes.truncate(below(&mut random, bytes.len()));
        }
        let mut stream = UnixStream::connect(&served.path).expect("connecting");
        // The server may hang up in the middle.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut read = [0; 4096];
    assert_eq!(whole.read(SIZE - 4096, &mut read).expect("reading"), 0);
    assert_eq!(read, marked);
    assert!(matches!(served.export.address(), Address::Unix(_)));
}

/// More clients than there is room for connect and say nothing.
#[test]
fn who_says_nothing_keeps_nobody_out() {
    let _dog = kit::watchdog();
    let served = serve();
    let mut first = Client::connect(&served.path).expect("connecting");
    let silent: Vec<UnixStream> = (0..260)
        .map(|_| UnixStream::connect(&served.path).expect("connecting"))
        .collect();
    let mut last = Client::connect(&served.path).expect("connecting");
    for client in [&mut first, &mut last] {
        assert_eq!(client.ask(FLUSH, 0, 0, &[]).expect("a reply"), 0);
    }
    // The oldest clients are gone.
    let mut oldest = &silent[0];
    assert!(oldest.read_to_end(&mut Vec::new()).is_ok());
}

fn export_at(path: &std::path::Path) -> std::io::Result<Export> {
    let file = kit::file();
    let disk = kit::disk(&file, SIZE, Access::Buffered, false);
    Export::start(&Address::Unix(path.to_owned()), "", disk)
}

/// Only a socket is removed, and no socket at which a program listens.
#[test]
fn only_a_socket_that_nobody_listens_on_makes_way() {
    let _dog = kit::watchdog();
    let dir = tranship_testkit::folder().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("disk.img"), b"precious").expect("a file");
    drop(UnixListener::bind(at("dead")).expect("a socket"));
    for (link, to) in [("to-file", "disk.img"), ("to-dead", "dead")] {
        std::os::unix::fs::symlink(at(to), at(link)).expect("a link");
    }
    for name in ["disk.img", "to-file", "to-dead", "."] {
        let error = export_at(&at(name)).expect_err("it is no socket");
        assert!(error.to_string().contains("no socket"), "{name}: {error}");
        assert!(at(name).symlink_metadata().is_ok(), "{name} is gone");
    }
    assert_eq!(std::fs::read(at("disk.img")).expect("there"), b"precious");
    // A server that takes connections, and one whose queue is full.
    let listener = UnixListener::bind(at("alive")).expect("a socket");
    let mut queue = Vec::new();
    for round in 0..2 {
        let error = export_at(&at("alive")).expect_err("it is taken");
        let says = error.to_string();
        assert!(says.contains("a process listens"), "{round}: {says}");
        queue = fill(&at("alive"));
    }
    drop((queue, listener));
    for name in ["alive", "dead"] {
        let export = export_at(&at(name)).expect("nobody is there");
        Client::connect(&at(name)).expect("connecting");
        drop(export);
        assert!(!at(name).exists());
    }
}

/// Returns connections that fill the queue of the listener.
fn fill(path: &std::path::Path) -> Vec<OwnedFd> {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let address = SocketAddrUnix::new(path).expect("short");
    let mut queue = Vec::new();
    loop {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = socket_with(family, kind, SocketFlags::NONBLOCK, None).expect("a socket");
        match connect(&socket, &address) {
            Ok(()) => queue.push(socket),
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::AGAIN);
                return queue;
            }
        }
    }
}

#[test]
fn what_has_taken_the_place_of_an_exports_socket_stays() {
    let _dog = kit::watchdog();
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("s");
    let export = export_at(&path).expect("an export");
    std::fs::remove_file(&path).expect("its socket");
    std::fs::write(&path, b"precious").expect("a file");
    drop(export);
    assert_eq!(std::fs::read(&path).expect("there"), b"precious");
}

#[test]
fn an_export_that_ends_hangs_up_and_its_place_is_free() {
    let _dog = kit::watchdog();
    let served = serve();
    let mut client = Client::connect(&served.path).expect("connecting");
    drop(served.export);
    assert_eq!(client.stream.read(&mut [0; 1]).expect("the end"), 0);
    assert!(!served.path.exists());
}

const STATUS: u16 = 7;

/// The pieces of an answer: length and flags.
fn pieces(chunk: &nbd::Chunk) -> Vec<(u64, u64)> {
    let (is_last, kind, of, bytes) = chunk;
    assert!(is_last);
    assert_eq!(bytes[..4], [0, 0, 0, 1], "the context");
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte))
    };
    let (each, start) = match of {
        None => (4, 4),
        Some(_) => (8, 8),
    };
    assert_eq!(*kind, if of.is_some() { 6 } else { 5 });
    let all: Vec<_> = bytes[start..].chunks(2 * each).collect();
    if of.is_some() {
        assert_eq!(number(&bytes[4..8]), all.len() as u64);
    }
    all.iter()
        .map(|piece| (number(&piece[..each]), number(&piece[each..])))
        .collect()
}

#[test]
fn a_client_learns_which_bytes_are_holes() {
    let dog = kit::watchdog();
    for extended in [false, true] {
        dog.step(extended);
        let served = serve();
        let mut plain = Client::connect(&served.path).expect("connecting");
        let mut wide = Wide::connect(&served.path, extended).expect("connecting");
        let data = vec![7; 65536];
        assert_eq!(
            plain.ask(WRITE, 256 << 10, 65536, &data).expect("written"),
            0
        );
        let all = wide.ask(STATUS, 0, (0, SIZE), &[]).expect("an answer");
        let all = pieces(&all[0]);
        assert_eq!(all.iter().map(|piece| piece.0).sum::<u64>(), SIZE);
        let is_data = |at: u64| {
            let mut end = 0;
            let found = all.iter().find(|piece| {
                end += piece.0;
                at < end
            });
            found.is_some_and(|piece| piece.1 == 0)
        };
        assert!(
            (0..16).all(|block| is_data((256 << 10) + 4096 * block)),
            "{all:?}"
        );
        // One piece alone; a part of one.
        let one = wide
            .ask(STATUS, 8, (256 << 10, SIZE / 2), &[])
            .expect("an answer");
        let one = pieces(&one[0]);
        assert!(
            one.len() == 1 && one[0].0 >= 65536 && one[0].1 == 0,
            "{one:?}"
        );
        let part = wide
            .ask(STATUS, 0, (257 << 10, 10), &[])
            .expect("an answer");
        assert_eq!(pieces(&part[0]), [(10, 0)]);
        // Beyond the end, and of no byte.
        for range in [(SIZE - 1, 2), (0, 0), (u64::MAX, 2)] {
            let answer = wide.ask(STATUS, 0, range, &[]).expect("an answer");
            assert_eq!(
                (answer[0].1, &answer[0].3[..4]),
                (0x8001, &[0, 0, 0, 22][..])
            );
        }
        if all.len() == 1 {
            tranship_testkit::skipped("holes: this file system cannot tell of them");
        } else {
            assert_eq!(all, [(256 << 10, 3), (65536, 0), (SIZE - (320 << 10), 3)]);
        }
        // A client that has not asked for the context gets no answer about it.
        assert_eq!(plain.ask(STATUS, 0, 4096, &[]).expect("an answer"), 22);
    }
}

#[test]
fn extended_headers_have_every_answer_in_chunks() {
    const PAYLOAD: u16 = 32;
    let _dog = kit::watchdog();
    let served = serve();
    let mut wide = Wide::connect(&served.path, true).expect("connecting");
    let done = |at: u64| vec![(true, 0, Some(at), Vec::new())];
    let data: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let range = (5000, 10_000);
    let answer = wide.ask(WRITE, PAYLOAD | 1, range, &data).expect("written");
    assert_eq!(answer, done(5000));
    let mut read = vec![0; 10_000];
    for (_, kind, of, bytes) in wide.ask(READ, 0, range, &[]).expect("read") {
        assert_eq!((kind, of), (1, Some(5000)));
        let at = u64::from_be_bytes(bytes[..8].try_into().expect("eight")) - 5000;
        let at = usize::try_from(at).expect("inside");
        read[at..at + bytes.len() - 8].copy_from_slice(&bytes[8..]);
    }
    assert!(read == data);
    assert_eq!(wide.ask(FLUSH, 0, (0, 0), &[]).expect("flushed"), done(0));
    assert_eq!(wide.ask(ZERO, 0, (0, SIZE), &[]).expect("zeroes"), done(0));
    assert_eq!(
        wide.ask(TRIM, 0, (4096, 4096), &[]).expect("trimmed"),
        done(4096)
    );
    // Lengths of more than 32 bits, and bytes of a request that has none, are errors that cost only the request.
    for (command, flags, range, bytes) in [
        (ZERO, 0, (0, 1 << 40), &[][..]),
        (READ, 0, (0, 1 << 40), &[]),
        (STATUS, 0, (1, u64::MAX), &[]),
        (READ, PAYLOAD, (0, 3), b"abc"),
        (STATUS, PAYLOAD, (0, 3), b"abc"),
    ] {
        let answer = wide.ask(command, flags, range, bytes).expect("an answer");
        assert_eq!(
            (answer[0].0, answer[0].1),
            (true, 0x8001),
            "{command} {range:?}"
        );
        assert_eq!(answer[0].2, Some(range.0));
    }
    let mut read: Vec<u8> = Vec::new();
    for chunk in wide.ask(READ, 0, (4000, 2), &[]).expect("read") {
        read.extend(&chunk.3[8..]);
    }
    assert_eq!(read, [0, 0]);
    // A payload that no request may have ends the connection.
    assert!(wide.ask(READ, PAYLOAD, (0, 1 << 30), &[]).is_err());
}
