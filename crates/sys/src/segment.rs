//! Several datagrams in one call: UDP_SEGMENT (udp(7), Linux 4.18).

use rustix::net::{SendFlags, SocketAddrAny};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Sends bytes as datagrams of `size` bytes each, the last one perhaps shorter; at most 64 of them, 65,000 bytes in all.
/// Where the kernel or the device cannot, one by one.
pub fn send(socket: impl AsFd, to: SocketAddr, bytes: &[u8], size: u16) -> io::Result<()> {
    let fd = socket.as_fd();
    let to = SocketAddrAny::from(to);
    let single = usize::from(size);
    if bytes.len() > single && together(fd, &to, bytes, size).is_ok() {
        return Ok(());
    }
    for part in bytes.chunks(single) {
        rustix::net::sendto(fd, part, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to)?;
    }
    Ok(())
}

fn together(fd: BorrowedFd<'_>, to: &SocketAddrAny, bytes: &[u8], size: u16) -> io::Result<()> {
    // Room for a header and two bytes, aligned as a header is.
    let mut control = [0u64; 4];
    let mut piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let option = u32::try_from(size_of::<u16>()).expect("two");
    // SAFETY: all zeros is an empty message. The address, the bytes and the control buffer live until the call returns; the
    // header and its two bytes fit into the buffer (24 bytes of 32).
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.addr_len();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(option) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(option) as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(size);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::sendmsg(fd.as_raw_fd(), &raw const message, flags)
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
