//! A cgroup of its own, version 2 or 1.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::folder;

/// A killed process leaves its cgroup some time after it was reaped.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cgroup with one controller. Removed when dropped, which must be after its processes ended.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    unified: bool,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Cgroup {
    /// Makes one that accounts for memory.
    ///
    /// # Errors
    /// When there is no memory controller, or no right to make a cgroup: skip the test with this reason.
    pub fn new(name: &str) -> Result<Self, Error> {
        Self::of("memory", name)
    }

    /// Makes one that has its share of the processors, as large as that of any other.
    ///
    /// # Errors
    /// When there is no processor controller, or no right to make a cgroup.
    pub fn of_processors(name: &str) -> Result<Self, Error> {
        Self::of("cpu", name)
    }

    fn of(controller: &str, name: &str) -> Result<Self, Error> {
        let (parent, unified) = Self::parent(controller)?;
        // Removes the groups that killed runs have left.
        for path in folder::of_the_dead(&parent) {
            let _ = std::fs::remove_dir(path);
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!(
            "{}{}-{n}-{name}",
            folder::PREFIX,
            std::process::id()
        ));
        std::fs::create_dir(&path)?;
        Ok(Self { path, unified })
    }

    fn parent(controller: &str) -> Result<(PathBuf, bool), Error> {
        for v2 in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new) {
            let has = |file: &str| {
                std::fs::read_to_string(v2.join(file))
                    .is_ok_and(|s| s.split_whitespace().any(|c| c == controller))
            };
            if has("cgroup.controllers") {
                if !has("cgroup.subtree_control") {
                    std::fs::write(v2.join("cgroup.subtree_control"), format!("+{controller}"))?;
                }
                return Ok((v2.into(), true));
            }
        }
        let v1 = Path::new("/sys/fs/cgroup").join(controller);
        if v1.join("cgroup.procs").exists() {
            return Ok((v1, false));
        }
        let what = format!("no cgroup controller {controller} is mounted under /sys/fs/cgroup");
        Err(Error::new(ErrorKind::NotFound, what))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes charged to it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn usage(&self) -> Result<u64, Error> {
        self.number(if self.unified {
            "memory.current"
        } else {
            "memory.usage_in_bytes"
        })
    }

    /// Sets its share of the processors beside others, as systemd's `CPUWeight=`: 100 is the default.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_weight(&self, weight: u64) -> Result<(), Error> {
        match self.unified {
            true => std::fs::write(self.path.join("cpu.weight"), weight.to_string()),
            false => {
                let shares = weight * 1024 / 100;
                std::fs::write(self.path.join("cpu.shares"), shares.to_string())
            }
        }
    }

    /// Sets the limit in bytes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn limit(&self, bytes: u64) -> Result<(), Error> {
        let file = if self.unified {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        std::fs::write(self.path.join(file), bytes.to_string())
    }

    fn number(&self, file: &str) -> Result<u64, Error> {
        let text = std::fs::read_to_string(self.path.join(file))?;
        text.trim()
            .parse()
            .map_err(|e| Error::new(ErrorKind::InvalidData, format!("{file}: {e}")))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            match std::fs::remove_dir(&self.path) {
                Err(e) if e.kind() == ErrorKind::ResourceBusy => std::thread::yield_now(),
                _ => return,
            }
        }
        eprintln!(
            "cgroup {} still has processes and stays",
            self.path.display()
        );
    }
}
