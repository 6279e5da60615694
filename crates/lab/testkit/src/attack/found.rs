//! Memfds and mappings that a library left in a process: a hostile process looks for them in itself.

use super::Target;
use crate::resource;

/// Returns every descriptor of a memfd whose name begins so.
#[must_use]
pub fn memfds(name: &str) -> Vec<Target> {
    let wanted = format!("/memfd:{name}");
    let all = resource::fds(std::process::id())
        .unwrap_or_default()
        .into_iter();
    let ours = all.filter(|fd| fd.target.starts_with(&wanted));
    ours.map(|fd| Target {
        fd: Some(fd.number),
        ..Target::default()
    })
    .collect()
}

/// Returns every read-only shared mapping of a memfd whose name begins so. (A writable mapping is the attacker's own to
/// write.)
#[must_use]
pub fn mappings(name: &str) -> Vec<Target> {
    let wanted = format!("/memfd:{name}");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let target = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let read_only = rest.starts_with("r--s");
        let named = line
            .find('/')
            .is_some_and(|at| line[at..].starts_with(&wanted));
        let (start, end) = range.split_once('-')?;
        let hex = |s| usize::from_str_radix(s, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        (read_only && named).then(|| Target {
            map: Some((start, end - start)),
            ..Target::default()
        })
    };
    maps.lines().filter_map(target).collect()
}
