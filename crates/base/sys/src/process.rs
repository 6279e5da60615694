//! This process: limits, identity, and which others may look inside.

use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Sets whether other processes of the same uid may ptrace this one and open its descriptors through `/proc`.
pub fn set_dumpable(dumpable: bool) -> io::Result<()> {
    let behavior = match dumpable {
        true => DumpableBehavior::Dumpable,
        false => DumpableBehavior::NotDumpable,
    };
    Ok(rustix::process::set_dumpable_behavior(behavior)?)
}

/// Says whether the process is dumpable, see [`set_dumpable`].
pub fn is_dumpable() -> io::Result<bool> {
    Ok(rustix::process::dumpable_behavior()? == DumpableBehavior::Dumpable)
}

/// Says whether this process may create files in that directory.
pub fn may_make_in(dir: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let both = Access::WRITE_OK | Access::EXEC_OK;
    let may = accessat(CWD, dir, both, AtFlags::EACCESS);
    // An older kernel cannot answer that for a set-uid process: the later attempt shows it.
    matches!(may, Ok(()) | Err(rustix::io::Errno::NOSYS))
}

/// Raises the soft limit of open files to the hard one; returns the new limit.
pub fn raise_nofile_soft_to_hard() -> io::Result<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        rustix::process::setrlimit(Resource::Nofile, raised)?;
    }
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Returns the soft limit of open files.
pub fn nofile_soft() -> u64 {
    rustix::process::getrlimit(Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}

/// Writes to standard error at once, without the locks that other threads may hold.
pub fn last_words(words: &str) {
    // SAFETY: the kernel reads `words`, within its length.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
}

/// Moves a descriptor to a number of at least `min`, away from `select` and from programs that close low numbers. If
/// there is no room there, the old descriptor is returned.
pub fn dup_above(fd: OwnedFd, min: i32) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), min).unwrap_or(fd)
}

/// Closes a descriptor of this process that is known by its number only.
pub fn close(fd: std::os::fd::RawFd) {
    // SAFETY: a number that stands for nothing is refused; that it stands for something of the caller's is up to the
    // caller, and touches no memory.
    unsafe { libc::close(fd) };
}

/// Returns device and inode of a descriptor. They show whether a number still stands for the same file.
pub fn identity(fd: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Says whether this process has privileges that the process which started it has not (set-uid, set-gid, file
/// capabilities; `AT_SECURE`, see getauxval(3)). If so, its environment is not trusted.
pub fn is_privileged() -> bool {
    // SAFETY: reads a word that the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns a variable of the environment that names something to run, join or read. It counts as unset if the
/// environment is not trusted.
pub fn trusted_env(name: &str) -> Option<std::ffi::OsString> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value.filter(|_| !is_privileged())
}

/// Returns the current value of a variable in the C library's environment. Returns `None` in a
/// [privileged](is_privileged) process, and before the C library has an environment.
///
/// It reads without the lock of [`std::env`], which a C program would not take either: call it early.
pub fn early_env(name: &std::ffi::CStr) -> Option<Vec<u8>> {
    early_env_as(name, <[u8]>::to_vec)
}

/// Applies `read` to the value that [`early_env`] returns. It allocates nothing by itself.
pub fn early_env_as<T>(name: &std::ffi::CStr, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
    if !has_environment() || is_privileged() {
        return None;
    }
    // SAFETY: `name` ends in 0. No other code writes the environment as early as this may be called.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string that ends in 0.
    Some(read(unsafe { std::ffi::CStr::from_ptr(value) }.to_bytes()))
}

/// Says whether the C library has an environment yet: not while a program is being loaded.
pub fn has_environment() -> bool {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: a word of the C library's.
    unsafe { !environ.is_null() }
}

/// Returns the kernel's name for the process: the first 15 bytes of its program's name.
pub fn command_name() -> String {
    let name = rustix::thread::name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Names the calling thread, by at most 15 bytes.
pub fn name_thread(name: &std::ffi::CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Returns the real user id.
pub fn getuid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Returns the effective user id.
pub fn geteuid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The kernel's number for a user without a number in this user namespace (`/proc/sys/kernel/overflowuid`). It may
/// stand for any such user.
pub const NO_USER: u32 = 65534;

/// Returns the real group id.
pub fn getgid() -> u32 {
    rustix::process::getgid().as_raw()
}

/// Returns the own process id.
pub fn getpid() -> u32 {
    rustix::process::getpid().as_raw_pid().unsigned_abs()
}

/// Returns the own thread id.
pub fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_pid().unsigned_abs()
}

/// Ends this process at once, without running any further code.
pub fn kill_self() -> ! {
    // A process cannot refuse or defer its own SIGKILL.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

/// Sends a signal to process `pid`; for tests and benches that stop and continue children.
pub fn kill(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

/// Pins the calling thread to one processor.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Returns the processors the calling thread may run on.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// Returns the processor time that the calling thread has used.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Gives memory that the C library's allocator keeps for later back to the kernel. Does nothing with another allocator.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::process::{WaitOptions, WaitStatus};

    /// Runs `body` in a forked child. The child must not rely on other threads.
    pub(crate) fn status_of_child(body: impl FnOnce() -> i32) -> WaitStatus {
        // SAFETY: the child runs `body` alone and leaves by _exit; it may allocate, as glibc keeps its allocator
        // usable after a fork.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
        if pid == 0 {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
            // SAFETY: ends the process.
            unsafe { libc::_exit(code) }
        }
        rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty())
            .expect("waitpid")
            .expect("status")
            .1
    }

    pub(crate) fn in_child(body: impl FnOnce() -> i32) -> i32 {
        status_of_child(body).exit_status().unwrap_or(-1)
    }

    #[test]
    fn dumpable_goes_off_and_on() {
        let status = in_child(|| {
            set_dumpable(false).expect("off");
            let off = is_dumpable().expect("get");
            set_dumpable(true).expect("on");
            i32::from(off || !is_dumpable().expect("get"))
        });
        assert_eq!(status, 0);
    }

    #[test]
    fn descriptors_move_up() {
        use std::os::fd::AsRawFd;
        raise_nofile_soft_to_hard().expect("limit");
        assert!(nofile_soft() > 1024);
        let fd = crate::eventfd::create().expect("eventfd");
        assert!(dup_above(fd, 1024).as_raw_fd() >= 1024);
        let fd = crate::eventfd::create().expect("eventfd");
        assert!(dup_above(fd, i32::MAX).as_raw_fd() < i32::MAX);
    }

    #[test]
    fn a_thread_can_be_pinned() {
        let cpu = *allowed_cpus().expect("cpus").last().expect("one");
        std::thread::spawn(move || {
            pin_to_cpu(cpu).expect("pin");
            assert_eq!(allowed_cpus().expect("cpus"), [cpu]);
            assert!(pin_to_cpu(1 << 20).is_err());
        })
        .join()
        .expect("thread");
    }
}
