//! Memory: that of the machine, and the limit of this process's cgroup.

use super::finding::Finding;
use super::proc;
use crate::output::size;
use std::path::{Path, PathBuf};
use tranship_sys::pressure::Watch;

pub(super) fn look() -> Vec<Finding> {
    let meminfo = proc::text("/proc/meminfo").unwrap_or_default();
    let kib = |key| {
        let value = proc::field(&meminfo, key)?.split_whitespace().next()?;
        value.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    let mut found = Vec::new();
    if let (Some(total), Some(available)) = (kib("MemTotal"), kib("MemAvailable")) {
        found.push(Finding::expect(
            available >= 512 << 20,
            "memory",
            format!("{} available of {}", size(available), size(total)),
            "pools are refused before the machine runs out",
            "free some, or set a smaller total in the manager's configuration",
        ));
    }
    found.push(cgroup(
        Path::new("/sys/fs/cgroup"),
        &proc::text("/proc/self/cgroup").unwrap_or_default(),
    ));
    found.push(pressure(&Watch::new(Path::new("/"), &[], 1.0)));
    found
}

/// Shows the source by which a manager that is started here knows that memory is short outside.
fn pressure(watch: &Watch) -> Finding {
    let (there, missing) = (watch.sources(), watch.missing());
    let name = "memory pressure";
    let lacks = match missing {
        [] => String::new(),
        some => format!("; not: {}", some.join(", ")),
    };
    if there.is_empty() {
        return Finding::weak(
            name,
            format!("nothing to watch{lacks}"),
            "when memory is short outside, idle caches stay until the kernel acts",
            "a kernel with PSI (boot without psi=0), or a cgroup with a memory controller",
        );
    }
    Finding::ok(name, format!("watched: {}{lacks}", there.join(", ")))
}

/// Returns the tightest limit on the way from our cgroup up to the root.
fn cgroup(mount: &Path, own: &str) -> Finding {
    let name = "cgroup memory";
    let Some(group) = Group::find(mount, own) else {
        return Finding::ok(name, "no memory controller in sight");
    };
    let Some((left, limit)) = group.headroom() else {
        return Finding::ok(name, format!("no limit (cgroup v{})", group.version));
    };
    Finding::expect(
        left >= 256 << 20,
        name,
        format!(
            "{} left of {} (cgroup v{})",
            size(left),
            size(limit),
            group.version
        ),
        "memory is charged to its writer's cgroup; a grant beyond what is left is refused (the kernel would kill)",
        "raise the cgroup's memory limit",
    )
}

struct Group {
    version: u32,
    /// Root of the hierarchy.
    root: PathBuf,
    /// Our group.
    own: PathBuf,
}

impl Group {
    fn find(mount: &Path, own: &str) -> Option<Self> {
        let path = |line: &str| {
            line.splitn(3, ':')
                .nth(2)
                .map(|path| path.trim_start_matches('/').to_owned())
        };
        let v1 = own.lines().find(|line| {
            line.split(':')
                .nth(1)
                .is_some_and(|list| list.split(',').any(|c| c == "memory"))
        });
        if let Some(path) = v1.and_then(path) {
            let root = mount.join("memory");
            return root.exists().then(|| Self {
                version: 1,
                own: root.join(path),
                root,
            });
        }
        let path = own
            .lines()
            .find(|line| line.starts_with("0::"))
            .and_then(path)?;
        let roots = [mount.to_path_buf(), mount.join("unified")];
        let root = roots
            .into_iter()
            .find(|root| root.join("cgroup.controllers").exists())?;
        Some(Self {
            version: 2,
            own: root.join(path),
            root,
        })
    }

    /// Returns the smallest (left, limit) of all groups from ours up; nothing where no group has a limit.
    fn headroom(&self) -> Option<(u64, u64)> {
        let (limit, used) = match self.version {
            1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => ("memory.max", "memory.current"),
        };
        let groups = self
            .own
            .ancestors()
            .take_while(|group| group.starts_with(&self.root));
        let one = |group: &Path| {
            let limit = proc::number(group.join(limit))?;
            let used = proc::number(group.join(used))?;
            // Version 1 writes "no limit" as a number near 2^63.
            (limit < 1 << 62).then(|| (limit.saturating_sub(used), limit))
        };
        groups.filter_map(one).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;
    use std::fs;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn the_tightest_limit_of_version_2_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        write(&dir.path().join("cgroup.controllers"), "memory");
        write(&dir.path().join("a/memory.max"), "1073741824\n");
        write(&dir.path().join("a/memory.current"), "1073000000\n");
        write(&dir.path().join("a/b/memory.max"), "max\n");
        write(&dir.path().join("a/b/memory.current"), "5\n");
        let finding = cgroup(dir.path(), "0::/a/b\n");
        assert_eq!(finding.state, State::Weak);
        assert!(
            finding.value.contains("left of 1.0 GiB (cgroup v2)"),
            "{finding:?}"
        );
    }

    #[test]
    fn what_a_manager_would_watch_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let finding = pressure(&Watch::new(dir.path(), &[], 1.0));
        assert_eq!(finding.state, State::Weak, "{finding:?}");
        write(
            &dir.path().join("proc/pressure/memory"),
            "some avg10=0.00\nfull avg10=0.00\n",
        );
        let finding = pressure(&Watch::new(dir.path(), &[], 1.0));
        assert_eq!(finding.state, State::Ok);
        assert!(
            finding.value.contains("/proc/pressure/memory"),
            "{finding:?}"
        );
    }

    #[test]
    fn version_1_without_a_limit() {
        let dir = tempfile::tempdir().expect("a folder");
        write(
            &dir.path().join("memory/a/memory.limit_in_bytes"),
            "9223372036854771712\n",
        );
        write(&dir.path().join("memory/a/memory.usage_in_bytes"), "5\n");
        let finding = cgroup(dir.path(), "4:memory:/a\n0::/\n");
        assert_eq!(
            (finding.state, finding.value.as_str()),
            (State::Ok, "no limit (cgroup v1)")
        );
    }
}
