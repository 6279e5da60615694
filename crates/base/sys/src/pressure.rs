//! Signs of a memory shortage on this machine, or in a cgroup: the kernel's stall figures (PSI), and the fill level of
//! cgroups, of either version.

use crate::cgroup::place::{self, Version};
use crate::cgroup::{Level, field, read};
use rustix::fs::{OFlags, fstatfs};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The window for which an unprivileged process may ask to be woken: two seconds (Linux 6.5).
const WINDOW_US: u64 = 2_000_000;

/// The smallest stall time in a window at which the kernel wakes a process: it accepts nothing below half a
/// millisecond.
const LEAST_US: u64 = 500;

/// Everything that is watched.
#[derive(Debug, Default)]
pub struct Watch {
    stalls: Vec<Stall>,
    groups: Vec<Group>,
    sources: Vec<String>,
    missing: Vec<String>,
}

/// The result of a look. Shares are 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Seen {
    /// The share of the last 10 s in which at least one task waited for memory.
    pub some: f64,
    /// The share of the last 10 s in which all tasks waited.
    pub full: f64,
    /// The used share of the fullest cgroup's limit.
    pub filled: f64,
    /// Since the last look, the kernel slowed a cgroup down because of its use (`memory.high`).
    pub slowed: bool,
    /// Since the last look, a cgroup was at its limit, and the kernel took memory back, or killed a process.
    pub at_limit: bool,
}

/// A file of stall figures.
#[derive(Debug)]
struct Stall {
    file: File,
    /// Open for a trigger.
    trigger: Option<File>,
}

/// One cgroup.
#[derive(Debug)]
struct Group {
    level: Level,
    /// Version 2: `memory.events`. Version 1: `memory.failcnt`.
    events: Option<File>,
    /// How often the cgroup was slowed down, and how often at its limit.
    last: (u64, u64),
}

impl Watch {
    /// Finds the sources to watch: the machine's figures, the cgroups from this process's own up, and `also`,
    /// directories of cgroups. `root` is the directory in which `/proc` and cgroups are mounted: `/`, except for tests.
    /// `some` is the share of time at which a trigger fires.
    pub fn new(root: &Path, also: &[PathBuf], some: f64) -> Watch {
        let mut watch = Watch::default();
        watch.add_stall(root, Path::new("/proc/pressure/memory"), some);
        let text = |path: &str| std::fs::read_to_string(below(root, Path::new(path)));
        let own = match (text("/proc/self/cgroup"), text("/proc/self/mountinfo")) {
            (Ok(own), Ok(mounts)) => place::directories(&own, &mounts),
            (Err(error), _) => {
                watch.lack("/proc/self/cgroup", &error);
                Vec::new()
            }
            (_, Err(error)) => {
                watch.lack("/proc/self/mountinfo", &error);
                Vec::new()
            }
        };
        for (version, dir) in own {
            // The root of a hierarchy has neither limit nor figures; nor has a cgroup without the controller.
            let _ = watch.add_group(root, version, &dir, some);
        }
        for dir in also {
            let two = below(root, dir).join("memory.current").exists();
            let version = if two { Version::Two } else { Version::One };
            if let Err(error) = watch.add_group(root, version, dir, some) {
                watch.lack(&dir.display().to_string(), &error);
            }
        }
        // Events before this point are not reported.
        let _ = watch.look();
        watch
    }

    fn lack(&mut self, what: &str, error: &io::Error) {
        self.missing.push(format!("{what} ({error})"));
    }

    fn add_stall(&mut self, root: &Path, path: &Path, some: f64) {
        let there = below(root, path);
        match File::open(&there) {
            // A kernel with this feature switched off (psi=0) has the file, which cannot be read.
            Ok(file) => match read(&file) {
                Ok(_) => {
                    let trigger = trigger(&there, some).ok();
                    let how = if trigger.is_some() {
                        ", woken by it"
                    } else {
                        ""
                    };
                    self.sources.push(format!("{}{how}", path.display()));
                    self.stalls.push(Stall { file, trigger });
                }
                Err(error) => self.lack(&path.display().to_string(), &error),
            },
            Err(error) => self.lack(&path.display().to_string(), &error),
        }
    }

