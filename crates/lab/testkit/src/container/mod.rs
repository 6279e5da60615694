//! Children that share only named things with the test: own mount, pid, ipc, network, uts and (where possible) user
//! namespaces, a minimal read-only file tree, a memory cgroup.

mod cgroup;
mod root;

use std::path::{Path, PathBuf};

pub use cgroup::Cgroup;
pub(crate) use root::Root;

/// Parts of a container. The binary itself is executed by descriptor and need not be in it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Container {
    shared: Vec<(PathBuf, PathBuf)>,
    users: bool,
}

impl Container {
    /// Identifiers 0 to 65535 inside are these outside.
    pub(crate) const ID_MAP: &str = "0 100000 65536\n";

    /// Creates a container with its own everything, user namespace included; an empty tree but for `/usr`, `/proc` and
    /// `/tmp`.
    pub fn new() -> Self {
        Self {
            shared: Vec::new(),
            users: true,
        }
    }

    /// Makes `outside` (a directory) visible as `inside`, writable.
    pub fn share(mut self, outside: impl AsRef<Path>, inside: impl AsRef<Path>) -> Self {
        self.shared
            .push((outside.as_ref().into(), inside.as_ref().into()));
        self
    }

    /// Makes it without a user namespace: root inside is root outside.
    pub fn without_users(mut self) -> Self {
        self.users = false;
        self
    }

    /// Returns why containers are impossible here, if they are.
    #[must_use]
    pub fn impossible() -> Option<String> {
        (!crate::is_root()).then(|| "containers need root".to_owned())
    }

    pub(crate) fn has_users(&self) -> bool {
        self.users
    }

    pub(crate) fn namespaces(&self) -> i32 {
        let always = libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWUTS;
        always | if self.users { libc::CLONE_NEWUSER } else { 0 }
    }

    pub(crate) fn root(&self) -> Result<Root, std::io::Error> {
        Root::new(&self.shared)
    }
}

impl Default for Container {
    fn default() -> Self {
        Self::new()
    }
}
