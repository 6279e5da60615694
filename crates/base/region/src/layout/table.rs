//! Kind 2: the slot table of a pool. Written by the pool's writer, read by its readers and the manager.

use super::header::{Kind, Says};
use super::{CreateError, LoadU32, LoadU64, OpenError, SLOT_LIMIT, check_count, rounded};
use crate::{RoMapping, RwMapping};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

const RELINQUISH: usize = 64;
const FIGURES: usize = 128;
const SLOTS: usize = 4096;

/// One buffer.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// The generation. Odd: only the writer can name the buffer. Even: the buffer was sent.
    pub generation: AtomicU32,
    /// The serial of the buffer's first chunk.
    pub serial: AtomicU32,
    /// The buffer's offset in the window, bytes.
    pub offset: AtomicU64,
    /// The slot's capacity, bytes.
    pub length: AtomicU64,
    /// The last generation in which the buffer was moved to another domain; 0: none.
    pub moved: AtomicU32,
    zero: u32,
}

const _: () = assert!(size_of::<Slot>() == 32 && align_of::<Slot>() == 8);
const _: () = assert!(std::mem::offset_of!(Slot, offset) == 8);
const _: () = assert!(std::mem::offset_of!(Slot, length) == 16);
const _: () = assert!(std::mem::offset_of!(Slot, moved) == 24);

/// The writer's figures about its pool, for the component that divides memory. Each word stands for itself: the words
/// are not from one moment.
#[derive(Debug)]
#[repr(C)]
pub struct Figures {
    /// Time that callers waited for memory, summed over callers, ns.
    pub blocked_ns: AtomicU64,
    /// Time spent collecting, ns.
    pub collect_ns: AtomicU64,
    /// Buffers handed out.
    pub allocs: AtomicU64,
    /// Bytes of chunks that have at least one buffer in use.
    pub live_bytes: AtomicU64,
    /// The most live bytes at once, lately.
    pub peak_bytes: AtomicU64,
    /// Buffers in caches.
    pub cached: AtomicU64,
    /// Buffers in use.
    pub live_buffers: AtomicU64,
    /// Callers that wait.
    pub waiters: AtomicU64,
    /// Bytes of buffers that were found dead when the writer last looked.
    pub garbage_bytes: AtomicU64,
    /// Bytes of free buffers in caches.
    pub cached_bytes: AtomicU64,
    /// At level `half`: bytes of the buffers' pages beyond the requested length.
    pub padding_bytes: AtomicU64,
    /// Collections.
    pub collections: AtomicU64,
}

const _: () = assert!(size_of::<Figures>() == 96);

/// Returns the length of the object, bytes.
pub fn len(slots: u32) -> usize {
    rounded(SLOTS, size_of::<Slot>(), slots)
}

fn says(slots: u32, max_bytes: u64, chunk_bytes: u64) -> Says {
    Says {
        kind: Kind::Table,
        count: slots,
        extra: [max_bytes, chunk_bytes],
    }
}

/// The writer's side.
#[derive(Debug)]
pub struct TableRw {
    slots: NonNull<Slot>,
    count: u32,
    relinquish: NonNull<AtomicU32>,
    figures: NonNull<Figures>,
    map: RwMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for TableRw {}
// SAFETY: as for Send.
unsafe impl Sync for TableRw {}

impl TableRw {
    /// Makes the table of a pool. Every generation is 1, so that no domain can name a buffer yet.
    pub fn create(
        slots: u32,
        max_bytes: u64,
        chunk_bytes: u64,
    ) -> Result<(OwnedFd, TableRw), CreateError> {
        check_count("slots", slots, 1, SLOT_LIMIT)?;
        let (fd, map) = says(slots, max_bytes, chunk_bytes).create(len(slots), |map| {
            let first = map.array::<Slot>(SLOTS, slots as usize);
            for i in 0..slots as usize {
                // SAFETY: in bounds, as `array` checked; no other process or thread has been shown it yet.
                unsafe { (*first.as_ptr().add(i)).generation = AtomicU32::new(1) };
            }
        })?;
        let table = TableRw {
            slots: map.array(SLOTS, slots as usize),
            count: slots,
            relinquish: map.at(RELINQUISH),
            figures: map.at(FIGURES),
            map,
        };
        Ok((fd, table))
    }

