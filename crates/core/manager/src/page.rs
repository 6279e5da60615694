//! Reading a manager's statistics page (`docs/format.md`, kind 10), without a connection and without any wait for the
//! manager.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tranship_proto::{StatRecord, decode_page};
use tranship_region::layout::PageRo;
use tranship_sys::{futex, time};

/// The contents of a page.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Random per start of the manager.
    pub instance: u64,
    /// The manager's process number.
    pub pid: u32,
    /// The time of the page, ns of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The page's age.
    pub age: Duration,
    /// How long a newer page has been requested in vain.
    pub silent: Option<Duration>,
    /// Records that had no room.
    pub left_out: u64,
    /// The records of the page.
    pub records: Vec<StatRecord>,
}

/// A page, mapped read-only.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    page: PageRo,
    place: (u64, u64),
    /// The last publication that was seen, and since when a newer one is requested.
    seen: u32,
    asked: Option<Instant>,
}

fn open(path: &Path) -> io::Result<(File, (u64, u64), u64)> {
    // Opening asks for a new page. The path may hold any file: a pipe is not waited for.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a file"));
    }
    Ok((file, (found.dev(), found.ino()), found.len()))
}

impl Reader {
    /// Opens the page of the manager that listens at a socket, or did.
    pub fn open(socket: &Path) -> io::Result<Reader> {
        let path = crate::paths::page_of(socket);
        let (file, place, bytes) = open(&path)?;
        let page = PageRo::open(&file, bytes).map_err(io::Error::other)?;
        Ok(Reader {
            path,
            page,
            place,
            seen: 0,
            asked: Some(Instant::now()),
        })
    }

    /// Asks for a new page: it comes within a quarter of a second, if the manager lives.
    pub fn ask(&mut self) {
        self.asked.get_or_insert_with(Instant::now);
        // If the file is gone or cannot be opened, the last contents stay.
        let Ok((file, place, bytes)) = open(&self.path) else {
            return;
        };
        // The file is another manager's, or a larger one.
        if place != self.place
            && let Ok(page) = PageRo::open(&file, bytes)
        {
            (self.page, self.place, self.seen) = (page, place, 0);
        }
    }

    /// Waits until there is a newer page than the one read last, for at most `most`.
    pub fn wait(&mut self, most: Duration) -> bool {
        let until = Instant::now() + most;
        loop {
            let turn = self.page.turn();
            if turn != self.seen {
                return true;
            }
            if self.page.has_moved() {
                self.ask();
                if self.page.turn() != self.seen {
                    return true;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // The wait is in steps. A file that was replaced while no manager lived to say so is found by asking.
            let step = left.min(Duration::from_millis(250));
            if matches!(
                futex::wait(self.page.turn_ptr(), turn, Some(step)),
                Ok(futex::Woken::Timeout)
            ) {
                self.ask();
            }
        }
    }

    /// Returns the last page, or `None` if there is none yet.
    pub fn read(&mut self) -> Option<Snapshot> {
        let found = self.page.read()?;
        if found.turn != self.seen {
            (self.seen, self.asked) = (found.turn, None);
        }
        let age = time::monotonic_ns().saturating_sub(found.at_ns);
        Some(Snapshot {
            instance: self.page.instance(),
            pid: self.page.pid(),
            at_ns: found.at_ns,
            age: Duration::from_nanos(age),
            silent: self.asked.map(|asked| asked.elapsed()),
            left_out: found.left_out,
            records: decode_page(&found.words),
        })
    }

    /// Asks, waits and reads.
    pub fn look(&mut self, most: Duration) -> Option<Snapshot> {
        self.ask();
        self.wait(most);
        self.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path may hold any file: a pipe without a writer is not waited for.
    #[test]
    fn a_pipe_is_no_page() {
        let _dog = tranship_testkit::Watchdog::new();
        let dir = tranship_testkit::folder().expect("a folder");
        let socket = dir.path().join("m.sock");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let page = crate::paths::page_of(&socket);
        rustix::fs::mkfifoat(rustix::fs::CWD, &page, mode).expect("a pipe");
        let error = Reader::open(&socket).expect_err("a pipe");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
