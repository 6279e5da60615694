//! Descriptors and memory of the manager and its helpers, before, meanwhile and after.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tranship_testkit::resource::{self, Memory};

const EVERY: Duration = Duration::from_millis(50);

/// At one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Held {
    /// Of the manager's process.
    pub fds: usize,
    pub helpers: usize,
    /// Of all of them.
    pub memory: Memory,
}

impl Held {
    pub fn by(manager: u32) -> Result<Held> {
        let helpers = resource::descendants(manager);
        let mut held = Held {
            fds: resource::count_fds(manager)?,
            helpers: helpers.len(),
            memory: resource::memory(manager)?,
        };
        // A process that has ended meanwhile has nothing.
        for memory in helpers.iter().flat_map(|pid| resource::memory(*pid)) {
            held.memory.rss += memory.rss;
            held.memory.pss += memory.pss;
            held.memory.anonymous += memory.anonymous;
        }
        Ok(held)
    }

    fn most(&mut self, other: &Held) {
        self.fds = self.fds.max(other.fds);
        self.helpers = self.helpers.max(other.helpers);
        self.memory.rss = self.memory.rss.max(other.memory.rss);
        self.memory.pss = self.memory.pss.max(other.memory.pss);
        self.memory.anonymous = self.memory.anonymous.max(other.memory.anonymous);
    }
}

/// The most that there was while `work` was done.
pub fn during<T>(manager: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, Held)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = Held::default();
            while !over.load(Ordering::Relaxed) {
                most.most(&Held::by(manager)?);
                std::thread::sleep(EVERY);
            }
            Ok::<_, anyhow::Error>(most)
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        let most = watch.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        Ok((done?, most))
    })
}

/// Waits until no more than that is there, as `enough` says; what is there then, or at the end of the time.
pub fn until(manager: u32, time: Duration, enough: impl Fn(&Held) -> bool) -> Result<Held> {
    let end = Instant::now() + time;
    loop {
        let held = Held::by(manager)?;
        if enough(&held) || Instant::now() > end {
            return Ok(held);
        }
        std::thread::sleep(EVERY);
    }
}

/// Which descriptors a process has, and how many of each kind.
pub fn kinds(pid: u32) -> Result<BTreeMap<String, usize>> {
    let mut kinds = BTreeMap::new();
    for fd in resource::fds(pid)? {
        // "socket:[1234]" and "/memfd:name (deleted)", but "anon_inode:[eventfd]".
        let kind = match fd.target.split(['[', ' ']).next() {
            Some("socket:") => "socket",
            Some(kind) if !kind.ends_with(':') => kind,
            _ => &fd.target,
        };
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    Ok(kinds)
}
