//! The pool's chunks: their places in the window, their serials, and the descriptors by which other domains get them.

use crate::base::lock;
use crate::error::{self, Error};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tranship_region::{Opts, Window};

/// Name of a chunk in `/proc/PID/maps`.
const CHUNK_NAME: &str = "tranship-chunk";

/// The pool's chunks.
pub(super) struct Chunks {
    pub(super) window: Window,
    base: NonNull<u8>,
    shift: u32,
    /// Chunks that a new manager is shown: serial and descriptor by window index. The lock is held for moments only.
    on_record: Mutex<HashMap<u32, (u32, Arc<OwnedFd>)>>,
    /// Serial of the chunk at each window index; 0: none.
    serials: Box<[AtomicU32]>,
}

// SAFETY: `base` points into `window`, which it owns; all else is Send and Sync by itself.
unsafe impl Send for Chunks {}
// SAFETY: as above; memory behind `base` is reached only through unique or frozen buffers.
unsafe impl Sync for Chunks {}

impl Chunks {
    pub(super) fn new(window: Window) -> Chunks {
        Chunks {
            base: super::base(&window),
            shift: window.chunk_bytes().trailing_zeros(),
            on_record: Mutex::default(),
            serials: (0..window.chunks()).map(|_| AtomicU32::new(0)).collect(),
            window,
        }
    }

    /// Returns the number of chunks that have room in the window.
    pub(super) fn most(&self) -> u32 {
        self.window.chunks()
    }

    /// Returns the size of a chunk, bytes.
    pub(super) fn chunk_bytes(&self) -> u64 {
        1 << self.shift
    }

    /// Returns the size of so many chunks, bytes.
    pub(super) fn bytes_of(&self, chunks: impl Into<u64>) -> u64 {
        chunks.into() << self.shift
    }

    #[inline(always)]
    pub(super) fn at(&self, offset: u64) -> NonNull<u8> {
        // SAFETY: offsets come from the run allocator, which knows only the window's pages.
        #[allow(clippy::cast_possible_truncation)]
        unsafe {
            self.base.add(offset as usize)
        }
    }

    /// Returns the address at an offset that another domain named: the pointer may be to anything.
    pub(super) fn anywhere(&self, offset: u64) -> *mut u8 {
        #[allow(clippy::cast_possible_truncation)] // 64-bit only
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    /// Window offset of a pointer into the pool.
    #[inline(always)]
    pub(super) fn offset_of(&self, ptr: NonNull<u8>) -> u64 {
        (ptr.as_ptr().addr() - self.base.as_ptr().addr()) as u64
    }

    /// Serial of the chunk at a window offset.
    pub(super) fn serial_at(&self, offset: u64) -> u32 {
        #[allow(clippy::cast_possible_truncation)]
        let index = (offset >> self.shift) as usize;
        self.serials
            .get(index)
            .map_or(0, |s| s.load(Ordering::Relaxed))
    }

    /// Returns the serial that a line names for these bytes.
    #[inline(always)]
    pub(super) fn serial_of(&self, offset: u64, length: u64) -> u32 {
        super::serial_of(&self.serials, offset, length, self.shift)
    }

    /// Makes, fills, maps and seals a chunk. The chunk is on record from here on, and used when [begun](Chunks::begin).
    pub(super) fn make(&self, index: u32, serial: u32, opts: Opts) -> Result<(), Error> {
        let fd = self.window.make_chunk(index, CHUNK_NAME, opts)?;
        tranship_sys::crash::point("grow.after_make");
        lock(&self.on_record).insert(index, (serial, Arc::new(fd)));
        Ok(())
    }

    /// Begins the use of a chunk: the manager has granted it, and every reader was sent it.
    pub(super) fn begin(&self, index: u32, serial: u32) {
        self.serials[index as usize].store(serial, Ordering::Release);
    }

    /// Unmaps and closes a chunk. Returns its serial, or 0 if it was not begun.
    ///
    /// # Safety
    /// No buffer lies in it.
    pub(super) unsafe fn remove(&self, index: u32) -> u32 {
        let serial = self.serials[index as usize].swap(0, Ordering::AcqRel);
        // SAFETY: as the caller says.
        let _ = unsafe { self.window.detach(index) };
        drop(lock(&self.on_record).remove(&index));
        serial
    }

    /// Ends all writing to a chunk for good.
    ///
    /// # Safety
    /// Nobody here writes it any more.
    pub(super) unsafe fn seal(&self, index: u32) -> Result<(), Error> {
        if self.window.is_sealed(index) {
            return Ok(()); // by an attempt that went no further
        }
        let Some((serial, fd)) = self.get(index) else {
            return Err(error::protocol("a chunk that is not on record"));
        };
        // SAFETY: as the caller says.
        let copy = unsafe { self.window.seal(index, &fd, CHUNK_NAME) }?;
        if let Some(copy) = copy {
            lock(&self.on_record).insert(index, (serial, Arc::new(copy)));
        }
        Ok(())
    }

    /// Returns serial and descriptor of a chunk that is on record.
    pub(super) fn get(&self, index: u32) -> Option<(u32, Arc<OwnedFd>)> {
        lock(&self.on_record).get(&index).cloned()
    }

    /// Returns all chunks that are on record: index, serial, descriptor.
    pub(super) fn all(&self) -> Vec<(u32, u32, Arc<OwnedFd>)> {
        let all = lock(&self.on_record);
        let of =
            |(index, (serial, fd)): (&u32, &(u32, Arc<OwnedFd>))| (*index, *serial, fd.clone());
        all.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_region::Sealing;

    #[test]
    fn a_chunk_is_on_record_from_when_it_is_made_and_counts_from_when_it_begins() {
        let chunk = 64 << 10;
        let window = Window::reserve(4 * chunk, chunk).expect("a window");
        let chunks = Chunks::new(window);
        let (most, bytes) = (chunks.most(), chunks.chunk_bytes());
        assert_eq!(
            (most, bytes, chunks.bytes_of(3u32)),
            (4, 64 << 10, 192 << 10)
        );
        let opts = Opts {
            huge: false,
            sealing: Sealing::OneWriter,
        };
        chunks.make(2, 7, opts).expect("a chunk");
        let offset = chunks.bytes_of(2u32) + 100;
        assert_eq!((chunks.serial_at(offset), chunks.all().len()), (0, 1));
        assert_eq!(chunks.get(2).map(|(serial, _)| serial), Some(7));
        chunks.begin(2, 7);
        assert_eq!(
            (chunks.serial_at(offset), chunks.serial_of(offset, 9)),
            (7, 7)
        );
        assert_eq!(chunks.offset_of(chunks.at(offset)), offset);
        // SAFETY: no buffer lies in it.
        let serial = unsafe { chunks.remove(2) };
        assert_eq!(
            (serial, chunks.serial_at(offset), chunks.all().len()),
            (7, 0, 0)
        );
        assert!(!chunks.window.is_attached(2));
        // SAFETY: nobody writes what is not there.
        unsafe { chunks.seal(2) }.expect_err("there is none");
    }
}
