//! Descriptors that the service manager opened for us.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first listening socket of socket activation (`LISTEN_PID`, `LISTEN_FDS`), once.
pub fn listen_socket() -> Option<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let ours = number("LISTEN_PID") == Some(crate::process::getpid());
    if !ours || number("LISTEN_FDS").is_none_or(|n| n == 0) || TAKEN.swap(true, Ordering::SeqCst) {
        return None;
    }
    // SAFETY: the environment says that descriptor 3 was opened for this process, and it is taken only once.
    let fd = unsafe { OwnedFd::from_raw_fd(3) };
    // It came without it, and is not to reach children.
    let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
    Some(fd)
}
