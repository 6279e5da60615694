//! Processes of the program, with a manager and a folder of their own.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::skipped;
pub use tranship_testkit::{Home, Running, Said};

/// A manager, and a folder on a real disk.
pub fn home() -> Home {
    let near = Path::new(env!("CARGO_BIN_EXE_tranship"));
    let dir = tempfile::tempdir_in(near.parent().expect("a folder"));
    Home::within(dir.expect("a folder"), "")
}

/// Starts a service, and waits until it says that it is there.
pub fn start(home: &Home, arguments: &[&str]) -> Running {
    started(&mut home.command(&[&["block"], arguments].concat()))
}

/// Starts a service, and waits for its last line about itself; its other output is thrown away.
pub fn started(command: &mut Command) -> Running {
    started_saying(command).0
}

/// Starts the program; returns its output up to there too.
pub fn started_saying(command: &mut Command) -> (Running, Vec<String>) {
    let mut running = Running::start(command.stdout(Stdio::piped()));
    let out = running.0.stdout.take().expect("its output");
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

/// Starts a program that mounts a file system, and waits until this file of it is there. Reports the skip if it cannot.
pub fn mounted(command: &mut Command, file: &Path) -> Option<Running> {
    let mut running = Running::start(command.stdin(Stdio::null()));
    while !file.exists() {
        if let Some(status) = running.0.try_wait().expect("waiting") {
            skipped(format!("nbdfuse cannot mount here: {status}"));
            return None;
        }
        std::thread::yield_now();
    }
    Some(running)
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
        skipped(format!("no {missing} here; scripts/deps.sh installs it"));
    }
    missing.is_none()
}

/// Runs a command, which must succeed; returns its output.
pub fn run(command: &mut Command) -> String {
    Said::of(command.stdin(Stdio::null())).well()
}
