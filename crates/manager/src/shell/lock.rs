//! The right to serve a path: a lock on a file beside the socket, which the kernel drops with its process.
//!
//! The file goes with the lock. So whoever has locked one looks whether it is still at its place: who had the lock may have
//! removed it meanwhile, and somebody else made and locked another.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tranship_error::{Error, Kind};

/// Times that a file may be removed between being opened and being locked, by managers that end just then.
const TRIES: u32 = 100;

/// Nobody else is to open it, for whoever can may lock it, and keep every manager from the path.
const MODE: u32 = 0o600;

/// The right to serve one path.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes it, if nobody has it.
    pub(crate) fn take(socket: &Path) -> Result<Lock, Error> {
        let at =
            |what: &str| Error::system(format!("{what} the lock file of {}", socket.display()));
        let path = socket.with_added_extension("lock");
        for _ in 0..TRIES {
            // Whoever can open it can lock it.
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(MODE)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&path)
                .map_err(at("opening"))?;
            let found = file.metadata().map_err(at("looking at"))?;
            // It goes with the lock.
            if !found.is_file() || found.len() > 0 {
                let why = "something else is there: move it away, or name another socket";
                let why = io::Error::new(io::ErrorKind::AlreadyExists, why);
                return Err(Error::system(path.display().to_string())(why));
            }
            if found.mode() & 0o777 != MODE {
                let private = Permissions::from_mode(MODE);
                file.set_permissions(private).map_err(at("closing"))?;
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(e)) => return Err(at("locking")(e)),
            }
            if is_at(&file, &path).map_err(at("looking at"))? {
                return Ok(Lock { file, path });
            }
        }
        Err(Error::new(
            Kind::ManagerRunning,
            format!("another manager is running at {}", socket.display()),
        ))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked, so nobody else takes the file for the right; unless it was moved away, and another's is there.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether this file is the one at the path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (ours, there) = (file.metadata()?, std::fs::symlink_metadata(path));
    match there {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn nothing_stays_and_nobody_is_let_in_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("manager.sock");
        let inside = AtomicU32::new(0);
        let had = std::thread::scope(|scope| {
            let work = || {
                let mut had = 0;
                for _ in 0..2000 {
                    let Ok(lock) = Lock::take(&socket) else {
                        continue;
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(lock);
                    had += 1;
                }
                had
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            let all = threads.into_iter().map(|t| t.join().expect("no panic"));
            all.sum::<u32>()
        });
        assert!(had > 0);
        assert_eq!(std::fs::read_dir(folder.path()).expect("it").count(), 0);
    }

    #[test]
    fn who_has_lost_its_file_leaves_that_of_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("manager.sock");
        let first = Lock::take(&socket).expect("nobody has it");
        let error = Lock::take(&socket).expect_err("it is taken");
        assert_eq!(error, Kind::ManagerRunning);
        std::fs::remove_file(&first.path).expect("somebody cleans up");
        let second = Lock::take(&socket).expect("another file");
        drop(first);
        assert!(second.path.exists());
        let error = Lock::take(&socket).expect_err("it is taken");
        assert_eq!(error, Kind::ManagerRunning);
    }
}
