//! The directories of a process in the memory controller.

use std::path::{Path, PathBuf};

/// The hierarchy of a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    One,
    Two,
}

/// Returns the directories from this process's cgroup up to the mount's root. `cgroup` and `mountinfo` are the texts of
/// the files of these names.
pub(crate) fn directories(cgroup: &str, mountinfo: &str) -> Vec<(Version, PathBuf)> {
    let mut found = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let version = if controllers.is_empty() {
            Version::Two
        } else if controllers.split(',').any(|name| name == "memory") {
            Version::One
        } else {
            continue;
        };
        let Some((root, mount)) = mounted(mountinfo, version) else {
            continue;
        };
        // The mount may show a part of the tree only. A path outside of it (another namespace) counts as the mount
        // itself.
        let below = Path::new(path)
            .strip_prefix(&root)
            .ok()
            .filter(|below| !below.components().any(|part| part.as_os_str() == ".."))
            .unwrap_or(Path::new(""));
        let own = mount.join(below);
        found.extend(
            own.ancestors()
                .take_while(|dir| dir.starts_with(&mount))
                .map(|dir| (version, dir.to_path_buf())),
        );
    }
    found
}

/// Finds a hierarchy's root inside the file system, and its mount point.
fn mounted(mountinfo: &str, version: Version) -> Option<(PathBuf, PathBuf)> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
        let wanted = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|name| name == "memory"),
            Version::Two => kind == "cgroup2",
        };
        let mut left = left.split(' ').skip(3);
        let (root, mount) = (left.next()?, left.next()?);
        wanted.then(|| (PathBuf::from(root), PathBuf::from(mount)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
36 30 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 30 0:30 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn both_versions_are_found_with_their_parents() {
        let dirs = directories("4:cpu:/x\n3:memory:/a/b\n0::/\n", MOUNTS);
        let expected = [
            (Version::One, "/sys/fs/cgroup/memory/a/b"),
            (Version::One, "/sys/fs/cgroup/memory/a"),
            (Version::One, "/sys/fs/cgroup/memory"),
            (Version::Two, "/sys/fs/cgroup/unified"),
        ];
        assert_eq!(
            dirs,
            expected.map(|(version, dir)| (version, PathBuf::from(dir)))
        );
    }

    #[test]
    fn a_container_sees_a_part_of_the_tree() {
        let mounts = "36 30 0:29 /docker/x /cg rw - cgroup2 cgroup2 rw\n";
        let own = directories("0::/docker/x/y\n", mounts);
        assert_eq!(own[0].1, PathBuf::from("/cg/y"));
        assert_eq!(own.len(), 2);
        for outside in ["0::/../z\n", "0::/elsewhere\n"] {
            assert_eq!(
                directories(outside, mounts),
                [(Version::Two, PathBuf::from("/cg"))]
            );
        }
        assert_eq!(directories("garbage\n", "garbage\n"), []);
    }
}
