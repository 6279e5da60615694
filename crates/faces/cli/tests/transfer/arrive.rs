//! Data that is sent arrives, whichever end comes first; and the views of it meanwhile.

use crate::kit::*;
use std::process::{Command, Stdio};

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
            assert!(one.0.wait().expect("its end").success(), "{name}");
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
    // A frame that can never be sent is reported before the command waits for a receiver.
    let mut huge = manager.command(&["send", "lonely", "--frame", "8192GiB"]);
    let output = huge.output().expect("running");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("larger than the"), "{said}");
    let serve = ["block", "serve", "shm:disk", "disk", "--size", "1MiB"];
    for command in [&["stat"][..], &["ls"], &serve] {
        let mut absent = Command::new(env!("CARGO_BIN_EXE_tranship"));
        absent.args(command).current_dir(manager.path(""));
        absent.env("TRANSHIP_SOCKET", manager.path("nobody.sock"));
        let output = absent.output().expect("running");
        assert_eq!(output.status.code(), Some(3), "{command:?}");
        assert!(output.stdout.is_empty(), "{command:?}");
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
    // A receiver waits for a name that no process exports.
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
    let daemonize = |idle| {
        let mut command = tranship(&["manager", "--daemonize", "--idle-exit", idle], &socket);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("running")
    };
    let gone = || {
        while socket.exists() {
            std::thread::yield_now();
        }
    };
    // Longer than any test may take.
    assert!(daemonize("1h").success());
    let stat = tranship(&["stat", "--json"], &socket)
        .output()
        .expect("stat");
    good(&stat);
    let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    let pid = stat["manager"]["pid"].as_i64().expect("its process");
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let term = rustix::process::Signal::TERM;
    rustix::process::kill_process(pid.expect("a process"), term).expect("a signal");
    gone();
    // A manager that may end by itself does, and takes its socket with it.
    assert!(daemonize("100ms").success());
    gone();
}
