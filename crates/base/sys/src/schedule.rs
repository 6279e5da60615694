//! A thread's requests to the scheduler.

use crate::errno;
use std::io;
use std::time::Duration;

/// Asks for processor slices of about this length (0.1 to 100 ms), for this thread and those that it will start. A
/// thread with shorter slices gets the processor sooner after it wakes, and no more in total. This needs no privilege.
/// Kernels before 6.12 ignore it, and a thread with another scheduling policy keeps that policy.
pub fn ask_for_slices(length: Duration) -> io::Result<()> {
    let size = u32::try_from(size_of::<libc::sched_attr>()).map_err(io::Error::other)?;
    // SAFETY: integers only.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes, the size of `attr`.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    errno::checked(got)?;
    if attr.sched_policy != libc::SCHED_OTHER.unsigned_abs() {
        return Ok(());
    }
    attr.size = size;
    attr.sched_runtime = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel reads `size` bytes, which are there.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    errno::checked(set).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_change_nothing_else() {
        std::thread::spawn(|| {
            // SAFETY: no precondition.
            let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            let before = nice();
            ask_for_slices(Duration::from_micros(100)).unwrap();
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }
}
