//! A manager and clients as processes of their own.

use std::io::{PipeWriter, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
pub(crate) use tranship_testkit::{Home, Running, Said, has};
use tranship_testkit::{Launch, Watchdog, folder, listening};

pub(crate) fn tranship(arguments: &[&str], socket: &Path) -> Command {
    let mut command = tranship_testkit::tranship(arguments);
    command.arg("--socket").arg(socket);
    command
}

/// Starts a program whose errors the test reads.
pub(crate) fn spawn(command: &mut Command) -> Running {
    Running::start(command.stderr(Stdio::piped()))
}

/// Starts a sender of the data that is written into the returned pipe, frame by frame.
pub(crate) fn fed(home: &Home, name: &str) -> (Running, PipeWriter) {
    let mut send = home.command(&["send", name, "--frame", "4096"]);
    let (theirs, ours) = pipe().expect("a pipe");
    (spawn(send.stdin(theirs)), ours)
}

/// Writes the input into a file.
pub(crate) fn input_file(home: &Home) -> PathBuf {
    let file = home.path("in");
    std::fs::write(&file, input()).expect("the input");
    file
}

/// Starts a manager with so few descriptors.
pub(crate) fn limited(descriptors: u32) -> Home {
    let limits = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    let (dog, dir) = (Watchdog::new(), folder().expect("a folder"));
    let socket = dir.path().join("m.sock");
    let shell = Launch::program("/bin/sh").args(["-c".as_ref(), limits.as_ref()]);
    let launch = shell.arg(env!("CARGO_BIN_EXE_tranship")).arg("manager");
    let manager = listening(&launch.arg("--socket").arg(&socket), &socket);
    Home { manager, dir, dog }
}

/// Returns some bytes that do not repeat with any buffer size.
pub(crate) fn input() -> &'static [u8] {
    static INPUT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..3_000_001u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0])
            .collect()
    });
    &INPUT
}