    fn add_group(
        &mut self,
        root: &Path,
        version: Version,
        dir: &Path,
        some: f64,
    ) -> io::Result<()> {
        let there = below(root, dir);
        let level = Level::open(version, &there)?;
        let (events, name) = match version {
            Version::One => ("memory.failcnt", "version 1"),
            Version::Two => ("memory.events", "version 2"),
        };
        self.sources
            .push(format!("cgroup {}, {name}", dir.display()));
        self.groups.push(Group {
            level,
            events: File::open(there.join(events)).ok(),
            last: (0, 0),
        });
        let stall = dir.join("memory.pressure");
        if version == Version::Two && below(root, &stall).exists() {
            self.add_stall(root, &stall, some);
        }
        Ok(())
    }

    /// Returns the watched sources, as text for people.
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// Returns the sources that are missing, and why, as text for people.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Returns descriptors that are urgent (`POLLPRI`) when tasks stalled for the requested time.
    pub fn triggers(&self) -> impl Iterator<Item = &File> {
        self.stalls.iter().filter_map(|s| s.trigger.as_ref())
    }

    /// Reads all sources. A source that cannot be read is left out.
    pub fn look(&mut self) -> Seen {
        let mut seen = Seen::default();
        for stall in &self.stalls {
            if let Ok(text) = read(&stall.file) {
                seen.some = seen.some.max(average(&text, "some "));
                seen.full = seen.full.max(average(&text, "full "));
            }
        }
        for group in &mut self.groups {
            if let Some((used, limit)) = group.level.filled() {
                seen.filled = seen.filled.max(share(used, limit));
            }
            let Some(text) = group.events.as_ref().and_then(|file| read(file).ok()) else {
                continue;
            };
            let now = match group.level.version {
                Version::One => (0, text.trim().parse().unwrap_or(0)),
                Version::Two => {
                    let count = |key| field(&text, key).unwrap_or(0);
                    (count("high "), count("max ") + count("oom "))
                }
            };
            seen.slowed |= now.0 > group.last.0;
            seen.at_limit |= now.1 > group.last.1;
            group.last = now;
        }
        seen
    }
}

/// Returns a path below another root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[allow(clippy::cast_precision_loss)] // a share
fn share(used: u64, limit: u64) -> f64 {
    used as f64 / limit.max(1) as f64
}

/// Parses the share of the last 10 s.
fn average(text: &str, line: &str) -> f64 {
    let line = text.lines().find_map(|l| l.strip_prefix(line));
    let value = line.and_then(|l| l.split(' ').find_map(|part| part.strip_prefix("avg10=")));
    let percent: f64 = value.and_then(|v| v.parse().ok()).unwrap_or(0.0);
    (percent / 100.0).clamp(0.0, 1.0)
}

