//! A file whose reads and closing are never answered: an attacker can make one with FUSE.
//!
//! A thread that touches a page of it, or closes it, waits in the kernel until it is let go; SIGKILL does not help. So
//! only children open it: the process that serves it could never end.
//!
//! ```no_run
//! if let Err(why) = tranship_testkit::fuse::possible() {
//!     return tranship_testkit::skipped(why);
//! }
//! let file = tranship_testkit::fuse::Silent::new().unwrap();
//! // A child opens `file.path()`, maps it, and has the kernel write to it.
//! file.wait_for(tranship_testkit::fuse::READ);
//! ```

use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use tranship_sys::eventfd;

/// Requests (`linux/fuse.h`): of a page that is touched, of a descriptor that is closed.
pub const READ: u32 = 15;
pub const FLUSH: u32 = 25;

const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const HEADER: usize = 40;
const FILE_BYTES: u64 = 1 << 20;

/// File that never answers. Dropping it lets go of all threads that wait for it.
#[derive(Debug)]
pub struct Silent {
    path: PathBuf,
    asked: Arc<Asked>,
    stop: OwnedFd,
    server: Mutex<Option<std::thread::JoinHandle<()>>>,
    _folder: tempfile::TempDir,
}

/// Number of requests of each kind that came and will not be answered.
#[derive(Debug, Default)]
struct Asked {
    counts: Mutex<BTreeMap<u32, u64>>,
    more: Condvar,
}

/// Returns whether such a file can be made here.
///
/// # Errors
/// The missing feature, in words.
pub fn possible() -> Result<(), String> {
    if !crate::is_root() {
        return Err("needs root, to mount a FUSE file system".into());
    }
    std::fs::metadata("/dev/fuse").map_err(|error| format!("/dev/fuse: {error}"))?;
    Ok(())
}

impl Silent {
    /// Makes it, for everybody to read and write.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Silent> {
        sweep();
        let folder = crate::folder()?;
        std::fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?;
        let path = folder.path().join("silent");
        std::fs::write(&path, "")?;
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let options = format!(
            "fd={},rootmode=100666,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        mount(&path, &options)?;
        let (asked, stop) = (Arc::new(Asked::default()), eventfd::create()?);
        let silent = Silent {
            path,
            asked: Arc::clone(&asked),
            stop,
            server: Mutex::default(),
            _folder: folder,
        };
        let stop = silent.stop.try_clone()?;
        let server = std::thread::Builder::new().name("fuse".into());
        let server = server.spawn(move || serve(device, &stop, &asked))?;
        *silent.server() = Some(server);
        // Until the kernel asks for the file's size, it takes the file for empty.
        std::fs::metadata(&silent.path)?;
        Ok(silent)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until somebody has asked that, and waits for the answer.
    pub fn wait_for(&self, request: u32) {
        let counts = self.asked.counts.lock();
        let counts = counts.unwrap_or_else(PoisonError::into_inner);
        let none = |counts: &mut BTreeMap<u32, u64>| !counts.contains_key(&request);
        drop(self.asked.more.wait_while(counts, none));
    }

    /// Returns how often that was asked.
    #[must_use]
    pub fn asked(&self, request: u32) -> u64 {
        let counts = self.asked.counts.lock();
        let counts = counts.unwrap_or_else(PoisonError::into_inner);
        counts.get(&request).copied().unwrap_or(0)
    }
}

impl Silent {
    /// Gives an error to all threads that wait for it, now and from now on.
    pub fn let_go(&self) {
        let _ = eventfd::signal(&self.stop);
        if let Some(server) = self.server().take() {
            let _ = server.join();
        }
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Option<std::thread::JoinHandle<()>>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.let_go();
        if let Err(error) = unmount(&self.path) {
            eprintln!("fuse: {}: {error}", self.path.display());
        }
    }
}

/// Removes the leftovers of processes that ended without removing them.
fn sweep() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let ours = mounts.lines().filter(|line| line.starts_with("silent "));
    for at in ours.filter_map(|line| line.split(' ').nth(1)) {
        let pid = crate::folder::owner(Path::new(at).parent().unwrap_or(Path::new("")));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another process may be sweeping too.
            let _ = unmount(Path::new(at));
        }
    }
}

fn unmount(path: &Path) -> io::Result<()> {
    let path = c_string(path);
    // SAFETY: a string that ends in 0.
    match unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn mount(path: &Path, options: &str) -> io::Result<()> {
    let (at, options) = (c_string(path), CString::new(options)?);
    // SAFETY: strings that end in 0.
    let mounted = unsafe {
        libc::mount(
            c"silent".as_ptr(),
            at.as_ptr(),
            c"fuse".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            options.as_ptr().cast(),
        )
    };
    match mounted {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Answers the requests that are needed to open the file, and nothing else. Its end closes the device, and with it the
/// connection: waiting calls fail.
fn serve(device: OwnedFd, stop: &OwnedFd, asked: &Asked) {
    let mut request = vec![0u8; 1 << 20];
    loop {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(&device, PollFlags::IN),
        ];
        let _ = poll(&mut fds, None);
        if !fds[0].revents().is_empty() {
            return;
        }
        let Ok(len) = rustix::io::read(&device, &mut request) else {
            continue; // taken back meanwhile
        };
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| request[at + i]));
        if len < HEADER {
            continue;
        }
        let (kind, unique) = (word(4), [0, 1, 2, 3, 4, 5, 6, 7].map(|i| request[8 + i]));
        let (error, answer) = match kind {
            INIT => (0, init(word(HEADER + 4))),
            GETATTR => (0, attributes()),
            OPEN => (0, vec![0; 16]),
            RELEASE => (0, Vec::new()),
            // Requests that have no answer, or are never given one.
            FORGET | INTERRUPT | BATCH_FORGET => continue,
            READ | FLUSH => {
                let counts = asked.counts.lock();
                let mut counts = counts.unwrap_or_else(PoisonError::into_inner);
                *counts.entry(kind).or_default() += 1;
                asked.more.notify_all();
                continue;
            }
            _ => (-libc::ENOSYS, Vec::new()),
        };
        let mut reply = Vec::new();
        let len = u32::try_from(16 + answer.len()).unwrap_or(0);
        reply.extend(len.to_le_bytes());
        reply.extend(error.to_le_bytes());
        reply.extend(unique);
        reply.extend(answer);
        let _ = rustix::io::write(&device, &reply);
    }
}

/// Returns `struct fuse_init_out`: version 7, the kernel's minor, no options.
fn init(minor: u32) -> Vec<u8> {
    let mut out = vec![0; 64];
    out[..4].copy_from_slice(&7u32.to_le_bytes());
    out[4..8].copy_from_slice(&minor.to_le_bytes());
    out[20..24].copy_from_slice(&4096u32.to_le_bytes());
    out
}

/// Returns `struct fuse_attr_out`: a regular file that every user may use, valid for an hour.
fn attributes() -> Vec<u8> {
    let mut out = vec![0; 104];
    out[..8].copy_from_slice(&3600u64.to_le_bytes());
    let attr = &mut out[16..];
    attr[..8].copy_from_slice(&1u64.to_le_bytes());
    attr[8..16].copy_from_slice(&FILE_BYTES.to_le_bytes());
    attr[60..64].copy_from_slice(&0o100_666u32.to_le_bytes());
    attr[64..68].copy_from_slice(&1u32.to_le_bytes());
    attr[80..84].copy_from_slice(&4096u32.to_le_bytes());
    out
}
