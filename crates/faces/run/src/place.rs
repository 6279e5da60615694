//! The folder of a running program: the manager's socket and configuration, and the sockets of readiness.

use crate::program::Program;
use anyhow::{Context, Result};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Makes the folder of a program. Only its components' users get in.
pub(crate) fn make(program: &Program) -> Result<PathBuf> {
    let users = program.components.iter().any(|c| c.rights.uid.is_some());
    // A folder that only this user may enter lies in one that others may pass.
    let base = match users {
        true => std::env::temp_dir(),
        false => tranship_sys::own_dir::user_dir().context("a folder for the manager's socket")?,
    };
    // Short: the path of a socket has at most 107 bytes.
    let dir = base.join(format!("run-{}", std::process::id()));
    // A process of this number has ended, or this one could not have it.
    let _ = fs::remove_dir_all(&dir);
    let mode = if users { 0o711 } else { 0o700 };
    let made = fs::DirBuilder::new().mode(0o700).create(&dir);
    // Whatever the umask is.
    let made = made.and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)));
    made.with_context(|| format!("making {}", dir.display()))?;
    Ok(dir)
}

pub(crate) fn manager_socket(dir: &Path) -> PathBuf {
    dir.join("manager.sock")
}

pub(crate) fn manager_config(dir: &Path) -> PathBuf {
    dir.join("manager.toml")
}

/// Writes a file with keys: only this user may read it.
pub(crate) fn write_keys(path: &Path, text: &str) -> Result<()> {
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("writing {}", path.display()))
}

/// Makes the socket at which a process says that it is ready.
pub(crate) fn readiness(
    dir: &Path,
    number: usize,
    uid: Option<u32>,
) -> Result<(UnixDatagram, PathBuf)> {
    let path = dir.join(format!("{number}.ready"));
    let _ = fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).with_context(|| format!("making {}", path.display()))?;
    socket
        .set_nonblocking(true)
        .context("a socket that does not wait")?;
    if let Some(uid) = uid {
        chown(&path, Some(uid), None).with_context(|| format!("giving {} away", path.display()))?;
    }
    Ok((socket, path))
}
