//! A server goes on in another one: with all values, listening sockets and connections, whatever was under way; and
//! serves on if the other one is none.

use crate::client::Client;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_cache::{FORMAT, Options, Server};
use tranship_sys::socket;
use tranship_testkit::Watchdog;

fn options(at: &Path, memory: u64) -> Options {
    Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        udp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        threads: 2,
        memory,
        take_over: Some(at.to_owned()),
        ..Options::default()
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("control");
    (folder, at)
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at * 31 + seed * 17 + at / 251) % 251).to_le_bytes()[0])
        .collect()
}

fn stat(client: &mut Client, name: &str) -> u64 {
    client.stat(name).parse().expect("a number")
}

const LENGTHS: [usize; 6] = [0, 10, 700, 4096, 30_000, 200_000];

fn length(number: usize) -> usize {
    LENGTHS[number % LENGTHS.len()] + number % 3
}

/// A file that a mistyped path names is not removed.
#[test]
fn a_file_that_is_no_socket_stays() {
    let (_folder, at) = folder();
    std::fs::write(&at, b"somebody's").expect("a file");
    let none = Server::start(options(&at, 64 << 20));
    assert!(none.is_err(), "it is no socket");
    assert_eq!(std::fs::read(&at).expect("still there"), b"somebody's");
}

#[test]
fn everything_is_there_afterwards_and_connections_go_on() {
    let _dog = Watchdog::new();
    let (_folder, at) = folder();
    let first = Server::start(options(&at, 256 << 20)).expect("the first");
    assert_eq!(first.taken(), None);
    let mut client = Client::new(&first);
    for number in 0..600 {
        client.set(format!("k{number}"), &bytes(number, length(number)));
    }
    client.say("set short 5 1000 1\r\nx\r\nmd k5\r\nincr k0 1\r\ngets k1\r\n");
    assert_eq!(client.line(), "STORED");
    assert_eq!(client.line(), "HD");
    client.line();
    let cas = client.line();
    let cas = cas.rsplit(' ').next().expect("a number").to_owned();
    let mut value = vec![0; length(1) + 2 + 5];
    client.0.read_exact(&mut value).expect("read");
    let before = (stat(&mut client, "curr_items"), stat(&mut client, "bytes"));
    // A value of which half is there, a command of which half is there, and one that is refused.
    let mut half = Client::new(&first);
    half.say("set half 1 0 10\r\n12345");
    let mut line = Client::new(&first);
    line.say("version\r\nget k");
    assert!(line.line().starts_with("VERSION"));
    let mut refused = Client::new(&first);
    refused.say("set large 0 0 3000000\r\n123");
    assert!(refused.line().contains("too large"));

    let second = Server::start(options(&at, 256 << 20)).expect("the second");
    let taken = second.taken().expect("something");
    assert_eq!(
        (taken.from, taken.store.refused),
        (Some(std::process::id()), 0)
    );
    assert_eq!((taken.store.values, taken.connections), (before.0, 4));
    assert_eq!(first.address(), second.address());
    // The second says that it has all, and serves; then the first is told.
    while first.gone_to().is_none() {
        std::thread::yield_now();
    }
    drop(first);

    assert_eq!(
        (stat(&mut client, "curr_items"), stat(&mut client, "bytes")),
        before
    );
    half.say("67890\r\nget half\r\n");
    assert_eq!(half.line(), "STORED");
    assert_eq!(half.value().as_deref(), Some(&b"1234567890"[..]));
    line.say("7\r\n");
    assert_eq!(line.value(), Some(bytes(7, length(7))));
    refused.say(vec![b'x'; 3_000_000 - 3]);
    refused.say("\r\nget k7\r\n");
    assert_eq!(refused.value(), Some(bytes(7, length(7))));
    for mut some in [client, Client::new(&second)] {
        assert_eq!(some.get("k5"), None);
        for number in (1..600).filter(|number| *number != 5) {
            let got = some.get(format!("k{number}"));
            assert_eq!(got, Some(bytes(number, length(number))), "k{number}");
        }
        some.say("mg short f t\r\nmg k1 c\r\n");
        let line = some.line();
        let left: u32 = line
            .strip_prefix("HD f5 t")
            .expect("both")
            .parse()
            .expect("a number");
        assert!((900..=1000).contains(&left), "{line}");
        assert_eq!(some.line(), format!("HD c{cas}"));
    }
    // The store can be written, emptied and handed over again.
    let mut client = Client::new(&second);
    client.say("cas k1 0 0 1 1\r\ny\r\n");
    assert_eq!(client.line(), "EXISTS");
    client.say("flush_all\r\n");
    assert_eq!(client.line(), "OK");
    for number in 0..600 {
        client.set(format!("n{number}"), &bytes(number + 1, length(number)));
    }
    let third = Server::start(options(&at, 256 << 20)).expect("the third");
    assert_eq!(third.taken().expect("something").store.values, 600);
    for number in 0..600 {
        let got = client.get(format!("n{number}"));
        assert_eq!(got, Some(bytes(number + 1, length(number))), "n{number}");
    }
}

