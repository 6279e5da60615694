//! Closing what may take for ever to close.
//!
//! A stranger may send a descriptor of a file whose file system never answers that it is closed, or of a socket that lingers.
//! Whoever closes it waits in the kernel; and so does at its end, where not even SIGKILL helps, any process that has it open.
//! So a process of its own closes it, which shares the table of descriptors: there the place is free at once, and whoever is
//! killed meanwhile leaves what is left of it to that process.

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitIdOptions};
use std::io;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// From then on it is ended where it can be: a socket that lingers is closed by that.
const PATIENCE: Duration = Duration::from_secs(1);

struct Helper {
    number: u64,
    process: OwnedFd,
    since: Instant,
}

static HELPERS: Mutex<Vec<Helper>> = Mutex::new(Vec::new());
static LAST: AtomicU64 = AtomicU64::new(0);

/// What is being closed.
#[derive(Debug)]
pub struct Closing(u64);

/// Has all of it closed by somebody else, and does not wait for it.
///
/// Where the kernel allows no further process they stay open, for good.
pub fn close(fds: Vec<OwnedFd>) -> Closing {
    // Ordering: relaxed; only the number itself must be unique.
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let fds: Vec<RawFd> = fds.into_iter().map(IntoRawFd::into_raw_fd).collect();
    let mut helpers = tended();
    if let Ok(process) = in_a_process_of_its_own(&fds) {
        helpers.push(Helper {
            number,
            process,
            since: Instant::now(),
        });
    }
    Closing(number)
}

impl Closing {
    /// Whether all is closed.
    pub fn is_over(&self) -> bool {
        !tended().iter().any(|helper| helper.number == self.0)
    }
}

/// Without those that are done.
fn tended() -> MutexGuard<'static, Vec<Helper>> {
    let mut helpers = HELPERS.lock().unwrap_or_else(PoisonError::into_inner);
    helpers.retain(|helper| {
        if has_ended(&helper.process) {
            // A process like this is no child to who waits for any.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | all();
            let id = rustix::process::WaitId::PidFd(helper.process.as_fd());
            let _ = rustix::process::waitid(id, options);
            return false;
        }
        if helper.since.elapsed() >= PATIENCE {
            let _ = rustix::process::pidfd_send_signal(&helper.process, Signal::KILL);
        }
        true
    });
    helpers
}

/// `__WALL`: also children that send no signal at their end.
fn all() -> WaitIdOptions {
    WaitIdOptions::from_bits_retain(0x4000_0000)
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut polls = [PollFd::new(process, PollFlags::IN)];
    let now = rustix::time::Timespec::default();
    // Of a process that cannot be asked about nothing is known.
    rustix::event::poll(&mut polls, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn in_a_process_of_its_own(fds: &[RawFd]) -> io::Result<OwnedFd> {
    let before = crate::signals::block_all()?;
    let mut process: RawFd = -1;
    let flags = libc::CLONE_FILES | libc::CLONE_PIDFD;
    // SAFETY: a fork, but for the table of descriptors. The child touches nothing but a copy of `fds` and makes system calls only,
    // as other threads may have held any lock.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut process, 0, 0) };
    if pid == 0 {
        for fd in fds {
            // SAFETY: numbers that were given up to be closed here.
            unsafe { libc::syscall(libc::SYS_close, *fd) };
        }
        // SAFETY: ends the child.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
    let error = io::Error::last_os_error();
    crate::signals::restore(&before);
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: the kernel has stored a new descriptor of ours.
    Ok(unsafe { OwnedFd::from_raw_fd(process) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket;

    #[test]
    fn what_is_given_is_closed_and_its_helper_goes() {
        let (near, far) = socket::pair().expect("pair");
        let (number, closing) = {
            use std::os::fd::AsRawFd;
            (far.as_raw_fd(), close(vec![far]))
        };
        while !closing.is_over() {
            std::thread::yield_now();
        }
        assert!(socket::is_over(&near));
        // The number may be another one's by now, but not of that socket.
        let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
        let same = crate::process::identity(&near).map(|(_, inode)| format!("socket:[{inode}]"));
        assert_ne!(link.ok().map(|l| l.display().to_string()), same.ok());
    }
}
