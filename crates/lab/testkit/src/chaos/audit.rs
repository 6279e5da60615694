//! Audit of a scene from outside: it looks for leftovers.

use crate::{Held, Launch, Peer};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time that leftovers may take to go. Not a bound on speed: beyond it something has leaked.
const PATIENCE: Duration = Duration::from_secs(60);

/// A scene's folder, in which everything of its parties lies.
#[derive(Debug)]
pub struct Auditor {
    dir: TempDir,
    shared: BTreeSet<PathBuf>,
}

impl Auditor {
    /// Creates an auditor.
    ///
    /// # Panics
    /// When no folder can be made.
    #[must_use]
    pub fn new() -> Self {
        let dir = crate::folder().expect("a folder");
        let shared = shared_memory();
        Self { dir, shared }
    }

    /// Returns a place in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes the program leave its files in the folder, and all processes that it starts bear the folder's name.
    pub fn inside(&self, launch: Launch) -> Launch {
        ["TMPDIR", "XDG_RUNTIME_DIR", "HOME"]
            .into_iter()
            .fold(launch, |launch, key| launch.env(key, self.dir.path()))
    }

    /// Checks that nothing is left: no process that names the folder, no file in it but these, no shared memory.
    ///
    /// # Panics
    /// With the leftovers, when they do not go.
    pub fn nothing_is_left_but(&self, files: &[&str]) {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = self.left(files);
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "left over:\n{}", left.join("\n"));
            std::thread::yield_now();
        }
    }

    fn left(&self, files: &[&str]) -> Vec<String> {
        let mut left: Vec<String> = processes(self.dir.path())
            .into_iter()
            .filter_map(described)
            .collect();
        let mut found = Vec::new();
        list(self.dir.path(), &mut found);
        let inside = |path: &Path| path.strip_prefix(self.dir.path()).map(Path::to_path_buf);
        let strange = found.iter().filter_map(|path| inside(path).ok());
        let strange = strange.filter(|path| !files.iter().any(|f| Path::new(f) == path));
        left.extend(strange.map(|path| format!("file {}", path.display())));
        let new = shared_memory();
        left.extend(
            new.difference(&self.shared)
                .map(|path| path.display().to_string()),
        );
        left
    }
}

impl Default for Auditor {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the resources that these processes hold together.
///
/// # Panics
/// When /proc refuses.
#[must_use]
pub fn held(peers: &[&Peer]) -> Held {
    Held::by(peers.iter().map(|p| p.pid())).expect("/proc")
}

/// Waits until these processes hold as much as at the start: bytes, descriptors, mappings.
///
/// # Panics
/// With all differences, when they do not go.
pub fn returns_to(what: &str, start: &Held, peers: &[&Peer]) {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut differences = held(peers).differences(start);
        // Fresh memfds may have taken the place of others (a new manager's pages): their number counts.
        let fresh = differences.iter().position(|d| d.starts_with("new:"));
        if differences.is_empty() || fresh == Some(0) {
            return;
        }
        if Instant::now() > until {
            differences.insert(0, format!("{what}: not as at the start"));
            panic!("{}", differences.join("\n"));
        }
        std::thread::yield_now();
    }
}

/// Returns other processes whose arguments or environment name a path. (A process that is not dumpable shows its
/// arguments only.)
fn processes(path: &Path) -> Vec<u32> {
    let needle = path.as_os_str().as_bytes();
    let names = |pid: u32, what: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            *pid != std::process::id() && (names(*pid, "cmdline") || names(*pid, "environ"))
        })
        .collect()
}

/// Describes a process: its name, its owner, and the call that it waits in; none if it is gone meanwhile.
fn described(pid: u32) -> Option<String> {
    let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).ok();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ");
    let status = text(read("status")?);
    let of = |key: &&str| status.lines().find(|line| line.starts_with(*key));
    let about: Vec<&str> = ["Name", "State", "PPid"].iter().filter_map(of).collect();
    let [command, waits] = ["cmdline", "wchan"].map(|what| text(read(what).unwrap_or_default()));
    Some(format!("process {pid}: {command} {about:?} in {waits}"))
}

/// Lists everything below a folder but folders.
fn list(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => list(&entry.path(), into),
            _ => into.push(entry.path()),
        }
    }
}

/// Returns our files among those that have a name in shared memory. Files of benches are not ours: the test of the
/// benches may run at the same time, and their peers have files there (`tranship_bench_`, `tranship-bench-`).
fn shared_memory() -> BTreeSet<PathBuf> {
    let mut all = Vec::new();
    list(Path::new("/dev/shm"), &mut all);
    let ours = |path: &PathBuf| {
        let name = path.to_string_lossy().replace('_', "-");
        name.contains("tranship") && !name.contains("tranship-bench-")
    };
    all.into_iter().filter(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_is_left_is_found() {
        let audit = Auditor::new();
        let of_a_bench = format!("/dev/shm/tranship_bench_{}", std::process::id());
        std::fs::write(&of_a_bench, "").expect("a file in shared memory");
        assert_eq!(audit.left(&[]), [""; 0]);
        std::fs::remove_file(of_a_bench).expect("removing");
        std::fs::create_dir(audit.path("sub")).expect("a folder");
        std::fs::write(audit.path("sub/file"), "").expect("a file");
        std::fs::write(audit.path("kept"), "").expect("a file");
        let mut sleeper = Command::new("cat")
            .env("TMPDIR", audit.path(""))
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat");
        // A process has the environment once it is the other program.
        let left = loop {
            let left = audit.left(&["kept"]);
            if left.len() > 1 {
                break left;
            }
            std::thread::yield_now();
        };
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(
            left[0].starts_with(&format!("process {}", sleeper.id())),
            "{left:?}"
        );
        assert_eq!(left[1], "file sub/file");
        drop(sleeper.stdin.take());
        sleeper.wait().expect("its end");
        std::fs::remove_file(audit.path("sub/file")).expect("removing");
        audit.nothing_is_left_but(&["kept"]);
    }
}
