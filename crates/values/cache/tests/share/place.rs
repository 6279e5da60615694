//! Places of values, which stay the same.

use super::kit::{Did, Do, NAME, Stage, stage, sum, until};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use tranship_cache::{Mode, Options, Server, Share};
use tranship_core::Domain;
use tranship_testkit::{Watchdog, payload};

fn value(seed: u64, len: usize) -> Vec<u8> {
    payload::made(len, seed, 1)
}

/// A line of the socket's answer to a command.
fn line(stage: &Stage, command: &str) -> String {
    let stream = TcpStream::connect(stage.server.address()).expect("connect");
    let mut stream = BufReader::new(stream);
    stream
        .get_mut()
        .write_all(command.as_bytes())
        .expect("write");
    let mut line = String::new();
    stream.read_line(&mut line).expect("read");
    line.trim_end().to_owned()
}

#[test]
fn two_processes_read_the_same_page_and_cannot_write_it() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, |_| {}, |_| {});
    let bytes = value(1, 300_000);
    let cas = stage.set("key", 77, &bytes);
    let (one, two) = (stage.reader(), stage.reader());
    let got = one.open().hit("key");
    assert_eq!((got.flags, got.cas, got.ttl), (77, cas, None));
    assert_eq!((got.len, got.sum), (bytes.len(), sum(&bytes)));
    // The same answers as by the socket.
    assert_eq!(
        line(&stage, "gets key\r\n"),
        format!("VALUE key 77 300000 {cas}")
    );
    two.open().hit("key");
    let (first, second) = (one.place("key"), two.place("key"));
    assert_eq!(first, second);
    assert!(!first.can_write);
    assert_eq!(
        stage.stat("shm_copied_bytes"),
        300_000,
        "copied once, for both"
    );
    assert_eq!(stage.stat("shm_hits"), 2);
}

#[test]
fn what_there_is_and_is_not() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, |_| {}, |_| {});
    let long = "k".repeat(250);
    stage.set("empty", 0, b"");
    stage.set(&long, 5, b"long");
    let store = stage.server.store();
    let room = store.reserve(3).expect("room").freeze();
    store.put(b"mortal", room, 0, 1000, Mode::Set);
    let reader = stage.reader();
    reader.open();
    assert_eq!(reader.get("nothing"), Did::Missed);
    assert_eq!(reader.hit("empty").len, 0);
    let got = reader.hit(&long);
    assert_eq!((got.flags, got.len, got.sum), (5, 4, sum(b"long")));
    let ttl = reader.hit("mortal").ttl.expect("it expires");
    assert!((1..=1000).contains(&ttl), "{ttl}");
    for key in [Vec::new(), vec![b'x'; 251]] {
        let why = reader.ask(Do::Get(key, "x".into()));
        assert!(
            matches!(&why, Did::Failed(why) if why.contains("1 to 250 bytes")),
            "{why:?}"
        );
    }
    // More keys than go into the rings at once.
    let keys = vec![b"empty".to_vec(), long.into_bytes(), b"nothing".to_vec()];
    assert_eq!(reader.ask(Do::Many(keys, 1000)), Did::Many(2000, 1000, 0));
    assert_eq!(line(&stage, "touch mortal -1\r\n"), "TOUCHED");
    assert_eq!(reader.get("mortal"), Did::Missed);
}

#[test]
fn a_new_value_of_the_same_key_is_seen_and_touches_no_old_one() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, |_| {}, |_| {});
    let reader = stage.reader();
    reader.open();
    for version in 0..20 {
        let bytes = value(version, 5000);
        let cas = stage.set("key", 0, &bytes);
        let Did::Hit(got) = reader.ask(Do::Get(b"key".into(), version.to_string())) else {
            panic!("a miss");
        };
        assert_eq!((got.cas, got.sum), (cas, sum(&bytes)));
    }
    assert_eq!(line(&stage, "append key 0 0 4\r\nmore\r\n"), "STORED");
    let grown = [&value(19, 5000)[..], b"more"].concat();
    assert_eq!(reader.hit("key").sum, sum(&grown));
    assert_eq!(line(&stage, "delete key\r\n"), "DELETED");
    assert_eq!(reader.get("key"), Did::Missed);
    for version in 0..20 {
        assert_eq!(reader.sum(&version.to_string()), sum(&value(version, 5000)));
    }
}

/// Everything is evicted from the cache, and far more is shown than the pool has room for.
#[test]
fn held_values_stay_under_eviction() {
    let _dog = Watchdog::new();
    let small = |share: &mut tranship_cache::Share| {
        share.memory = 4 << 20;
        share.readers = 2;
    };
    let stage = stage(8 << 20, small, |_| {});
    let (holder, other) = (stage.reader(), stage.reader());
    holder.open();
    other.open();
    let bytes = |n: u64| value(n, 60_000);
    for n in 0..20 {
        stage.set(&format!("held {n}"), 0, &bytes(n));
        holder.hit(&format!("held {n}"));
    }
    for n in 100..600 {
        let key = format!("other {n}");
        stage.set(&key, 0, &bytes(n));
        assert_eq!(other.hit(&key).sum, sum(&bytes(n)));
        other.ask(Do::Drop(key));
    }
    assert_eq!(holder.get("held 3x"), Did::Missed);
    let miss = stage.server.store().peek(b"held 3");
    assert!(miss.is_none(), "8 MiB had room for 30 MB");
    for n in 0..20 {
        assert_eq!(holder.sum(&format!("held {n}")), sum(&bytes(n)), "{n}");
    }
}

/// Held values outlive their server; the next server is found under the same name.
#[test]
fn a_server_that_ends() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, |_| {}, |_| {});
    let reader = stage.reader();
    let bytes = value(1, 100_000);
    stage.set("key", 0, &bytes);
    reader.open().hit("key");
    let Stage { server, domain, .. } = stage;
    server.stop();
    let why = reader.refusal("key");
    assert!(why.starts_with("PeerGone"), "{why}");
    assert_eq!(reader.sum("key"), sum(&bytes));
    drop(domain);
}

/// A successor has the values and, when the former server has let go of it, the name.
#[test]
fn a_server_that_is_handed_over() {
    let _dog = Watchdog::new();
    let folder = tempfile::tempdir().expect("a folder");
    let control = folder.path().join("control");
    let first = stage(
        64 << 20,
        |_| {},
        |options| options.take_over = Some(control.clone()),
    );
    let bytes = value(1, 100_000);
    let cas = first.set("key", 3, &bytes);
    let reader = first.reader();
    reader.open();
    assert_eq!(
        reader.ask(Do::Get(b"key".into(), "old".into())),
        reader.get("key")
    );
    let domain = Domain::builder().socket(&first.manager).connect();
    let next = Server::start(Options {
        share: Some(Share::new(domain.expect("a domain"), NAME)),
        take_over: Some(control),
        ..Options::default()
    });
    let next = next.expect("a successor");
    assert_eq!(next.taken().map(|taken| taken.store.values), Some(1));
    let why = reader.refusal("key");
    assert!(why.starts_with("PeerGone"), "{why}");
    until(|| reader.ask(Do::Open) == Did::Done);
    let got = reader.hit("key");
    assert_eq!((got.flags, got.cas, got.sum), (3, cas, sum(&bytes)));
    assert_eq!(reader.sum("old"), sum(&bytes));
}
