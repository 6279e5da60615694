//! The marks of items in use: a byte for each, outside of the items, so that a double free is found at the second time.
//!
//! Tables for granules of 16, 32, 128 and 512 bytes lie beside the arena's window. An item has its byte in the table of
//! the longest granule that is not longer than the item, so no two items of a table share a granule. The byte says that
//! the item is in use, and where in its granule it begins. An address inside of an item is therefore not taken for an
//! item.
//!
//! With a granule of more than 512 bytes, items of different threads would share a cache line of the table more often.
//! More tables would take more system calls for each 2 MiB of the heap.
//!
//! All accesses are plain loads and stores. An item has one owner at a time, and the byte belongs to the owner. Two
//! threads that free the same item at the same instant may both find it in use: only a later free is found for certain.

use crate::classes::BYTES;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use tranship_items::arena;

/// Bytes of the unit in which items are numbered, and that they are aligned to.
pub(crate) const UNIT: usize = 16;
const _: () = assert!(UNIT as u64 == arena::UNIT);

/// The granules, as shifts of a unit of 16 bytes.
const SHIFTS: [u8; 4] = [0, 1, 3, 5];
/// Bytes of each table for each 2 MiB of the window: one for each granule.
pub(crate) const TABLES: [usize; SHIFTS.len()] = {
    let mut bytes = [0; SHIFTS.len()];
    let mut table = 0;
    while table < bytes.len() {
        bytes[table] = ((2 << 20) / UNIT) >> SHIFTS[table];
        table += 1;
    }
    bytes
};
const MOST_SHIFT: u8 = 5;
const OUT: u8 = 0x80;

/// The place of a class's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Marks {
    table: NonNull<u8>,
    /// The factor by which a number, shifted by [`MOST_SHIFT`], gives its place in the table: cheaper than a shift by a
    /// variable number.
    times: u64,
}

// SAFETY: only atomics, mapped for ever.
unsafe impl Send for Marks {}
// SAFETY: as above.
unsafe impl Sync for Marks {}

impl Marks {
    /// Returns the marks of a class. The tables have [`TABLES`] for each 2 MiB of the window, and can be read and
    /// written where the window can.
    pub(crate) fn of(class: usize, tables: &[NonNull<u8>]) -> Marks {
        let fit = |shift: &u8| UNIT << shift <= BYTES[class] as usize;
        let which = SHIFTS.iter().rposition(fit).expect("an item has a unit");
        Marks {
            table: tables[which],
            times: 1 << (MOST_SHIFT - SHIFTS[which]),
        }
    }

    /// Returns the byte of an item, and its value while the item is in use.
    ///
    /// # Safety
    /// `number` is that of an item of the class, or of an address in one of its slabs.
    #[inline(always)]
    unsafe fn mark(&self, number: u32) -> (&AtomicU8, u8) {
        #[allow(clippy::cast_possible_truncation, reason = "at most the number")]
        let at = ((u64::from(number) * self.times) >> MOST_SHIFT) as usize;
        // The byte's position lacks at most the number's five lowest bits. The value has these.
        let says = OUT | number.to_le_bytes()[0];
        // SAFETY: in the table, where the window can be written: a slab is there.
        (
            unsafe { self.table.cast::<AtomicU8>().add(at).as_ref() },
            says,
        )
    }

    /// Marks an item as in use.
    ///
    /// # Safety
    /// It is an item of the class, and was just allocated.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, number: u32) {
        // SAFETY: passed on.
        let (mark, says) = unsafe { self.mark(number) };
        // Relaxed: only the item's owner touches it; the next owner got the item by way of a lock, or is the same
        // thread.
        mark.store(says, Ordering::Relaxed);
    }

    /// Clears an item's mark; returns `false` if the item is not in use.
    ///
    /// # Safety
    /// The rules of [`mark`](Self::mark) hold.
    #[inline(always)]
    pub(crate) unsafe fn clear(&self, number: u32) -> bool {
        // SAFETY: passed on.
        let (mark, says) = unsafe { self.mark(number) };
        // Relaxed: as in `set`.
        let out = mark.load(Ordering::Relaxed) == says;
        if out {
            mark.store(0, Ordering::Relaxed);
        }
        out
    }

    /// Says whether an item is in use.
    ///
    /// # Safety
    /// The rules of [`mark`](Self::mark) hold.
    pub(crate) unsafe fn is_out(&self, number: u32) -> bool {
        // SAFETY: passed on.
        let (mark, says) = unsafe { self.mark(number) };
        // Relaxed: as in `set`.
        mark.load(Ordering::Relaxed) == says
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of 2 MiB.
    const CHUNK: u32 = (2 << 20) / 16;

    #[test]
    fn no_two_items_share_a_byte_and_only_beginnings_are_items() {
        let mut memory = TABLES.map(|bytes| vec![0u8; 2 * bytes]);
        let tables: Vec<NonNull<u8>> = memory
            .iter_mut()
            .map(|table| NonNull::new(table.as_mut_ptr()).expect("memory"))
            .collect();
        for (class, bytes) in BYTES.into_iter().enumerate() {
            let marks = Marks::of(class, &tables);
            let step = bytes / 16;
            let items: Vec<u32> = (0..2)
                .flat_map(|chunk| (0..20).map(move |n| (chunk, n * step)))
                .filter(|(_, at)| at + step <= CHUNK)
                .map(|(chunk, at)| chunk * CHUNK + at)
                .collect();
            // SAFETY: in the two chunks.
            unsafe {
                for &item in &items {
                    assert!(!marks.is_out(item), "{bytes} bytes");
                    marks.set(item);
                }
                for &item in &items {
                    for inside in item + 1..item + step {
                        assert!(!marks.is_out(inside), "{bytes} bytes");
                    }
                    assert!(marks.clear(item) && !marks.clear(item));
                }
            }
        }
        assert!(memory.iter().flatten().all(|byte| *byte == 0));
    }
}
