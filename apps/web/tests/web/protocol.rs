//! HTTP/1.1 as clients and attackers speak it.

use crate::site::Site;
use tranship_testkit::Watchdog;

#[test]
fn a_connection_serves_many_requests_and_ends_when_it_is_told() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    let mut client = site.client();
    for bytes in 0..50 {
        client.ask(&format!("/dynamic?n={bytes}"));
        assert_eq!(client.reply().body.len(), bytes);
    }
    client.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let last = client.reply();
    assert_eq!(
        (last.status, last.header("connection")),
        (200, Some("close"))
    );
    client.ends();
    let mut old = site.client();
    old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(old.reply().header("connection"), Some("keep-alive"));
    old.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(old.reply().header("connection"), Some("close"));
    old.ends();
    // A client that sends no more still gets its answer.
    let mut half = site.client();
    half.ask("/dynamic?n=7");
    half.shut();
    assert_eq!(half.reply().body.len(), 7);
    half.ends();
    site.stop();
}

#[test]
fn pipelined_requests_are_answered_in_order_by_whichever_component() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    let mut client = site.client();
    let mut all = String::new();
    for n in 0..40 {
        let target = match n % 4 {
            0 => format!("/dynamic?n={n}"),
            1 => "/page.txt".to_owned(),
            2 => "/none".to_owned(),
            _ => "/.hidden".to_owned(),
        };
        all += &format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    // However they are cut.
    for part in all.as_bytes().chunks(37) {
        client.send(part);
    }
    for n in 0..40 {
        let reply = client.reply();
        match n % 4 {
            0 => assert_eq!((reply.status, reply.body.len()), (200, n)),
            1 => assert_eq!(reply.body, b"0123456789"),
            _ => assert_eq!(reply.status, 404),
        }
    }
    client.send(
        "POST /dynamic HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
    );
    assert_eq!(client.reply().status, 100);
    client.send("hi");
    assert_eq!(client.reply().body, b"hi");
    site.stop();
}

#[test]
fn what_two_parsers_could_read_differently_is_refused_and_ends_the_connection() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    let smuggled = "GET /page.txt HTTP/1.1\r\nHost: test\r\n\r\n";
    for (head, status) in [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
            501,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            400,
        ),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("\0\0\0\r\n\r\n", 400),
    ] {
        let mut client = site.client();
        client.send([head, smuggled].concat());
        let reply = client.reply();
        assert_eq!(
            (reply.status, reply.header("connection")),
            (status, Some("close")),
            "{head:?}"
        );
        client.ends();
    }
    site.stop();
}
