//! Lying servers: each listener here lies to its client.

use crate::kit::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use tranship_testkit::Watchdog;
use tranship_transport::{Backend, ErrorKind};

#[test]
fn a_server_may_say_anything() {
    let _dog = Watchdog::new();
    let net = plain();
    for (what, says, words) in [
        ("nothing", Vec::new(), ""),
        ("half an answer", answer(0, 7, 0)[..20].to_vec(), ""),
        ("nonsense", vec![b'x'; 36], "no tranship"),
        (
            "another version",
            {
                let mut other = answer(0, 7, 0);
                other[8] = 9;
                other
            },
            "version 9",
        ),
        ("no such status", answer(99, 7, 0), "no tranship"),
        (
            "no such name",
            answer(1, 7, 0),
            "no listener there is named",
        ),
        (
            "an old session",
            answer(3, 7, 0),
            "does not know this session",
        ),
        ("busy", answer(4, 7, 0), "too many"),
    ] {
        let server = TcpListener::bind("127.0.0.1:0").expect("listen");
        let at = server.local_addr().expect("address");
        let refused = std::thread::scope(|scope| {
            // A client that is sent away comes again: then no listener is there any more.
            scope.spawn(move || {
                let (mut socket, _) = server.accept().expect("accept");
                drop(server);
                let mut heard = [0; 37];
                socket.read_exact(&mut heard).expect("hello");
                socket.write_all(&says).expect("answer");
            });
            net.connect(&format!("{at}/x")).err()
        });
        let refused = refused.expect("it lies");
        assert_eq!(refused, ErrorKind::InvalidEndpoint, "{what}");
        let why = refused.to_string();
        assert!(
            why.contains(&at.to_string()) && why.contains(words),
            "{what}: {why}"
        );
    }
    // Welcome, but it reports as taken a frame that was never sent: at once, and later.
    for (taken, then) in [(1, Vec::new()), (0, record(2, b"", 0, 0, 1))] {
        let server = TcpListener::bind("127.0.0.1:0").expect("listen");
        let at = server.local_addr().expect("address");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = server.accept().expect("accept");
                let mut heard = [0; 37];
                socket.read_exact(&mut heard).expect("hello");
                socket.write_all(&answer(0, 7, taken)).expect("answer");
                socket.write_all(&then).expect("more");
                let _ = socket.read_to_end(&mut Vec::new());
            });
            let mut end = End::connect(&net, &format!("{at}/x"));
            end.over();
            let why = end.transport.why().expect("words");
            assert!(why.contains("taken 1 frames"), "{why}");
        });
    }
}

/// The connection is lost. The process that is there when it is made again must be the same, and know the session.
#[test]
fn who_is_found_again_is_looked_at() {
    let _dog = Watchdog::new();
    let net = plain();
    for (status, process, words) in [
        (3, 7, "has given the channel up"),
        (3, 8, "another process is there"),
        (0, 8, "another process is there"),
    ] {
        let server = TcpListener::bind("127.0.0.1:0").expect("listen");
        let at = server.local_addr().expect("address");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (status, process) in [(0, 7), (status, process)] {
                    let (mut socket, _) = server.accept().expect("accept");
                    let mut heard = [0; 37];
                    socket.read_exact(&mut heard).expect("hello");
                    socket
                        .write_all(&answer(status, process, 0))
                        .expect("answer");
                }
            });
            let mut end = End::connect(&net, &format!("{at}/x"));
            end.over();
            let why = end.transport.why().expect("words");
            assert!(why.contains(words), "{why}");
        });
    }
}
