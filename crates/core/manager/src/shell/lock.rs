//! The right to serve a path: a lock on a file beside the socket, which the kernel drops with its process.
//!
//! The file goes with the lock. A process that has locked a file therefore checks that the file is still at its place.
//! The former holder may have removed it meanwhile, and another process may have made and locked a new one.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tranship_error::{Error, ErrorKind};
use tranship_sys::{errno, pidfd, socket};

/// Times that a file may be removed between being opened and being locked, by managers that end just then.
const TRIES: u32 = 100;

/// How long a lock may outlive the process that took it. A helper that was being started when that process was killed
/// has a copy until it notices. How soon that is depends on the load of the machine.
const OUTLIVES: Duration = Duration::from_secs(2);
/// Longer each time, up to the last.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// Only the owner can open the file: a process that can open it may lock it, and so keep every manager from the path.
const MODE: u32 = 0o600;

/// The right to serve one path.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock, and waits for it if no live process listens. The holder is then about to go, or has just come.
    pub(super) fn take_in_time(socket: &Path) -> Result<Lock, Error> {
        let until = Instant::now() + OUTLIVES;
        let [mut pause, longest] = PAUSES;
        Lock::take_or(socket, || {
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
            Instant::now() < until
        })
    }

    /// Takes the lock; `pause` says whether to try again.
    fn take_or(socket: &Path, mut pause: impl FnMut() -> bool) -> Result<Lock, Error> {
        loop {
            let taken = Lock::take(socket);
            let running = matches!(&taken, Err(e) if e.kind() == ErrorKind::ManagerRunning);
            if !running || is_served(socket) || !pause() {
                return taken;
            }
        }
    }

    /// Takes the lock, if it is free.
    pub(crate) fn take(socket: &Path) -> Result<Lock, Error> {
        let at = |what: &str| {
            tranship_error::system(format!("{what} the lock file of {}", socket.display()))
        };
        let path = socket.with_added_extension("lock");
        for _ in 0..TRIES {
            // A process that can open the file can lock it.
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(MODE)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&path)
                .map_err(at("opening"))?;
            let found = file.metadata().map_err(at("looking at"))?;
            // The file goes with the lock.
            if !found.is_file() || found.len() > 0 {
                let why = "something else is there: move it away, or name another socket";
                let why = io::Error::new(io::ErrorKind::AlreadyExists, why);
                return Err(tranship_error::system(path.display().to_string())(why));
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
            ErrorKind::ManagerRunning,
            format!("another manager is running at {}", socket.display()),
        ))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file is still locked, so no other process takes it for the right; unless it was moved away, and another
        // process's file is there.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Says whether a live process listens there. A helper may hold a copy of a listening socket too.
fn is_served(path: &Path) -> bool {
    let socket = match socket::connect_now(path) {
        Ok(socket) => socket,
        Err(e) => {
            let nobody = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
            return !nobody.contains(&e.kind());
        }
    };
    lives(socket::peer_credentials(&socket).map_or(0, |peer| peer.pid))
}

/// Says whether a process runs; a zombie does not. 0 is a process that cannot be seen from here.
fn lives(pid: u32) -> bool {
    if pid == 0 {
        return true;
    }
    // Without an answer it counts as alive.
    match pidfd::open(pid) {
        Ok(process) => !pidfd::is_dead(process).unwrap_or(false),
        Err(e) => e.raw_os_error() != Some(errno::NO_PROCESS),
    }
}

/// Says whether this file is the one at the path.
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
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    use std::process::Command;
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
    fn a_lock_that_outlives_its_manager_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("manager.sock");
        let mut helper = Some(Lock::take(&socket).expect("nobody has it"));
        // A socket without a process stays at its place too.
        drop(socket::listen(&socket, 0o600).expect("a socket"));
        let goes = || helper.take().is_some();
        Lock::take_or(&socket, goes).expect("it went");
        assert!(helper.is_none(), "who was waited for?");
    }

    #[test]
    fn who_listens_and_lives_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("manager.sock");
        let _lock = Lock::take(&socket).expect("nobody has it");
        let _listens = socket::listen(&socket, 0o600).expect("a socket");
        let error = Lock::take_or(&socket, || panic!("waited")).expect_err("it is taken");
        assert_eq!(error, ErrorKind::ManagerRunning);
    }

    #[test]
    fn who_has_ended_does_not_live() {
        assert!(lives(std::process::id()));
        let mut child = Command::new("true").spawn().expect("a process");
        let pid = child.id();
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), ended).expect("it ends");
        assert!(!lives(pid), "a zombie");
        assert!(child.wait().expect("its end").success());
        assert!(!lives(pid), "nobody");
    }

    #[test]
    fn who_has_lost_its_file_leaves_that_of_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("manager.sock");
        let first = Lock::take(&socket).expect("nobody has it");
        let error = Lock::take(&socket).expect_err("it is taken");
        assert_eq!(error, ErrorKind::ManagerRunning);
        std::fs::remove_file(&first.path).expect("somebody cleans up");
        let second = Lock::take(&socket).expect("another file");
        drop(first);
        assert!(second.path.exists());
        let error = Lock::take(&socket).expect_err("it is taken");
        assert_eq!(error, ErrorKind::ManagerRunning);
    }
}
