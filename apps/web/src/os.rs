//! System calls that take raw memory or have no wrapper.

#![allow(unsafe_code)]

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};
use tranship::Buffer;
use tranship::mbuf::Chain;

/// Bytes that go out over a socket: of another component by reference, or the front's own.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Of a pool.
    Shared(Buffer),
    /// Made here.
    Own(Vec<u8>),
}

impl Piece {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Piece::Shared(buffer) => buffer.len(),
            Piece::Own(bytes) => bytes.len(),
        }
    }
}

/// Most pieces of one call.
const MOST: usize = 16;
const NO_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Writes pieces, from byte `skip` of the first on. Returns the number of bytes that the socket took.
pub(crate) fn write_pieces<'a>(
    socket: impl AsFd,
    pieces: impl Iterator<Item = &'a Piece>,
    skip: usize,
) -> Result<usize, Errno> {
    let mut parts = [NO_PART; MOST];
    let mut count = 0;
    for (piece, part) in pieces.zip(&mut parts) {
        let (start, len) = match piece {
            Piece::Shared(buffer) => (buffer.view().as_ptr(), buffer.len()),
            Piece::Own(bytes) => (bytes.as_ptr(), bytes.len()),
        };
        let skip = if count == 0 { skip.min(len) } else { 0 };
        part.iov_base = start.wrapping_add(skip).cast_mut().cast();
        part.iov_len = len - skip;
        count += 1;
    }
    let (socket, flags) = (
        socket.as_fd().as_raw_fd(),
        libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
    );
    if count == 1 {
        let [only, ..] = parts;
        // SAFETY: as below. The kernel has fewer structures to read.
        return result(unsafe { libc::send(socket, only.iov_base, only.iov_len, flags) });
    }
    let mut message: libc::msghdr = {
        // SAFETY: all-zero is a valid `msghdr`: null pointers with length 0.
        unsafe { std::mem::zeroed() }
    };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = count;
    // SAFETY: the parts lie inside of pieces that the caller borrows, which keeps their memory mapped. The kernel only
    // reads it, and copies: a writer that changes shared bytes meanwhile changes what its own client reads.
    let wrote = unsafe { libc::sendmsg(socket, &raw const message, flags) };
    result(wrote)
}

/// Writes a frame to a TAP device. The kernel takes all of it, or nothing.
pub(crate) fn write_frame(tap: impl AsFd, frame: &Chain) -> Result<usize, Errno> {
    let mut parts = Vec::with_capacity(frame.count());
    for mbuf in frame.iter().filter(|mbuf| !mbuf.is_empty()) {
        parts.push(libc::iovec {
            iov_base: mbuf.as_ptr().ok_or(Errno::FAULT)?.as_ptr().cast(),
            iov_len: mbuf.len(),
        });
    }
    let count = i32::try_from(parts.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the parts are the data of mbufs that are mapped here, of a chain that the caller borrows. The kernel only
    // reads them, and copies: a writer that changes shared bytes meanwhile changes what its own client reads.
    let wrote = unsafe { libc::writev(tap.as_fd().as_raw_fd(), parts.as_ptr(), count) };
    result(wrote)
}

fn result(wrote: isize) -> Result<usize, Errno> {
    usize::try_from(wrote).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

/// Asks the scheduler not to run this process in the place of the one that wakes it: on one processor a whole batch then
/// goes from component to component. Kernels that refuse do without.
pub(crate) fn run_in_batches() {
    // SAFETY: integers only.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads the parameter, which is there.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) };
}
