//! Stream sockets: transfer of bytes to and from memory or files, and the TCP options that detect a lost peer.
//!
//! Nothing here blocks, and nothing raises SIGPIPE.

use crate::{epoll, errno};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Takes at most `len` bytes that wait in a socket; 0: the end of the stream.
pub fn recv(socket: impl AsFd, to: &mut [u8]) -> io::Result<usize> {
    let got = rustix::io::retry_on_intr(|| {
        rustix::net::recv(socket.as_fd(), &mut *to, RecvFlags::DONTWAIT)
    });
    Ok(got?.0)
}

/// Discards at most `len` bytes that wait in a TCP socket, without copying them; returns 0 at the end of the stream.
pub fn drop_unread(socket: impl AsFd, len: usize) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: with MSG_TRUNC, TCP writes nothing (tcp(7)).
    errno::retried(|| unsafe { libc::recv(fd, std::ptr::null_mut(), len, flags) })
}

/// Sends as many of the bytes as there is room for. With `more`, further bytes are about to follow.
pub fn send(socket: impl AsFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let flags = if more { flags | SendFlags::MORE } else { flags };
    let sent = rustix::io::retry_on_intr(|| rustix::net::send(socket.as_fd(), bytes, flags));
    Ok(sent?)
}

/// Sends as many of `head`, and then of the `len` bytes at `from`, as there is room for: in one call, without a copy in
/// between. Returns the total number sent.
///
/// # Safety
/// The range is mapped memory. Others may write it meanwhile: the kernel reads it as another process would.
pub unsafe fn send_with(
    socket: impl AsFd,
    head: &[u8],
    from: *const u8,
    len: usize,
) -> io::Result<usize> {
    let pieces = [
        libc::iovec {
            iov_base: head.as_ptr().cast_mut().cast(),
            iov_len: head.len(),
        },
        libc::iovec {
            iov_base: from.cast_mut().cast(),
            iov_len: len,
        },
    ];
    // SAFETY: all zeros is an empty message without an address.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the first piece is a slice, the second as the caller promises; the kernel only reads both.
    errno::retried(|| unsafe { libc::sendmsg(fd, &raw const message, flags) })
}

/// Sends as many of a file's bytes from `offset` on as there is room for, as references to its pages. The pages must
/// not change until the other end has the bytes. The socket must not block. See sendfile(2).
pub fn send_file(socket: impl AsFd, file: impl AsFd, offset: u64, len: usize) -> io::Result<usize> {
    let mut offset = offset;
    let sent = rustix::fs::sendfile(socket.as_fd(), file.as_fd(), Some(&mut offset), len);
    Ok(sent?)
}

/// Says whether the descriptor was opened, or set, not to block.
pub fn is_nonblocking(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
}

/// Says whether bytes wait to be taken, or the stream is at its end.
pub fn has_input(socket: impl AsFd) -> bool {
    epoll::wait_readable(socket, Some(Duration::ZERO)).unwrap_or(true)
}

/// Waits at most `limit` until a socket has bytes to take (or, with `room`, has room), or a doorbell is readable. A
/// signal ends it early.
pub fn wait(
    socket: Option<impl AsFd>,
    room: bool,
    doorbell: Option<impl AsFd>,
    limit: Duration,
) -> io::Result<()> {
    let flags = match room {
        true => PollFlags::IN | PollFlags::OUT,
        false => PollFlags::IN,
    };
    let socket = socket.as_ref().map(|fd| (fd.as_fd(), flags));
    let doorbell = doorbell.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN));
    let all = socket.into_iter().chain(doorbell);
    let mut all: Vec<_> = all
        .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags))
        .collect();
    epoll::poll(&mut all, Some(limit)).map(drop)
}

/// Waits at most `limit` until one of many sockets has room, or a doorbell is readable.
pub fn wait_for_room<S: AsFd>(
    sockets: &[S],
    doorbell: impl AsFd,
    limit: Duration,
) -> io::Result<()> {
    let mut all = vec![PollFd::from_borrowed_fd(doorbell.as_fd(), PollFlags::IN)];
    let rooms = sockets
        .iter()
        .map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT));
    all.extend(rooms);
    epoll::poll(&mut all, Some(limit)).map(drop)
}

/// Sets a connection to send small segments at once and to detect a lost peer. After `idle` without traffic the kernel
/// asks whether the other machine is there. If it has not answered for `limit`, the kernel ends the connection. See
/// tcp(7): `TCP_NODELAY`, `TCP_KEEPIDLE`, `TCP_USER_TIMEOUT`.
pub fn watch(socket: impl AsFd, idle: Duration, limit: Duration) -> io::Result<()> {
    let socket = socket.as_fd();
    let idle = idle.max(Duration::from_secs(1));
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, idle)?;
    let limit = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket, limit)?;
    Ok(())
}

/// Makes a connection on this machine send as fast as the other end takes. Congestion algorithms that pace for a
/// network would make it wait for timers. A connection made with such an algorithm keeps some of these timers. Call
/// this on the listener, whose connections inherit the setting. See tcp(7), `TCP_CONGESTION`; every kernel has `reno`.
pub fn hurry(socket: impl AsFd) -> io::Result<()> {
    set_congestion(socket, "reno")
}

/// Returns the machine's default algorithm of congestion control.
pub fn usual_congestion() -> io::Result<String> {
    let flags = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    congestion(socket)
}

/// Returns the name of a TCP socket's congestion algorithm.
pub fn congestion(socket: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket.as_fd())?)
}

/// Sets a TCP socket's congestion algorithm.
///
/// # Errors
/// ENOENT if the kernel has none of this name, EPERM if only root may use it.
pub fn set_congestion(socket: impl AsFd, algorithm: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket.as_fd(), algorithm)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let one = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (other, _) = listener.accept().expect("accept");
        one.set_nonblocking(true).expect("nonblocking");
        (one, other)
    }

    #[test]
    fn a_files_bytes_and_plain_ones_arrive_in_order() {
        let (one, other) = pair();
        let file = crate::memfd::create("stream").expect("memfd");
        rustix::io::pwrite(&file, b"0123456789", 0).expect("fill");
        assert_eq!(send(&one, b"head ", true).expect("send"), 5);
        assert_eq!(send_file(&one, &file, 3, 4).expect("send"), 4);
        let mut got = [0; 9];
        let mut at = 0;
        while at < 9 {
            epoll::wait_readable(&other, None).expect("wait");
            at += recv(&other, &mut got[at..]).expect("receive");
        }
        assert_eq!(&got, b"head 3456");
        let from = b"and more";
        // SAFETY: a constant.
        let sent = unsafe { send_with(&one, b"all ", from.as_ptr(), 3) };
        assert_eq!(sent.expect("send"), 7);
        epoll::wait_readable(&other, None).expect("wait");
        let mut all = [0; 9];
        assert_eq!(recv(&other, &mut all).expect("receive"), 7);
        assert_eq!(&all[..7], b"all and");
        let nothing = recv(&other, &mut got).expect_err("nothing");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(one);
        epoll::wait_readable(&other, None).expect("wait");
        assert_eq!(recv(&other, &mut got).expect("the end"), 0);
    }

    #[test]
    fn a_peer_is_watched_and_told_to_hurry() {
        let (one, _other) = pair();
        watch(&one, Duration::from_secs(2), Duration::from_secs(9)).expect("options");
        assert!(sockopt::tcp_nodelay(&one).expect("option"));
        hurry(&one).expect("option");
        assert_eq!(congestion(&one).expect("option"), "reno");
    }
}
