//! Counts of a process's senders, as another process reads them.
//!
//! Another process wrote the page: it may be wrong, and its reader must not be harmed by that.

use crate::send::{Cause, Counts, Route, Way, Why};
use crate::tally::{NAME, layout};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Counts of a process's senders, with the reasons.
///
/// ```
/// # mod tranship { pub use tranship_zcopy as zcopy; }
/// use tranship::zcopy::Report;
///
/// for pid in Report::processes() {
///     let Ok(report) = Report::of_process(pid) else { continue }; // it is gone
///     println!("{}: {} senders", report.program, report.senders);
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The process, as it calls itself: in a container another number than outside.
    pub pid: u32,
    /// The program's name, at most 15 bytes.
    pub program: String,
    /// Time when the process made its first sender, seconds since 1970.
    pub started: u64,
    /// Senders that are there now.
    pub senders: u32,
    /// Senders that found no place to be counted.
    pub unseen: u64,
    /// Bytes and calls that were sent.
    pub counts: Counts,
    /// Sends by kind of socket, way and reason, the most frequent first.
    pub took: Vec<Took>,
    /// Reasons for copied bytes, the one with the most first.
    pub copied: Vec<Copied>,
}

/// Sends that went one way for one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Took {
    /// Kind of socket: `unix`, `loopback` and `remote` (TCP), `udp-local`, `udp`; `other` also for sends that the
    /// program itself copied, whose sockets are not known.
    pub socket: &'static str,
    /// The way.
    pub way: Way,
    /// The reason.
    pub why: Why,
    /// Number of sends; of datagrams each call counts.
    pub sends: u64,
    /// Number of their bytes, with those that were copied on the way.
    pub bytes: u64,
}

/// Bytes that were copied for one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// The reason.
    pub cause: Cause,
    /// Number of bytes.
    pub bytes: u64,
}

