//! Memory that a process shares: its memfds, by inode, as its own /proc shows them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use serde::{Deserialize, Serialize};

/// A shared object that is mapped writable here: its writer is this process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Written {
    pub name: String,
    pub inode: u64,
    pub at: usize,
    pub len: usize,
    /// A descriptor of it, if this process still has one.
    pub fd: Option<i32>,
}

/// Descriptors of memfds: number, name, inode, length.
pub fn memfds() -> Vec<(i32, String, u64, u64)> {
    let Ok(dir) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let one = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let target = std::fs::read_link(entry.path()).ok()?;
        let name = target.to_str()?.strip_prefix("/memfd:")?.to_owned();
        let stat = std::fs::metadata(entry.path()).ok()?;
        Some((number, name, stat.ino(), stat.len()))
    };
    dir.flatten().filter_map(one).collect()
}

/// Descriptors of this process, apart from memfds whose name begins so.
pub fn descriptors_without(name: &str) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    all - memfds()
        .iter()
        .filter(|(_, n, ..)| n.starts_with(name))
        .count()
}

/// Every memfd that this process maps writable and shared.
pub fn written() -> Vec<Written> {
    let fds: BTreeMap<u64, i32> = memfds()
        .into_iter()
        .map(|(n, _, ino, _)| (ino, n))
        .collect();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let one = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, "rw-s", _offset, _device, inode, name, ..] = words[..] else {
            return None;
        };
        name.starts_with("/memfd:").then_some(())?;
        let (start, end) = range.split_once('-')?;
        let hex = |s| usize::from_str_radix(s, 16).ok();
        let (at, end) = (hex(start)?, hex(end)?);
        let inode = inode.parse().ok()?;
        let fd = fds.get(&inode).copied();
        Some(Written {
            name: name.strip_prefix("/memfd:")?.to_owned(),
            inode,
            at,
            len: end - at,
            fd,
        })
    };
    maps.lines().filter_map(one).collect()
}

/// Returns a sum over the contents of those of `written` whose inode is in `inodes`: memory that others may see, and
/// must not have changed.
pub fn sums(written: &[Written], inodes: &[u64]) -> Vec<(u64, u64)> {
    let wanted = written.iter().filter(|w| inodes.contains(&w.inode));
    wanted.map(|w| (w.inode, sum(w))).collect()
}

/// The word of a link half that says whether its writer sleeps (docs/format.md).
const ASLEEP: usize = 128 / 8;

/// The words of a pool's table in which its writer says figures of it now and then (docs/format.md).
const FIGURES: std::ops::Range<usize> = 128 / 8..208 / 8;

/// A waiting thread gets up four times a second and lies down again, and notes that. Its flag may therefore have any
/// value that the format names. Writers may change their statements about their pools.
fn sum(written: &Written) -> u64 {
    let first = std::ptr::with_exposed_provenance::<u64>(written.at);
    let sleeps = written.name.starts_with("tranship-link-");
    let says = written.name.starts_with("tranship-table");
    (0..written.len / 8).fold(0, |sum: u64, i| {
        // SAFETY: inside our own mapping of `len` bytes, which stays while the process lives; volatile, for other
        // threads write here too.
        let mut word = unsafe { first.add(i).read_volatile() };
        if sleeps && i == ASLEEP && word <= 2 {
            word = 0;
        }
        if says && FIGURES.contains(&i) {
            word = 0;
        }
        (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23)
    })
}
