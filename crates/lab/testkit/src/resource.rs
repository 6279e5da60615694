//! Resources of processes: descriptors, memfds, shared mappings, resident bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Error;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// One memfd, however many descriptors and mappings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memfd {
    pub name: String,
    pub size: u64,
    /// `st_blocks` times 512.
    pub resident: u64,
}

/// Resources that a set of processes holds at one moment. Every memfd is counted once, by device and inode. Memfds that
/// lie only in a socket's queue are not seen (see [`shmem`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Open descriptors, all processes together.
    pub fds: usize,
    /// Of these, memfds.
    pub memfd_fds: usize,
    pub memfds: BTreeMap<(u64, u64), Memfd>,
    /// Mappings of memfds, all processes together.
    pub mappings: usize,
    /// Address space of these mappings in bytes.
    pub mapped: u64,
    /// All mappings, whatever they map.
    pub all_mappings: usize,
    pub threads: usize,
}

/// One descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fd {
    pub number: i32,
    /// Target of `/proc/PID/fd/N`.
    pub target: String,
}

impl Held {
    /// Returns the resources of this process.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn here() -> Result<Self, Error> {
        Self::by([std::process::id()])
    }

    /// Returns the resources of these processes. A process that has ended counts as holding nothing.
    ///
    /// # Errors
    /// When /proc refuses (another user's process, a process that is not dumpable, without root).
    pub fn by(pids: impl IntoIterator<Item = u32>) -> Result<Self, Error> {
        let mut held = Self::default();
        for pid in pids {
            match held.add(pid) {
                Err(e) if is_gone(&e) => {}
                other => other?,
            }
        }
        Ok(held)
    }

    fn add(&mut self, pid: u32) -> Result<(), Error> {
        for fd in fds(pid)? {
            self.fds += 1;
            let Some(name) = memfd_name(&fd.target) else {
                continue;
            };
            // Follows the link to the open file itself.
            match fs::metadata(format!("/proc/{pid}/fd/{}", fd.number)) {
                Ok(meta) => {
                    self.memfd_fds += 1;
                    let memfd = Memfd {
                        name: name.into(),
                        size: meta.size(),
                        resident: meta.blocks() * 512,
                    };
                    self.memfds.insert((meta.dev(), meta.ino()), memfd);
                }
                Err(e) if is_gone(&e) => {}
                Err(e) => return Err(e),
            }
        }
        self.threads += fs::read_dir(format!("/proc/{pid}/task"))?.count();
        for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
            self.all_mappings += 1;
            self.add_mapping(pid, line);
        }
        Ok(())
    }

    fn add_mapping(&mut self, pid: u32, line: &str) {
        // start-end perms offset dev inode   path
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(inode)) = (words.next(), words.nth(3)) else {
            return;
        };
        let Some(name) = line.find('/').and_then(|at| memfd_name(&line[at..])) else {
            return;
        };
        let Some((start, end)) = range.split_once('-') else {
            return;
        };
        let hex = |s| u64::from_str_radix(s, 16).unwrap_or(0);
        self.mappings += 1;
        self.mapped += hex(end) - hex(start);
        let known =
            |inode: u64, all: &BTreeMap<(u64, u64), Memfd>| all.keys().any(|(_, i)| *i == inode);
        if let Ok(meta) = fs::metadata(format!("/proc/{pid}/map_files/{range}")) {
            let memfd = Memfd {
                name: name.into(),
                size: meta.size(),
                resident: meta.blocks() * 512,
            };
            self.memfds.entry((meta.dev(), meta.ino())).or_insert(memfd);
        } else if let Ok(inode) = inode.parse()
            && !known(inode, &self.memfds)
        {
            // Without the right to follow map_files: the part of it that is resident in this process.
            let resident = smaps_rss(pid, range).unwrap_or(0);
            let memfd = Memfd {
                name: name.into(),
                size: hex(end) - hex(start),
                resident,
            };
            self.memfds.insert((0, inode), memfd);
        }
    }

    /// Returns the resident bytes of all memfds.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.memfds.values().map(|m| m.resident).sum()
    }

    /// Returns the resident bytes of all memfds but control pages. Those are the manager's: a restarted manager makes new
    /// ones, and how much of one is resident depends on the moment.
    fn resident_but_control_pages(&self) -> u64 {
        let others = self.memfds.values();
        let others = others.filter(|m| !m.name.contains("tranship-control-page"));
        others.map(|m| m.resident).sum()
    }

    /// Returns only the memfds whose name begins so, for tests that share a process.
    #[must_use]
    pub fn memfds_named(&self, prefix: &str) -> BTreeMap<(u64, u64), Memfd> {
        self.memfds
            .iter()
            .filter(|(_, m)| m.name.starts_with(prefix))
            .map(|(k, m)| (*k, m.clone()))
            .collect()
    }

    /// Returns the differences from the `start`, one line each; empty when all resources came back.
    #[must_use]
    pub fn differences(&self, start: &Self) -> Vec<String> {
        let mut out = Vec::new();
        let mut compare = |what: &str, now: u64, was: u64| {
            if now != was {
                out.push(format!("{what}: {was} at the start, {now} now"));
            }
        };
        compare("descriptors", self.fds as u64, start.fds as u64);
        compare(
            "memfd descriptors",
            self.memfd_fds as u64,
            start.memfd_fds as u64,
        );
        compare(
            "memfds",
            self.memfds.len() as u64,
            start.memfds.len() as u64,
        );
        compare(
            "resident bytes of memfds",
            self.resident_but_control_pages(),
            start.resident_but_control_pages(),
        );
        compare(
            "mappings of memfds",
            self.mappings as u64,
            start.mappings as u64,
        );
        compare("mapped bytes of memfds", self.mapped, start.mapped);
        for (key, memfd) in self
            .memfds
            .iter()
            .filter(|(k, _)| !start.memfds.contains_key(k))
        {
            out.push(format!("new: inode {} {memfd:?}", key.1));
        }
        out
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            fds,
            memfds,
            mappings,
            mapped,
            threads,
            ..
        } = self;
        let (n, resident) = (memfds.len(), self.resident());
        write!(
            f,
            "{fds} fds, {n} memfds of {resident} B resident, {mappings} mappings of {mapped} B, {threads} threads"
        )
    }
}

