//! Unix sockets of type SEQPACKET: messages with descriptors and credentials.

use crate::errno;
use control::{Control, FDS_SPACE, space};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod control;
mod receive;
pub use control::{Creds, MAX_FDS};
pub use receive::{Front, Received, drop_front, peek, recvmsg, recvmsg_all, recvmsg_whole};

/// The longest path that a socket can have, unix(7).
pub const MAX_PATH_BYTES: usize = 107;

/// Checks whether a socket can have this path. This check comes first, because a lookup of a shortened path tells
/// nothing.
pub fn check_path(path: &Path) -> io::Result<()> {
    let bytes = path.as_os_str().len();
    if bytes <= MAX_PATH_BYTES {
        return Ok(());
    }
    let text = format!("its path has {bytes} bytes, a socket's has at most {MAX_PATH_BYTES}");
    Err(io::Error::new(io::ErrorKind::InvalidFilename, text))
}

/// Makes a socket that listens at `path` with the permission bits `mode`. The path must be free.
pub fn listen(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    listen_with(path, mode, |_| Ok(())).map(|(fd, ())| fd)
}

/// Listens at a path after `prepare` ran on the socket, so that its settings hold for the first connection too.
pub fn listen_with<T>(
    path: &Path,
    mode: u32,
    prepare: impl FnOnce(&OwnedFd) -> io::Result<T>,
) -> io::Result<(OwnedFd, T)> {
    let address = SocketAddrUnix::new(path)?;
    let fd = seqpacket()?;
    let prepared = prepare(&fd)?;
    let mode = rustix::fs::Mode::from_bits_truncate(mode & 0o777);
    // The mode is set before bind, so that the socket is never open to more than `mode`, and again after it, because of
    // the umask.
    rustix::fs::fchmod(&fd, mode)?;
    rustix::net::bind(&fd, &address)?;
    rustix::fs::chmod(path, mode)?;
    rustix::net::listen(&fd, 128)?;
    Ok((fd, prepared))
}

/// Connects to a listener; blocks while its queue is full.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let fd = seqpacket()?;
    let address = SocketAddrUnix::new(path)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address))?;
    Ok(fd)
}

/// Connects to a listener, and waits at most `limit`; then `WouldBlock`. A signal restarts the time.
pub fn connect_within(path: &Path, limit: Duration) -> io::Result<OwnedFd> {
    let fd = seqpacket()?;
    let address = SocketAddrUnix::new(path)?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(limit))?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address))?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, None)?;
    Ok(fd)
}

/// Connects without waiting: `WouldBlock` if the listener's queue is full. Later calls on the socket also return that
/// instead of blocking.
pub fn connect_now(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let fd = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address))?;
    Ok(fd)
}

/// Takes one connection.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::net::accept_with(listener.as_fd(), SocketFlags::CLOEXEC)
    })?)
}

/// Makes two connected ends.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Makes a pair of sockets for one direction. The first only receives, without descriptors if the kernel can forbid
/// them. The second only sends.
pub fn one_way() -> io::Result<(OwnedFd, OwnedFd)> {
    let (to, from) = pair()?;
    rustix::net::shutdown(&from, rustix::net::Shutdown::Read)?;
    pass_rights(&to, false)?;
    Ok((to, from))
}

/// Says whether the other end is gone, even if messages are left to be taken.
pub fn is_hung_up(fd: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = fd.as_fd();
    let mut all = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
    let found = poll(&mut all, Some(&Timespec::default()));
    found.is_ok()
        && all[0]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP)
}

/// Takes at most `most` queued messages, without their bytes and descriptors.
pub fn discard(fd: impl AsFd, most: usize) {
    let flags = rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::TRUNC;
    for _ in 0..most {
        match rustix::net::recv(fd.as_fd(), &mut [0u8; 1], flags) {
            Ok((_, 1..)) => {}
            // No more messages, now or later.
            _ => return,
        }
    }
}

fn seqpacket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Makes calls return `WouldBlock` instead of blocking.
pub fn set_nonblocking(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, on)?)
}

/// Says whether the other end left with messages of this end unread. Ask it once, before anything is received.
pub fn was_reset(fd: impl AsFd) -> bool {
    let error = sockopt::socket_error(fd);
    error == Ok(Err(rustix::io::Errno::CONNRESET))
}

/// Returns the bytes that the kernel charges this end for sent messages which the other end has not taken; 0: all are
/// taken.
pub fn unread(fd: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    let done = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    errno::checked(done)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Ends messages in both directions.
pub fn shutdown(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, rustix::net::Shutdown::Both)?)
}

const SO_PEERPIDFD: i32 = 77;
const SO_PASSPIDFD: i32 = 76;
const SO_PASSRIGHTS: i32 = 83;

