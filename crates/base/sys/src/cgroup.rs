//! The memory that the cgroup still has for this process.
//!
//! `fallocate` does not fail at a cgroup's limit: the kernel kills the process instead. The headroom is therefore asked
//! first. The first question opens the needed files and keeps them open, so that later questions work in a sandbox that
//! was locked meanwhile.

use crate::ForkGuard;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

pub(crate) mod place;
use place::Version;

static PROBE: Mutex<Option<Probe>> = Mutex::new(None);

/// Returns the bytes that can still be charged before a cgroup of this process is full. Returns `None` if there is no
/// limit, or it cannot be known.
///
/// Page cache that was not used lately counts as free, because the kernel takes it first.
pub fn headroom() -> Option<u64> {
    ask(Probe::headroom)
}

/// Returns the smallest limit of this process's cgroups, whatever is in use. Returns `None` if there is no limit, or it
/// cannot be known.
pub fn limit() -> Option<u64> {
    ask(|probe| probe.levels.iter().filter_map(Level::limit).min())
}

fn ask(what: impl Fn(&Probe) -> Option<u64>) -> Option<u64> {
    let mut slot = PROBE.lock().unwrap_or_else(|poison| poison.into_inner());
    let stale = slot.as_ref().is_none_or(Probe::is_stale);
    if stale {
        // If it cannot be made again (sandbox), the old one is the best available.
        if let Ok(fresh) = Probe::new(Path::new("/proc/self")) {
            *slot = Some(fresh);
        }
    }
    what(slot.as_ref()?)
}

#[derive(Debug)]
struct Probe {
    guard: ForkGuard,
    membership: File,
    as_of: String,
    levels: Vec<Level>,
}

/// One cgroup between this process's and the root.
#[derive(Debug)]
pub(crate) struct Level {
    pub version: Version,
    limit: File,
    usage: File,
    stat: Option<File>,
}

impl Probe {
    fn new(proc: &Path) -> io::Result<Probe> {
        let membership = File::open(proc.join("cgroup"))?;
        let as_of = read(&membership)?;
        let mounts = std::fs::read_to_string(proc.join("mountinfo"))?;
        let levels = place::directories(&as_of, &mounts)
            .into_iter()
            .filter_map(|(version, dir)| Level::open(version, &dir).ok())
            .collect();
        Ok(Probe {
            guard: ForkGuard::new()?,
            membership,
            as_of,
            levels,
        })
    }

    /// Says whether this is another process than before, or the process was moved to another cgroup.
    fn is_stale(&self) -> bool {
        self.guard.is_child() || read(&self.membership).is_ok_and(|now| now != self.as_of)
    }

    fn headroom(&self) -> Option<u64> {
        self.levels.iter().filter_map(Level::headroom).min()
    }
}

impl Level {
    pub fn open(version: Version, dir: &Path) -> io::Result<Level> {
        let (limit, usage) = match version {
            Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            Version::Two => ("memory.max", "memory.current"),
        };
        Ok(Level {
            version,
            limit: File::open(dir.join(limit))?,
            usage: File::open(dir.join(usage))?,
            stat: File::open(dir.join("memory.stat")).ok(),
        })
    }

    fn limit(&self) -> Option<u64> {
        number(&read(&self.limit).ok()?)
    }

    fn headroom(&self) -> Option<u64> {
        let (used, limit) = self.filled()?;
        Some(limit.saturating_sub(used))
    }

    /// Returns the bytes in use, without the page cache of files, and the limit. Returns `None` if there is no limit.
    ///
    /// The page cache fills every cgroup that reads more files than its limit, and the kernel takes it back when memory
    /// is needed (admin-guide/cgroup-v2, "memory.stat"). Shared memory is not part of these fields.
    pub fn filled(&self) -> Option<(u64, u64)> {
        let limit = self.limit()?;
        let usage: u64 = read(&self.usage).ok()?.trim().parse().ok()?;
        let keys = match self.version {
            Version::One => ["total_inactive_file ", "total_active_file "],
            Version::Two => ["inactive_file ", "active_file "],
        };
        let stat = self.stat.as_ref().and_then(|file| read(file).ok());
        let cache = stat.map_or(0, |stat| {
            keys.iter().filter_map(|key| field(&stat, key)).sum()
        });
        Some((usage.saturating_sub(cache), limit))
    }
}

/// Parses a limit. "max", and the corresponding number of version 1, mean that there is no limit.
fn number(text: &str) -> Option<u64> {
    let bytes: u64 = text.trim().parse().ok()?;
    (bytes < 1 << 62).then_some(bytes)
}

pub(crate) fn field(stat: &str, key: &str) -> Option<u64> {
    stat.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|value| value.trim().parse().ok())
}

/// Returns the whole of a small kernel file, from its beginning.
pub(crate) fn read(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; 8192];
    let mut len = 0;
    loop {
        let got = file.read_at(&mut bytes[len..], len as u64)?;
        len += got;
        if got == 0 || len == bytes.len() {
            bytes.truncate(len);
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        assert_eq!(number("max\n"), None);
        assert_eq!(number("9223372036854771712\n"), None);
        assert_eq!(number("1048576\n"), Some(1_048_576));
        let stat = "file 7\ninactive_file 5\nactive_file 6\n";
        assert_eq!(field(stat, "inactive_file "), Some(5));
        assert_eq!(field(stat, "absent "), None);
    }

    #[test]
    fn a_level_is_limit_less_usage_plus_cache() {
        let dir = tempfile::tempdir().expect("tempdir");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text);
        write("memory.max", "1000\n").expect("write");
        write("memory.current", "900\n").expect("write");
        write("memory.stat", "anon 1\ninactive_file 20\nactive_file 30\n").expect("write");
        let level = Level::open(Version::Two, dir.path()).expect("level");
        assert_eq!((level.headroom(), level.limit()), (Some(150), Some(1000)));
        write("memory.max", "max\n").expect("write");
        assert_eq!((level.headroom(), level.limit()), (None, None));
        write("memory.max", "100\n").expect("write");
        assert_eq!((level.headroom(), level.limit()), (Some(0), Some(100)));
    }

    #[test]
    fn this_machine_gives_an_answer_twice() {
        // The value does not matter; the second answer comes from the open files.
        assert_eq!(headroom().is_some(), headroom().is_some());
    }
}
