//! Windows: a pool's contiguous stretch of addresses, filled with chunks.

use crate::make::make_mapped;
use crate::verify::Sealing;
use crate::{MakeError, Opts, OutOfBounds, VerifyError, View, verify};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use tranship_sys::{ForkGuard, map};

/// Windows start at a multiple of this, so that huge pages fit.
pub const ALIGN: usize = 2 << 20;

/// Why a window could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// A size that no window can have.
    #[error("a window of {max_bytes} bytes cannot consist of chunks of {chunk_bytes} bytes")]
    Shape {
        max_bytes: usize,
        chunk_bytes: usize,
    },
    /// No such place.
    #[error("chunk {index} of a window of {chunks}")]
    NoSuchChunk { index: u32, chunks: u32 },
    /// The place has a chunk already, or another thread is changing it.
    #[error("place {index} of the window has a chunk already")]
    Taken { index: u32 },
    /// The place has no chunk, or another thread is changing it.
    #[error("place {index} of the window has no chunk")]
    Empty { index: u32 },
    /// The memfd is not a chunk.
    #[error("chunk {index}: {source}")]
    NotAChunk { index: u32, source: VerifyError },
    /// No memory could be made.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The process has forked since, and the child has nothing of this.
    #[error("the window belongs to the parent of this forked process")]
    Forked,
    /// The kernel refused.
    #[error("{step}: {source}")]
    Io {
        step: &'static str,
        source: io::Error,
    },
}

const EMPTY: u8 = 0;
const BUSY: u8 = 1;
const READ: u8 = 2;
const WRITE: u8 = 3;
/// A chunk that every process that has it may write.
const SHARED: u8 = 4;
/// A chunk that no process writes, ever again.
const SEALED: u8 = 5;

/// A reservation of addresses, and the record of which places in it have a chunk. A place without a chunk shows zeros.
/// Reading a place that a lying peer named therefore gives a wrong answer at worst, never a fault.
#[derive(Debug)]
pub struct Window {
    base: NonNull<u8>,
    max_bytes: usize,
    chunk_bytes: usize,
    places: Box<[AtomicU8]>,
    guard: ForkGuard,
}

// SAFETY: an address range, and atomics that say which chunks are mapped in it.
unsafe impl Send for Window {}
// SAFETY: as for Send.
unsafe impl Sync for Window {}

impl Window {
    /// Reserves `max_bytes` of addresses, a multiple of `chunk_bytes`, which is a power of two and at least a page.
    pub fn reserve(max_bytes: usize, chunk_bytes: usize) -> Result<Window, WindowError> {
        Self::reserve_within(max_bytes, chunk_bytes, map::Within::ANYWHERE)
    }

