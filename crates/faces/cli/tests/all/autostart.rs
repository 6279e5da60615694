//! The manager that a client starts when it finds none: one for all, gone when it has been idle.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tranship_testkit::{Running, Said, Watchdog, folder, skipped, tranship, until};

/// A user's run-time directory of its own.
struct Home(tempfile::TempDir);

impl Home {
    /// Makes a home; `None` if a manager of the system would be found first.
    fn new() -> Option<Home> {
        let stat = ["stat", "--socket", "/run/tranship/manager.sock"];
        if Said::of(&mut tranship(&stat)).code == Some(0) {
            skipped("a manager of the system runs here");
            return None;
        }
        Some(Home(folder().expect("a folder")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("tranship/manager.sock")
    }

    /// A program that stands for the manager's: a script.
    fn script(&self, text: &str) -> PathBuf {
        let (from, path) = (self.path("manager.txt"), self.path("manager.sh"));
        std::fs::write(&from, text).expect("the script");
        // Another process copies the file: a child that another thread of this one starts would have it open for
        // writing, and then no process could run it.
        let mut install = Command::new("install");
        let made = install.args(["-m", "755"]).arg(from).arg(&path).status();
        assert!(made.expect("install").success());
        path
    }

    fn client(&self, arguments: &[&str], manager: &Path) -> Command {
        let mut command = tranship(arguments);
        command.env("XDG_RUNTIME_DIR", self.0.path());
        command.env("TRANSHIP_BIN", manager);
        command
    }

    fn recv(&self, manager: &Path) -> Said {
        Said::of(&mut self.client(&["recv", "nothing"], manager))
    }
}

#[test]
fn clients_that_come_at_once_share_one_and_it_leaves_after_the_last() {
    let Some(home) = Home::new() else { return };
    // The script starts the real program. It writes the arguments down, and shortens the wait of 60 s to 300 ms.
    let script = format!(
        r#"#!/bin/sh
echo "$@" >>"{}"
for argument; do
    shift
    [ "$argument" = 60s ] && argument=300ms
    set -- "$@" "$argument"
done
exec "{}" "$@"
"#,
        home.path("arguments").display(),
        env!("CARGO_BIN_EXE_tranship")
    );
    let script = home.script(&script);
    let clients: Vec<_> = (0..4)
        .map(|_| Running::start(&mut home.client(&["recv", "nothing"], &script)))
        .collect();
    loop {
        let stat = Said::of(&mut home.client(&["stat", "--json"], &script)).out;
        let stat = serde_json::from_str(&stat).unwrap_or(serde_json::Value::Null);
        // The four, and the domain that asks.
        if stat["domains"].as_array().is_some_and(|all| all.len() == 5) {
            break;
        }
    }
    drop(clients);
    until(|| !home.socket().exists());
    let arguments = std::fs::read_to_string(home.path("arguments")).expect("arguments");
    for line in arguments.lines() {
        assert!(line.contains("--idle-exit 60s"), "{line}");
    }
}

#[test]
fn one_that_cannot_be_started_is_an_error_at_once_that_says_how_to_find_out() {
    let Some(home) = Home::new() else { return };
    home.recv(&home.path("missing")).ends(3, &["missing"]);
    let fails = home.script("#!/bin/sh\nexit 7\n");
    home.recv(&fails)
        .ends(3, &["exit status: 7", "manager --socket"]);
}

#[test]
fn one_that_does_not_begin_is_waited_for_so_long_and_no_longer() {
    let _dog = Watchdog::new();
    let Some(home) = Home::new() else { return };
    let hangs = home.script("#!/bin/sh\nexec sleep 1000000\n");
    let words = ["after 15s, and was killed", "manager --socket"];
    home.recv(&hangs).ends(3, &words);
}

/// The daemon reads its configuration from a pipe that nobody writes.
#[test]
fn a_daemon_that_does_not_listen_is_waited_for_so_long_and_no_longer() {
    let _dog = Watchdog::new();
    let Some(home) = Home::new() else { return };
    let (pipe, socket) = (home.path("pipe"), home.path("m.sock"));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let mut daemon = tranship(&["manager", "--daemonize", "--config"]);
    let said = Said::of(daemon.arg(pipe).arg("--socket").arg(&socket));
    said.ends(2, &["had not listened at", "after 10s, and was killed"]);
    // The output ended: no process has it any more, so the manager is gone.
}

/// Another daemon has the right to the place, and is about to listen.
#[test]
fn a_daemon_that_was_slower_than_another_waits_for_that_one() {
    let _dog = Watchdog::new();
    let Some(home) = Home::new() else { return };
    let socket = home.path("m.sock");
    let daemon = || {
        let idle = ["manager", "--daemonize", "--idle-exit", "100ms", "--socket"];
        let mut daemon = tranship(&idle);
        daemon.arg(&socket).stderr(Stdio::piped());
        daemon
    };
    let lock = std::fs::File::create(home.path("m.sock.lock")).expect("the lock file");
    lock.lock().expect("the lock");
    Said::of(&mut daemon()).ends(2, &["has not listened there for 10s"]);

    let waits = Running::start(&mut daemon());
    let other = tranship_sys::socket::listen(&socket, 0o600).expect("listen");
    waits.ends_well();
    drop(other);
}
