//! A program that is not let in says why, and no failure ends with 0.

use crate::kit::*;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tranship_sys::socket;

/// A refusal may overtake the hello, or come after it.
const ROUNDS: usize = 12;

/// Calls everything that joins, in turn, with the output of each.
fn each(socket: &Path, dir: &Path, mut check: impl FnMut(&str, &Output)) {
    let input = dir.join("in");
    std::fs::write(&input, input_bytes()).expect("the input");
    let input = input.to_str().expect("a path");
    let commands: [&[&str]; 4] = [&["stat"], &["ls"], &["recv", "x"], &["send", "x", input]];
    for command in (0..ROUNDS).flat_map(|_| commands) {
        let output = tranship(command, socket).output().expect("running");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.stdout.is_empty(), "{command:?}: {said}");
        check(&format!("{command:?}: {said}"), &output);
    }
}

fn input_bytes() -> &'static [u8] {
    b"what must not be lost in silence"
}

#[test]
fn who_may_not_connect_is_told_so() {
    let manager = Manager::configured("[[connect]]\nuid = 4294967294\n");
    each(
        &manager.path("m.sock"),
        &manager.path("."),
        |said, output| {
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("access rules"), "{said}");
        },
    );
}

#[test]
fn who_is_one_too_many_is_told_so() {
    let manager = Manager::configured("[limits]\nconnections = 0\n");
    each(
        &manager.path("m.sock"),
        &manager.path("."),
        |said, output| {
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("too many connections"), "{said}");
        },
    );
}

#[test]
fn who_comes_when_the_manager_has_no_descriptors_left_is_told_so() {
    // The manager keeps 256 descriptors for itself. A connection of ours may come while the one that checked whether it
    // listens is not gone yet.
    let manager = Manager::limited(272);
    let path = manager.path("m.sock");
    let mut all = full(&path);
    let mut since = Instant::now();
    each(&path, &manager.path("."), |said, output| {
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("no descriptors left"), "{said}");
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
    each(&path, dir.path(), |said, output| {
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("hung up"), "{said}");
    });
}

/// Sends the data that comes through the returned pipe.
fn fed(manager: &Manager) -> (Running, File) {
    fed_as(manager, "x")
}

fn fed_as(manager: &Manager, name: &str) -> (Running, File) {
    let mut send = manager.command(&["send", name, "--frame", "4096"]);
    let (theirs, ours) = std::io::pipe().expect("a pipe");
    let send = send.stdin(theirs).stderr(Stdio::null()).spawn();
    (
        Running(send.expect("send")),
        File::from(std::os::fd::OwnedFd::from(ours)),
    )
}

#[test]
fn only_standard_output_may_lose_its_reader() {
    let manager = Manager::start();

    let (_send, mut feed) = fed(&manager);
    let mut recv = manager.command(&["recv", "x"]);
    let mut recv = Running(recv.stdout(Stdio::piped()).spawn().expect("recv"));
    feed.write_all(input_bytes()).expect("the pipe");
    feed.write_all(&[7; 8192]).expect("the pipe");
    let mut head = [0; 4096];
    let mut out = recv.0.stdout.take().expect("its output");
    out.read_exact(&mut head).expect("a message");
    drop(out);
    while feed.write_all(&[7; 4096]).is_ok() {}
    assert_eq!(recv.0.wait().expect("its end").code(), Some(0));

    // The same where a file was named, which happens to be a pipe.
    let (_send, mut feed) = fed(&manager);
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
    let recv = recv
        .arg(&fifo)
        .stderr(Stdio::piped())
        .spawn()
        .expect("recv");
    let mut recv = Running(recv);
    drop(rustix::fs::open(&fifo, OFlags::RDONLY, Mode::empty()).expect("its reader"));
    while feed.write_all(&[7; 4096]).is_ok() {}
    assert_eq!(recv.0.wait().expect("its end").code(), Some(2));
    let mut said = String::new();
    let mut told = recv.0.stderr.take().expect("its errors");
    told.read_to_string(&mut said).expect("its errors");
    assert!(said.contains("Broken pipe"), "{said}");
}

/// Rust opens `/dev/null` for a stream that is closed: all would go nowhere, with success at both ends.
#[test]
fn a_closed_stream_is_an_error_before_anybody_is_met() {
    let manager = Manager::start();
    let run = |words: &str| {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec \"$0\" {words}"));
        shell.arg(env!("CARGO_BIN_EXE_tranship"));
        shell.env("TRANSHIP_SOCKET", manager.path("m.sock"));
        let output = shell.output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
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
            let (code, said) = run(&format!("{command} {how}"));
            assert_eq!(code, Some(2), "{command} {how}: {said}");
            assert!(
                said.contains("standard output is "),
                "{command} {how}: {said}"
            );
        }
    }
    for how in ["<&-", "0>/dev/null"] {
        let (code, said) = run(&format!("send x --wait 20s {how}"));
        assert_eq!(code, Some(2), "{how}: {said}");
        assert!(said.contains("standard input is "), "{how}: {said}");
    }
    // Each command works without the stream that it does not use, and `/dev/null` is as good as any other.
    let file = manager.path("out");
    let file = file.to_str().expect("a path");
    std::thread::scope(|s| {
        let receives = s.spawn(|| run(&format!("recv y {file} <&- >&-")));
        let (code, said) = run("send y </dev/null >&-");
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = receives.join().expect("no panic");
        assert_eq!(code, Some(0), "{said}");
    });
    let (code, said) = run("stat 1<>/dev/null");
    assert_eq!(code, Some(0), "{said}");
}

/// A name goes to the terminal that shows the error, and to those of others.
#[test]
fn what_a_name_may_not_hold_is_said_and_not_shown() {
    let manager = Manager::start();
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
            let output = manager.command(&arguments).output().expect("running");
            let said = String::from_utf8(output.stderr).expect("text");
            assert_eq!(output.status.code(), Some(2), "{said:?}");
            assert!(said.contains("visible characters"), "{said:?}");
            for line in said.lines() {
                assert_eq!(tranship_proto::text_fault(line), None, "{said:?}");
            }
        }
    }
}

/// Two receivers of one name: each sender serves one, and the other waits for the next.
#[test]
fn who_was_not_taken_waits_for_the_next_sender() {
    let manager = Manager::start();
    for round in 0..6 {
        let name = format!("x{round}");
        let receive = || {
            let mut command = manager.command(&["recv", &name]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            Running(command.spawn().expect("recv"))
        };
        let both = [receive(), receive()];
        for _ in 0..2 {
            let (mut sender, mut input) = fed_as(&manager, &name);
            input.write_all(b"all of it").expect("the input");
            drop(input);
            assert!(sender.0.wait().expect("its end").success());
        }
        for mut one in both {
            let mut got = String::new();
            let mut out = one.0.stdout.take().expect("its output");
            out.read_to_string(&mut got).expect("its output");
            let (code, said) = ended(one);
            assert_eq!((code, got.as_str()), (Some(0), "all of it"), "{said}");
        }
    }
}
