//! Resources of this process: descriptors, and memory in memfds.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

/// Resources before or after. The manager lives in this process, and everything that a consumer made goes with it at
/// the latest, so nothing that leaks can hide elsewhere.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Held {
    /// Kind of each descriptor.
    fds: Vec<String>,
    /// Mappings of memfds.
    pub mappings: usize,
    /// Bytes by inode: resident where a descriptor tells, else as mapped.
    memfds: BTreeMap<u64, u64>,
}

impl Held {
    pub(crate) fn now() -> Result<Self> {
        let mut held = Self::default();
        for entry in std::fs::read_dir("/proc/self/fd").context("reading /proc/self/fd")? {
            // One of the descriptors is the directory's own and is gone already when it is read.
            let path = entry.context("reading /proc/self/fd")?.path();
            let Ok(target) = std::fs::read_link(&path) else {
                continue;
            };
            let target = target.to_string_lossy().into_owned();
            let memfd = target.starts_with("/memfd:");
            held.fds.push(target);
            if memfd && let Ok(file) = std::fs::metadata(&path) {
                held.memfds.insert(file.ino(), file.blocks() * 512);
            }
        }
        let maps = std::fs::read_to_string("/proc/self/maps").context("reading /proc/self/maps")?;
        for (range, inode) in maps.lines().filter_map(memfd_mapping) {
            held.mappings += 1;
            held.memfds.entry(inode).or_insert(range);
        }
        Ok(held)
    }

    /// Descriptors that this one has and an earlier one had not. One socket is as good as another: the manager lets
    /// go of helper processes and starts others.
    pub(crate) fn more_fds(&self, before: &Self) -> Vec<String> {
        let mut old = before.fds.clone();
        let mut more = self.fds.clone();
        more.retain(
            |fd| match old.iter().position(|other| kind(other) == kind(fd)) {
                Some(at) => {
                    old.swap_remove(at);
                    false
                }
                None => true,
            },
        );
        more
    }

    /// Returns whether nothing has come since.
    pub(crate) fn is_no_more_than(&self, before: &Self) -> bool {
        self.bytes() <= before.bytes()
            && self.mappings <= before.mappings
            && self.more_fds(before).is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.memfds.values().sum()
    }
}

/// Returns the kind of a descriptor, without its number: `socket` for `socket:[4711]`.
fn kind(target: &str) -> &str {
    target.split_once(":[").map_or(target, |(kind, _)| kind)
}

/// Returns length and inode, if the line of /proc/self/maps is about a memfd.
fn memfd_mapping(line: &str) -> Option<(u64, u64)> {
    line.contains(" /memfd:").then_some(())?;
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let inode = words.nth(3)?.parse().ok()?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some((address(end)?.checked_sub(address(start)?)?, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_for_another_is_no_more() {
        let held = |fds: &[&str]| Held {
            fds: fds.iter().map(|fd| (*fd).to_owned()).collect(),
            ..Held::default()
        };
        let before = held(&["socket:[1]", "/memfd:frames (deleted)"]);
        assert!(held(&["socket:[2]"]).more_fds(&before).is_empty());
        let after = held(&["socket:[1]", "socket:[2]", "/memfd:other (deleted)"]);
        assert_eq!(
            after.more_fds(&before),
            ["socket:[2]", "/memfd:other (deleted)"]
        );
    }

    #[test]
    fn lines_of_maps() {
        let line = "7f0000000000-7f0000002000 r--s 00000000 00:01 77    /memfd:tranship (deleted)";
        assert_eq!(memfd_mapping(line), Some((0x2000, 77)));
        assert_eq!(
            memfd_mapping("7f00-7f10 r--p 00000000 00:00 0 [heap]"),
            None
        );
    }

    #[test]
    fn a_memfd_is_seen() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memfd = rustix::fs::memfd_create("seen", flags).expect("a memfd");
        rustix::fs::fallocate(&memfd, rustix::fs::FallocateFlags::empty(), 0, 1 << 16)
            .expect("memory");
        assert!(Held::now().expect("a look").bytes() >= 1 << 16);
    }
}