#[test]
fn clients_notice_nothing_of_several_handovers() {
    let _dog = Watchdog::new();
    let (_folder, at) = folder();
    let mut server = Server::start(options(&at, 128 << 20)).expect("the first");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3usize)
            .map(|which| {
                let mut client = Client::new(&server);
                let over = &over;
                scope.spawn(move || {
                    let mut rounds = 0;
                    while !over.load(Ordering::Relaxed) || rounds < 50 {
                        let (key, seed) = (rounds % 40, rounds * 3 + which);
                        let value = bytes(seed, length(seed));
                        client.set(format!("c{which}.{key}"), &value);
                        assert_eq!(client.get(format!("c{which}.{key}")), Some(value));
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        for _ in 0..4 {
            let next = Server::start(options(&at, 128 << 20)).expect("the next");
            assert!(next.taken().is_some());
            server = next;
            // Some traffic between two handovers.
            let mut own = Client::new(&server);
            for number in 0..200 {
                own.set(format!("own{number}"), &bytes(number, 3000));
            }
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("a client that noticed nothing");
        }
    });
    let mut own = Client::new(&server);
    for number in 0..200 {
        assert_eq!(own.get(format!("own{number}")), Some(bytes(number, 3000)));
    }
}

#[test]
fn what_the_former_server_sent_does_not_change_when_the_next_one_uses_its_memory() {
    let _dog = Watchdog::new();
    let (_folder, at) = folder();
    let first = Server::start(options(&at, 64 << 20)).expect("the first");
    let mut client = Client::new(&first);
    for number in 0..64 {
        client.set(format!("k{number}"), &bytes(number, 30_000));
    }
    // As much as the sockets take; no client reads yet.
    let mut readers: Vec<Client> = (0..4).map(|_| Client::new(&first)).collect();
    for reader in &mut readers {
        for number in 0..10 {
            reader.say(format!("get k{number}\r\n"));
        }
    }
    while stat(&mut client, "cmd_get") < 40 {}
    // Values that only replies had are gone for the next server.
    client.say("flush_all\r\n");
    assert_eq!(client.line(), "OK");
    let _second = Server::start(options(&at, 64 << 20)).expect("the second");
    for round in 0..4 {
        for number in 0..300 {
            client.set(format!("n{number}"), &bytes(1000 + round, 30_000));
        }
    }
    for reader in &mut readers {
        for number in 0..10 {
            assert_eq!(reader.value(), Some(bytes(number, 30_000)), "k{number}");
        }
    }
}

/// A message of a successor: see `handover.rs`.
fn take(format: u32) -> Vec<u8> {
    [&[1][..], &format.to_le_bytes()].concat()
}

#[test]
fn a_server_whose_successor_is_none_serves_on() {
    let _dog = Watchdog::new();
    let (_folder, at) = folder();
    let server = Server::start(options(&at, 64 << 20)).expect("the first");
    let mut client = Client::new(&server);
    for number in 0..100 {
        client.set(format!("k{number}"), &bytes(number, length(number)));
    }
    let mut room = [0; 1024];
    // A successor that goes away with everything in its hands.
    let gone = socket::connect(&at).expect("connect");
    socket::sendmsg(&gone, &take(FORMAT), &[], false).expect("ask");
    let got = socket::recvmsg(&gone, &mut room, false).expect("the image");
    assert_eq!((got.bytes, got.fds.len()), (1, 5));
    drop((gone, got));
    // A successor of another version.
    let other = socket::connect(&at).expect("connect");
    socket::sendmsg(&other, &take(99), &[], false).expect("ask");
    let got = socket::recvmsg(&other, &mut room, false).expect("an answer");
    let text = String::from_utf8_lossy(&room[1..got.bytes]).into_owned();
    let own = format!("format {FORMAT}");
    assert!(text.contains(&own) && text.contains("99"), "{text}");
    // And a successor that sends nonsense.
    let odd = socket::connect(&at).expect("connect");
    socket::sendmsg(&odd, b"nonsense", &[], false).expect("ask");
    assert_eq!(
        socket::recvmsg(&odd, &mut room, false)
            .expect("the end")
            .bytes,
        0
    );
    for number in 0..100 {
        let got = client.get(format!("k{number}"));
        assert_eq!(got, Some(bytes(number, length(number))), "k{number}");
    }
    client.set("more", &bytes(1, 50_000));
    let next = Server::start(options(&at, 64 << 20)).expect("the next");
    assert_eq!(next.taken().expect("something").store.values, 101);
    assert_eq!(client.get("more"), Some(bytes(1, 50_000)));
}

#[test]
fn a_successor_believes_nothing() {
    let _dog = Watchdog::new();
    let (_folder, at) = folder();
    let refused = |answer: &[u8], fds: usize| {
        let listener = socket::listen(&at, 0o600).expect("listen");
        let file = tranship_sys::memfd::create("liar").expect("memfd");
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let to = socket::accept(&listener).expect("accept");
                let mut room = [0; 64];
                let _ = socket::recvmsg(&to, &mut room, false);
                let fds = vec![std::os::fd::AsFd::as_fd(&file); fds];
                let _ = socket::sendmsg(&to, answer, &fds, false);
            });
            Server::start(options(&at, 64 << 20)).expect_err("a liar")
        });
        std::fs::remove_file(&at).expect("remove");
        error.to_string()
    };
    assert!(refused(&[3], 0).contains("missing"));
    assert!(refused(&[3], 5).contains("no image"));
    assert!(refused(&[9, 9], 0).contains("no cache server"));
    assert!(refused(&[2, b'w', b'h', b'y'], 0).contains("why"));
    assert!(refused(&[], 0).contains("ended"));
    // A socket without a server, as after a kill: the cache begins empty, and can be taken over.
    drop(socket::listen(&at, 0o600).expect("listen"));
    let server = Server::start(options(&at, 64 << 20)).expect("empty");
    assert_eq!(server.taken(), None);
    let next = Server::start(options(&at, 64 << 20)).expect("the next");
    assert_eq!(next.taken().expect("nothing much").store.values, 0);
    next.stop();
    assert!(!at.exists(), "its socket goes with it");
}
