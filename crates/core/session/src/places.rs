//! The places of managers' sockets.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use tranship_sys::own_dir;
use tranship_sys::process;

/// Names the socket to use, before any other.
pub const SOCKET_ENV: &str = "TRANSHIP_SOCKET";
/// Has the key by which the manager's rules about names know this process.
pub const KEY_ENV: &str = "TRANSHIP_KEY";
/// Returns the file of the operator's key, beside the socket of a program's manager.
pub fn key_file(socket: &Path) -> PathBuf {
    socket.with_extension("key")
}

/// Reads the operator's key, which the program's user can, and its components cannot.
pub(crate) fn operator_key(socket: &Path) -> Option<String> {
    let path = key_file(socket);
    // Another user's folder may have a pipe there, for which an open would wait.
    let is_file = std::fs::metadata(&path).is_ok_and(|found| found.is_file());
    let file = is_file.then(|| File::open(path).ok()).flatten()?;
    let mut key = String::new();
    file.take(64).read_to_string(&mut key).ok()?;
    (!key.is_empty()).then_some(key)
}

/// The system's manager.
pub const SYSTEM_SOCKET: &str = "/run/tranship/manager.sock";

/// The places to look at, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Named in the environment: then no other is tried.
    pub named: Option<PathBuf>,
    /// The system's manager.
    pub system: PathBuf,
    /// The user's own manager, which may be started there. `None`: there is no safe directory for it.
    pub user: Option<PathBuf>,
}

impl Places {
    /// Finds the places in the environment of this process, unless it is privileged. It makes no directory: the program
    /// that starts a manager does ([`own_dir`](own_dir::own_dir)).
    pub fn find() -> Places {
        let named = process::trusted_env(SOCKET_ENV).map(PathBuf::from);
        let user = own_dir::find_user_dir().map(|d| d.join("manager.sock"));
        Places {
            named,
            system: PathBuf::from(SYSTEM_SOCKET),
            user,
        }
    }

    /// Returns the places to try, in order.
    pub fn candidates(&self) -> Vec<&Path> {
        match &self.named {
            Some(path) => vec![path],
            None => std::iter::once(self.system.as_path())
                .chain(self.user.as_deref())
                .collect(),
        }
    }
}
