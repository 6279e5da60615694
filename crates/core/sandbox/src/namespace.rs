//! Namespaces of the process's own: neither the machine's network nor its processes are in them.
//!
//! ```text
//!  supervisor ─► this process ─► first process of the namespace ─► the program, which goes on
//!                waits            mounts /proc, waits
//! ```
//!
//! A process enters a process namespace only by being born there. The first process of a namespace ignores signals that
//! it does not handle, SIGTERM too, so the program is the second one. Both waiting processes pass signals on and reap.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group,
    set_parent_process_death_signal, setpgid, wait,
};
use rustix::thread::UnshareFlags;
use std::io;
use tranship_error::{Error, system};
use tranship_sys::{confine, pidfd, signals};

/// Leaves the machine's network (with its abstract sockets, System V queues and host name), and its processes (with its
/// table of mounts). A process without the privilege gets a user namespace of its own, in which only its user and group
/// exist.
///
/// With `processes` the call returns in a new process. The calling process waits for it, and ends with its exit code.
pub(crate) fn leave(network: bool, processes: bool) -> Result<(), Error> {
    let mut flags = UnshareFlags::empty();
    if network {
        flags |= UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    }
    if processes {
        flags |= UnshareFlags::NEWPID | UnshareFlags::NEWNS;
    }
    if flags.is_empty() {
        return Ok(());
    }
    unshare_privileged(flags).map_err(system(
        "namespaces of its own (`network = true` and `processes = true` do without)",
    ))?;
    match processes {
        true => descend().map_err(system(
            "a process namespace (`processes = true` does without)",
        )),
        false => Ok(()),
    }
}

fn unshare_privileged(flags: UnshareFlags) -> io::Result<()> {
    match unshare(flags) {
        Err(Errno::PERM) => {}
        done => return Ok(done?),
    }
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    unshare(flags | UnshareFlags::NEWUSER)?;
    // The kernel takes a map of groups only where setgroups(2) is given up.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Goes on as the second process of the new process namespace.
// Crash: the kernel kills the first process with its parent, and all others of the namespace with the first one.
fn descend() -> io::Result<()> {
    let before = signals::block_all()?;
    let outer = pidfd::open(getpid().as_raw_pid().unsigned_abs())?;
    // Each is a group of its own: a signal to this process's group reaches the program once.
    if let Some(first) = fork_leader()? {
        end_with(first);
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if pidfd::is_dead(&outer)? {
        exit(1);
    }
    own_mounts()?;
    if let Some(program) = fork_leader()? {
        end_with(program);
    }
    signals::restore(&before);
    Ok(())
}

/// Forks a process that leads a group of its own. Returns the child in the parent, and `None` in the child.
fn fork_leader() -> io::Result<Option<Pid>> {
    let child = fork()?;
    match child {
        // Here and there, because either may be first.
        Some(child) => _ = setpgid(Some(child), Some(child)),
        None => setpgid(None, None)?,
    }
    Ok(child)
}

/// Passes signals on to a child's group, reaps, and ends with the child's exit code: 128 and the number for a signal.
/// The process keeps no descriptor, and of its rights only that to signal a program that becomes another user.
fn end_with(child: Pid) -> ! {
    close_all();
    // The program has perhaps the same user, and could use this process's rights.
    let _ = tranship_sys::process::set_dumpable(false);
    let _ = confine::drop_capabilities(true);
    loop {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == child => exit(code(status)),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => exit(1),
            }
        }
        match signals::wait().map(Signal::from_named_raw) {
            Ok(Some(Signal::CHILD)) => {}
            // A program that has ended needs none.
            Ok(Some(signal)) => _ = kill_process_group(child, signal),
            Ok(None) | Err(_) => {}
        }
    }
}

/// Ends at once: what the program wanted to do at its exit is the program's to do.
#[allow(unsafe_code)]
fn exit(code: i32) -> ! {
    // SAFETY: no code of this process runs after it.
    unsafe { libc::_exit(code) }
}

/// Closes all descriptors: a reader of the program's output finds its end when the program closes it.
#[allow(unsafe_code)]
fn close_all() {
    // SAFETY: the process only waits from here on, and uses none.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
    }
}

fn code(status: WaitStatus) -> i32 {
    let signal = || status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or_else(signal).unwrap_or(1)
}

/// Makes a table of mounts of this process's own, with the `/proc` of its namespace. What the machine mounts and
/// unmounts shows in it, and nothing of it shows there.
fn own_mounts() -> io::Result<()> {
    mount(c"none", c"/", libc::MS_REC | libc::MS_SLAVE)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(c"proc", c"/proc", flags)
}

#[allow(unsafe_code)]
fn mount(kind: &std::ffi::CStr, at: &std::ffi::CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the kernel reads the strings, which end in 0, and no further data.
    let done = unsafe {
        libc::mount(
            kind.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            flags,
            std::ptr::null(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the child in the parent, and `None` in the child.
#[allow(unsafe_code)]
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the process has one thread, as the callers say, so the child finds no lock that another thread holds.
    match unsafe { libc::fork() } {
        ..0 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child)),
    }
}

#[allow(unsafe_code)]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: without the flag FILES all threads keep one table of descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
