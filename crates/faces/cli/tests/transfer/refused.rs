//! A program that is not let in says why, and no failure ends with 0.

use crate::kit::*;
use rustix::fs::{Mode, OFlags};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tranship_sys::socket;

/// A refusal may overtake the hello, or come after it.
const ROUNDS: usize = 12;

/// Calls everything that joins, in turn; each command ends with this code and these words.
fn each(socket: &Path, dir: &Path, code: i32, words: &str, mut after: impl FnMut()) {
    let input = dir.join("in");
    std::fs::write(&input, input_bytes()).expect("the input");
    let input = input.to_str().expect("a path");
    let commands: [&[&str]; 4] = [&["stat"], &["ls"], &["recv", "x"], &["send", "x", input]];
    for command in (0..ROUNDS).flat_map(|_| commands) {
        let said = Said::of(&mut tranship(command, socket));
        said.ends(code, &[words]);
        assert_eq!(said.out, "", "{command:?}");
        after();
    }
}

fn input_bytes() -> &'static [u8] {
    b"what must not be lost in silence"
}

#[test]
fn who_may_not_connect_is_told_so() {
    let manager = Home::new("[[connect]]\nuid = 4294967294\n");
    each(
        &manager.socket(),
        &manager.path("."),
        2,
        "access rules",
        || {},
    );
}

#[test]
fn who_is_one_too_many_is_told_so() {
    let manager = Home::new("[limits]\nconnections = 0\n");
    let words = "too many connections";
    each(&manager.socket(), &manager.path("."), 2, words, || {});
}

#[test]
fn who_comes_when_the_manager_has_no_descriptors_left_is_told_so() {
    // The manager keeps 256 descriptors for itself. A connection of ours may come while the one that checked whether it
    // listens is not gone yet.
    let manager = limited(272);
    let path = manager.socket();
    let mut all = full(&path);
    let mut since = Instant::now();
    let words = "no descriptors left";
    each(&path, &manager.path("."), 2, words, || {
        // The manager ends a connection that has said nothing for 10 s.
        if since.elapsed() > Duration::from_secs(2) {
            all.clear();
            all = full(&path);
            since = Instant::now();
        }
    });
}

/// Takes all connections that the manager has descriptors for.
fn full(path: &Path) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // The place of a look whether it listens is taken as well, when it has gone.
    for _ in 0..8 {
        all.extend((0..32).map(|_| socket::connect(path).expect("a connection")));
        let last = all.last().expect("there are some");
        let soon = Some(Duration::from_secs(1));
        tranship_sys::epoll::wait_readable(last, soon).expect("poll");
    }
    all
}

#[test]
fn a_manager_that_ends_while_one_joins_is_no_manager() {
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("m.sock");
    let listener = socket::listen(&path, 0o600).expect("listen");
    std::thread::spawn(move || while socket::accept(&listener).is_ok() {});
    each(&path, dir.path(), 3, "hung up", || {});
}

#[test]
fn only_standard_output_may_lose_its_reader() {
    let manager = Home::new("");

    let (_send, mut feed) = fed(&manager, "x");
    let mut recv = manager.command(&["recv", "x"]);
    let mut recv = Running::start(recv.stdout(Stdio::piped()));
    feed.write_all(input_bytes()).expect("the pipe");
    feed.write_all(&[7; 8192]).expect("the pipe");
    let mut head = [0; 4096];
    let mut out = recv.0.stdout.take().expect("its output");
    out.read_exact(&mut head).expect("a message");
    drop(out);
    while feed.write_all(&[7; 4096]).is_ok() {}
    assert_eq!(recv.0.wait().expect("its end").code(), Some(0));

    // The same where a file was named, which happens to be a pipe.
    let (_send, mut feed) = fed(&manager, "x");
    let fifo = manager.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .expect("a fifo");
    let mut recv = manager.command(&["recv", "x"]);
    let recv = spawn(recv.arg(&fifo));
    drop(rustix::fs::open(&fifo, OFlags::RDONLY, Mode::empty()).expect("its reader"));
    while feed.write_all(&[7; 4096]).is_ok() {}
    recv.said().ends(2, &["Broken pipe"]);
}

/// Rust opens `/dev/null` for a stream that is closed: all would go nowhere, with success at both ends.
#[test]
fn a_closed_stream_is_an_error_before_anybody_is_met() {
    let manager = Home::new("");
    let run = |words: &str| {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec \"$0\" {words}"));
        shell.arg(env!("CARGO_BIN_EXE_tranship"));
        shell.env("TRANSHIP_SOCKET", manager.path("m.sock"));
        Said::of(&mut shell)
    };
    for command in [
        "recv x --wait 20s",
        "stat",
        "ls --json",
        "doctor",
        "top --once",
        "cache get --shm values --wait 20s key",
    ] {
        for how in [">&-", "1</dev/null"] {
            run(&format!("{command} {how}")).ends(2, &["standard output is "]);
        }
    }
    for how in ["<&-", "0>/dev/null"] {
        let said = run(&format!("send x --wait 20s {how}"));
        said.ends(2, &["standard input is "]);
    }
    // Each command works without the stream that it does not use, and `/dev/null` is as good as any other.
    let file = manager.path("out");
    let file = file.to_str().expect("a path");
    std::thread::scope(|s| {
        let receives = s.spawn(|| run(&format!("recv y {file} <&- >&-")));
        run("send y </dev/null >&-").ends(0, &[]);
        receives.join().expect("no panic").ends(0, &[]);
    });
    run("stat 1<>/dev/null").ends(0, &[]);
}

/// A name goes to the terminal that shows the error, and to those of others.
#[test]
fn what_a_name_may_not_hold_is_said_and_not_shown() {
    let manager = Home::new("");
    let flood = format!("a{}", "\u{301}".repeat(40));
    for name in [
        "a\u{1b}[31mb",
        "a\u{202e}b",
        "a\u{200b}",
        "\u{feff}a",
        "a\u{2028}b",
        &flood,
    ] {
        for command in ["recv", "send", "tcp+plain"] {
            let address = format!("tcp+plain:127.0.0.1:1/{name}");
            let arguments = match command {
                "tcp+plain" => ["recv", &address],
                command => [command, name],
            };
            let said = manager.run(&arguments);
            said.ends(2, &["visible characters"]);
            for line in said.err.lines() {
                assert_eq!(tranship_proto::text_fault(line), None, "{said:?}");
            }
        }
    }
}

/// Two receivers of one name: each sender serves one, and the other waits for the next.
#[test]
fn who_was_not_taken_waits_for_the_next_sender() {
    let manager = Home::new("");
    for round in 0..6 {
        let name = format!("x{round}");
        let receive = || spawn(manager.command(&["recv", &name]).stdout(Stdio::piped()));
        let both = [receive(), receive()];
        for _ in 0..2 {
            let (sender, mut input) = fed(&manager, &name);
            input.write_all(b"all of it").expect("the input");
            drop(input);
            sender.ends_well();
        }
        for one in both {
            assert_eq!(one.said().well(), "all of it");
        }
    }
}
