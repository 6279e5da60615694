//! Pipes, and references to pages that move through them: vmsplice(2), splice(2).

use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Makes a pipe: the end to read and the end to write. Both close on exec.
pub fn new() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Makes a pipe of which neither end blocks. Both close on exec.
pub fn nonblocking() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(
        PipeFlags::CLOEXEC | PipeFlags::NONBLOCK,
    )?)
}

/// Gives a pipe room for `bytes`, in whole pages; returns the room in bytes. Above the user's limit:
/// `PermissionDenied`.
pub fn set_room(pipe: impl AsFd, bytes: usize) -> io::Result<usize> {
    Ok(rustix::pipe::fcntl_setpipe_size(pipe, bytes)?)
}

/// Returns the room of a pipe, in bytes of whole pages.
pub fn room(pipe: impl AsFd) -> io::Result<usize> {
    Ok(rustix::pipe::fcntl_getpipe_size(pipe)?)
}

/// Puts references to pages of this process's memory into a pipe: later writes to the pages show in the pipe. Returns
/// the number of bytes that found room. Each page takes one of the pipe's places, however few of its bytes are named.
///
/// # Safety
/// The pieces are mapped memory. The caller does not change their bytes until the last reader has taken them.
pub unsafe fn vmsplice(pipe: impl AsFd, pieces: &[(*const u8, usize)]) -> io::Result<usize> {
    let mut raw = [const { MaybeUninit::<IoSliceRaw<'_>>::uninit() }; 64];
    let count = pieces.len().min(raw.len());
    for (raw, (at, len)) in raw.iter_mut().zip(pieces) {
        // SAFETY: mapped memory, as the caller promises; only the kernel reads it.
        raw.write(IoSliceRaw::from_slice(unsafe {
            std::slice::from_raw_parts(*at, *len)
        }));
    }
    // SAFETY: as many were just written.
    let raw = unsafe { std::slice::from_raw_parts(raw.as_ptr().cast::<IoSliceRaw<'_>>(), count) };
    // The call never waits, so no signal interrupts it.
    // SAFETY: passed on to the caller.
    Ok(unsafe { rustix::pipe::vmsplice(&pipe, raw, SpliceFlags::NONBLOCK)? })
}

/// Moves up to `len` bytes from a pipe to a socket or from a file to a pipe, as references to pages. With `more`, the
/// socket waits for further bytes before it sends a packet that is not full. The call waits for a blocking socket, and
/// a signal ends that wait as it ends send(2).
pub fn splice(
    from: impl AsFd,
    offset: Option<&mut u64>,
    to: impl AsFd,
    len: usize,
    more: bool,
) -> io::Result<usize> {
    let mut flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    if more {
        flags |= SpliceFlags::MORE;
    }
    let (from, to) = (from.as_fd(), to.as_fd());
    Ok(rustix::pipe::splice(from, offset, to, None, len, flags)?)
}