/// Sets whether every received message brings a pidfd of its sender. Returns false if the kernel (before 6.5) cannot.
pub fn pass_pidfd(fd: impl AsFd, on: bool) -> io::Result<bool> {
    if_known(set_option(fd.as_fd(), SO_PASSPIDFD, on))
}

/// Sets whether messages may bring descriptors. Returns false if the kernel (before 6.16) cannot forbid it.
pub fn pass_rights(fd: impl AsFd, on: bool) -> io::Result<bool> {
    if_known(set_option(fd.as_fd(), SO_PASSRIGHTS, on))
}

/// Returns the path of the file that a socket is bound to, if there is one.
pub fn local_path(fd: impl AsFd) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let bound = rustix::net::getsockname(fd).ok()?;
    let bound = SocketAddrUnix::try_from(bound).ok()?;
    let path = bound.path()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

/// Returns the credentials of the process that connected (or listened, seen from the other end).
pub fn peer_credentials(fd: impl AsFd) -> io::Result<Creds> {
    let mut raw = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    // SAFETY: SO_PEERCRED fills in a `ucred`, plain integers.
    unsafe { get_option(fd.as_fd(), libc::SO_PEERCRED, &mut raw)? };
    Ok(raw.into())
}

/// Returns a pidfd of the process that connected. Returns `None` if the kernel (before 6.5) has no such call, or the
/// process is gone.
pub fn peer_pidfd(fd: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut raw: RawFd = -1;
    // SAFETY: SO_PEERPIDFD fills in a descriptor.
    let result = unsafe { get_option(fd.as_fd(), SO_PEERPIDFD, &mut raw) };
    match result {
        Ok(()) => Ok(control::own(raw)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOPROTOOPT | libc::ESRCH | libc::ENODATA) => Ok(None),
            // The error for a reaped process before Linux 6.16.
            Some(libc::EINVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

fn if_known(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn set_option(fd: BorrowedFd<'_>, option: i32, on: bool) -> io::Result<()> {
    let value = i32::from(on);
    // SAFETY: the kernel reads one int.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            INT,
        )
    };
    errno::checked(result).map(drop)
}

#[allow(clippy::cast_possible_truncation)] // 4
const INT: libc::socklen_t = size_of::<i32>() as libc::socklen_t;

/// # Safety
/// Any bytes are a valid `T`.
unsafe fn get_option<T>(fd: BorrowedFd<'_>, option: i32, value: &mut T) -> io::Result<()> {
    let mut len = libc::socklen_t::try_from(size_of::<T>())
        .map_err(|_: std::num::TryFromIntError| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes at most `len` bytes into `value`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_mut(value).cast(),
            &raw mut len,
        )
    };
    errno::checked(result).map(drop)
}

/// Says whether the kernel refused for lack of something that may be available again later: memory, room for
/// descriptors in transit, or room in this process's or the system's table.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOMEM | libc::ENOBUFS | libc::ETOOMANYREFS | libc::EMFILE | libc::ENFILE)
    )
}

/// Says whether this process could have `fds` more descriptors now.
pub fn has_room_for(fds: usize, like: impl AsFd) -> bool {
    let taken: io::Result<Vec<OwnedFd>> = (0..fds)
        .map(|_| like.as_fd().try_clone_to_owned())
        .collect();
    taken.is_ok()
}

/// Sends one message with descriptors; never raises SIGPIPE.
///
/// `WouldBlock` if the message does not fit now and `dontwait` is set; `BrokenPipe` if the other end is gone.
pub fn sendmsg(
    fd: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    dontwait: bool,
) -> io::Result<()> {
    if fds.len() > MAX_FDS {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a message carries at most 32 descriptors",
        ));
    }
    let mut control = Control([0u8; FDS_SPACE]);
    let mut iov = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all-zero is a valid `msghdr`: null pointers with length 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = space(size_of_val(fds));
        // SAFETY: the buffer is aligned and holds a header and `MAX_FDS` descriptors; `fds` is not longer, and
        // a `BorrowedFd` has the layout of a `RawFd`.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = size_of::<libc::cmsghdr>() + size_of_val(fds);
            let to = libc::CMSG_DATA(header);
            std::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), to, size_of_val(fds));
        }
    }
    let flags = libc::MSG_NOSIGNAL | if dontwait { libc::MSG_DONTWAIT } else { 0 };
    let mut was_reset = false;
    loop {
        // SAFETY: all pointers in `message` are to locals or to `bytes`, which the kernel only reads.
        let sent = unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const message, flags) };
        if sent >= 0 {
            return Ok(()); // SEQPACKET: all or nothing
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            // See `recvmsg`; the second try says BrokenPipe.
            io::ErrorKind::ConnectionReset if !was_reset => was_reset = true,
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