    /// Reserves a window within a range of addresses.
    pub fn reserve_within(
        max_bytes: usize,
        chunk_bytes: usize,
        within: map::Within,
    ) -> Result<Window, WindowError> {
        let page = tranship_sys::page_size();
        let fits = chunk_bytes.is_power_of_two()
            && chunk_bytes >= page
            && max_bytes > 0
            && max_bytes.is_multiple_of(chunk_bytes)
            && u32::try_from(max_bytes / chunk_bytes).is_ok();
        if !fits {
            return Err(WindowError::Shape {
                max_bytes,
                chunk_bytes,
            });
        }
        let guard = ForkGuard::new().map_err(at("fork guard"))?;
        let base = map::reserve_within(max_bytes, within.aligned(ALIGN))
            .map_err(at("reserving addresses"))?;
        Ok(Window {
            base,
            max_bytes,
            chunk_bytes,
            places: (0..max_bytes / chunk_bytes)
                .map(|_| AtomicU8::new(EMPTY))
                .collect(),
            guard,
        })
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the length, bytes.
    #[inline]
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Returns the length of a chunk, bytes.
    #[inline]
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Returns the number of places for chunks.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // checked by `reserve`
    pub fn chunks(&self) -> u32 {
        self.places.len() as u32
    }

    /// Says whether this is a forked child, in which the memory is not mapped.
    #[inline]
    pub fn is_forked_child(&self) -> bool {
        self.guard.is_child()
    }

    /// Says whether the place has a chunk.
    #[inline]
    pub fn is_attached(&self, index: u32) -> bool {
        self.places
            .get(index as usize)
            // Ordering: pairs with the release in `change`, so that a thread that sees the chunk can touch it.
            .is_some_and(|place| place.load(Ordering::Acquire) >= READ)
    }

    /// Verifies a chunk that was shown to us and maps it, read-only.
    pub fn attach_ro(&self, index: u32, fd: impl AsFd) -> Result<(), WindowError> {
        verify(fd.as_fd(), self.chunk_bytes)
            .map_err(|source| WindowError::NotAChunk { index, source })?;
        self.change(index, EMPTY, READ, |addr| {
            // SAFETY: a place of our own reservation, empty, and no other thread changes it meanwhile.
            unsafe { map::map_fixed(addr, fd, map::Access::Read, self.chunk_bytes, 0) }
                .map_err(at("mapping a chunk"))
        })
    }

    /// Verifies a chunk that all its holders may write, and maps it. `access` says how: for writing, for reading, or so
    /// that nothing of it can be touched before it is [opened](Window::open). A chunk with one writer can be written
    /// only by the process that made it ([`Window::make_chunk`]).
    pub fn attach_shared(
        &self,
        index: u32,
        fd: impl AsFd,
        access: map::Access,
    ) -> Result<(), WindowError> {
        crate::verify_as(fd.as_fd(), self.chunk_bytes, Sealing::Shared)
            .map_err(|source| WindowError::NotAChunk { index, source })?;
        self.change(index, EMPTY, SHARED, |addr| {
            // SAFETY: a place of our own reservation, empty, and no other thread changes it meanwhile.
            unsafe { map::map_fixed(addr, fd, access, self.chunk_bytes, 0) }
                .map_err(at("mapping a chunk"))
        })
    }

    /// Lets whole pages be read, or also written, that could not be. Where the kernel has no mapping left for a part,
    /// the whole chunks are opened, which needs none.
    pub fn open(&self, offset: u64, len: u64, access: map::Access) {
        let Some((begin, bytes)) = self.pages(offset, len) else {
            return;
        };
        if self.protect(begin, bytes, access).is_err() {
            let first = begin & !(self.chunk_bytes - 1);
            let end = (begin + bytes).next_multiple_of(self.chunk_bytes);
            let _ = self.protect(first, end - first, map::Access::ReadWrite);
        }
    }

    /// Takes away access to whole pages, entirely or for writing, so that a mistaken access in this process faults. If
    /// the kernel has no mapping left, the pages stay as they are.
    ///
    /// # Safety
    /// Nothing in this process uses the pages any more in the way that is taken away.
    pub unsafe fn close(&self, offset: u64, len: u64, access: map::Access) {
        if let Some((begin, bytes)) = self.pages(offset, len) {
            let _ = self.protect(begin, bytes, access);
        }
    }

    /// Returns whole pages of the window, as addresses in it.
    fn pages(&self, offset: u64, len: u64) -> Option<(usize, usize)> {
        let page = tranship_sys::page_size() as u64;
        let end = offset.checked_add(len)?;
        let whole = (offset | len).is_multiple_of(page) && len > 0;
        let inside = end <= self.max_bytes as u64 && !self.guard.is_child();
        let both = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        (whole && inside).then_some(both)
    }

    fn protect(&self, begin: usize, bytes: usize, access: map::Access) -> io::Result<()> {
        // SAFETY: inside our own reservation, as `pages` found. Nothing uses the access that is taken away, as the
        // caller of `close` promises.
        unsafe { map::protect(self.base.add(begin), bytes, access) }
    }

    /// Makes a chunk in its place: mapped for writing here, sealed against all other processes.
    pub fn make_chunk(&self, index: u32, name: &str, opts: Opts) -> Result<OwnedFd, WindowError> {
        self.change(index, EMPTY, WRITE, |addr| {
            let len = self.chunk_bytes;
            let made = make_mapped(name, len, opts, |fd| {
                // SAFETY: a place of our own reservation, empty, and no other thread changes it meanwhile.
                unsafe {
                    map::map_fixed(addr, fd, map::Access::ReadWrite, len, 0)?;
                    if opts.huge {
                        // Best effort: the pages are there already, this maps them whole.
                        let _ = map::hint(addr, len, map::Hint::Huge);
                    }
                    if opts.sealing == Sealing::Open {
                        // The chunk is filled once: one pass is cheaper than a fault for each page.
                        let _ = map::hint(addr, len, map::Hint::PopulateWrite);
                    }
                }
                Ok(())
            });
            match made {
                Ok((fd, ())) => Ok(fd),
                Err(error) => {
                    // The chunk may be mapped already, if the kernel refused the seals.
                    // SAFETY: our own place, which no other code knows to have a chunk.
                    unsafe { map::make_blank(addr, len) }.map_err(at("unmapping a chunk"))?;
                    Err(error.into())
                }
            }
        })
    }

    /// Ends all writing to an [open](Sealing::Open) chunk of this process, for good. From here on every process can
    /// only read it. If the kernel refuses the seals (`EBUSY`, after up to 160 ms), something still holds the chunk's
    /// pages, for example a socket that was given them. In that case the bytes are copied, and the returned descriptor
    /// is to be used from now on.
    ///
    /// On failure the chunk is unchanged.
    ///
    /// # Safety
    /// Nothing in this process writes the chunk any more.
    pub unsafe fn seal(
        &self,
        index: u32,
        fd: impl AsFd,
        name: &str,
    ) -> Result<Option<OwnedFd>, WindowError> {
        let len = self.chunk_bytes;
        self.change(index, WRITE, SEALED, |addr| {
            // Map it privately: the kernel counts a shared mapping as one that may write, whatever its access. A
            // private mapping shows the same pages.
            // SAFETY: our own place, whose bytes do not change, and nothing writes there, as the caller promises.
            let closed = unsafe { map::map_private_fixed(addr, &fd, map::Access::Read, len, 0) };
            closed.map_err(at("mapping a chunk for reading"))?;
            if tranship_sys::memfd::add_seals(&fd, Sealing::Nobody.added()).is_ok() {
                // SAFETY: as above.
                let _ = unsafe { map::map_fixed(addr, &fd, map::Access::Read, len, 0) };
                return Ok(None);
            }
            // SAFETY: mapped a moment ago, and until `change` ends.
            let bytes = unsafe { View::new(addr.as_ptr(), len) };
            let copied = crate::make::copy_for_nobody(name, bytes);
            // SAFETY: as above; the copy has the same bytes. Without a copy everything is as before.
            unsafe {
                match copied {
                    Ok(copy) => {
                        let shown = map::map_private_fixed(addr, &copy, map::Access::Read, len, 0);
                        shown.map_err(at("mapping a chunk for reading"))?;
                        Ok(Some(copy))
                    }
                    Err(error) => {
                        map::map_fixed(addr, &fd, map::Access::ReadWrite, len, 0)
                            .map_err(at("mapping a chunk"))?;
                        Err(error.into())
                    }
                }
            }
        })
    }

    /// Verifies a chunk from a peer that no process can write any more, and maps it.
    pub fn attach_sealed(&self, index: u32, fd: impl AsFd) -> Result<(), WindowError> {
        crate::verify_as(fd.as_fd(), self.chunk_bytes, Sealing::Nobody)
            .map_err(|source| WindowError::NotAChunk { index, source })?;
        self.change(index, EMPTY, SEALED, |addr| {
            let len = self.chunk_bytes;
            // Kernels before 6.7 refuse to share a sealed file. Nothing writes it, so a private mapping shows the same
            // bytes.
            // SAFETY: a place of our own reservation, empty, and no other thread changes it meanwhile.
            unsafe {
                map::map_fixed(addr, &fd, map::Access::Read, len, 0)
                    .or_else(|_| map::map_private_fixed(addr, &fd, map::Access::Read, len, 0))
            }
            .map_err(at("mapping a chunk"))
        })
    }

    /// Says whether the chunk at this place can no longer be written by any process.
    #[inline]
    pub fn is_sealed(&self, index: u32) -> bool {
        let place = self.places.get(index as usize);
        // Ordering: pairs with the release in `change`.
        place.is_some_and(|place| place.load(Ordering::Acquire) == SEALED)
    }

    /// Unmaps a chunk, so that its place can take another one. A later read there finds zeros. A later write to a place
    /// that had an [attached](Window::attach_shared) shared chunk stays private to this process.
    ///
    /// # Safety
    /// Nothing reads or writes the chunk any more: no view of it is left in this process, or the remaining views
    /// tolerate that.
    pub unsafe fn detach(&self, index: u32) -> Result<(), WindowError> {
        let place = self.place(index)?;
        let was = place.load(Ordering::Relaxed);
        if was < READ {
            return Err(WindowError::Empty { index });
        }
        self.change(index, was, EMPTY, |addr| {
            // SAFETY: a place of our own reservation; nothing uses it, as the caller promises.
            let emptied = unsafe {
                match was {
                    SHARED => map::make_scratch(addr, self.chunk_bytes),
                    _ => map::make_blank(addr, self.chunk_bytes),
                }
            };
            emptied.map_err(at("unmapping a chunk"))
        })
    }

    /// Returns `len` bytes at `offset`, if all of the range has chunks. A chunk may be [detached](Window::detach) only
    /// when such views of it are gone.
    #[inline]
    pub fn view(&self, offset: u64, len: u64) -> Result<View<'_>, OutOfBounds> {
        let (offset, len) = self.check(offset, len)?;
        // SAFETY: all the chunks that it touches are mapped and of sealed size; `detach` is promised not to take
        // them away under a view.
        Ok(unsafe { View::new(self.base.as_ptr().add(offset), len) })
    }

