//! The C library's `errno`, for code that C programs call, and numbers in it that have no name in `std`.

use std::io;

/// Returns the current value.
pub fn get() -> i32 {
    // SAFETY: the calling thread's own word, valid for as long as the thread runs.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub fn set(value: i32) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = value }
}

/// Converts the result of a system call: a negative one is an error, and `errno` says which.
pub(crate) fn checked(result: impl TryInto<usize>) -> io::Result<usize> {
    result.try_into().ok().ok_or_else(io::Error::last_os_error)
}

/// Makes a system call, and makes it again as long as signals interrupt it.
pub(crate) fn retried(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match checked(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// `ENOMEM`.
pub const NO_MEMORY: i32 = libc::ENOMEM;
/// `EINVAL`.
pub const INVALID: i32 = libc::EINVAL;
/// `EMFILE`: this process has its maximum of descriptors.
pub const NO_DESCRIPTORS: i32 = libc::EMFILE;
/// `EPROTOTYPE`: the socket there is of another type.
pub const WRONG_SOCKET_TYPE: i32 = libc::EPROTOTYPE;
/// `EAFNOSUPPORT`: sockets of that kind cannot be made here, for example because a sandbox forbids them.
pub const NO_ADDRESS_FAMILY: i32 = libc::EAFNOSUPPORT;
/// `ENAMETOOLONG`.
pub const NAME_TOO_LONG: i32 = libc::ENAMETOOLONG;
/// `ETOOMANYREFS`: too many descriptors of this user are in transit through sockets.
pub const TOO_MANY_IN_FLIGHT: i32 = libc::ETOOMANYREFS;
/// `ESRCH`: there is no such process.
pub const NO_PROCESS: i32 = libc::ESRCH;
