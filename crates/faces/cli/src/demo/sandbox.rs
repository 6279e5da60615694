//! Lock-down of a consumer, and its attempts afterwards to get out.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use tranship::sandbox::{Landlock, Sandbox};

/// Confinement of a consumer, and the result of its attempts to get out.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Landlock is in force (seccomp always is).
    pub landlock: bool,
    /// Attempts after the lock-down that succeeded; none, if all is well.
    pub escaped: Vec<String>,
}

/// Locks this process down for good and then tries to get out.
///
/// With `traceable`, other processes of its user may still look into it, to count its system calls.
pub(crate) fn lock_down(traceable: bool) -> Result<Confinement> {
    let sandbox = match traceable {
        true => Sandbox::new().traceable(),
        false => Sandbox::new(),
    };
    let landlock = sandbox.lock_down().context("locking a consumer down")?;
    Ok(Confinement {
        landlock: landlock != Landlock::Missing,
        escaped: try_to_escape(),
    })
}

/// Attempt that must fail in a locked-down process, and the function that returns whether it succeeded.
type Attempt = (&'static str, fn() -> bool);

/// Tries everything that must fail now; returns the names of attempts that did not.
fn try_to_escape() -> Vec<String> {
    let attempts: [Attempt; 5] = [
        ("open a file", || std::fs::File::open("/etc/passwd").is_ok()),
        ("create a file", || {
            std::fs::File::create(escape_path()).is_ok()
        }),
        ("open a network socket", || {
            UdpSocket::bind("127.0.0.1:0").is_ok()
        }),
        ("open a Unix socket", || UnixStream::pair().is_ok()),
        ("start a program", || {
            std::process::Command::new("/bin/true").spawn().is_ok()
        }),
    ];
    attempts
        .iter()
        .filter(|(_, attempt)| attempt())
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

fn escape_path() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("tranship-escaped-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_lock_down_the_attempts_succeed() {
        // A control, so that an empty list after a lock-down means something.
        let escaped = try_to_escape();
        let _ = std::fs::remove_file(escape_path());
        assert_eq!(escaped.len(), 5, "{escaped:?}");
    }
}