/// Asks the kernel to wake this process. A file that only looks like the kernel's is refused: it would be overwritten.
fn trigger(path: &Path, some: f64) -> io::Result<File> {
    /// `PROC_SUPER_MAGIC`, `CGROUP2_SUPER_MAGIC`, and that of kernfs' files of version 1.
    const KERNELS: [i64; 3] = [0x9fa0, 0x6367_7270, 0x27_e0eb];
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0))
        .open(path)?;
    #[allow(clippy::unnecessary_cast)] // its type depends on the architecture
    let kind = fstatfs(&file)?.f_type as i64;
    if !KERNELS.contains(&kind) {
        return Err(io::Error::other("not a file of the kernel's"));
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )] // a share of two seconds
    let stalled_us = ((some * WINDOW_US as f64) as u64).clamp(LEAST_US, WINDOW_US);
    // One write, with the terminating zero of the string.
    rustix::io::write(&file, format!("some {stalled_us} {WINDOW_US}\0").as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(cgroup: &str, mounts: &str) -> Tree {
            let tree = Tree(tempfile::tempdir().expect("a folder"));
            tree.write("proc/self/cgroup", cgroup);
            tree.write("proc/self/mountinfo", mounts);
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            std::fs::write(path, text).expect("a file");
        }

        fn watch(&self) -> Watch {
            Watch::new(self.0.path(), &[], 0.1)
        }
    }

    const V1: &str = "36 30 0:29 / /cg/memory rw - cgroup cgroup rw,memory\n";
    const V2: &str = "37 30 0:30 / /cg rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_2_says_how_full_it_is_and_who_stalls() {
        let tree = Tree::new("0::/a/b\n", V2);
        tree.write("proc/pressure/memory", "some avg10=12.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=1.00 avg60=0 avg300=0 total=1\n");
        for (dir, max) in [("cg/a", "1000"), ("cg/a/b", "max")] {
            tree.write(&format!("{dir}/memory.max"), max);
            tree.write(&format!("{dir}/memory.current"), "900");
            tree.write(&format!("{dir}/memory.stat"), "anon 1\ninactive_file 100\n");
            tree.write(
                &format!("{dir}/memory.events"),
                "low 0\nhigh 3\nmax 5\noom 0\noom_kill 0\n",
            );
        }
        let stalled = "some avg10=0.00\nfull avg10=40.00\n";
        tree.write("cg/a/b/memory.pressure", stalled);
        let mut watch = tree.watch();
        assert_eq!(watch.sources().len(), 4, "{watch:?}");
        assert_eq!(watch.triggers().count(), 0, "of no file but the kernel's");
        let seen = watch.look();
        let expected = Seen {
            some: 0.125,
            full: 0.4,
            filled: 0.8,
            ..Seen::default()
        };
        assert_eq!(seen, expected, "what happened before is no news");
        tree.write("cg/a/b/memory.events", "high 4\nmax 5\noom 0\n");
        assert!(watch.look().slowed);
        tree.write("cg/a/b/memory.events", "high 4\nmax 6\noom 0\n");
        let seen = watch.look();
        assert_eq!((seen.slowed, seen.at_limit), (false, true));
        assert!(!watch.look().at_limit);
        assert_eq!(
            std::fs::read_to_string(tree.0.path().join("cg/a/b/memory.pressure")).expect("text"),
            stalled
        );
    }

    #[test]
    fn version_1_counts_how_often_it_was_at_its_limit() {
        let tree = Tree::new("4:memory:/a\n", V1);
        tree.write("cg/memory/a/memory.limit_in_bytes", "1000\n");
        tree.write("cg/memory/a/memory.usage_in_bytes", "990\n");
        tree.write("cg/memory/a/memory.failcnt", "7\n");
        let mut watch = tree.watch();
        assert_eq!(watch.missing().len(), 1, "no figures of stalls: {watch:?}");
        let seen = watch.look();
        assert!(
            !seen.at_limit && (seen.filled - 0.99).abs() < 1e-9,
            "{seen:?}"
        );
        tree.write("cg/memory/a/memory.failcnt", "8\n");
        assert!(watch.look().at_limit);
        tree.write("cg/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
        let none = Seen::default();
        assert_eq!(watch.look(), none);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let empty = tempfile::tempdir().expect("a folder");
        let also = [PathBuf::from("/cg/x")];
        let mut watch = Watch::new(empty.path(), &also, 0.1);
        assert!(watch.sources().is_empty(), "{watch:?}");
        let missing = watch.missing().join(" ");
        for part in ["/proc/pressure/memory", "/proc/self/cgroup", "/cg/x"] {
            assert!(missing.contains(part), "{missing}");
        }
        assert_eq!(watch.look(), Seen::default());
    }

    #[test]
    fn this_machine_lets_itself_be_watched() {
        let mut watch = Watch::new(Path::new("/"), &[], 1.0);
        let seen = watch.look();
        assert!((0.0..=1.0).contains(&seen.some), "{seen:?}");
        let psi = std::fs::read("/proc/pressure/memory").is_ok();
        assert_eq!(watch.triggers().count() > 0, psi, "{watch:?}");
    }
}
