//! Descriptors that the service manager, or whoever started this process, opened for us.

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

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

/// A descriptor that whoever started this program said that it passes on, by its number: once, and not one of the standard streams.
/// Nothing where none is open, or this program has opened it itself.
pub fn passed(number: RawFd) -> Option<OwnedFd> {
    static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());
    if number < 3 {
        return None;
    }
    // SAFETY: only asked for its flags; what is not open is an error.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
    // What Rust opens closes on exec; so it came from outside.
    let ours = flags.is_ok_and(|f| !f.contains(rustix::io::FdFlags::CLOEXEC));
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if !ours || !taken.insert(number) {
        return None;
    }
    // SAFETY: it is open, came through exec, and is taken only once.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
    Some(fd)
}
