//! What memory the chunks of a run really have, by what the kernel says of their memfds.
//!
//! The manager holds a descriptor of each chunk that it granted, and lives in this process: a thread looks at all of them a thousand times a second. Less often everything is
//! looked at from outside, also what processes have made and not been granted yet, or the manager has let go of.
//!
//! A look takes a while, and chunks come and go meanwhile: one that went after it was counted and one that came before the end were never there at once. A look that finds more than
//! the total is therefore repeated at once. What both found was there between them, all at the same time.

use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tranship_sys::memfd;

const EVERY: Duration = Duration::from_millis(1);
/// Gap after which the search ends: descriptors are numbered from below, and after so many unused numbers there are no
/// more.
const GAP: i32 = 512;
/// What the kernel shows as the name of one.
const CHUNK: &str = "/memfd:tranship-chunk";

/// What was seen, bytes.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub(crate) struct Residency {
    pub total_bytes: u64,
    /// Looks at what the manager has granted, and how many a second there were.
    pub samples: u64,
    pub samples_per_second: f64,
    /// The most of all those.
    pub max_bytes: u64,
    /// Looks that found more than the total, and were repeated; and those of which it was true.
    pub samples_repeated: u64,
    pub samples_beyond: u64,
    /// Looks from outside, at the processes' descriptors, with what the manager counts as stranded; and the most of them.
    pub outside_samples: u64,
    pub outside_max_bytes: u64,
    /// The most that the manager had granted, stranded memory included; and the most that all quotas were together.
    pub granted_max_bytes: u64,
    pub quotas_max_bytes: u64,
}

/// Watch that looks as long as it is there.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Residency>,
}

impl Watch {
    pub fn start(total_bytes: u64) -> Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let thread = std::thread::Builder::new()
            .name("watch-memory".to_owned())
            .spawn(move || look(total_bytes, &until))
            .context("starting a thread")?;
        Ok(Watch { stop, thread })
    }

    pub fn end(self) -> Residency {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn look(total_bytes: u64, until: &AtomicBool) -> Residency {
    let mut seen = Residency {
        total_bytes,
        ..Residency::default()
    };
    let mut chunks = Chunks::default();
    let begin = Instant::now();
    let mut next = begin;
    while !until.load(Ordering::Relaxed) {
        let mut bytes = chunks.look();
        seen.samples += 1;
        if bytes > total_bytes {
            seen.samples_repeated += 1;
            bytes = chunks.look_again();
        }
        seen.max_bytes = seen.max_bytes.max(bytes);
        seen.samples_beyond += u64::from(bytes > total_bytes);
        // A missed look is not made up for: a look is a look at one moment.
        next = (next + EVERY).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    #[allow(clippy::cast_precision_loss)] // for people
    let samples = seen.samples as f64;
    seen.samples_per_second = samples / begin.elapsed().as_secs_f64();
    seen
}

/// The chunks of which this process has a descriptor.
#[derive(Debug, Default)]
struct Chunks {
    /// Descriptors by number: the inode that each stood for, and whether that is a chunk.
    known: HashMap<i32, (u64, bool)>,
    /// Result of the last look: inodes and bytes. A chunk with several descriptors is listed for each.
    found: Vec<(u64, u64)>,
}

impl Chunks {
    /// The bytes of all.
    fn look(&mut self) -> u64 {
        self.found.clear();
        let (mut number, mut last) = (0, 0);
        while number - last < GAP {
            if let Some(it) = memfd::glance(number) {
                last = number;
                let before = self
                    .known
                    .get(&number)
                    .filter(|(inode, _)| *inode == it.inode);
                let is_chunk = before.map_or_else(|| is_chunk(number), |(_, is_chunk)| *is_chunk);
                self.known.insert(number, (it.inode, is_chunk));
                if is_chunk {
                    self.found.push((it.inode, it.resident));
                }
            }
            number += 1;
        }
        self.found.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The bytes of those that the last look has found, too.
    fn look_again(&mut self) -> u64 {
        let before: HashSet<u64> = self.found.iter().map(|(inode, _)| *inode).collect();
        self.look();
        let both = self
            .found
            .iter()
            .filter(|(inode, _)| before.contains(inode));
        both.map(|(_, bytes)| bytes).sum()
    }
}

fn is_chunk(number: i32) -> bool {
    let target = std::fs::read_link(format!("/proc/self/fd/{number}"));
    target.is_ok_and(|to| to.as_os_str().to_string_lossy().starts_with(CHUNK))
}

/// Of all chunks of which any of these processes has a descriptor, each counted once. More than `total_bytes` is looked at again, as above.
pub(crate) fn outside(pids: &[u32], total_bytes: u64) -> u64 {
    let found = chunks_of(pids);
    let bytes = found.values().sum();
    if bytes <= total_bytes {
        return bytes;
    }
    let again = chunks_of(pids);
    let both = found.iter().filter(|(inode, _)| again.contains_key(inode));
    both.map(|(_, bytes)| bytes).sum()
}

/// By inode.
fn chunks_of(pids: &[u32]) -> HashMap<u64, u64> {
    let mut found = HashMap::new();
    for pid in pids {
        let Ok(all) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue; // it has ended
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
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship::{Domain, PoolOptions};

    #[test]
    fn what_was_granted_is_seen_from_inside_and_from_outside() {
        const CHUNK: u64 = 1 << 20;
        let domain = Domain::embedded().expect("a manager");
        let options = PoolOptions::new(8 * CHUNK).chunk_bytes(CHUNK);
        let pool = domain.create_pool(options).expect("a pool");
        let mut chunks = Chunks::default();
        let outside = || outside(&[std::process::id()], u64::MAX);
        let (inside, before) = (chunks.look(), outside());
        let mut held: Vec<_> = (0..5).map(|_| pool.alloc(1 << 20).expect("room")).collect();
        // The writer has a descriptor of each chunk, and the manager another one, both in this process.
        assert_eq!(chunks.look() - inside, 2 * 5 * CHUNK);
        assert_eq!(outside() - before, 5 * CHUNK);
        // What has come since was not there before.
        held.push(pool.alloc(1 << 20).expect("room"));
        assert_eq!(chunks.look_again() - inside, 2 * 5 * CHUNK);
        assert_eq!(chunks.look() - inside, 2 * 6 * CHUNK);
    }
}
