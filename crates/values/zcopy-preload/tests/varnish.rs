//! An unmodified Varnish, Debian's, keeps its objects in memory that goes by reference, and serves the bytes that it
//! was given.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tranship_testkit::{Port, Watchdog, artifact, skipped};
use zcopy::Report;

/// Bytes of the objects.
const SIZES: [usize; 4] = [2000, 20_000, 70_000, 1_000_000];

fn body(size: usize) -> Vec<u8> {
    let mut state = size as u64 | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..size).map(next).collect()
}

/// Serves `/SIZE` until the test is over.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let head = head_of(&mut stream);
            let size = head.split(['/', ' ']).find_map(|word| word.parse().ok());
            let body = body(size.unwrap_or(0));
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: max-age=3600\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&body);
        }
    });
    port
}

/// Returns the text up to the empty line.
fn head_of(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|got| got > 0) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

struct Varnish(Child, Port, tempfile::TempDir);

impl Drop for Varnish {
    fn drop(&mut self) {
        // The manager process ends the process that serves.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Varnish {
    fn start() -> Varnish {
        let folder = tempfile::tempdir().expect("a folder");
        let port = Port::reserve().expect("a port");
        let started = Command::new("varnishd")
            .args([
                "-F",
                "-j",
                "none",
                "-p",
                "thread_pools=1",
                "-s",
                "malloc,256m",
            ])
            .args(["-a", &format!("127.0.0.1:{}", port.number())])
            .args(["-b", &format!("127.0.0.1:{}", origin())])
            .arg("-n")
            .arg(folder.path())
            .env(
                "LD_PRELOAD",
                artifact("tranship-zcopy-preload", "libtranship_zcopy.so"),
            )
            .env("TRANSHIP_ZCOPY_MIN", "16KiB")
            .env("TRANSHIP_ZCOPY_SEND", "16KiB")
            .env("TRANSHIP_ZCOPY_EXPLAIN", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("varnishd");
        let mut varnish = Varnish(started, port, folder);
        let port = varnish.1.number();
        // Varnish listens when it has compiled its rules.
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = varnish.0.try_wait().expect("wait") {
                let mut said = String::new();
                let _ = varnish
                    .0
                    .stderr
                    .take()
                    .expect("piped")
                    .read_to_string(&mut said);
                panic!("varnishd: {status}: {said}");
            }
            std::thread::yield_now();
        }
        varnish
    }

    /// The body of an object, and whether Varnish had it.
    fn get(&self, size: usize) -> (Vec<u8>, bool) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.1.number())).expect("connect");
        let request = format!("GET /{size} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("write");
        let head = head_of(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let mut body = Vec::new();
        stream.read_to_end(&mut body).expect("read");
        // Two numbers: this request, and the one that brought the object.
        let had = head
            .lines()
            .find_map(|line| line.strip_prefix("X-Varnish: "));
        (body, had.is_some_and(|numbers| numbers.contains(' ')))
    }
}

#[test]
fn an_unmodified_varnish_serves_by_reference_what_it_was_given() {
    let _dog = Watchdog::new();
    let there = Command::new("varnishd")
        .arg("-V")
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return skipped("no varnishd (apt-get install varnish)");
    }
    let varnish = Varnish::start();
    for round in 0..30 {
        for size in SIZES {
            let (got, had) = varnish.get(size);
            assert!(got == body(size), "{size} bytes, round {round}");
            assert!(had || round == 0, "{size} bytes are fetched again");
        }
    }
    let reports = std::fs::read_dir(varnish.2.path()).expect("a folder");
    let paths = reports.filter_map(|entry| Some(entry.ok()?.path()));
    let referred: u64 = paths
        .filter(|path| path.extension().is_some_and(|end| end == "zcopy"))
        .map(|path| {
            Report::of_file(&path)
                .expect("a report")
                .counts
                .referred_bytes
        })
        .sum();
    // The amount depends on the cost of each way here and now.
    assert!(referred > 0, "nothing went by reference");
}
