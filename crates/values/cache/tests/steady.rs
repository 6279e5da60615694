//! Memory and calls of a server, seen from outside: in a process of their own, because the counts are of the whole
//! process.

mod client;

use client::Client;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use tranship_cache::{Options, Server};
use tranship_testkit::{Random, Watchdog, payload};
use tranship_zcopy::{Counts, Report, Way};

/// Only one test at a time has a server.
static ALONE: Mutex<()> = Mutex::new(());

fn server(change: impl FnOnce(&mut Options)) -> Server {
    let mut options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads: 1,
        ..Options::default()
    };
    change(&mut options);
    Server::start(options).expect("a server")
}

/// Returns the bytes of all arenas' windows of the process that the kernel has copied on a write: pages of a private
/// mapping of a file that are no longer the file's.
fn copied_on_write() -> u64 {
    let all = std::fs::read_to_string("/proc/self/smaps").expect("mappings");
    let (mut of_arena, mut mappings, mut sum) = (false, 0, 0);
    for line in all.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if !first.ends_with(':') {
            of_arena = line.contains("/memfd:tranship-zcopy ");
            mappings += u32::from(of_arena);
        } else if of_arena && first == "Anonymous:" {
            let number = line[first.len()..].trim().trim_end_matches(" kB");
            sum += number.parse::<u64>().expect("kB") << 10;
        }
    }
    assert!(mappings > 1, "no arena among the mappings");
    sum
}

/// Half SETs, half GETs, over more data than there is memory for. Values of all lengths are overwritten, evicted and
/// moved by the cleaner, and no write of the server's ever meets a page that was protected.
#[test]
fn steady_sets_cause_no_copy_on_write() {
    let _alone = ALONE.lock();
    let _dog = Watchdog::new();
    let mut random = Random::printed("steady sets");
    let small = |n: u64| usize::try_from(n).expect("small");
    let server = server(|options| {
        options.memory = 24 << 20;
        // Protects all that is sent.
        options.way = Some(Way::Splice);
    });
    let mut client = Client::new(&server);
    let frozen = || server.store().arena().stats().frozen_blocks;
    // Some values are only read, so that it pays to protect them.
    for key in 0..300 {
        let value = payload::made(20_000, key, 1);
        client.set(format!("k{key}"), &value);
    }
    let mut read = (0..300).cycle();
    while frozen() == 0 {
        let key = read.next().expect("a key");
        assert!(client.get(format!("k{key}")).is_some());
    }
    let (mut hits, mut sets) = (0, 0);
    for step in 0..6000 {
        let key = random.below(3000);
        if random.one_in(2) {
            let most = [300, 5000, 20_000, 100_000][small(random.below(4))];
            let value = payload::made(small(random.below(most)), key, 1);
            client.set(format!("k{key}"), &value);
            sets += 1;
        } else if let Some(value) = client.get(format!("k{key}")) {
            assert_eq!(value, payload::made(value.len(), key, 1));
            hits += 1;
        }
        if step % 16 == 0 {
            assert_eq!(copied_on_write(), 0, "bytes after {sets} SETs");
        }
    }
    assert!(hits > 100 && sets > 1000, "{hits} hits, {sets} SETs");
}

/// The senders' counts of this process.
fn counts() -> Counts {
    match Report::of_process(std::process::id()) {
        Ok(report) => report.counts,
        Err(_) => Counts::default(),
    }
}

/// A multi-get of as many values as a call takes datagrams asks the kernel once.
#[test]
fn a_multi_get_by_datagrams_is_answered_in_one_call() {
    const VALUES: usize = 32;
    let _alone = ALONE.lock();
    let _dog = Watchdog::new();
    let server = server(|options| {
        options.udp = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    });
    let mut client = Client::new(&server);
    let value = |n: usize| payload::made(1300, n as u64, 1);
    for n in 0..VALUES {
        client.set(format!("k{n}"), &value(n));
    }
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let address = server.udp().expect("an address");
    socket.connect(address).expect("connect");
    let keys: Vec<String> = (0..VALUES).map(|n| format!("k{n}")).collect();
    let ask = [
        b"\0\x07\0\0\0\x01\0\0get ",
        keys.join(" ").as_bytes(),
        b"\r\n",
    ]
    .concat();
    let mut expected = Vec::new();
    for (n, key) in keys.iter().enumerate() {
        expected.extend(format!("VALUE {key} 0 1300\r\n").into_bytes());
        expected.extend(value(n));
        expected.extend_from_slice(b"\r\n");
    }
    expected.extend_from_slice(b"END\r\n");
    let before = counts();
    socket.send(&ask).expect("send");
    let (mut reply, mut room, mut total) = (Vec::new(), [0; 2000], 1);
    let mut came = 0;
    while came < total {
        let len = socket.recv(&mut room).expect("a datagram");
        let number = |at: usize| usize::from(u16::from_be_bytes([room[at], room[at + 1]]));
        // The values come in their order, on this machine.
        assert_eq!((number(0), number(2)), (7, came));
        total = number(4);
        reply.extend_from_slice(&room[8..len]);
        came += 1;
    }
    assert_eq!(reply, expected);
    // The server counts after the call, and answers the next question after that.
    socket
        .send(b"\0\x08\0\0\0\x01\0\0version\r\n")
        .expect("send");
    socket.recv(&mut room).expect("a datagram");
    let after = counts();
    assert_eq!(total, expected.len().div_ceil(1400 - 8));
    let datagrams = after.datagrams - before.datagrams;
    assert!(
        (total..=total + 1).contains(&usize::try_from(datagrams).expect("few")),
        "{total} datagrams came, {datagrams} were counted"
    );
    assert_eq!(
        after.together - before.together,
        1,
        "calls with several of them"
    );
    let calls = after.calls - before.calls;
    // One for the values, one for the bytes after them, and the answer to the last SET, which counts after it has come.
    assert!(calls <= 3, "{calls} calls for {total} datagrams and a line");
}
