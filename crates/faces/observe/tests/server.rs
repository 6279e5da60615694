//! The server from outside: its answers, its refusals, and which clients wait for which.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;
use tranship_observe::{Server, Snapshot, limits, tcp, unix};
use tranship_testkit::{Watchdog, has};

fn served() -> (Server, SocketAddr) {
    let source = || Ok(Snapshot::new(Instant::now(), Vec::new(), 0));
    let server = Server::new(Box::new(source), vec!["Named.example".to_owned()]);
    let door = tcp("0", false).expect("a port");
    let address = door.address().expect("an address");
    server.serve(door, true).expect("a thread");
    (server, address)
}

fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connecting");
    stream.write_all(request.as_bytes()).expect("asking");
    answer(stream)
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let host = "Host: localhost\r\n\r\n";
    ask(address, &format!("GET {path} HTTP/1.1\r\n{host}"))
}

fn answer(mut stream: impl Read) -> (u16, String) {
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("an answer");
    let status = all.split(' ').nth(1).and_then(|s| s.parse().ok());
    (status.unwrap_or_else(|| panic!("{all:?}")), all)
}

#[test]
fn what_is_there_is_answered_and_nothing_else() {
    let _dog = Watchdog::new();
    let (_server, address) = served();
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (path, status, kind) in [
        ("/metrics", 200, open),
        ("/metrics?x=y", 200, open),
        ("/data.json", 200, "application/json"),
        ("/", 200, "text/html; charset=utf-8"),
        ("/app.js", 200, "text/javascript; charset=utf-8"),
        ("/plots.js", 200, "text/javascript; charset=utf-8"),
        ("/style.css", 200, "text/css; charset=utf-8"),
        ("/../Cargo.toml", 404, "text/plain; charset=utf-8"),
        ("//", 404, "text/plain; charset=utf-8"),
        ("/Metrics", 404, "text/plain; charset=utf-8"),
    ] {
        let (got, all) = get(address, path);
        assert_eq!(got, status, "{path}");
        let kind = format!("\r\nContent-Type: {kind}\r\n");
        let policy = "\r\nContent-Security-Policy: default-src 'none'; ";
        has(&all, &[&kind, policy]);
        assert!(
            !all.to_ascii_lowercase().contains("access-control"),
            "{all}"
        );
        let (head, body) = all.split_once("\r\n\r\n").expect("a body");
        has(head, &[&format!("\r\nContent-Length: {}", body.len())]);
    }
    let plain = "GET /metrics HTTP/1.0\r\nAccept: text/plain\r\n\r\n";
    let (_, plain) = ask(address, plain);
    assert!(
        plain.contains("text/plain; version=0.0.4") && !plain.contains("# EOF"),
        "{plain}"
    );
}

#[test]
fn foreign_hosts_methods_and_bodies_are_refused() {
    let _dog = Watchdog::new();
    let (_server, address) = served();
    for (status, request) in [
        (403, "GET /data.json HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        (
            403,
            "GET /metrics HTTP/1.1\r\nHost: evil.example:80\r\n\r\n",
        ),
        (
            200,
            "GET /metrics HTTP/1.1\r\nHost: named.example:80\r\n\r\n",
        ),
        (405, "POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (405, "OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (
            400,
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
        ),
        (400, "hello\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\n\r\n"),
    ] {
        assert_eq!(ask(address, request).0, status, "{request}");
    }
    let long = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(9000));
    assert_eq!(ask(address, &long).0, 431);
}

#[test]
fn who_says_nothing_makes_room() {
    let _dog = Watchdog::new();
    let (_server, address) = served();
    // Each client is there, and has begun to ask, as far as its sending ends here.
    let silent: Vec<_> = (0..3 * limits::CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("connecting");
            let _ = stream.write_all(b"GET / HT");
            stream
        })
        .collect();
    assert_eq!(get(address, "/metrics").0, 200);
    drop(silent);
}

#[test]
fn who_does_not_read_keeps_nobody_waiting() {
    let _dog = Watchdog::new();
    let (_server, address) = served();
    let deaf: Vec<_> = (0..limits::CONNECTIONS / 2)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("connecting");
            stream
                .write_all(b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .expect("asking");
            stream
        })
        .collect();
    for _ in 0..limits::CONNECTIONS {
        assert_eq!(get(address, "/").0, 200);
    }
    drop(deaf);
}

#[test]
fn a_unix_socket_has_figures_and_no_page() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("metrics");
    let server = Server::new(Box::new(|| Err("nobody is there".to_owned())), Vec::new());
    server
        .serve(unix(&path, 0o600).expect("a socket"), false)
        .expect("a thread");
    let ask = |target: &str| {
        let mut stream = UnixStream::connect(&path).expect("connecting");
        let request = format!("GET {target} HTTP/1.1\r\nHost: whatever.example\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("asking");
        answer(stream)
    };
    let (status, all) = ask("/metrics");
    assert!(
        status == 200 && all.contains("\ntranship_up 0\n") && all.ends_with("# EOF\n"),
        "{all}"
    );
    for none in ["/", "/data.json", "/app.js"] {
        assert_eq!(ask(none).0, 404, "{none}");
    }
}
