//! Folders of tests. A run that is killed leaves its own behind; the next one takes them away.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use tempfile::TempDir;

/// Followed by the process that uses it.
pub(crate) const PREFIX: &str = "tranship-test-";

/// Makes a folder that goes with its handle.
///
/// # Errors
/// Of the file system.
pub fn folder() -> io::Result<TempDir> {
    static SWEPT: Once = Once::new();
    let base = std::env::temp_dir();
    SWEPT.call_once(|| sweep(&base));
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(base)
}

/// Removes the folders of processes that are gone.
fn sweep(base: &Path) {
    for path in of_the_dead(base) {
        let _ = std::fs::remove_dir_all(path);
    }
}

/// Returns the folders of processes that are gone.
pub(crate) fn of_the_dead(base: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let dead = |pid| !Path::new(&format!("/proc/{pid}")).exists();
    paths.filter(|path| owner(path).is_some_and(dead)).collect()
}

/// Returns the process that made a folder of this kind.
pub(crate) fn owner(folder: &Path) -> Option<u32> {
    let rest = folder.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    rest.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_goes_and_the_rest_stays() {
        let base = folder().expect("a folder");
        let make = |name: String| {
            let path = base.path().join(name);
            std::fs::create_dir(&path).expect("a folder");
            std::fs::write(path.join("file"), "").expect("a file");
            path
        };
        // Beyond the highest process id that there can be.
        let dead = make(format!("{PREFIX}4194305-x"));
        let ours = make(format!("{PREFIX}{}-x", std::process::id()));
        let others = [make(format!("{PREFIX}x")), make("4194305-x".into())];
        sweep(base.path());
        assert!(!dead.exists() && ours.exists());
        assert!(others.iter().all(|path| path.exists()));
    }
}
