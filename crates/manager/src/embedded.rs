//! The manager as a thread of the first process: the same code, isolated from nobody in that process.

use crate::{Config, Listener, ManagerError, Shutdown, run};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

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
                let n = NEXT.fetch_add(1, Ordering::Relaxed);
                let dir = base.join(format!("embedded-{}-{n}", tranship_sys::process::getpid()));
                crate::paths::own_dir(&dir)
                    .map_err(ManagerError::at("a directory for the socket"))?;
                (dir.join("manager.sock"), Some(dir))
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
