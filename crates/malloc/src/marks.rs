//! Which items are out: a byte for each, outside of the items, so that one that is freed twice is found at the second time.
//!
//! The table lies beside the arena's window. Each 2 MiB of the window have 256 KiB of it, cut into one part for each granule of 16 to
//! 512 bytes. An item has its byte in the part of the longest granule that is not longer than the item: no two items of
//! a part share a granule. The byte says that the item is out, and where in its granule it begins, so that an address inside of
//! an item is not taken for an item.
//!
//! A granule of more than 512 bytes would let items that different threads have share a cache line of the table more often.
//!
//! All of it is plain loads and stores. An item has one owner at a time, and the byte is the owner's. Two threads that free the
//! same item at the same instant may both find it out: only what comes later is found for certain.

use crate::classes::{BYTES, COUNT};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use tranship_zone::arena::UNIT;

/// Bytes of the table for each 2 MiB of the window.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Units of 16 bytes in 2 MiB.
const CHUNK_UNITS: u32 = (2 << 20) / UNIT as u32;
/// Granules are 16 bytes shifted by 0 to this.
const MOST_SHIFT: u32 = 5;
const OUT: u8 = 0x80;

const _: () = {
    // The parts: a byte for each unit, one for every second, and so on.
    assert!((2 * CHUNK_UNITS - (CHUNK_UNITS >> MOST_SHIFT)) as usize <= CHUNK_BYTES);
    assert!(CHUNK_BYTES == 2 * CHUNK_UNITS as usize && UNIT == 16);
};

/// The table.
pub(crate) struct Marks {
    classes: [Class; COUNT],
}

/// Where items of a class have their bytes.
#[derive(Clone, Copy)]
struct Class {
    part: NonNull<u8>,
    shift: u32,
}

impl Marks {
    /// # Safety
    /// `table` has [`CHUNK_BYTES`] for each 2 MiB of the window, which can be read and written where the window can.
    pub(crate) unsafe fn new(table: NonNull<u8>) -> Marks {
        let classes = std::array::from_fn(|class| {
            let shift = (BYTES[class] / UNIT as u32).ilog2().min(MOST_SHIFT);
            // The parts of shorter granules lie before it: CHUNK_UNITS / 1, / 2, / 4, ...
            let before = 2 * CHUNK_UNITS - (2 * CHUNK_UNITS >> shift);
            // SAFETY: inside the first 2 MiB's table.
            let part = unsafe { table.add(before as usize) };
            Class { part, shift }
        });
        Marks { classes }
    }

    /// The byte of an item, and what it says while the item is out.
    ///
    /// # Safety
    /// `number` is that of an item of the class, or of an address in one of its slabs.
    #[inline(always)]
    unsafe fn mark(&self, class: usize, number: u32) -> (&AtomicU8, u8) {
        // SAFETY: the caller has an item of the class.
        let Class { part, shift } = unsafe { *self.classes.get_unchecked(class) };
        let (chunk, within) = (number & !(CHUNK_UNITS - 1), number & (CHUNK_UNITS - 1));
        let at = 2 * chunk as usize + (within >> shift) as usize;
        #[allow(clippy::cast_possible_truncation, reason = "the lowest bits of it")]
        let says = OUT | number as u8 & ((1 << shift) - 1);
        // SAFETY: in the table, where the window can be written: a slab is there.
        (unsafe { part.cast::<AtomicU8>().add(at).as_ref() }, says)
    }

    /// An item goes out.
    ///
    /// # Safety
    /// It is an item of the class, and was just allocated.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, class: usize, number: u32) {
        // SAFETY: passed on.
        let (mark, says) = unsafe { self.mark(class, number) };
        // Relaxed: the item's owner alone; who has it next got it by way of a lock, or is the same thread.
        mark.store(says, Ordering::Relaxed);
    }

    /// An item comes back; `false`: there is none that is out.
    ///
    /// # Safety
    /// As [`mark`](Self::mark).
    #[inline(always)]
    pub(crate) unsafe fn clear(&self, class: usize, number: u32) -> bool {
        // SAFETY: passed on.
        let (mark, says) = unsafe { self.mark(class, number) };
        // Relaxed: as in `set`.
        let out = mark.load(Ordering::Relaxed) == says;
        if out {
            mark.store(0, Ordering::Relaxed);
        }
        out
    }

    /// Whether an item is out.
    ///
    /// # Safety
    /// As [`mark`](Self::mark).
    pub(crate) unsafe fn is_out(&self, class: usize, number: u32) -> bool {
        // SAFETY: passed on.
        let (mark, says) = unsafe { self.mark(class, number) };
        // Relaxed: as in `set`.
        mark.load(Ordering::Relaxed) == says
    }
}

// SAFETY: only atomics, mapped for ever.
unsafe impl Send for Marks {}
// SAFETY: as above.
unsafe impl Sync for Marks {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_items_share_a_byte_and_only_beginnings_are_items() {
        let mut table = vec![0u8; 2 * CHUNK_BYTES];
        let base = NonNull::new(table.as_mut_ptr()).expect("memory");
        // SAFETY: of two chunks, and all of it can be written.
        let marks = unsafe { Marks::new(base) };
        for class in 0..COUNT {
            let step = BYTES[class] / 16;
            let items: Vec<u32> = (0..2)
                .flat_map(|chunk| (0..20).map(move |n| (chunk, n * step)))
                .filter(|(_, at)| at + step <= CHUNK_UNITS)
                .map(|(chunk, at)| chunk * CHUNK_UNITS + at)
                .collect();
            for item in &items {
                // SAFETY: in the two chunks.
                unsafe {
                    assert!(!marks.is_out(class, *item), "{} bytes", BYTES[class]);
                    marks.set(class, *item);
                }
            }
            for item in &items {
                // SAFETY: as above.
                unsafe {
                    for inside in item + 1..item + step {
                        assert!(!marks.is_out(class, inside), "{} bytes", BYTES[class]);
                    }
                    assert!(marks.clear(class, *item) && !marks.clear(class, *item));
                }
            }
        }
        assert!(table.iter().all(|byte| *byte == 0));
    }
}