/// Reason for which there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The process has no page: it has not sent by ZCopy, or it closed descriptors that it did not know.
    #[error("process {0} has sent nothing by ZCopy")]
    NoPage(u32),
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The file is no page of ZCopy's.
    #[error("{0} is no page of ZCopy's counts")]
    NotAPage(PathBuf),
    /// The page is of another version.
    #[error("{path} is of version {found}; this program reads version {known}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the page.
        found: u64,
        /// Version of this program.
        known: u64,
    },
    /// The page cannot be read: it is of another user, for example.
    #[error("{path} cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl Report {
    /// Reads the report of a running process: of this user's, or of any user's for root. Does not disturb it.
    ///
    /// # Errors
    /// [`ReportError::NoPage`] if it has sent nothing by ZCopy.
    pub fn of_process(pid: u32) -> Result<Report, ReportError> {
        let folder = PathBuf::from(format!("/proc/{pid}/fd"));
        let entries = std::fs::read_dir(&folder).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ReportError::NoProcess(pid),
            _ => ReportError::Unreadable {
                path: folder.clone(),
                source,
            },
        })?;
        let own = own_number(pid).unwrap_or(pid);
        for entry in entries.filter_map(Result::ok) {
            // The descriptor was closed meanwhile, or is not such a page.
            let Ok(link) = std::fs::read_link(entry.path()) else {
                continue;
            };
            // An inherited page is the parent's.
            if is_page(&link, own)
                && let report = Report::of_file(&entry.path())?
                && report.pid == own
            {
                return Ok(report);
            }
        }
        Err(ReportError::NoPage(pid))
    }

    /// Reads the report of a file that a process left, which ran with `TRANSHIP_ZCOPY_EXPLAIN=FOLDER`.
    ///
    /// # Errors
    /// If the file is not a report, or cannot be read.
    pub fn of_file(path: &Path) -> Result<Report, ReportError> {
        let unreadable = |source| ReportError::Unreadable {
            path: path.to_path_buf(),
            source,
        };
        let not_a_page = || ReportError::NotAPage(path.to_path_buf());
        // A file there (a pipe, a terminal) is not waited for, and nothing is done to it. The checks are on the opened
        // file.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().read(true).custom_flags(flags).open(path);
        let file = file.map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if !about.is_file() || about.len() < (layout::HEAD * 8) as u64 {
            return Err(not_a_page());
        }
        let read = |at, count| words(&file, at, count).map_err(unreadable);
        let head = read(0, layout::HEAD)?;
        if head[layout::HEAD_MAGIC] != layout::MAGIC {
            return Err(not_a_page());
        }
        if head[layout::HEAD_VERSION] != layout::VERSION {
            return Err(ReportError::Version {
                path: path.to_path_buf(),
                found: head[layout::HEAD_VERSION],
                known: layout::VERSION,
            });
        }
        let mut places = Vec::new();
        for number in 0..layout::PLACES {
            let at = layout::HEAD + number * layout::PLACE;
            if read(at + layout::OWNER, 1)?[0] != 0 {
                places.push(read(at, layout::PLACE)?);
            }
        }
        Ok(Report::sum(&head, &places))
    }

    /// Numbers of the processes that have a page and may be looked at.
    #[must_use]
    pub fn processes() -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut found: Vec<u32> = names
            .filter_map(|name| name.parse().ok())
            .filter(|pid| Report::of_process(*pid).is_ok())
            .collect();
        found.sort_unstable();
        found
    }

    fn sum(head: &[u64], places: &[Vec<u64>]) -> Report {
        let name: Vec<u8> = head[layout::HEAD_NAME..layout::HEAD_NAME + 2]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        let of = |at: usize| {
            places
                .iter()
                .fold(0u64, |sum, place| sum.wrapping_add(place[at]))
        };
        let whys = |route, way| Why::ALL.into_iter().map(move |why| (route, way, why));
        let ways = |route| Way::ALL.into_iter().flat_map(move |way| whys(route, way));
        let mut took: Vec<_> = Route::ALL
            .into_iter()
            .flat_map(ways)
            .map(|(route, way, why)| {
                let at = layout::choice(route.index(), way.index(), why.index());
                Took {
                    socket: route.name(),
                    way,
                    why,
                    sends: of(at),
                    bytes: of(at + 1),
                }
            })
            .filter(|took| took.sends > 0)
            .collect();
        took.sort_by_key(|took| std::cmp::Reverse(took.sends));
        let mut copied: Vec<_> = Cause::ALL
            .into_iter()
            .enumerate()
            .map(|(number, cause)| Copied {
                cause,
                bytes: of(layout::CAUSES + number),
            })
            .filter(|copied| copied.bytes > 0)
            .collect();
        copied.sort_by_key(|copied| std::cmp::Reverse(copied.bytes));
        let living = |place: &&Vec<u64>| place[layout::OWNER] != layout::LEFT;
        Report {
            pid: u32::try_from(head[layout::HEAD_PID]).unwrap_or(0),
            program: tranship_proto::shown(&String::from_utf8_lossy(&name)).into_owned(),
            started: head[layout::HEAD_STARTED],
            senders: u32::try_from(places.iter().filter(living).count()).unwrap_or(0),
            unseen: head[layout::HEAD_UNSEEN],
            counts: Counts::read(of),
            took,
            copied,
        }
    }
}

fn words(file: &File, at: usize, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    file.read_exact_at(&mut bytes, at as u64 * 8)?;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight"));
    Ok(bytes.chunks_exact(8).map(word).collect())
}

/// Returns a process's number in its own namespace, which it wrote.
fn own_number(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// Returns whether a descriptor's link leads to a page of counts. Nothing else of another process is opened.
fn is_page(link: &Path, pid: u32) -> bool {
    let text = link.to_string_lossy();
    text.starts_with(&format!("/memfd:{NAME}")) || text.ends_with(&format!(".{pid}.zcopy"))
}
