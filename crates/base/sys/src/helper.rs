//! Helper processes and threads that have one descriptor of this process and no other. Waiting or losing a descriptor
//! concerns only the helper.

use crate::{process, signals};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;

/// A forked process that can be told apart and reaped.
#[derive(Debug)]
pub struct Forked {
    pid: i32,
}

impl Forked {
    /// Returns the helper's process id.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Reaps the process if it has ended.
    pub fn reap(&self) {
        // SAFETY: our own child; nothing is written.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Forks a process that runs `body` and then ends. `keep` is its only descriptor, beside standard error. Only SIGKILL
/// reaches it, and the kernel reaps its children. It does not delay this process's end, which it notices by `keep`.
///
/// `body` must not take a lock that another thread of this process may hold, so it writes nothing through `std::io`.
pub fn fork(name: &CStr, keep: OwnedFd, body: impl FnOnce(OwnedFd)) -> io::Result<Forked> {
    // SAFETY: the child runs `body` alone, whose caller keeps it off locks, and leaves by _exit; the C library keeps
    // its allocator usable after a fork.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => child(name, keep, body),
        _ if pid < 0 => Err(io::Error::last_os_error()),
        _ => Ok(Forked { pid }),
    }
}

const STDERR: RawFd = 2;

fn child(name: &CStr, keep: OwnedFd, body: impl FnOnce(OwnedFd)) -> ! {
    // A panic would unwind into the parent's code.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = signals::block_all();
        // SAFETY: plain system calls on this process and its own numbers.
        let keep = unsafe {
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            if libc::dup2(keep.as_raw_fd(), STDERR + 1) < 0 {
                return;
            }
            libc::fcntl(STDERR + 1, libc::F_SETFD, libc::FD_CLOEXEC);
            close_range(STDERR + 2, RawFd::MAX, 0);
            close_range(0, STDERR - 1, 0);
            std::mem::forget(keep);
            OwnedFd::from_raw_fd(STDERR + 1)
        };
        body(keep);
    }));
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Starts a thread that runs `body` with its own table of descriptors. `keep` is the only one in it, so closing or
/// waiting does not touch this process's table. This serves processes that cannot fork.
pub fn thread(
    name: &str,
    keep: OwnedFd,
    body: impl FnOnce(OwnedFd) + Send + 'static,
) -> io::Result<()> {
    // A high number, so that few numbers are above it.
    let keep = process::dup_above(keep, FAR);
    let number = keep.as_raw_fd();
    let (done, wait) = mpsc::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _ = signals::block_all();
            // SAFETY: this thread's own table from here on; descriptors below `number` are not even copied to it.
            let apart = unsafe { close_range(0, number - 1, CLOSE_RANGE_UNSHARE) };
            let _ = done.send(apart);
            if apart != 0 {
                return; // `keep` belongs to the caller, which closes it.
            }
            // SAFETY: as above; this thread uses no descriptor above `number`. `number` is now this table's own.
            let keep = unsafe {
                close_range(number + 1, RawFd::MAX, 0);
                OwnedFd::from_raw_fd(number)
            };
            body(keep);
        })?;
    match wait.recv() {
        Ok(0) => Ok(()),
        _ => Err(io::Error::other(
            "the kernel gives a thread no descriptors of its own",
        )),
    }
}

const FAR: RawFd = 4096;
const CLOSE_RANGE_UNSHARE: u32 = 2;

/// # Safety
/// No code uses these descriptor numbers.
unsafe fn close_range(first: RawFd, last: RawFd, flags: u32) -> i64 {
    if last < first {
        return 0;
    }
    // SAFETY: a system call on numbers, as the caller promises.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket;
    use std::os::fd::AsFd;

    fn open_fds() -> usize {
        std::fs::read_dir("/proc/thread-self/fd").map_or(0, Iterator::count)
    }

    fn answer(fd: OwnedFd) {
        let count = open_fds().to_le_bytes();
        let _ = socket::sendmsg(&fd, &count, &[], false);
    }

    fn asked(ours: impl AsFd) -> usize {
        let mut count = [0; 8];
        socket::recvmsg(ours, &mut count, false).expect("an answer");
        usize::from_le_bytes(count)
    }

    #[test]
    fn a_helper_has_nothing_but_its_own_end() {
        let spare: Vec<_> = (0..50)
            .map(|_| crate::eventfd::create().expect("eventfd"))
            .collect();
        // Standard error, the helper's end, and the directory that it counts.
        let (ours, theirs) = socket::pair().expect("pair");
        let forked = fork(c"helper", theirs, answer).expect("fork");
        assert_eq!(asked(&ours), 3);
        assert!(forked.pid() > 0);
        let (ours, theirs) = socket::pair().expect("pair");
        thread("helper", theirs, answer).expect("thread");
        assert_eq!(asked(&ours), 2);
        // The helper's end closes with it: this process has no copy.
        let end = socket::recvmsg(&ours, &mut [0; 8], false).expect("the end");
        assert_eq!(end.bytes, 0);
        drop(spare);
    }
}
