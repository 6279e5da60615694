//! A network of the process's own: it has no address of the machine's.

use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use std::io;

/// Leaves the machine's network, its abstract sockets, its System V queues and its host name. A process without the
/// privilege gets a user namespace of its own, in which only its user and group exist.
pub(crate) fn leave_network() -> io::Result<()> {
    let flags = UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
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

#[allow(unsafe_code)]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: without the flag FILES all threads keep one table of descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
