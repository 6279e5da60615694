//! Resident memory of a run's chunks, as the kernel reports it of their memfds. The manager has a descriptor of each
//! chunk that it granted.
//!
//! A look takes a while, and chunks come and go meanwhile: one that went after it was counted and one that came before the end were never there at once. A look that finds more than
//! the total is therefore repeated at once. What both found was there between them, all at the same time.

use serde::Serialize;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

/// Name of a chunk's memfd in the kernel's tables.
const CHUNK: &str = "/memfd:tranship-chunk";

/// Resident bytes that were seen.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub(crate) struct Residency {
    pub total_bytes: u64,
    /// Looks at the manager's descriptors, and how many a second there were.
    pub samples: u64,
    pub samples_per_second: f64,
    /// The most of all those.
    pub max_bytes: u64,
    /// Looks that found more than the total.
    pub samples_beyond: u64,
    /// The most that the manager had granted, stranded memory included; and the most that all quotas were together.
    pub granted_max_bytes: u64,
    pub quotas_max_bytes: u64,
}

impl Residency {
    /// Counts a look.
    pub fn saw(&mut self, bytes: u64) {
        self.samples += 1;
        self.samples_beyond += u64::from(bytes > self.total_bytes);
        self.max_bytes = self.max_bytes.max(bytes);
    }
}

/// Of all chunks of which a process has a descriptor, each counted once. More than `total_bytes` is looked at again, as above.
pub(crate) fn resident(pid: u32, total_bytes: u64) -> u64 {
    let found = chunks_of(pid);
    let bytes = found.values().sum();
    if bytes <= total_bytes {
        return bytes;
    }
    let again = chunks_of(pid);
    let both = found.iter().filter(|(inode, _)| again.contains_key(inode));
    both.map(|(_, bytes)| bytes).sum()
}

/// By inode.
fn chunks_of(pid: u32) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    let Ok(all) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return found; // it has ended
    };
    for entry in all.flatten() {
        let path = entry.path();
        let target = std::fs::read_link(&path);
        if target.is_ok_and(|to| to.as_os_str().to_string_lossy().starts_with(CHUNK))
            && let Ok(file) = std::fs::metadata(&path)
        {
            found.insert(file.ino(), file.blocks() * 512);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship::{Domain, PoolOptions};

    #[test]
    fn what_was_granted_is_seen() {
        const CHUNK: u64 = 1 << 20;
        let domain = Domain::embedded().expect("a manager");
        let options = PoolOptions::new(8 * CHUNK).chunk_bytes(CHUNK);
        let pool = domain.create_pool(options).expect("a pool");
        let resident = || resident(std::process::id(), u64::MAX);
        let before = resident();
        let _held: Vec<_> = (0..5).map(|_| pool.alloc(1 << 20).expect("room")).collect();
        // The writer has a descriptor of each chunk, and the manager another one.
        assert_eq!(resident() - before, 5 * CHUNK);
    }
}
