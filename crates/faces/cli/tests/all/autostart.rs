//! The manager that a client starts when it finds none: one for all, gone when it has been idle.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use tranship_testkit::Watchdog;

const TRANSHIP: &str = env!("CARGO_BIN_EXE_tranship");

/// A user's run-time directory of its own.
struct Home(tempfile::TempDir);

impl Home {
    /// Makes a home; `None` if a manager of the system would be found first.
    fn new() -> Option<Home> {
        if Command::new(TRANSHIP)
            .args(["stat", "--socket", "/run/tranship/manager.sock"])
            .output()
            .expect("stat")
            .status
            .success()
        {
            tranship_testkit::skipped("a manager of the system runs here");
            return None;
        }
        Some(Home(tranship_testkit::folder().expect("a folder")))
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

    fn client(&self, arguments: &[&str], manager: &PathBuf) -> Command {
        let mut command = Command::new(TRANSHIP);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env("TRANSHIP_BIN", manager)
            .env_remove("TRANSHIP_SOCKET")
            .env_remove("RUST_LOG");
        command
    }
}

/// Processes that do not outlive a test.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
exec "{TRANSHIP}" "$@"
"#,
        home.path("arguments").display()
    );
    let script = home.script(&script);
    let clients = (0..4)
        .map(|_| {
            let mut client = home.client(&["recv", "nothing"], &script);
            client.spawn().expect("a client")
        })
        .collect();
    let clients = Running(clients);
    loop {
        let stat = home.client(&["stat", "--json"], &script).output();
        let stat = stat.expect("stat").stdout;
        let stat = serde_json::from_slice(&stat).unwrap_or(serde_json::Value::Null);
        // The four, and the domain that asks.
        if stat["domains"].as_array().is_some_and(|all| all.len() == 5) {
            break;
        }
    }
    drop(clients);
    while home.socket().exists() {
        std::thread::yield_now();
    }
    let arguments = std::fs::read_to_string(home.path("arguments")).expect("arguments");
    for line in arguments.lines() {
        assert!(line.contains("--idle-exit 60s"), "{line}");
    }
}

#[test]
fn one_that_cannot_be_started_is_an_error_at_once_that_says_how_to_find_out() {
    let Some(home) = Home::new() else { return };
    let missing = home.path("missing");
    let output = home.client(&["recv", "nothing"], &missing).output();
    let output = output.expect("recv");
    assert_eq!(output.status.code(), Some(3));
    assert!(error(&output).contains("missing"), "{}", error(&output));

    let fails = home.script("#!/bin/sh\nexit 7\n");
    let output = home.client(&["recv", "nothing"], &fails).output();
    let output = output.expect("recv");
    assert_eq!(output.status.code(), Some(3));
    let said = error(&output);
    assert!(said.contains("exit status: 7"), "{said}");
    assert!(said.contains("manager --socket"), "{said}");
}

#[test]
fn one_that_does_not_begin_is_waited_for_so_long_and_no_longer() {
    let _dog = Watchdog::new();
    let Some(home) = Home::new() else { return };
    let hangs = home.script("#!/bin/sh\nexec sleep 1000000\n");
    let output = home.client(&["recv", "nothing"], &hangs).output();
    let output = output.expect("recv");
    assert_eq!(output.status.code(), Some(3));
    let said = error(&output);
    assert!(said.contains("after 15s, and was killed"), "{said}");
    assert!(said.contains("manager --socket"), "{said}");
}

/// The daemon reads its configuration from a pipe that nobody writes.
#[test]
fn a_daemon_that_does_not_listen_is_waited_for_so_long_and_no_longer() {
    let _dog = Watchdog::new();
    let Some(home) = Home::new() else { return };
    let (pipe, socket) = (home.path("pipe"), home.path("m.sock"));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let mut daemon = Command::new(TRANSHIP);
    daemon
        .args(["manager", "--daemonize", "--config"])
        .arg(pipe);
    let output = daemon.arg("--socket").arg(&socket).output();
    let output = output.expect("manager");
    assert_eq!(output.status.code(), Some(2));
    let said = error(&output);
    assert!(said.contains("had not listened at"), "{said}");
    assert!(said.contains("after 10s, and was killed"), "{said}");
    // The output ended: no process has it any more, so the manager is gone.
}

/// Another daemon has the right to the place, and is about to listen.
#[test]
fn a_daemon_that_was_slower_than_another_waits_for_that_one() {
    let _dog = Watchdog::new();
    let Some(home) = Home::new() else { return };
    let socket = home.path("m.sock");
    let daemon = || {
        let mut daemon = Command::new(TRANSHIP);
        daemon
            .args(["manager", "--daemonize", "--idle-exit", "100ms", "--socket"])
            .arg(&socket)
            .stderr(Stdio::piped());
        daemon
    };
    let lock = std::fs::File::create(home.path("m.sock.lock")).expect("the lock file");
    lock.lock().expect("the lock");
    let output = daemon().output().expect("manager");
    assert_eq!(output.status.code(), Some(2));
    let said = error(&output);
    assert!(said.contains("has not listened there for 10s"), "{said}");

    let waits = Running(vec![daemon().spawn().expect("manager")]);
    let other = tranship_sys::socket::listen(&socket, 0o600).expect("listen");
    let mut waits = waits;
    assert!(waits.0[0].wait().expect("waiting").success());
    drop(other);
}
