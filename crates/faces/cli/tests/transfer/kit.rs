//! A manager and clients as processes of their own.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

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

/// A process that does not outlive a test, not even one that fails.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Waits for its end; a process that hangs fails the test, and is killed as the test unwinds.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("waiting") {
                return status;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(600),
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

/// Waits for its end; returns its exit code and its output.
pub(crate) fn ended(mut one: Running) -> (Option<i32>, String) {
    let code = one.end().code();
    let mut said = String::new();
    let mut errors = one.0.stderr.take().expect("its errors");
    errors.read_to_string(&mut said).expect("its errors");
    (code, said)
}

/// A manager with a folder of its own.
pub(crate) struct Manager {
    _child: Running,
    dir: tempfile::TempDir,
}

impl Manager {
    pub(crate) fn start() -> Self {
        Self::configured("")
    }

    /// Starts a manager with that configuration, TOML.
    pub(crate) fn configured(config: &str) -> Self {
        Self::run(config, |manager| manager)
    }

    /// Starts a manager with so few descriptors.
    pub(crate) fn limited(descriptors: u32) -> Self {
        Self::run("", |manager| {
            let mut limited = Command::new("sh");
            limited.arg("-c");
            limited.arg(format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""));
            limited.arg(manager.get_program()).args(manager.get_args());
            limited
        })
    }

    fn run(config: &str, wrap: impl FnOnce(Command) -> Command) -> Self {
        let dir = tranship_testkit::folder().expect("a folder");
        let file = dir.path().join("manager.toml");
        std::fs::write(&file, config).expect("the configuration");
        let socket = dir.path().join("m.sock");
        let mut manager = tranship(&["manager"], &socket);
        manager.arg("--config").arg(&file);
        let child = wrap(manager).spawn();
        let mut child = Running(child.expect("a manager"));
        // The manager is there when it listens; no pause would show that.
        while tranship_sys::socket::connect(&socket).is_err() {
            assert_eq!(
                child.0.try_wait().expect("waiting"),
                None,
                "the manager ended"
            );
            std::thread::yield_now();
        }
        Self { _child: child, dir }
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
