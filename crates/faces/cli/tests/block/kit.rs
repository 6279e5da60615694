//! Processes of the program, with a manager and a folder of their own.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
pub use tranship_testkit::Running;
use tranship_testkit::{Peer, Watchdog, start_manager};

/// Generous: not a bound on speed.
pub fn watchdog() -> Watchdog {
    Watchdog::new()
}

/// A manager, and a folder on a real disk.
pub struct Home {
    dir: tempfile::TempDir,
    _manager: Peer,
}

impl Home {
    pub fn new() -> Home {
        let near = Path::new(env!("CARGO_BIN_EXE_tranship"));
        let dir = tempfile::tempdir_in(near.parent().expect("a folder")).expect("a folder");
        let socket = dir.path().join("m");
        Home {
            _manager: start_manager(&socket, ""),
            dir,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("TRANSHIP_SOCKET", self.path("m"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        command
    }

    /// Starts a service, and waits until it says that it is there.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(&[&["block"], arguments].concat());
        started(command.stdout(Stdio::piped()).spawn().expect("starting"))
    }
}

/// Waits for a service's last line about itself; its other output is thrown away.
pub fn started(child: Child) -> Running {
    started_saying(child).0
}

/// Starts the program; returns its output up to there too.
pub fn started_saying(mut child: Child) -> (Running, Vec<String>) {
    let out = child.stdout.take().expect("its output");
    let running = Running(child);
    let mut out = BufReader::new(out);
    let mut said: Vec<String> = Vec::new();
    let is_last = |line: &String| line.starts_with("serving") || line.starts_with("forwarding");
    while !said.last().is_some_and(is_last) {
        let mut line = String::new();
        assert!(
            out.read_line(&mut line).expect("its output") > 0,
            "it ended at once"
        );
        said.push(line.trim_end().to_owned());
    }
    std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
    (running, said)
}

/// Returns whether these programs are here.
pub fn have(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        !found.is_ok_and(|found| found.status.success())
    });
    if let Some(missing) = missing {
        tranship_testkit::skipped(format!("no {missing} here; scripts/deps.sh installs it"));
    }
    missing.is_none()
}

/// Runs it, which must succeed; gives its output.
pub fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().expect("running");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}
