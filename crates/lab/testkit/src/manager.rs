//! A manager as a process of its own: the program `tranship manager`.

use std::path::Path;

use crate::artifact::program;
use crate::{Launch, Peer};

/// Launches a manager at a socket, with a configuration in TOML.
///
/// # Panics
/// If the configuration cannot be written beside the socket.
pub fn manager(socket: &Path, config: &str) -> Launch {
    let launch = Launch::program(program())
        .args(["manager".as_ref(), "--socket".as_ref(), socket.as_os_str()])
        .env("RUST_LOG", "warn")
        .quiet();
    if config.is_empty() {
        return launch;
    }
    let file = socket.with_added_extension("toml");
    std::fs::write(&file, config).expect("the configuration");
    launch.arg("--config").arg(file)
}

/// Starts a launched manager, and waits until it listens.
///
/// # Panics
/// If it does not start, or ends at once.
#[must_use]
#[track_caller]
pub fn listening(launch: &Launch, socket: &Path) -> Peer {
    let manager = launch.start().expect("a manager");
    while tranship_sys::socket::connect(socket).is_err() {
        assert!(
            !manager.has_ended(),
            "the manager ended\n{}",
            manager.stderr()
        );
        std::thread::yield_now();
    }
    manager
}

/// Starts a manager at a socket, with a configuration in TOML, and waits until it listens.
///
/// # Panics
/// If it does not start, or ends at once.
#[must_use]
#[track_caller]
pub fn start_manager(socket: &Path, config: &str) -> Peer {
    listening(&manager(socket, config), socket)
}
