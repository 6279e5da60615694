//! The manager as a thread of the first process: the same code, without isolation from that process.

use crate::shell::lock::Lock;
use crate::{Config, Listener, Shutdown, run};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use tranship_error::Error;
use tranship_sys::own_dir;

/// Names of the directories that embedded managers make; a process id and a number follow.
const PREFIX: &str = "embedded-";
/// The prefix of directories that are about to be removed.
const DEAD: &str = "dead-";
const SOCKET: &str = "manager.sock";
/// Directories that another process may take for a dead manager's before they are locked.
const TRIES: u32 = 100;

/// A manager that runs in a thread until this is dropped.
///
/// ```
/// use tranship_manager::{Config, Embedded};
///
/// let config = Config { total: Some(1 << 30), ..Config::default() };
/// let manager = Embedded::start(config, None)?;
/// assert!(manager.path().exists()); // where domains connect
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Embedded {
    path: PathBuf,
    stop: Shutdown,
    thread: Option<JoinHandle<()>>,
    dir: Option<PathBuf>,
}

impl Embedded {
    /// Starts a manager at a path, or at a fresh one of its own.
    ///
    /// Returns when it listens.
    ///
    /// # Errors
    /// Those of [`Listener::bind`](crate::Listener::bind); `BadArgument` for a configuration that is not consistent;
    /// `System`.
    pub fn start(config: Config, path: Option<&Path>) -> Result<Embedded, Error> {
        let mode = config.socket_mode.unwrap_or(0o600);
        let (listener, path, dir) = match path {
            Some(path) => (Listener::bind(path, mode)?, path.to_owned(), None),
            None => {
                let base = own_dir::user_dir()
                    .map_err(tranship_error::system("a directory for the socket"))?;
                remove_dead(&base);
                let (listener, dir) = bind_fresh(&base, mode)?;
                (listener, dir.join(SOCKET), Some(dir))
            }
        };
        let stop = Shutdown::new().map_err(tranship_error::system("eventfd"))?;
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("tranship-manager".to_owned())
            .spawn(move || {
                if let Err(error) = run(config, listener, &stopped, false) {
                    tracing::error!(%error, "the embedded manager ended");
                }
            })
            .map_err(tranship_error::system("starting the manager's thread"))?;
        Ok(Embedded {
            path,
            stop,
            thread: Some(thread),
            dir,
        })
    }

    /// Returns the socket's path, to which other processes connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a name that no other thread or process has.
fn fresh(base: &Path, prefix: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    base.join(format!("{prefix}{}-{n}", tranship_sys::process::getpid()))
}

/// Listens in a directory of its own. A directory that is moved away before it is locked (see [`remove_dead`]) is no
/// loss.
fn bind_fresh(base: &Path, mode: u32) -> Result<(Listener, PathBuf), Error> {
    let mut tries = 0..TRIES;
    loop {
        let dir = fresh(base, PREFIX);
        let bound = own_dir::own_dir(&dir)
            .map_err(tranship_error::system("a directory for the socket"))
            .and_then(|()| Listener::bind(&dir.join(SOCKET), mode));
        match bound {
            Ok(listener) => return Ok((listener, dir)),
            Err(error) if tries.next().is_none() => return Err(error),
            Err(_) => {}
        }
    }
}

/// Removes the directories of embedded managers whose processes were killed: those whose lock is free. A directory that
/// is about to be locked may be among them: [`bind_fresh`] then takes another.
// Crash: a directory that was moved away and not removed is found by the next manager.
fn remove_dead(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = |name: &str| name.starts_with(PREFIX) || name.starts_with(DEAD);
        if !name.to_str().is_some_and(ours) {
            continue;
        }
        if let Ok(lock) = Lock::take(&entry.path().join(SOCKET)) {
            // Moved first, still locked: a process that was about to lock it no longer finds it, and its files are not
            // removed.
            let away = fresh(base, DEAD);
            if std::fs::rename(entry.path(), &away).is_ok() {
                let _ = std::fs::remove_dir_all(away);
            }
            drop(lock);
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
        let make = |name: &str, files: &[&str]| {
            let dir = base.path().join(name);
            std::fs::create_dir(&dir).expect("a folder");
            for file in files {
                File::create(dir.join(file)).expect("a file");
            }
            dir
        };
        const LOCK: &str = "manager.sock.lock";
        const IDS: &str = "manager.sock.ids";
        let dead = [
            make("embedded-4194305-0", &[LOCK, IDS, SOCKET]),
            // Its number belongs to another process by now.
            make(&format!("embedded-{}-999999", std::process::id()), &[LOCK]),
            make("embedded-4194305-2", &[]),
            make("dead-4194305-3", &[LOCK, IDS]),
        ];
        let alive = make("embedded-4194305-4", &[LOCK]);
        let lock = File::open(alive.join(LOCK)).expect("a lock");
        lock.lock().expect("locking");
        let other = make("something", &[]);
        remove_dead(base.path());
        assert!(dead.iter().all(|dir| !dir.exists()));
        assert!(alive.exists() && other.exists());
        drop(lock);
        remove_dead(base.path());
        let left = std::fs::read_dir(base.path()).expect("a folder").count();
        assert!(!alive.exists() && left == 1);
    }

    /// Several managers start while several sweep: each gets a directory and keeps it, and nothing is left over.
    #[test]
    fn who_starts_while_others_sweep_keeps_its_directory() {
        let base = tempfile::tempdir().expect("a folder");
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..100 {
                        remove_dead(base.path());
                        let (listener, dir) = bind_fresh(base.path(), 0o600).expect("a place");
                        remove_dead(base.path());
                        let path = dir.join(SOCKET);
                        tranship_sys::socket::connect_now(&path).expect("somebody listens");
                        drop(listener); // as if killed: the directory stays
                    }
                });
            }
        });
        remove_dead(base.path());
        let left = std::fs::read_dir(base.path()).expect("a folder").count();
        assert_eq!(left, 0);
    }
}
