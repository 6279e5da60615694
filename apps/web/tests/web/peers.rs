//! HTTP/1.1 beside nginx: the same bytes to both, and the statuses that come back until the end of the connection.
//!
//! A difference has its reason in the table, or fails the test.

use crate::site::Site;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tranship_testkit::{Running, Watchdog, folder, is_root, skipped};

/// A request, or several, and their answers.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    /// Statuses of ours.
    ours: &'static [u16],
    /// Why nginx may answer otherwise.
    why: Option<&'static str>,
}

const STRICT: &str = "refused: parsers that disagree on such bytes are what smuggling uses";

/// Instead of a status: bytes without a head, as HTTP/0.9 has them.
const BARE: u16 = 9;

/// A second request, which shows where a server believes that the first one ended.
const NEXT: &str = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let mut case = |name, bytes: &[u8], ours, why| {
        all.push(Case {
            name,
            bytes: bytes.to_vec(),
            ours,
            why,
        });
    };
    let get = |more: &str| format!("GET /a HTTP/1.1\r\nHost: x\r\n{more}\r\n");
    let post = |more: &str, body: &str| {
        format!("POST /dynamic HTTP/1.1\r\nHost: x\r\n{more}\r\n{body}{NEXT}")
    };
    let text = |text: String| text.into_bytes();

    // What every server serves.
    case("one request", &text(get("")), &[200], None);
    case(
        "three at once",
        &text(get("").repeat(3)),
        &[200, 200, 200],
        None,
    );
    case(
        "HEAD has no body",
        &text(format!("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n{NEXT}")),
        &[200, 200],
        None,
    );
    case(
        "connection: close",
        &text(get("Connection: close\r\n") + NEXT),
        &[200],
        None,
    );
    case(
        "HTTP/1.0 ends",
        &text(format!("GET /a HTTP/1.0\r\n\r\n{NEXT}")),
        &[200],
        None,
    );
    case(
        "HTTP/1.0 that stays",
        &text(format!(
            "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n{NEXT}"
        )),
        &[200, 200],
        None,
    );
    case(
        "no such file, and on",
        &text(format!("GET /b HTTP/1.1\r\nHost: x\r\n\r\n{NEXT}")),
        &[404, 200],
        None,
    );
    case(
        "an escaped path",
        b"GET /%61 HTTP/1.1\r\nHost: x\r\n\r\n",
        &[200],
        None,
    );
    case(
        "a query",
        b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n",
        &[200],
        None,
    );
    case(
        "an empty line before it",
        &text(format!("\r\n{NEXT}")),
        &[200],
        None,
    );
    case(
        "a body",
        &text(post("Content-Length: 5\r\n", "hello")),
        &[200, 200],
        None,
    );
    case(
        "a GET with a body",
        &text(get("Content-Length: 5\r\n") + "hello" + NEXT),
        &[200, 200],
        None,
    );
    case("no bytes", b"", &[], None);

    // Chunks.
    let chunked = "Transfer-Encoding: chunked\r\n";
    case(
        "chunks",
        &text(post(chunked, "5\r\nhello\r\n0\r\n\r\n")),
        &[200, 200],
        None,
    );
    case(
        "chunks with an extension",
        &text(post(chunked, "5;a=b\r\nhello\r\n0\r\n\r\n")),
        &[200, 200],
        None,
    );
    case(
        "chunks with a trailer",
        &text(post(chunked, "5\r\nhello\r\n0\r\nA: b\r\n\r\n")),
        &[200, 200],
        None,
    );
    case(
        "a size in capitals, with zeros",
        &text(post(chunked, "00A\r\n0123456789\r\n0\r\n\r\n")),
        &[200, 200],
        None,
    );
    case(
        "a coding after a tab",
        &text(post("Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n")),
        &[200, 200],
        Some("RFC 9112, 5: a tab before a value is as good as a space"),
    );
    case(
        "a coding in capitals",
        &text(post("Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n")),
        &[200, 200],
        None,
    );
    case(
        "a size 0x5",
        &text(post(chunked, "0x5\r\nhello\r\n0\r\n\r\n")),
        &[400],
        None,
    );
    case(
        "a size -5",
        &text(post(chunked, "-5\r\nhello\r\n0\r\n\r\n")),
        &[400],
        None,
    );
    case(
        "a size beyond 64 bits",
        &text(post(chunked, "11111111111111111\r\nhello\r\n0\r\n\r\n")),
        &[413],
        Some("so many bytes are too many, whatever their number"),
    );
    case(
        "a chunk longer than its size",
        &text(post(chunked, "5\r\nhello!\r\n0\r\n\r\n")),
        &[400],
        None,
    );
    case(
        "a size before a bare LF",
        &text(post(chunked, "5\nhello\r\n0\r\n\r\n")),
        &[400],
        Some(STRICT),
    );

    // Smuggling: two lengths.
    case(
        "length and coding",
        &text(post(
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        )),
        &[400],
        None,
    );
    case(
        "coding and length",
        &text(post(
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "0\r\n\r\n",
        )),
        &[400],
        None,
    );
    case(
        "two lengths",
        &text(post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")),
        &[400],
        None,
    );
    case(
        "one length twice",
        &text(post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")),
        &[400],
        None,
    );
    case(
        "a list of lengths",
        &text(post("Content-Length: 5, 5\r\n", "hello")),
        &[400],
        None,
    );
    case(
        "length +5",
        &text(post("Content-Length: +5\r\n", "hello")),
        &[400],
        None,
    );
    case(
        "length -5",
        &text(post("Content-Length: -5\r\n", "hello")),
        &[400],
        None,
    );
    case(
        "length 0x5",
        &text(post("Content-Length: 0x5\r\n", "hello")),
        &[400],
        None,
    );
    case(
        "length without digits",
        &text(post("Content-Length: \r\n", "")),
        &[400],
        None,
    );
    case(
        "length beyond 64 bits",
        &text(post("Content-Length: 99999999999999999999\r\n", "hello")),
        &[413],
        Some("so many bytes are too many, whatever their number"),
    );
    case(
        "two codings",
        &text(post(
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        )),
        &[400],
        None,
    );
    case(
        "an unknown coding",
        &text(post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n")),
        &[501],
        None,
    );
    case(
        "gzip, chunked",
        &text(post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")),
        &[501],
        None,
    );
    case(
        "identity",
        &text(post("Transfer-Encoding: identity\r\n", "")),
        &[501],
        None,
    );
    case(
        "chunks in HTTP/1.0",
        &text(format!(
            "POST /dynamic HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{NEXT}"
        )),
        &[400],
        None,
    );

    // Smuggling: lines.
    case(
        "a space before the colon",
        &text(post("Content-Length : 5\r\n", "hello")),
        &[400],
        None,
    );
    case(
        "a folded line",
        &text(get("A: b\r\n c\r\n")),
        &[400],
        Some(STRICT),
    );
    case(
        "lines that end with a bare LF",
        b"GET /a HTTP/1.1\nHost: x\n\n",
        &[400],
        Some(STRICT),
    );
    case(
        "a bare CR in a value",
        &text(get("A: b\rc\r\n")),
        &[400],
        Some(STRICT),
    );
    case("NUL in a value", &text(get("A: b\0c\r\n")), &[400], None);
    case(
        "a line without a colon",
        &text(get("abc\r\n")),
        &[400],
        Some(STRICT),
    );
    case("an empty name", &text(get(": b\r\n")), &[400], Some(STRICT));
    case(
        "a name with a bracket",
        &text(get("A(b: c\r\n")),
        &[400],
        Some(STRICT),
    );
    case(
        "a coding with an underscore is another header",
        &text(post(
            "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n",
            "0\r\n\r\n",
        )),
        &[200, 200],
        None,
    );
    case(
        "a space before the first name",
        &text(format!("GET /a HTTP/1.1\r\n Host: x\r\n\r\n{NEXT}")),
        &[400],
        None,
    );

    // Request lines.
    case("no Host", b"GET /a HTTP/1.1\r\n\r\n", &[400], None);
    case(
        "two Hosts",
        b"GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        &[400],
        None,
    );
    case(
        "a Host with a slash",
        b"GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n",
        &[400],
        None,
    );
    case(
        "the whole address",
        b"GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
        &[400],
        Some("refused: this server is no proxy, and two hosts in a request may differ"),
    );
    case(
        "CONNECT",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        &[501],
        Some("RFC 9110, 9.1: 501 for a method that the server does not know"),
    );
    case(
        "an unknown method",
        b"FOO /a HTTP/1.1\r\nHost: x\r\n\r\n",
        &[501],
        Some("RFC 9110, 9.1: 501 for a method that the server does not know"),
    );
    case(
        "a method in small letters",
        b"get /a HTTP/1.1\r\nHost: x\r\n\r\n",
        &[501],
        Some("methods are case-sensitive, so it is an unknown one"),
    );
    case(
        "DELETE of a file",
        b"DELETE /a HTTP/1.1\r\nHost: x\r\n\r\n",
        &[405],
        None,
    );
    case(
        "HTTP/2.0",
        b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n",
        &[505],
        None,
    );
    case(
        "HTTP/1.x",
        b"GET /a HTTP/1.x\r\nHost: x\r\n\r\n",
        &[505],
        Some("a version that the server does not know"),
    );
    case(
        "no version",
        b"GET /a\r\n\r\n",
        &[400],
        Some("refused: HTTP/0.9 has no heads"),
    );
    case(
        "two spaces",
        b"GET  /a HTTP/1.1\r\nHost: x\r\n\r\n",
        &[400],
        Some(STRICT),
    );
    case(
        "a space in the path",
        b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        &[505],
        Some("what follows the second space is no version that the server knows"),
    );
    case(
        "a control byte in the path",
        b"GET /a\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
        &[400],
        None,
    );
    case(
        "above the root",
        b"GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        &[404],
        Some("no file lies there"),
    );
    case(
        "above the root, escaped",
        b"GET /%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        &[404],
        Some("no file lies there"),
    );
    case(
        "NUL in the path, escaped",
        b"GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n",
        &[400],
        None,
    );
    case(
        "a broken escape",
        b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
        &[400],
        None,
    );

    // Limits.
    let long = "a".repeat(100 << 10);
    case(
        "a long line",
        &text(get(&format!("A: {long}\r\n"))),
        &[431],
        Some("RFC 6585: 431 says that the head is too large"),
    );
    case(
        "a long path",
        &text(format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n")),
        &[414],
        None,
    );
    case(
        "a body beyond the limit",
        &text(post("Content-Length: 99999999999\r\n", "")),
        &[413],
        None,
    );
    all
}

/// Sends bytes, says that no more come, and reads until the other side ends. Returns the statuses.
fn ask(at: &Path, bytes: &[u8]) -> Vec<u16> {
    let mut socket = UnixStream::connect(at).expect("a connection");
    // A server that refuses a request need not read all of it.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = socket.read(&mut part) {
        answer.extend(&part[..read]);
    }
    statuses(&answer, bytes.starts_with(b"HEAD"))
}

/// Reads answers one after the other, by their lengths.
#[track_caller]
fn statuses(mut answer: &[u8], head: bool) -> Vec<u16> {
    let mut found = Vec::new();
    while !answer.is_empty() {
        if !answer.starts_with(b"HTTP/1.1 ") {
            found.push(BARE);
            break;
        }
        let end = answer.windows(4).position(|at| at == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(answer)));
        let lines = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let status = lines.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {lines}"));
        let length = lines
            .lines()
            .find_map(|l| l.strip_prefix("content-length:"));
        let length = length.map_or(0, |it| it.trim().parse::<usize>().expect("a length"));
        let length = if head && found.is_empty() { 0 } else { length };
        found.push(status);
        assert!(answer.len() >= end + 4 + length, "cut short: {lines}");
        answer = &answer[end + 4 + length..];
    }
    found
}

fn nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join("nginx"))
        .find(|file| file.is_file())
}

