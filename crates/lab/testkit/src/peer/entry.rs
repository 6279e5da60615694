//! Named places where a re-executed test binary starts instead of in `main`.
//!
//! Each `child!` puts a constructor into the binary. The constructor checks whether it is meant. If so, it runs its
//! body in the main thread (so that it may unshare) and ends the process. The test harness never starts.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Control;

pub(super) const ENTRY: &str = "TRANSHIP_TESTKIT_ENTRY";
pub(super) const SOCKET: &str = "TRANSHIP_TESTKIT_FD";
pub(super) const UNDUMPABLE: &str = "TRANSHIP_TESTKIT_UNDUMPABLE";

/// Result that a child's body may return.
pub trait Ended {
    fn code(self) -> i32;
}

impl Ended for () {
    fn code(self) -> i32 {
        0
    }
}

impl<E: std::fmt::Debug> Ended for Result<(), E> {
    fn code(self) -> i32 {
        match self {
            Ok(()) => 0,
            Err(e) => {
                eprintln!("child failed: {e:?}");
                1
            }
        }
    }
}

/// Runs `body` and ends the process, if this process was started for `name`. Used by [`child!`].
pub fn enter<R: Ended>(name: &str, body: fn(Control) -> R) {
    if std::env::var_os(ENTRY).is_none_or(|wanted| wanted != *name) {
        return;
    }
    let Some(fd) = std::env::var(SOCKET)
        .ok()
        .and_then(|v| v.parse::<RawFd>().ok())
    else {
        return;
    };
    let undumpable = std::env::var_os(UNDUMPABLE).is_some();
    // SAFETY: before main there is one thread, so nobody reads the environment meanwhile.
    unsafe {
        std::env::remove_var(ENTRY);
        std::env::remove_var(SOCKET);
        std::env::remove_var(UNDUMPABLE);
    }
    let short = name.rsplit("::").next().unwrap_or(name);
    let short = std::ffi::CString::new(short).unwrap_or_default();
    // SAFETY: plain system calls; the runtime has not done its own signal setup yet, because main has not begun.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_NAME, short.as_ptr());
        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        if undumpable {
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
        }
    }
    // SAFETY: the launcher gave this descriptor to us alone.
    let control = Control::from_fd(unsafe { OwnedFd::from_raw_fd(fd) });
    let code = catch_unwind(AssertUnwindSafe(|| body(control).code())).unwrap_or(101);
    std::process::exit(code);
}