    /// Checks that all of a range that a peer named has chunks.
    #[inline]
    pub fn check(&self, offset: u64, len: u64) -> Result<(usize, usize), OutOfBounds> {
        let error = OutOfBounds {
            offset_bytes: usize::try_from(offset).unwrap_or(usize::MAX),
            len_bytes: usize::try_from(len).unwrap_or(usize::MAX),
            available_bytes: self.max_bytes,
        };
        let end = offset.checked_add(len).ok_or(error)?;
        if end > self.max_bytes as u64 || self.guard.is_child() {
            return Err(error);
        }
        let (from, to) = (error.offset_bytes, error.offset_bytes + error.len_bytes);
        let shift = self.chunk_bytes.trailing_zeros();
        let mut index = from >> shift;
        // Bounded: `to` is at most the window's end.
        while index << shift < to {
            // Ordering: pairs with the release in `change`.
            if self.places[index].load(Ordering::Acquire) < READ {
                return Err(error);
            }
            index += 1;
        }
        Ok((error.offset_bytes, error.len_bytes))
    }

    fn place(&self, index: u32) -> Result<&AtomicU8, WindowError> {
        self.places
            .get(index as usize)
            .ok_or(WindowError::NoSuchChunk {
                index,
                chunks: self.chunks(),
            })
    }

