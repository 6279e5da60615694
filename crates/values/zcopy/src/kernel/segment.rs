//! Several datagrams in one call: UDP_SEGMENT (udp(7), Linux 4.18).

use rustix::net::SocketAddrAny;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

/// Most datagrams in one call.
pub const MOST: usize = 64;
/// Most bytes in one call: the contents of an IP packet of IPv6 or IPv4 without its headers.
pub const MOST_BYTES: usize = 65_000;

/// Sends the pieces in a row, without waiting, to an address or to the socket's peer. They are cut into datagrams of
/// `size` bytes, of which the last may be shorter; without a `size` they are not cut. All bytes are sent or none. With
/// `zerocopy` they are sent by reference to the pages, on a socket that [may](super::scatter::allow_zerocopy). A
/// notification comes when the pages are free: [`super::scatter::notification`].
///
/// # Safety
/// The pieces are mapped memory. With `zerocopy` the bytes do not change until the last reader has taken them.
pub unsafe fn send_pieces(
    socket: impl AsFd,
    to: Option<SocketAddr>,
    pieces: &[(*const u8, usize)],
    size: Option<u16>,
    zerocopy: bool,
) -> io::Result<()> {
    let by_reference = if zerocopy { libc::MSG_ZEROCOPY } else { 0 };
    let flags = FLAGS | by_reference;
    let sent = with_message(to, pieces, size, |message| {
        // SAFETY: a complete message; its pieces are mapped, as the caller promises.
        unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), message, flags) }
    });
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Flags of a call that neither waits nor raises a signal.
pub(crate) const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Calls `call` with the pieces as a message that is to be cut into datagrams of `size` bytes.
pub(crate) fn with_message<T>(
    to: Option<SocketAddr>,
    pieces: &[(*const u8, usize)],
    size: Option<u16>,
    call: impl FnOnce(&libc::msghdr) -> T,
) -> T {
    // Room for a header and two bytes, aligned as a header is.
    let mut control = [0u64; 4];
    let mut pieces: Vec<libc::iovec> = pieces
        .iter()
        .map(|(at, len)| libc::iovec {
            iov_base: at.cast_mut().cast(),
            iov_len: *len,
        })
        .collect();
    let to = to.map(SocketAddrAny::from);
    let option = u32::try_from(size_of::<u16>()).expect("two");
    // SAFETY: all zeros is an empty message. The header and its two bytes fit into the buffer (24 bytes of 32).
    let message = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        if let Some(to) = &to {
            message.msg_name = to.as_ptr().cast_mut().cast();
            message.msg_namelen = to.addr_len();
        }
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len();
        if let Some(size) = size {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(option) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = libc::CMSG_LEN(option) as _;
            libc::CMSG_DATA(header).cast::<u16>().write_unaligned(size);
        }
        message
    };
    call(&message)
}
