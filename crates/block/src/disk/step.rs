//! One step of the kernel's: a job on a disk consists of steps.

#![allow(
    unsafe_code,
    reason = "memory that the kernel fills while jobs wait; every call that takes its address is here or in `uring`"
)]

use crate::Data;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Action for the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Read,
    /// Durable: on the disk when it is done.
    Write {
        durable: bool,
    },
    Sync,
    Punch,
    Zero,
}

/// Called with the step's data, and with the number of bytes.
pub(super) type Then = Box<dyn FnOnce(Data, io::Result<usize>) + Send>;

/// A step, and its continuation.
pub(super) struct Step {
    pub action: Action,
    pub offset: u64,
    pub len: usize,
    /// The first byte of `data` that is meant.
    pub at: usize,
    pub data: Data,
    pub then: Then,
}

impl Step {
    /// Returns the memory that the kernel is to write: mapped for that, of `len` bytes, for as long as this step is not
    /// dropped. Nothing else refers to it: the step owns its data.
    pub(super) fn memory_to_fill(&mut self) -> io::Result<*mut u8> {
        self.check_len()?;
        let first = self.data.place_to_fill().ok_or_else(wrong)?;
        Ok(first.wrapping_add(self.at))
    }

    /// Returns the memory of this step that the kernel is to read.
    pub(super) fn memory_to_read(&self) -> io::Result<*const u8> {
        self.check_len()?;
        let first = self.data.place_to_read().ok_or_else(wrong)?;
        Ok(first.wrapping_add(self.at))
    }

    fn check_len(&self) -> io::Result<()> {
        let end = self.at.checked_add(self.len);
        let fits = end.is_some_and(|end| end <= self.data.len());
        fits.then_some(()).ok_or_else(wrong)
    }

    /// Does the step on this thread; blocks.
    pub(super) fn run(mut self, fd: BorrowedFd<'_>) {
        let result = self.call(fd);
        (self.then)(self.data, result);
    }

    fn call(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let raw = fd.as_raw_fd();
        let offset = i64::try_from(self.offset)
            .map_err(|_: std::num::TryFromIntError| io::ErrorKind::InvalidInput)?;
        let length = i64::try_from(self.len)
            .map_err(|_: std::num::TryFromIntError| io::ErrorKind::InvalidInput)?;
        let done = match self.action {
            Action::Read => {
                let memory = self.memory_to_fill()?;
                // SAFETY: `memory_to_fill` promises `len` bytes, which nothing in this process refers to; the kernel
                // writes them.
                unsafe { libc::pread(raw, memory.cast(), self.len, offset) }
            }
            Action::Write { durable } => {
                let piece = piece_to_read(self.memory_to_read()?, self.len);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                // SAFETY: `memory_to_read` promises `len` bytes; the kernel reads them.
                unsafe { libc::pwritev2(raw, &raw const piece, 1, offset, flags) }
            }
            // SAFETY: takes no memory.
            Action::Sync => (unsafe { libc::fdatasync(raw) }) as isize,
            Action::Punch | Action::Zero => {
                let mode = self.action.fallocate();
                // SAFETY: takes no memory.
                (unsafe { libc::fallocate(raw, mode, offset, length) }) as isize
            }
        };
        match usize::try_from(done) {
            Ok(done) => Ok(done),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// Copies between the first `len` bytes of `data` and the page cache, on this thread. A read waits for no disk. False:
/// it would have had to wait, or there is an error; any part of it may be done.
pub(super) fn copy(
    action: Action,
    fd: BorrowedFd<'_>,
    offset: u64,
    data: &mut Data,
    len: usize,
) -> bool {
    let piece = match action {
        Action::Read => data.place_to_fill().map(|memory| libc::iovec {
            iov_base: memory.cast(),
            iov_len: len,
        }),
        _ => data
            .place_to_read()
            .map(|memory| piece_to_read(memory, len)),
    };
    let (true, Some(piece)) = (len <= data.len(), piece) else {
        return false;
    };
    let Ok(offset) = i64::try_from(offset) else {
        return false;
    };
    let (raw, piece) = (fd.as_raw_fd(), &raw const piece);
    let done = match action {
        // SAFETY: `data` has `len` bytes, which nothing else in this process refers to; the kernel writes them.
        Action::Read => unsafe { libc::preadv2(raw, piece, 1, offset, libc::RWF_NOWAIT) },
        // SAFETY: as above; the kernel reads them.
        Action::Write { .. } => unsafe { libc::pwritev2(raw, piece, 1, offset, 0) },
        Action::Sync | Action::Punch | Action::Zero => return false,
    };
    usize::try_from(done) == Ok(len)
}

fn wrong() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

/// Returns the argument for `pwritev2(2)`. The C struct has no `const`: nothing is written through it.
fn piece_to_read(memory: *const u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: memory.cast_mut().cast(),
        iov_len: len,
    }
}

impl Action {
    /// Returns the mode of `fallocate(2)`.
    pub(super) fn fallocate(self) -> i32 {
        match self {
            Action::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            _ => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        }
    }
}
