//! Clients that do not read their answers: the memory of their replies is limited, for all of them together. In a
//! process of its own, because its memory is checked from outside.

mod client;

use client::{Client, resident};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;
use tranship_cache::{Options, Server};
use tranship_testkit::Watchdog;

const MIB: u64 = 1 << 20;
/// Bytes of a large value.
const LARGE: usize = 1 << 20;
/// Only one test at a time has a server.
static ALONE: Mutex<()> = Mutex::new(());

/// Nobody is closed there for being slow.
fn server(threads: usize) -> Server {
    let options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads,
        memory: 64 * MIB,
        patience: Duration::from_secs(3600),
        deadline: Duration::ZERO,
        ..Options::default()
    };
    Server::start(options).expect("a server")
}

/// Returns the bytes of memory that only this process has.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.expect("a row").trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("a number") << 10
}

#[test]
fn what_nobody_reads_leaves_room_for_what_is_stored() {
    let _dog = Watchdog::new();
    for threads in [1, 2] {
        let _alone = ALONE.lock();
        let server = server(threads);
        let mut client = Client::new(&server);
        let mut deaf = Vec::new();
        for number in 0..200 {
            let key = format!("k{number}");
            client.set(&key, &vec![b'x'; LARGE]);
            let mut other = Client::new(&server);
            // More replies than sockets take.
            other.say(format!("get{}\r\n", format!(" {key}").repeat(12)));
            deaf.push(other);
            // The client was checked when the next client of the same worker is answered.
            for number in 0..8 {
                client.set(format!("small{number}"), &[b'x'; 5]);
            }
        }
        // The one limit of stored values, and the other of waiting replies; the latter counts closed connections as
        // open for a moment.
        let most = 64 * MIB + 64 * MIB / 4 + 64 * MIB;
        assert!(resident(&server) <= most, "{}", resident(&server));
        assert!(server.stats().slow_clients_closed > 100);
        for number in 0..8 {
            client.say(format!("get small{number}\r\n"));
            assert_eq!(client.line(), format!("VALUE small{number} 0 5"));
            assert_eq!(
                (client.line(), client.line()),
                ("xxxxx".into(), "END".into())
            );
        }
        assert_eq!(server.store().memory().0, 64 * MIB);
        client.say(b"stats\r\n");
        while client.line() != "END" {}
        drop(deaf);
        server.stop();
    }
}

/// Small values are copied to the text of replies.
#[test]
fn text_that_nobody_reads_is_limited() {
    let _dog = Watchdog::new();
    let _alone = ALONE.lock();
    let server = server(2);
    let mut client = Client::new(&server);
    client.set("k", &[b'x'; 250]);
    let before = anonymous();
    let line = format!("get{}\r\n", " k".repeat(1000));
    let mut deaf = Vec::new();
    for _ in 0..16 {
        let mut other = Client::new(&server);
        let stream = other.0.get_mut();
        stream.set_nonblocking(true).expect("an option");
        // Until the server takes nothing more from it.
        while stream.write(line.as_bytes()).is_ok() {}
        deaf.push(other);
        client.set("k", &[b'x'; 250]);
    }
    let more = anonymous().saturating_sub(before);
    assert!(
        more <= 48 * MIB,
        "{more} bytes for replies that nobody reads"
    );
}

/// A client that reads gets everything, however much the deaf clients ask for.
#[test]
fn who_reads_is_not_closed() {
    let _dog = Watchdog::new();
    let _alone = ALONE.lock();
    let server = server(4);
    let mut client = Client::new(&server);
    client.set("k", &vec![b'x'; LARGE]);
    let mut deaf = Vec::new();
    for number in 0..64 {
        let mut other = Client::new(&server);
        other.say(format!("get{}\r\n", " k".repeat(12)));
        deaf.push(other);
        let key = format!("k{number}");
        client.set(&key, &vec![b'x'; LARGE]);
        client.set("k", &vec![b'x'; LARGE]);
        client.say(format!("get {key} {key} {key} {key}\r\n"));
        let mut all = vec![0; 4 * (LARGE + 2 + format!("VALUE {key} 0 1048576\r\n").len())];
        client.0.read_exact(&mut all).expect("all of it");
        assert_eq!(client.line(), "END");
    }
}