    /// Takes a place from one state to another, alone.
    fn change<T>(
        &self,
        index: u32,
        from: u8,
        to: u8,
        how: impl FnOnce(NonNull<u8>) -> Result<T, WindowError>,
    ) -> Result<T, WindowError> {
        if self.guard.is_child() {
            return Err(WindowError::Forked);
        }
        let place = self.place(index)?;
        // Ordering: acquire pairs with the release of the thread that changed the place last.
        place
            .compare_exchange(from, BUSY, Ordering::Acquire, Ordering::Relaxed)
            .map_err(|_: u8| match from {
                EMPTY => WindowError::Taken { index },
                _ => WindowError::Empty { index },
            })?;
        // SAFETY: `index` is a place, so this is inside the reservation.
        let result = how(unsafe { self.base.add(index as usize * self.chunk_bytes) });
        let state = if result.is_ok() { to } else { from };
        // Ordering: release, so that a thread that sees the state sees the mapping (partner: the acquire in
        // `is_attached`).
        place.store(state, Ordering::Release);
        result
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !self.guard.is_child() {
            // SAFETY: our own reservation, dropped once; views borrow from it.
            let _ = unsafe { map::unmap(self.base, self.max_bytes) };
        }
    }
}

fn at(step: &'static str) -> impl FnOnce(io::Error) -> WindowError {
    move |source| WindowError::Io { step, source }
}

#[cfg(test)]
mod tests;
