//! Ends that never stop talking: they have the program's attention, and that of the thread which keeps all sessions,
//! for a bounded time each. And peers that are not authenticated, which keep nobody out.

use crate::kit::*;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tranship_testkit::{Relay, Watchdog};
use tranship_transport::net::{Net, Timing};

/// Beats without a frame, as fast as the socket takes them, until it is closed or told to stop.
fn talks(mut socket: &TcpStream, bytes: &[u8], stop: &AtomicBool) {
    let many = bytes.repeat((64 << 10) / bytes.len());
    // Ordering: relaxed; a flag by itself.
    while !stop.load(Ordering::Relaxed) && socket.write_all(&many).is_ok() {}
}

/// One client talks to a name that no program looks at, one to an end that was released, one to a program that looks.
/// Meanwhile another channel of the process has its keepalives, and every look comes to an end.
#[test]
fn who_talks_without_end_holds_nobody_up() {
    let _dog = Watchdog::new();
    let net = Net::plain(calm()).expect("net");
    let at = open(&net);
    let relay = Relay::new(at);
    let mut honest = pair(&net, at, relay.at, "honest");
    let names = ["waits", "left", "looks"].map(|name| {
        let listener = listen(&net, &format!("{at}/{name}"));
        (name, listener)
    });
    let stop = AtomicBool::new(false);
    let keepalive = record(2, b"", 0, 0, 0);
    let [waits, left, looks] = [1, 2, 3].map(|n: u8| met(at, [n; 16], names[usize::from(n) - 1].0));
    let [_waits, leaves, looked] = names.map(|(_, listener)| listener);
    drop(accept(&leaves));
    let mut looked = accept(&looked);
    std::thread::scope(|scope| {
        for socket in [&waits, &left, &looks] {
            scope.spawn(|| talks(socket, &keepalive, &stop));
        }
        long(|| {
            assert_eq!(looked.look(), None);
            std::thread::yield_now();
        });
        stop.store(true, Ordering::Relaxed);
        for socket in [&waits, &left, &looks] {
            let _ = socket.shutdown(Shutdown::Both);
        }
    });
    assert_eq!(relay.connections(), 1, "keepalives were missed");
    talk(&mut honest, 1, PAGE);
}

/// Returns time limits that last for the whole test, so that a busy machine breaks no connection.
fn patient() -> Timing {
    Timing {
        idle_timeout: Duration::from_secs(300),
        grace: Duration::from_secs(300),
        handshake: Duration::from_secs(300),
        ..timing()
    }
}

/// Stops the peers, also when the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        // Ordering: relaxed; a flag by itself.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// More clients than there is room for, from four places, say nothing: a client with a certificate is still let in.
#[test]
fn who_says_nothing_keeps_nobody_out() {
    let _dog = Watchdog::new();
    let net = Net::tls(credentials(), patient()).expect("net");
    let at = open(&net);
    let silent: Vec<_> = (0..64u8)
        .map(|n| from([127, 0, 1, 1 + n % 4], at))
        .collect();
    let _honest = pair(&net, at, at, "honest");
    drop(silent);
}

/// Other clients come without end, and send a part of the handshake. A client with a certificate is still let in, from
/// elsewhere and from the same place.
#[test]
fn any_number_of_unknown_peers_keeps_nobody_out() {
    let _dog = Watchdog::new();
    let net = Net::tls(credentials(), patient()).expect("net");
    let at = open(&net);
    for (hosts, says) in [
        ([[127, 0, 1, 1], [127, 0, 1, 2]], &b"\x16\x03"[..]),
        ([[127, 0, 0, 1]; 2], b""),
    ] {
        let (before, _) = net.refused();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stops = Stops(&stop);
            for host in hosts {
                let stop = &stop;
                scope.spawn(move || {
                    let mut all = std::collections::VecDeque::new();
                    // Ordering: relaxed; a flag by itself.
                    while !stop.load(Ordering::Relaxed) {
                        let mut socket = from(host, at);
                        let _ = socket.write_all(says);
                        all.push_back(socket);
                        if all.len() > 100 {
                            all.pop_front();
                        }
                    }
                });
            }
            // The silent clients are in the way.
            while net.refused().0 < before + 200 {
                std::thread::yield_now();
            }
            for name in ["one", "two", "three"] {
                pair(&net, at, at, name);
            }
        });
    }
}
