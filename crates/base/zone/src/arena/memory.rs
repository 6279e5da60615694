//! What an arena's pages are made of.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use tranship_sys::{map, memfd};

/// Windows are aligned for huge pages.
const ALIGN: usize = 2 << 20;

/// A window of addresses and what gives its pages memory.
///
/// Offsets are bytes from the window's start, multiples of a page of 4096 bytes. All methods may be called by any thread;
/// the arena calls `commit` and `decommit` under its lock, for ranges that do not overlap, never twice in a row for
/// the same page, and neither may call the arena.
///
/// # Safety
/// `base() .. base() + bytes()` is one mapping that can be read and written, aligned to a page, for as long as the
/// value lives. Committed pages keep what is written into them until `decommit`.
pub unsafe trait Memory: Send + Sync + 'static {
    /// Where the window begins.
    fn base(&self) -> NonNull<u8>;
    /// Length of the window, bytes.
    fn bytes(&self) -> u64;
    /// The pages are going to be used. `false`: there is no memory for them (a quota, a full machine); nothing has
    /// changed then. May block for as long as an allocation may.
    fn commit(&self, range: Range<u64>) -> bool;
    /// The pages are no longer used, and their contents no longer needed.
    fn decommit(&self, range: Range<u64>);
}

/// Private anonymous memory: a page takes memory when it is first written, and gives it back by `madvise`. A forked child
/// has its own copy.
#[derive(Debug)]
pub struct Private {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; the arena's users say who may touch what.
unsafe impl Send for Private {}
// SAFETY: as above.
unsafe impl Sync for Private {}

impl Private {
    /// Reserves a window of `bytes`, rounded up to 2 MiB. No memory is taken yet.
    ///
    /// # Errors
    /// What `mmap` says: no such range of addresses, or (with strict overcommit) more than the machine may promise.
    pub fn reserve(bytes: u64) -> io::Result<Self> {
        let len = window_len(bytes)?;
        let base = map::reserve_private(len, ALIGN)?;
        Ok(Self { base, len })
    }
}

// SAFETY: the mapping is made in `reserve` and unmapped in `drop`; anonymous private pages keep their contents until
// they are discarded.
unsafe impl Memory for Private {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> u64 {
        self.len as u64
    }

    fn commit(&self, _range: Range<u64>) -> bool {
        true
    }

    fn decommit(&self, range: Range<u64>) {
        let (offset, len) = part(&range, self.len);
        // SAFETY: inside our mapping (`part` checks), whose contents there the arena no longer needs. If the kernel
        // refuses, the memory stays: nothing is wrong but the size.
        let _ = unsafe { map::discard(self.base.add(offset), len) };
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        let _ = unsafe { map::unmap(self.base, self.len) };
    }
}

/// A memfd: pages are allocated when they are committed, so that a full machine is an error and not a signal, and given
/// back by punching holes. The mapping is shared; forked children do not have it.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; the arena's users say who may touch what.
unsafe impl Send for File {}
// SAFETY: as above.
unsafe impl Sync for File {}

impl File {
    /// Makes a memfd of `bytes`, rounded up to 2 MiB, without memory, and maps it. `name` is seen in `/proc`.
    ///
    /// # Errors
    /// What `memfd_create`, `ftruncate` or `mmap` say.
    pub fn create(name: &str, bytes: u64) -> io::Result<Self> {
        let len = window_len(bytes)?;
        let fd = memfd::create(name)?;
        memfd::set_len(&fd, len as u64)?;
        let base = map::map_shared_rw(&fd, len, 0)?;
        Ok(Self { fd, base, len })
    }

    /// The file; an item's offset in it is its offset in the window.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// SAFETY: the mapping is made in `create` and unmapped in `drop`; a file's pages keep their contents until a hole is
// punched. Who else has the descriptor can write or punch: that is up to whom the user gives it.
unsafe impl Memory for File {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> u64 {
        self.len as u64
    }

    fn commit(&self, range: Range<u64>) -> bool {
        memfd::fallocate_range(&self.fd, range.start, range.end - range.start).is_ok()
    }

    fn decommit(&self, range: Range<u64>) {
        let _ = memfd::punch(&self.fd, range.start, range.end - range.start);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        let _ = unsafe { map::unmap(self.base, self.len) };
    }
}

fn window_len(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes.max(1))
        .ok()
        .and_then(|bytes| bytes.checked_next_multiple_of(ALIGN))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a window of that length"))
}

/// Offset and length of a range.
///
/// # Panics
/// If it does not lie in the window.
fn part(range: &Range<u64>, len: usize) -> (usize, usize) {
    assert!(
        range.start <= range.end && range.end <= len as u64,
        "bytes {range:?} of {len}"
    );
    let (start, end) = (usize::try_from(range.start), usize::try_from(range.end));
    let (start, end) = (start.expect("below len"), end.expect("up to len"));
    (start, end - start)
}