    /// Returns the number of slots.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns a slot.
    #[inline]
    pub fn slot(&self, i: u32) -> Option<&Slot> {
        // SAFETY: below the count that was checked against the length; atomics; mapped as long as `self`.
        (i < self.count).then(|| unsafe { self.slots.add(i as usize).as_ref() })
    }

    /// Returns all slots.
    #[inline]
    pub fn slots(&self) -> &[Slot] {
        // SAFETY: as in `slot`; the plain field `zero` is never written.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.count as usize) }
    }

    /// Returns the word that is non-zero while the writer wants to be told of releases.
    #[inline]
    pub fn relinquish(&self) -> &AtomicU32 {
        // SAFETY: an atomic in the mapping.
        unsafe { self.relinquish.as_ref() }
    }

    /// Returns the figures that the manager reads.
    #[inline]
    pub fn figures(&self) -> &Figures {
        // SAFETY: atomics in the mapping, which only this process writes.
        unsafe { self.figures.as_ref() }
    }

    /// Returns the memory.
    pub fn mapping(&self) -> &RwMapping {
        &self.map
    }
}

/// A reader's side.
#[derive(Debug)]
pub struct TableRo {
    slots: NonNull<Slot>,
    count: u32,
    relinquish: NonNull<AtomicU32>,
    map: RoMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for TableRo {}
// SAFETY: as for Send.
unsafe impl Sync for TableRo {}

impl TableRo {
    /// Maps a slot table, and checks it against the agreed values.
    pub fn open(
        fd: impl AsFd,
        slots: u32,
        max_bytes: u64,
        chunk_bytes: u64,
    ) -> Result<TableRo, OpenError> {
        check_count("slots", slots, 1, SLOT_LIMIT)?;
        let map = says(slots, max_bytes, chunk_bytes).open(fd, len(slots))?;
        Ok(TableRo {
            slots: map.array(SLOTS, slots as usize),
            count: slots,
            relinquish: map.at(RELINQUISH),
            map,
        })
    }

    /// Returns the number of slots.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns a slot.
    #[inline]
    pub fn slot(&self, i: u32) -> Option<SlotRo<'_>> {
        // SAFETY: below the count that was checked against the length; atomics; mapped as long as `self`.
        (i < self.count).then(|| SlotRo(unsafe { self.slots.add(i as usize).as_ref() }))
    }

    /// Returns the word that is non-zero while the writer wants to be told of releases.
    #[inline]
    pub fn relinquish(&self) -> LoadU32<'_> {
        // SAFETY: an atomic in the mapping.
        LoadU32::new(unsafe { self.relinquish.as_ref() })
    }

    /// Returns the memory.
    pub fn mapping(&self) -> &RoMapping {
        &self.map
    }
}

/// A slot, for readers.
#[derive(Clone, Copy, Debug)]
pub struct SlotRo<'a>(&'a Slot);

impl<'a> SlotRo<'a> {
    /// Returns the generation. Odd: only the writer can name the buffer. Even: the buffer was sent.
    #[inline]
    pub fn generation(self) -> LoadU32<'a> {
        LoadU32::new(&self.0.generation)
    }
    /// Returns the serial of the buffer's first chunk.
    #[inline]
    pub fn serial(self) -> LoadU32<'a> {
        LoadU32::new(&self.0.serial)
    }
    /// Returns the buffer's offset in the window, bytes.
    #[inline]
    pub fn offset(self) -> LoadU64<'a> {
        LoadU64::new(&self.0.offset)
    }
    /// Returns the slot's capacity, bytes.
    #[inline]
    pub fn length(self) -> LoadU64<'a> {
        LoadU64::new(&self.0.length)
    }
}
