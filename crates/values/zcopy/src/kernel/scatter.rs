//! Sending pieces from all over memory in one call, copied or by reference: sendmsg(2), MSG_ZEROCOPY.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Most pieces in one call: `IOV_MAX`.
pub const MOST: usize = 1024;

/// Sends copies of the pieces in order; returns the number of bytes that had room. Waits if the socket does, until a
/// signal's handler has run (`Interrupted`). With `more`, a packet that is not full waits for further bytes.
///
/// # Safety
/// The pieces are mapped memory; at most [`MOST`] of them.
pub unsafe fn send(
    socket: impl AsFd,
    pieces: impl ExactSizeIterator<Item = (*const u8, usize)>,
    more: bool,
) -> io::Result<usize> {
    let more = if more { libc::MSG_MORE } else { 0 };
    // SAFETY: passed on to the caller.
    unsafe { send_flagged(socket, pieces, more) }
}

/// Sends copies of the pieces and never waits: `WouldBlock` without room, whatever the socket's own mode.
///
/// # Safety
/// The rules of [`send`] hold.
pub unsafe fn send_now(
    socket: impl AsFd,
    pieces: impl ExactSizeIterator<Item = (*const u8, usize)>,
    more: bool,
) -> io::Result<usize> {
    let more = if more { libc::MSG_MORE } else { 0 };
    // SAFETY: passed on to the caller.
    unsafe { send_flagged(socket, pieces, more | libc::MSG_DONTWAIT) }
}

/// Sends the pieces by reference to their pages. A notification comes when the pages are free: [`notification`].
///
/// # Safety
/// The rules of [`send`] hold, and the bytes do not change until the last reader has taken them.
pub unsafe fn send_zerocopy(socket: impl AsFd, pieces: &[(*const u8, usize)]) -> io::Result<usize> {
    // SAFETY: passed on to the caller.
    unsafe { send_flagged(socket, pieces.iter().copied(), libc::MSG_ZEROCOPY) }
}

/// # Safety
/// The rules of [`send`] hold.
unsafe fn send_flagged(
    socket: impl AsFd,
    pieces: impl ExactSizeIterator<Item = (*const u8, usize)>,
    flags: libc::c_int,
) -> io::Result<usize> {
    debug_assert!(pieces.len() <= MOST);
    let count = pieces.len();
    let pieces = pieces.map(|(at, len)| libc::iovec {
        iov_base: at.cast_mut().cast(),
        iov_len: len,
    });
    // Most messages are a header, a value and its end.
    let mut few = [const {
        libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }
    }; 8];
    let many: Vec<libc::iovec>;
    let iov = if count <= few.len() {
        for (iov, piece) in few.iter_mut().zip(pieces) {
            *iov = piece;
        }
        &few[..count]
    } else {
        many = pieces.collect();
        &many[..]
    };
    // SAFETY: all zeros is an empty message without an address.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov.as_ptr().cast_mut();
    message.msg_iovlen = iov.len();
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: mapped memory, as the caller promises; the kernel only reads it.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Lets a socket send with MSG_ZEROCOPY.
pub fn allow_zerocopy(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = libc::socklen_t::try_from(size_of_val(&on)).expect("four");
    // SAFETY: an integer of the length that is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw const on).cast(),
            len,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Says whether the socket may send with MSG_ZEROCOPY, that is, whether [`allow_zerocopy`] was called.
pub fn allows_zerocopy(socket: impl AsFd) -> io::Result<bool> {
    let mut on: libc::c_int = 0;
    let mut len = libc::socklen_t::try_from(size_of_val(&on)).expect("four");
    // SAFETY: the kernel writes an integer of the length that is given.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY,
            (&raw mut on).cast(),
            &raw mut len,
        )
    };
    if done == 0 {
        Ok(on != 0)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// That the pages of some sends are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The number of the first of them: sends of a socket with MSG_ZEROCOPY are numbered from 0 on, and begin again
    /// after 2^32.
    pub first: u32,
    /// The number of sends.
    pub count: u32,
    /// The kernel copied after all.
    pub copied: bool,
}

/// Takes the next notification of a socket, if there is one (linux/Documentation/networking/msg_zerocopy.rst).
pub fn notification(socket: impl AsFd) -> io::Result<Option<Done>> {
    const ORIGIN_ZEROCOPY: u8 = 5;
    const CODE_COPIED: u8 = 1;
    let mut control = [0u64; 16];
    // SAFETY: all zeros is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: a control buffer of the given length, and nothing else to fill.
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    if got < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel filled the control buffer and said how far.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(one) = header.as_ref() {
            let of_ip = (one.cmsg_level == libc::SOL_IP && one.cmsg_type == libc::IP_RECVERR)
                || (one.cmsg_level == libc::SOL_IPV6 && one.cmsg_type == libc::IPV6_RECVERR);
            if of_ip {
                let error = libc::CMSG_DATA(header)
                    .cast::<libc::sock_extended_err>()
                    .read_unaligned();
                if error.ee_origin == ORIGIN_ZEROCOPY {
                    return Ok(Some(Done {
                        first: error.ee_info,
                        count: error.ee_data.wrapping_sub(error.ee_info).wrapping_add(1),
                        copied: error.ee_code & CODE_COPIED != 0,
                    }));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(Some(Done {
        first: 0,
        count: 0,
        copied: false,
    }))
}
