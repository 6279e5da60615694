//! A manager and clients as processes of their own.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
pub(crate) use tranship_testkit::Running;
use tranship_testkit::{Launch, Peer, Watchdog, listening, manager};

pub(crate) fn tranship(arguments: &[&str], socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
    command
        .args(arguments)
        .arg("--socket")
        .arg(socket)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG");
    command
}

/// Waits for its end; returns its exit code and its output.
pub(crate) fn ended(mut one: Running) -> (Option<i32>, String) {
    let code = one.0.wait().expect("its end").code();
    let mut said = String::new();
    let mut errors = one.0.stderr.take().expect("its errors");
    errors.read_to_string(&mut said).expect("its errors");
    (code, said)
}

/// A manager with a folder of its own.
pub(crate) struct Manager {
    _manager: Peer,
    dir: tempfile::TempDir,
    _dog: Watchdog,
}

impl Manager {
    pub(crate) fn start() -> Self {
        Self::configured("")
    }

    /// Starts a manager with that configuration, TOML.
    pub(crate) fn configured(config: &str) -> Self {
        Self::run(|socket| manager(socket, config))
    }

    /// Starts a manager with so few descriptors.
    pub(crate) fn limited(descriptors: u32) -> Self {
        let limits = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
        let program = env!("CARGO_BIN_EXE_tranship");
        Self::run(|socket| {
            let shell = Launch::program("/bin/sh").args(["-c".as_ref(), limits.as_ref()]);
            shell
                .arg(program)
                .arg("manager")
                .arg("--socket")
                .arg(socket)
        })
    }

    fn run(launch: impl FnOnce(&Path) -> Launch) -> Self {
        let dog = Watchdog::new();
        let dir = tranship_testkit::folder().expect("a folder");
        let socket = dir.path().join("m.sock");
        Self {
            _manager: listening(&launch(&socket), &socket),
            dir,
            _dog: dog,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        tranship(arguments, &self.path("m.sock"))
    }
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

pub(crate) fn good(output: &Output) {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
