//! Answers: files, handlers, kept replies, and the log.

use crate::site::Site;
use tranship_testkit::Watchdog;

#[test]
fn files_are_answered_as_they_are() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    assert_eq!(site.get("/"), (200, b"<h1>home</h1>".to_vec()));
    assert_eq!(site.get("/page.txt?x=y"), (200, b"0123456789".to_vec()));
    for (target, status) in [
        ("/none", 404),
        ("/.hidden", 404),
        ("/../web.toml", 404),
        ("/%2e%2e/web.toml", 404),
    ] {
        assert_eq!(site.get(target).0, status, "{target}");
    }
    let mut client = site.client();
    client.ask("/page.txt");
    let reply = client.reply();
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let tag = reply.header("etag").expect("a tag").to_owned();
    let mut ask = |headers: &str| {
        client.send(format!(
            "GET /page.txt HTTP/1.1\r\nHost: test\r\n{headers}\r\n"
        ));
        client.reply()
    };
    assert_eq!(ask(&format!("If-None-Match: {tag}\r\n")).status, 304);
    let part = ask("Range: bytes=2-4\r\n");
    assert_eq!((part.status, part.body), (206, b"234".to_vec()));
    assert_eq!(
        part.headers
            .iter()
            .filter(|(name, _)| name == "content-range")
            .count(),
        1
    );
    assert_eq!(ask("Range: bytes=50-\r\n").status, 416);
    client.send("HEAD /page.txt HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = client.reply_or_end(false).expect("a reply");
    assert_eq!(head.header("content-length"), Some("10"));
    client.send("POST /page.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx");
    let refused = client.reply();
    assert_eq!(
        (refused.status, refused.header("allow")),
        (405, Some("GET, HEAD"))
    );
    site.stop();
}

#[test]
fn a_handler_answers_through_six_components() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    for bytes in [0, 1, 4096, 300_000, 4 << 20] {
        let (status, body) = site.get(&format!("/dynamic?n={bytes}"));
        assert_eq!((status, body.len()), (200, bytes));
        assert!(body.iter().all(|byte| *byte == b'x'));
    }
    // What a client sends reaches the handler whole, and comes back.
    let sent: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    let mut client = site.client();
    client.send(format!(
        "POST /dynamic HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n",
        sent.len()
    ));
    client.send(&sent);
    let reply = client.reply();
    assert!(reply.status == 200 && reply.body == sent);
    client.send(
        "POST /dynamic HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    );
    client.send("1\r\n!\r\n0\r\n\r\n");
    assert_eq!(client.reply().body, b"hello!");
    site.stop();
}

#[test]
fn a_reply_that_may_be_kept_is_answered_without_its_handler() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    let mut client = site.client();
    client.ask("/dynamic?n=5000&keep=1000");
    assert_eq!(client.reply().header("age"), None);
    // It reaches the cache beside the reply, so another request may be the first to find it.
    let kept = loop {
        client.ask("/dynamic?n=5000&keep=1000");
        let reply = client.reply();
        assert_eq!((reply.status, reply.body.len()), (200, 5000));
        if reply.header("age").is_some() {
            break reply;
        }
    };
    assert_eq!(kept.header("cache-control"), Some("max-age=1000"));
    site.signal("dynamic", rustix::process::Signal::STOP);
    client.ask("/dynamic?n=5000&keep=1000");
    assert_eq!(client.reply().body.len(), 5000);
    site.signal("dynamic", rustix::process::Signal::CONT);
    client.ask("/dynamic?n=5001&keep=1000");
    assert_eq!(client.reply().header("age"), None);
    site.stop();
}

#[test]
fn each_answer_has_a_line_in_the_log() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[(
        "\"log\"]",
        "\"log\", \"--file\", \"DIR/access.log\"]\nsandbox.write = [\"DIR\"]",
    )]);
    let mut client = site.client();
    let logged = |lines: usize| loop {
        let text = std::fs::read_to_string(site.dir.path().join("access.log")).unwrap_or_default();
        if text.lines().count() == lines {
            break text;
        }
        std::thread::yield_now();
    };
    // Nothing waits for the log: what came before it was there has a line without what was asked for.
    let mut before = 0;
    loop {
        client.ask("/");
        client.reply();
        before += 1;
        if logged(before).ends_with("\"GET /\" \"\"\n") {
            break;
        }
    }
    client.send("GET /page.txt HTTP/1.1\r\nHost: test\r\nUser-Agent: a \"client\"\r\n\r\n");
    client.reply();
    client.ask("/none");
    client.reply();
    let log = logged(before + 2);
    let lines: Vec<_> = log.lines().skip(before).collect();
    assert!(
        lines[0].contains(" 200 ") && lines[0].ends_with("\"GET /page.txt\" \"a .client.\""),
        "{log}"
    );
    assert!(
        lines[1].contains(" 404 ") && lines[1].ends_with("\"GET /none\" \"\""),
        "{log}"
    );
    site.stop();
}
