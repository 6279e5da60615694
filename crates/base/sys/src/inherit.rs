//! Descriptors that the service manager, or the program that started this process, opened for it.

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The descriptors that the service manager handed over (`LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`), and that were
/// not taken yet.
static HANDED: Mutex<Option<Vec<(String, OwnedFd)>>> = Mutex::new(None);
/// Bit n: standard stream n was closed when this program was started. Rust opens `/dev/null` for it before `main`.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the C library calls the functions in this section before `main`, with arguments that a C function may ignore.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for number in 0..3 {
        // SAFETY: only its flags are read; a closed descriptor is an error.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::io::fcntl_getfd(fd).is_err() {
            // Ordering: relaxed; there is one thread.
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// Says whether a standard stream (0, 1, 2) was closed when this program was started.
pub fn was_closed(number: u8) -> bool {
    // Ordering: relaxed; written before `main`.
    CLOSED.load(Ordering::Relaxed) & (1 << number) != 0
}

/// The largest number of descriptors: more than any program hands over.
const MOST: u32 = 1 << 16;

fn handed() -> MutexGuard<'static, Option<Vec<(String, OwnedFd)>>> {
    let mut handed = HANDED.lock().unwrap_or_else(PoisonError::into_inner);
    if handed.is_some() {
        return handed;
    }
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let ours = number("LISTEN_PID") == Some(crate::process::getpid());
    let count = number("LISTEN_FDS").filter(|_| ours).unwrap_or(0).min(MOST);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(std::iter::repeat(""));
    let all = (3..)
        .zip(names)
        .take(count as usize)
        .filter_map(|(number, name): (RawFd, _)| {
            // SAFETY: only its flags are read; a closed descriptor is an error.
            let open = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
            // A descriptor that this program has opened itself closes on exec.
            open.ok()
                .filter(|f| !f.contains(rustix::io::FdFlags::CLOEXEC))?;
            // SAFETY: the environment says that it was opened for this process, and it is taken only once.
            let fd = unsafe { OwnedFd::from_raw_fd(number) };
            // Children must not inherit it.
            let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
            Some((name.to_owned(), fd))
        });
    *handed = Some(all.collect());
    handed
}

/// Takes the first listening socket of socket activation, once.
pub fn listen_socket() -> Option<OwnedFd> {
    let mut handed = handed();
    let all = handed.as_mut()?;
    let listens = |fd: &OwnedFd| rustix::net::sockopt::socket_acceptconn(fd).unwrap_or(false);
    let at = all.iter().position(|(_, fd)| listens(fd))?;
    Some(all.remove(at).1)
}

/// Takes all other descriptors that were handed over, by name: those that an earlier process of this service had
/// stored. Works once.
pub fn stored() -> Vec<(String, OwnedFd)> {
    handed().as_mut().map(std::mem::take).unwrap_or_default()
}

/// Takes a descriptor by its number, if the program that started this one announced it. Works once for each number, and
/// not for the standard streams. Returns `None` if the descriptor is not open, or if this program opened it itself.
pub fn passed(number: RawFd) -> Option<OwnedFd> {
    static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());
    if number < 3 {
        return None;
    }
    // SAFETY: only its flags are read; a closed descriptor is an error.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
    // A descriptor that Rust opens closes on exec, so this one came from outside.
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
