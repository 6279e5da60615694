//! Number of the last error of a system call, for code that may not allocate.

/// Returns the calling thread's.
pub(crate) fn errno() -> i32 {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}
