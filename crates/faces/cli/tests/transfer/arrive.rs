//! Data that is sent arrives, whichever end comes first; and the views of it meanwhile.

use crate::kit::*;
use std::process::Stdio;
use tranship_testkit::until;

#[test]
fn bytes_arrive_whoever_comes_first() {
    let manager = Home::new("");
    let from = input_file(&manager);
    for (name, receiver_first) in [("one", true), ("two", false)] {
        let to = manager.path(name);
        let recv = || Running::start(manager.command(&["recv", name]).arg(&to));
        let send = || {
            let mut send = manager.command(&["send", name, "--frame", "65536"]);
            Running::start(send.arg(&from))
        };
        let both = if receiver_first {
            [recv(), send()]
        } else {
            [send(), recv()]
        };
        both.into_iter().for_each(Running::ends_well);
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
    let manager = Home::new("");
    for arguments in [
        ["send", "lonely", "--wait", "10ms"],
        ["recv", "lonely", "--wait", "10ms"],
    ] {
        manager.run(&arguments).ends(1, &[]);
    }
    // A frame that can never be sent is reported before the command waits for a receiver.
    let huge = manager.run(&["send", "lonely", "--frame", "8192GiB"]);
    huge.ends(2, &["larger than the"]);
    let serve = ["block", "serve", "shm:disk", "disk", "--size", "1MiB"];
    for command in [&["stat"][..], &["ls"], &serve] {
        let mut absent = manager.command(command);
        absent.env("TRANSHIP_SOCKET", manager.path("nobody.sock"));
        let said = Said::of(&mut absent);
        said.ends(3, &[]);
        assert_eq!(said.out, "", "{command:?}");
    }
}

#[test]
fn stat_shows_who_waits_under_a_name() {
    let manager = Home::new("");
    let _waiting = spawn(&mut manager.command(&["send", "film"]));
    let listed = loop {
        let listed = manager.run(&["ls"]).well();
        if !listed.is_empty() {
            break listed;
        }
    };
    assert!(
        listed.starts_with("film\ttranship-send#") && listed.ends_with(" -> (nobody)\n"),
        "{listed}"
    );
    // A receiver waits for a name that no process exports.
    let _reader = Running::start(&mut manager.command(&["recv", "book"]));
    let listed = loop {
        let listed = manager.run(&["ls"]).out;
        if listed.lines().count() == 2 {
            break listed;
        }
    };
    has(&listed, &["book\t(not exported yet) -> tranship-recv#"]);
    let stat = manager.run(&["stat", "--json"]).json();
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
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Running::start(&mut command).ends_well();
    };
    let gone = || until(|| !socket.exists());
    // Longer than any test may take.
    daemonize("1h");
    let stat = Said::of(&mut tranship(&["stat", "--json"], &socket)).json();
    let pid = stat["manager"]["pid"].as_i64().expect("its process");
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let term = rustix::process::Signal::TERM;
    rustix::process::kill_process(pid.expect("a process"), term).expect("a signal");
    gone();
    // A manager that may end by itself does, and takes its socket with it.
    daemonize("100ms");
    gone();
}
