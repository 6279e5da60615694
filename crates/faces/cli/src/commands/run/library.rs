//! Path of the allocator that `tranship run` puts under a program.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_sys::own_dir;

/// Names the library, before any other place.
const LIBRARY_ENV: &str = "TRANSHIP_MALLOC";
const LIBRARY: &str = "libtranship_malloc.so";

/// The one that releases of this program have in them.
#[cfg(has_library)]
const OWN: Option<&[u8]> = Some(include_bytes!(env!("TRANSHIP_LIBRARY")));
#[cfg(not(has_library))]
const OWN: Option<&[u8]> = None;

/// Finds the library: the given one, the one named in the environment, the one beside this program, or the one in it.
pub(super) fn find(given: Option<&Path>) -> Result<PathBuf> {
    let named = || {
        let path = std::env::var_os(LIBRARY_ENV).filter(|path| !path.is_empty());
        path.map(PathBuf::from)
    };
    let path = match given.map(Path::to_owned).or_else(named) {
        Some(path) => path
            .canonicalize()
            .with_context(|| format!("no allocator at {}", path.display()))?,
        None => usual()?,
    };
    ensure!(
        is_loadable(&path),
        "{} has a blank or a colon in it, which LD_PRELOAD cannot name: put the library elsewhere and name it by --library or {LIBRARY_ENV}",
        path.display()
    );
    Ok(path)
}

fn usual() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where is this program?")?;
    let beside = [
        program.with_file_name(LIBRARY),
        program.with_file_name("../lib").join(LIBRARY),
    ];
    if let Some(path) = beside.iter().find_map(|path| path.canonicalize().ok()) {
        return Ok(path);
    }
    let Some(own) = OWN else {
        bail!(
            "no {LIBRARY} beside {} or in ../lib, and none in this build of it (releases have it): build it with `cargo build \
             --release -p tranship-preload` and name it by --library or {LIBRARY_ENV}",
            program.display()
        );
    };
    folder()
        .and_then(|folder| written(&folder, own))
        .with_context(|| {
            format!("writing {LIBRARY} out of this program, so that it can be loaded; --library or {LIBRARY_ENV} name another")
        })
}

/// Returns whether the loader can load the path: it takes blanks and colons for the end of a name.
fn is_loadable(path: &Path) -> bool {
    !path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| b" :".contains(b))
}

/// Returns the folder where this user's programs keep files that they can make again; no other user may have made it.
fn folder() -> io::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || Some(PathBuf::from(set("HOME")?).join(".cache"));
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let own = cache
        .filter(|cache| cache.is_absolute() && is_loadable(cache))
        .and_then(|cache| {
            let folder = cache.join("tranship");
            fs::create_dir_all(&cache).ok()?;
            own_dir::own_dir(&folder).ok().map(|()| folder)
        });
    own.map_or_else(own_dir::user_dir, Ok)
}

/// Returns the file with these bytes, written if it is not there. Its name depends on its content: other versions have
/// other files.
fn written(folder: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let hash = blake3::hash(bytes).to_hex();
    let path = folder.join(format!("libtranship_malloc-{}.so", &hash[..16]));
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(path);
    }
    // Moved to its place when it is whole: others look for it at the same time.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let part = path.with_added_extension(format!("{}-{number}", std::process::id()));
    let _ = fs::remove_file(&part); // of a dead process with our number
    let mut file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&part)?;
    file.write_all(bytes)?;
    drop(file);
    fs::rename(&part, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error() {
        let error = find(Some(Path::new("/no/such.so"))).expect_err("not there");
        assert!(error.to_string().contains("/no/such.so"));
    }

    #[test]
    fn one_that_cannot_be_named_to_the_loader_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a b.so", "a:b.so"] {
            let path = folder.path().join(name);
            fs::write(&path, "").expect("a file");
            let error = find(Some(&path)).expect_err("two names");
            assert!(error.to_string().contains("LD_PRELOAD cannot name"));
        }
    }

    #[test]
    fn what_is_written_out_is_whole_whatever_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let path = written(folder.path(), &bytes).expect("room");
        let inode =
            |path: &Path| std::os::unix::fs::MetadataExt::ino(&path.metadata().expect("it"));
        let first = inode(&path);
        assert_eq!(written(folder.path(), &bytes).expect("there"), path);
        assert_eq!(inode(&path), first, "not written again");
        // Half of it, as after a full disk.
        fs::write(&path, &bytes[..1000]).expect("room");
        assert_eq!(written(folder.path(), &bytes).expect("room"), path);
        assert!(fs::read(&path).expect("it") == bytes);
        let other = written(folder.path(), b"another version").expect("room");
        assert_ne!(other, path);
        // Many processes at once, and no other file stays.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| fs::read(written(folder.path(), &bytes).expect("room")));
            }
        });
        assert_eq!(fs::read_dir(folder.path()).expect("it").count(), 2);
    }
}
