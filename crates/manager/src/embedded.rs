//! The manager as a thread of the first process: the same code, isolated from nobody in that process.

use crate::{Config, Listener, ManagerError, Shutdown, run};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

/// Names of the directories that embedded managers make; a process id follows.
const PREFIX: &str = "embedded-";
const SOCKET: &str = "manager.sock";

/// A manager that runs in a thread until this is dropped.
#[derive(Debug)]
pub struct Embedded {
    path: PathBuf,
    stop: Shutdown,
    thread: Option<JoinHandle<()>>,
    dir: Option<PathBuf>,
}

impl Embedded {
    /// Starts one at a path, or at a fresh one of its own.
    pub fn start(config: Config, path: Option<&Path>) -> Result<Embedded, ManagerError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (path, dir) = match path {
            Some(path) => (path.to_owned(), None),
            None => {
                let base = crate::paths::user_dir()
                    .map_err(ManagerError::at("a directory for the socket"))?;
                remove_dead(&base);
                let n = NEXT.fetch_add(1, Ordering::Relaxed);
                let dir = base.join(format!("{PREFIX}{}-{n}", tranship_sys::process::getpid()));
                crate::paths::own_dir(&dir)
                    .map_err(ManagerError::at("a directory for the socket"))?;
                (dir.join(SOCKET), Some(dir))
            }
        };
        let listener = Listener::bind(&path, config.socket_mode.unwrap_or(0o600))?;
        let stop = Shutdown::new().map_err(ManagerError::at("eventfd"))?;
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("tranship-manager".to_owned())
            .spawn(move || {
                if let Err(error) = run(config, listener, &stopped, false) {
                    tracing::error!(%error, "the embedded manager ended");
                }
            })
            .map_err(ManagerError::at("starting the manager's thread"))?;
        Ok(Embedded {
            path,
            stop,
            thread: Some(thread),
            dir,
        })
    }

    /// Where other processes connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the directories of embedded managers whose processes were killed: those that nobody holds the lock of.
fn remove_dead(base: &Path) {
    let alive = |name: &str| {
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        pid.is_none_or(|pid| Path::new("/proc").join(pid).exists())
    };
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_none_or(alive) {
            continue;
        }
        // It may be of another pid namespace; then the lock tells.
        let lock = std::fs::File::open(entry.path().join(SOCKET).with_added_extension("lock"));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && self.stop.stop().is_ok()
        {
            let _ = thread.join();
        }
        if let Some(dir) = &self.dir {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_killed_processes_left_goes_and_the_rest_stays() {
        let base = tempfile::tempdir().expect("a folder");
        let make = |name: &str| {
            let dir = base.path().join(name);
            std::fs::create_dir(&dir).expect("a folder");
            (
                File::create(dir.join("manager.sock.lock")).expect("a lock"),
                dir,
            )
        };
        // No process has such a number.
        let (_, dead) = make("embedded-4194305-0");
        let (held, locked) = make("embedded-4194305-1");
        held.lock().expect("locking");
        let (_, ours) = make(&format!("embedded-{}-0", std::process::id()));
        let (_, other) = make("something");
        remove_dead(base.path());
        assert!(!dead.exists());
        assert!(locked.exists() && ours.exists() && other.exists());
    }
}
