//! The user's own directory for sockets and other files of tranship.
//!
//! NOT here: the names of files in it.

use crate::process;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns the places for a user's own directory, best first. The one in /tmp may belong to another user, who made
/// it as an obstacle. No other user can make the one after it.
fn user_dirs() -> Vec<PathBuf> {
    let uid = process::geteuid();
    let variable = process::trusted_env("XDG_RUNTIME_DIR");
    let run = PathBuf::from(format!("/run/user/{uid}"));
    let home = process::trusted_env("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    variable
        .map(PathBuf::from)
        .into_iter()
        .chain([run])
        .map(|base| base.join("tranship"))
        .chain([PathBuf::from(format!("/tmp/tranship-{uid}"))])
        .chain(home.map(|home| home.join(".tranship")))
        .collect()
}

/// Finds the first of the user's directories that belongs to this user alone, or can be made so:
/// `$XDG_RUNTIME_DIR/tranship`, `/run/user/UID/tranship`, `/tmp/tranship-UID`, `$HOME/.tranship`. It makes no
/// directory.
pub fn find_user_dir() -> Option<PathBuf> {
    user_dirs().into_iter().find(|dir| is_ours_or_free(dir))
}

/// Finds the user's directory, and makes it if necessary.
pub fn user_dir() -> io::Result<PathBuf> {
    let dir = find_user_dir().ok_or(io::ErrorKind::NotFound)?;
    own_dir(&dir)?;
    Ok(dir)
}

fn is_ours_or_free(dir: &Path) -> bool {
    let free = || {
        let above = dir.parent().unwrap_or(Path::new("/"));
        std::fs::symlink_metadata(dir).is_err() && process::may_make_in(above)
    };
    check_own(dir).is_ok() || free()
}

/// Makes a directory with mode 0700, or checks that an existing one belongs to this user alone.
pub fn own_dir(dir: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    check_own(dir)
}

fn check_own(dir: &Path) -> io::Result<()> {
    let meta = std::fs::symlink_metadata(dir)?;
    let safe = meta.is_dir() && meta.uid() == process::geteuid() && meta.mode() & 0o077 == 0;
    if safe {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "{} is not a directory of ours with mode 0700",
            dir.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn looking_finds_what_making_makes_and_makes_nothing() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("d");
        assert!(is_ours_or_free(&dir) && !dir.exists());
        own_dir(&dir).unwrap();
        assert!(is_ours_or_free(&dir));
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!is_ours_or_free(&dir));
        assert!(!is_ours_or_free(&base.path().join("absent/d")));
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("d");
        own_dir(&dir).unwrap();
        own_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(own_dir(&dir).is_err());
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(own_dir(&link).is_err());
    }
}
