//! What one client, or many, may take.

use crate::client::Client;
use crate::site::Site;
use tranship_testkit::Watchdog;

#[test]
fn heads_and_bodies_have_limits() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[("\"http\"]", "\"http\", \"--body\", \"1000\"]")]);
    let long = "x".repeat(20_000);
    for (request, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
            431,
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
                "X: y\r\n".repeat(100)
            ),
            431,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n".to_owned(),
            413,
        ),
        (
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n0\r\n\r\n",
                &long[..1001]
            ),
            413,
        ),
    ] {
        let mut client = site.client();
        client.send(&request);
        assert_eq!(client.reply().status, status, "{:?}", &request[..60]);
        client.ends();
    }
    site.stop();
}

#[test]
fn a_client_that_is_slow_or_idle_is_let_go() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[(
        "\"front\"]",
        "\"front\", \"--request\", \"300\", \"--idle\", \"300\", \"--taken\", \"300\"]",
    )]);
    let (mut slow, status) = answered(&site, "GET / HT");
    assert_eq!(status, 408);
    slow.ends();
    let (mut idle, status) = answered(&site, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(status, 200);
    idle.ends();
    // One that takes nothing of a long reply.
    let mut stuck = site.client();
    stuck.ask("/dynamic?n=16000000");
    let (mut other, status) = answered(&site, "GET /dynamic?n=3 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(status, 200);
    other.ends(); // idle: so the other's time is over, too
    site.stop();
}

/// Sends bytes, and returns the connection and the status. On a slow machine a connection's time may be over before its
/// bytes are there: then another one sends them.
fn answered(site: &Site, bytes: &str) -> (Client, u16) {
    loop {
        let mut client = site.client();
        client.send(bytes);
        if let Some(reply) = client.reply_or_end(true) {
            return (client, reply.status);
        }
    }
}

#[test]
fn too_many_connections_and_requests_are_told_to_come_later() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[(
        "\"front\"]",
        "\"front\", \"--connections\", \"4\", \"--requests\", \"2\"]",
    )]);
    let mut clients: Vec<_> = (0..4).map(|_| site.client()).collect();
    for client in &mut clients {
        client.ask("/");
        assert_eq!(client.reply().status, 200);
    }
    let mut fifth = site.client();
    let refused = fifth.reply();
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("1"))
    );
    fifth.ends();
    site.signal("dynamic", rustix::process::Signal::STOP);
    for client in &mut clients[..2] {
        client.ask("/dynamic?n=1");
    }
    // These two are under way before the third comes: it asks until it is refused.
    let third = &mut clients[2];
    loop {
        third.ask("/");
        if third.reply().status == 503 {
            break;
        }
    }
    site.signal("dynamic", rustix::process::Signal::CONT);
    for client in &mut clients[..2] {
        assert_eq!(client.reply().body.len(), 1);
    }
    site.stop();
}