/// Returns the descriptors of a process, in order.
///
/// # Errors
/// When /proc refuses.
pub fn fds(pid: u32) -> Result<Vec<Fd>, Error> {
    let mut all = Vec::new();
    // Opening the directory takes a descriptor itself, when it is our own: it is gone when links are read.
    let numbers: Vec<i32> = fs::read_dir(format!("/proc/{pid}/fd"))?
        .flatten()
        .filter_map(|e| e.file_name().to_string_lossy().parse().ok())
        .collect();
    for number in numbers {
        match fs::read_link(format!("/proc/{pid}/fd/{number}")) {
            Ok(target) => all.push(Fd {
                number,
                target: target.to_string_lossy().into_owned(),
            }),
            Err(e) if is_gone(&e) => {}
            Err(e) => return Err(e),
        }
    }
    all.sort_by_key(|fd| fd.number);
    Ok(all)
}

/// Returns how many descriptors a process has.
///
/// # Errors
/// When /proc refuses.
pub fn count_fds(pid: u32) -> Result<usize, Error> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Returns the children of a process, their children, and so on.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let children = |pid: u32| {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.unwrap_or_default();
        let words: Vec<u32> = list.split_whitespace().flat_map(str::parse).collect();
        words
    };
    let mut all = children(pid);
    let mut next = 0;
    while let Some(child) = all.get(next).copied() {
        all.extend(children(child));
        next += 1;
    }
    all
}

/// Returns the processes that work in a folder or below it, or whose arguments name it: number and arguments.
///
/// # Panics
/// When /proc or the folder cannot be read.
#[must_use]
pub fn working_in(folder: &Path) -> Vec<(u32, String)> {
    let here = folder.canonicalize().expect("the folder");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A zombie has neither arguments nor a folder.
        let said = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).replace('\0', " ");
        let works_here =
            fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&here));
        if works_here || said.contains(here.to_string_lossy().as_ref()) {
            found.push((pid, said));
        }
    }
    found
}

/// Processor time of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduled {
    pub ran: Duration,
    /// Time in which it could have run, and others did.
    pub waited: Duration,
    /// Number of times that it began to run.
    pub times: u64,
}

impl Scheduled {
    /// Returns the difference from `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            ran: self.ran.saturating_sub(before.ran),
            waited: self.waited.saturating_sub(before.waited),
            times: self.times.saturating_sub(before.times),
        }
    }
}

/// Returns the processor time of all living threads of a process.
///
/// # Errors
/// When /proc refuses.
pub fn scheduled(pid: u32) -> Result<Scheduled, Error> {
    let mut sum = Scheduled::default();
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let text = match fs::read_to_string(task.path().join("schedstat")) {
            // The thread has ended meanwhile.
            Err(e) if is_gone(&e) => continue,
            text => text?,
        };
        let mut words = text.split_whitespace().map(|n| n.parse().unwrap_or(0u64));
        let mut next = || words.next().unwrap_or(0);
        sum.ran += Duration::from_nanos(next());
        sum.waited += Duration::from_nanos(next());
        sum.times += next();
    }
    Ok(sum)
}

/// Memory of a process in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident.
    pub rss: u64,
    /// Its proportional share of the memory that several processes have.
    pub pss: u64,
    /// Memory of no file: the program's own pages are not in it.
    pub anonymous: u64,
}

/// Returns the memory of a process.
///
/// # Errors
/// When /proc refuses.
pub fn memory(pid: u32) -> Result<Memory, Error> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Ok(Memory {
        rss: field("Rss:").unwrap_or(0) * 1024,
        pss: field("Pss:").unwrap_or(0) * 1024,
        anonymous: field("Pss_Anon:").unwrap_or(0) * 1024,
    })
}

/// Returns `Shmem` of the whole machine in bytes: also memory that lies in sockets, but other programs' too.
///
/// # Errors
/// When /proc/meminfo cannot be read.
pub fn shmem() -> Result<u64, Error> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kib = text.lines().find_map(|l| {
        l.strip_prefix("Shmem:")?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    Ok(kib.unwrap_or(0) * 1024)
}

fn memfd_name(target: &str) -> Option<&str> {
    Some(
        target
            .strip_prefix("/memfd:")?
            .trim_end_matches(" (deleted)"),
    )
}

fn is_gone(e: &Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn smaps_rss(pid: u32, range: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    let mut lines = text.lines().skip_while(|l| !l.starts_with(range));
    let rss = lines.find_map(|l| l.strip_prefix("Rss:"))?;
    Some(rss.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
