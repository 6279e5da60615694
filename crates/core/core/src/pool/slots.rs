//! A pool writer's private data of each slot.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use tranship_ledger::Handles;
use tranship_zone::ItemPlace;

/// The class of buffers larger than a chunk, which are runs of their own.
pub(crate) const HUGE: u8 = u8::MAX;

/// The private half of a slot: 32 bytes. Two slots share a cache line only if they are neighbours in one slab, so
/// threads with slots of different slabs do not slow each other down.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Slot {
    pub(crate) handles: Handles,
    slab: AtomicU32,
    /// Window offset of the buffer's memory.
    offset: AtomicU64,
    index: AtomicU16,
    class: AtomicU8,
    /// At level `half`: whether its pages are known to be writable here.
    pub(crate) open: AtomicBool,
    /// The last generation in which the buffer was moved to another domain; 0: none.
    pub(crate) moved: AtomicU32,
    /// At level `half`: bytes of its pages beyond the last requested length.
    padding: AtomicU32,
}

impl Slot {
    /// Notes the place of the slot's item in a slab that was cut.
    pub(crate) fn place_at(&self, offset: u64, class: u8, place: ItemPlace) {
        // Relaxed: a thread gets the slot through a lock or a handle passed on.
        self.offset.store(offset, Ordering::Relaxed);
        self.class.store(class, Ordering::Relaxed);
        self.slab.store(place.slab, Ordering::Relaxed);
        self.index.store(place.index, Ordering::Relaxed);
        self.open.store(false, Ordering::Relaxed);
        self.handles.none();
    }
    /// Sets the padding. Returns the old one.
    pub(crate) fn pad(&self, bytes: u32) -> u32 {
        // Relaxed: a thread that has the slot to itself got it through a lock.
        self.padding.swap(bytes, Ordering::Relaxed)
    }
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }
    #[inline]
    pub(crate) fn class(&self) -> u8 {
        self.class.load(Ordering::Relaxed)
    }
    pub(crate) fn place(&self) -> ItemPlace {
        ItemPlace {
            slab: self.slab.load(Ordering::Relaxed),
            index: self.index.load(Ordering::Relaxed),
        }
    }
}
