//! A manager, a sender and a receiver as three processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

fn tranship(arguments: &[&str], socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
    command
        .args(arguments)
        .arg("--socket")
        .arg(socket)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG");
    command
}

/// A process that does not outlive a test, not even one that fails.
struct Running(Child);

impl Running {
    /// Its end; a process that hangs fails the test, and is killed as the test unwinds.
    fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("waiting") {
                return status;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "the watchdog's time is over"
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A manager with a folder of its own.
struct Manager {
    _child: Running,
    dir: tempfile::TempDir,
}

impl Manager {
    fn start() -> Self {
        let dir = tranship_testkit::folder().expect("a folder");
        let socket = dir.path().join("m.sock");
        let child = tranship(&["manager"], &socket).spawn().expect("a manager");
        let manager = Self {
            _child: Running(child),
            dir,
        };
        // The manager's first answer, not a pause, says that it is there.
        while tranship(&["stat"], &socket)
            .output()
            .expect("stat")
            .status
            .code()
            == Some(3)
        {
            std::thread::yield_now();
        }
        manager
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        tranship(arguments, &self.path("m.sock"))
    }
}

/// Some bytes that do not repeat with any buffer size.
fn input() -> Vec<u8> {
    (0..3_000_001u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
        .collect()
}

fn good(output: &Output) {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn bytes_arrive_whoever_comes_first() {
    let manager = Manager::start();
    let from = manager.path("in");
    std::fs::write(&from, input()).expect("the input");
    for (name, receiver_first) in [("one", true), ("two", false)] {
        let to = manager.path(name);
        let recv = || {
            Running(
                manager
                    .command(&["recv", name])
                    .arg(&to)
                    .spawn()
                    .expect("recv"),
            )
        };
        let send = || {
            Running(
                manager
                    .command(&["send", name, "--frame", "65536"])
                    .arg(&from)
                    .spawn()
                    .expect("send"),
            )
        };
        let both = if receiver_first {
            [recv(), send()]
        } else {
            [send(), recv()]
        };
        for mut one in both {
            assert!(one.end().success(), "{name}");
        }
        let received = std::fs::read(&to).expect("what arrived");
        assert!(
            received == input(),
            "{name}: {} bytes arrived",
            received.len()
        );
    }
}

#[test]
fn nobody_comes_is_a_negative_answer_and_no_manager_has_its_own_code() {
    let manager = Manager::start();
    for arguments in [
        ["send", "lonely", "--wait", "10ms"],
        ["recv", "lonely", "--wait", "10ms"],
    ] {
        let status = manager
            .command(&arguments)
            .stderr(Stdio::null())
            .status()
            .expect("running");
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
    // What can never be sent is said before anybody is waited for.
    let mut huge = manager.command(&["send", "lonely", "--frame", "8192GiB"]);
    let output = huge.output().expect("running");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("larger than the"), "{said}");
    for command in ["stat", "ls"] {
        let mut absent = tranship(&[command], &manager.path("nobody.sock"));
        let output = absent.output().expect("running");
        assert_eq!(output.status.code(), Some(3), "{command}");
        assert!(output.stdout.is_empty(), "{command}");
    }
}

#[test]
fn stat_shows_who_waits_under_a_name() {
    let manager = Manager::start();
    let waiting = manager
        .command(&["send", "film"])
        .stderr(Stdio::null())
        .spawn()
        .expect("send");
    let _waiting = Running(waiting);
    let listed = loop {
        let output = manager.command(&["ls"]).output().expect("ls");
        good(&output);
        if !output.stdout.is_empty() {
            break String::from_utf8_lossy(&output.stdout).into_owned();
        }
    };
    assert!(
        listed.starts_with("film\ttranship-send#") && listed.ends_with(" -> (nobody)\n"),
        "{listed}"
    );
    // Somebody waits for a name that nobody exports.
    let waiting = manager.command(&["recv", "book"]).spawn().expect("recv");
    let _reader = Running(waiting);
    let listed = loop {
        let output = manager.command(&["ls"]).output().expect("ls");
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        if listed.lines().count() == 2 {
            break listed;
        }
    };
    assert!(
        listed.contains("book\t(not exported yet) -> tranship-recv#"),
        "{listed}"
    );
    let output = manager.command(&["stat", "--json"]).output().expect("stat");
    let stat: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(stat["channels"][0]["name"], "film");
    assert_eq!(stat["channels"][1]["waiting_as"], "Sink");
    assert!(
        stat["domains"]
            .as_array()
            .is_some_and(|domains| domains.len() == 3),
        "{stat}"
    );
}

#[test]
fn a_daemon_listens_when_its_starter_returns() {
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let daemonize = || {
        let mut command = tranship(&["manager", "--daemonize", "--idle-exit", "100ms"], &socket);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("running")
    };
    assert!(daemonize().success());
    let stat = tranship(&["stat", "--json"], &socket)
        .output()
        .expect("stat");
    good(&stat);
    let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    assert!(stat["manager"]["pid"].is_u64());
    // It leaves by itself, and takes its socket with it.
    while socket.exists() {
        std::thread::yield_now();
    }
}
