//! Receiving: every descriptor that arrives is owned at once, so none can leak.

use super::control::{Control, FDS_SPACE, MAX_FDS, own, space};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// One message.
#[derive(Debug)]
pub struct Received {
    /// The number of bytes in the buffer; 0 with nothing else: the other end is gone.
    pub bytes: usize,
    /// The descriptors of the message.
    pub fds: Vec<OwnedFd>,
    /// The sender's pidfd, if the socket passes pidfds.
    pub pidfd: Option<OwnedFd>,
    /// The message was longer than the buffer; the rest is lost.
    pub truncated: bool,
    /// The message had more control data than there was room for, or than this process may open; the rest is lost.
    pub ctrunc: bool,
}

/// Room for the descriptors and the pidfd.
const CONTROL: usize = FDS_SPACE + space(size_of::<RawFd>());

/// Takes one message. Returns `WouldBlock` if there is none now and `dontwait` is set.
///
/// An end that is closed with unread messages gives its peer one `ECONNRESET`, ahead of the messages that the peer
/// still has to read. This function skips that error, so no message is lost. The closed end shows as 0 bytes.
pub fn recvmsg(fd: impl AsFd, buf: &mut [u8], dontwait: bool) -> io::Result<Received> {
    let flags = if dontwait { libc::MSG_DONTWAIT } else { 0 };
    receive(fd.as_fd(), buf, flags)
}

/// Takes one message without waiting, whole or not at all. A message stays in the queue if this process has no room for
/// its descriptors (or it has more than [`MAX_FDS`](super::MAX_FDS)). One thread at a time.
///
/// # Errors
/// `EMFILE` when there was no room, as open(2) has it.
pub fn recvmsg_whole(fd: impl AsFd, buf: &mut [u8]) -> io::Result<Received> {
    // The kernel makes the descriptors anew at each look (unix(7): MSG_PEEK).
    let received = receive(fd.as_fd(), buf, libc::MSG_DONTWAIT | libc::MSG_PEEK)?;
    if received.ctrunc {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    if received.bytes > 0 {
        rustix::net::recv(fd.as_fd(), &mut [0u8; 0], rustix::net::RecvFlags::DONTWAIT)?;
    }
    Ok(received)
}

/// Takes one message, with room for as many descriptors as a message can have, so that the kernel closes none of them.
pub fn recvmsg_all(fd: impl AsFd, buf: &mut [u8], dontwait: bool) -> io::Result<Received> {
    let flags = if dontwait { libc::MSG_DONTWAIT } else { 0 };
    let mut control = Control([0u8; CONTROL + (SCM_MAX_FD - MAX_FDS) * size_of::<RawFd>()]);
    receive_into(fd.as_fd(), buf, flags, &mut control.0)
}

/// The most descriptors that the kernel lets one message carry.
const SCM_MAX_FD: usize = 253;

/// The result of [`peek`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front {
    /// The number of bytes in the buffer; 0 with nothing else: the other end is gone.
    pub bytes: usize,
    /// The message is longer than the buffer.
    pub truncated: bool,
    /// The message carries descriptors, credentials or a pidfd. None of these was made, looked at or closed here.
    pub brings: bool,
}

/// Copies the next message and leaves it in the queue. `WouldBlock` if there is none now.
pub fn peek(fd: impl AsFd, buf: &mut [u8]) -> io::Result<Front> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // Without room for control data, the kernel only says that there is some.
    let received = receive_into(fd.as_fd(), buf, flags, &mut [])?;
    Ok(Front {
        bytes: received.bytes,
        truncated: received.truncated,
        brings: received.ctrunc,
    })
}

/// Takes the message that [`peek`] showed, which had no control data.
pub fn drop_front(fd: impl AsFd) -> io::Result<()> {
    receive_into(fd.as_fd(), &mut [], libc::MSG_DONTWAIT, &mut []).map(drop)
}

fn receive(fd: BorrowedFd<'_>, buf: &mut [u8], flags: i32) -> io::Result<Received> {
    let mut control = Control([0u8; CONTROL]);
    receive_into(fd, buf, flags, &mut control.0)
}

/// Receives with `control`, which is aligned like `cmsghdr`, or empty.
fn receive_into(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    flags: i32,
    control: &mut [u8],
) -> io::Result<Received> {
    let mut iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    // SAFETY: all-zero is a valid `msghdr`: null pointers with length 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    let mut was_reset = false;
    let bytes = loop {
        if !control.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = control.len();
        }
        // SAFETY: the kernel writes into `buf` and `control` only, within the lengths given.
        let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
        if let Ok(bytes) = usize::try_from(got) {
            break bytes;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::ConnectionReset if !was_reset => was_reset = true,
            _ => return Err(error),
        }
    };
    let mut received = Received {
        bytes,
        fds: Vec::new(),
        pidfd: None,
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        ctrunc: message.msg_flags & libc::MSG_CTRUNC != 0,
    };
    take_control(&message, &mut received);
    Ok(received)
}

fn take_control(message: &libc::msghdr, received: &mut Received) {
    // SAFETY: the kernel filled the control buffer with well-formed messages and set its length; the CMSG
    // functions stay inside it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: a header inside the buffer, aligned; its data follows it, `cmsg_len` counts both.
        let (level, kind, data, len) = unsafe {
            (
                (*header).cmsg_level,
                (*header).cmsg_type,
                libc::CMSG_DATA(header),
                (*header)
                    .cmsg_len
                    .saturating_sub(size_of::<libc::cmsghdr>()),
            )
        };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for i in 0..len / size_of::<RawFd>() {
                    // SAFETY: `i` is below the number of descriptors in the data.
                    let raw = unsafe { data.cast::<RawFd>().add(i).read_unaligned() };
                    received.fds.extend(own(raw));
                }
            }
            (libc::SOL_SOCKET, SCM_PIDFD) if len >= size_of::<RawFd>() => {
                // SAFETY: there is room for a descriptor.
                received.pidfd = own(unsafe { data.cast::<RawFd>().read_unaligned() });
            }
            _ => {}
        }
        // SAFETY: as for the first one.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}

const SCM_PIDFD: i32 = 4;