/// Starts nginx with the same folder. `/dynamic` answers 200 there, after the body.
fn start_nginx(program: &Path, dir: &Path) -> (Running, PathBuf) {
    let socket = dir.join("web.sock");
    let user = if is_root() { "user root;" } else { "" };
    let mut temporary = String::new();
    for (at, what) in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .enumerate()
    {
        let _ = writeln!(temporary, "{what}_temp_path {}/t{at};", dir.display());
    }
    let text = format!(
        "{user} daemon off; master_process off; pid {0}/pid; error_log /dev/null;\n\
         events {{ }}\n\
         http {{ access_log off; {temporary} client_max_body_size 16m;\n\
         server {{ listen unix:{1}; root {0}; location /dynamic {{ return 200 ok; }} }} }}\n",
        dir.display(),
        socket.display()
    );
    let file = dir.join("conf");
    fs::write(&file, text).expect("a file");
    let mut command = Command::new(program);
    command.arg("-c").arg(&file).stderr(Stdio::null());
    let run = Running::start(&mut command);
    while UnixStream::connect(&socket).is_err() {
        std::thread::yield_now();
    }
    (run, socket)
}

#[test]
fn answers_are_nginxs_or_have_a_reason() {
    let _dog = Watchdog::new();
    let site = Site::start(&[]);
    fs::write(site.dir.path().join("site/a"), "hello\n").expect("a file");
    // It listens before its components are there.
    while site.get("/a").0 != 200 {
        std::thread::yield_now();
    }
    let socket = site.dir.path().join("web.sock");
    let dir = folder().expect("a folder");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("a mode");
    fs::write(dir.path().join("a"), "hello\n").expect("a file");
    let peer = nginx().map(|nginx| start_nginx(&nginx, dir.path()));
    let (mut wrong, mut explained) = (String::new(), 0);
    for Case {
        name,
        bytes,
        ours,
        why,
    } in cases()
    {
        let seen = ask(&socket, &bytes);
        if seen != ours {
            let _ = writeln!(wrong, "{name}: ours {seen:?}, expected {ours:?}");
        }
        let Some((_, peer)) = &peer else { continue };
        let theirs = ask(peer, &bytes);
        match why {
            _ if theirs == ours => {}
            Some(why) => {
                explained += 1;
                println!("{name}: ours {ours:?}, nginx {theirs:?}: {why}");
            }
            None => {
                let _ = writeln!(
                    wrong,
                    "{name}: ours {seen:?}, nginx {theirs:?}, and no reason is given"
                );
            }
        }
    }
    println!("{explained} differences, each with a reason");
    assert!(wrong.is_empty(), "\n{wrong}");
    site.stop();
    if peer.is_none() {
        skipped("the comparison with nginx: no nginx");
    }
}
