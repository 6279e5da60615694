//! The pool's slots: the private data of each, and the data that all readers see.

use super::place::Place;
use super::run::each_among;
use super::slots::Slot;
use std::iter::repeat;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tranship_ledger::{Generations, Handles, Slots, Words, generation};
use tranship_region::layout::{Slot as TableSlot, TableRw};
use tranship_sys::crash;
use tranship_zone::ItemPlace as Item;

/// The words of a pool's slots.
pub(super) struct SlotTable {
    private: Box<[Slot]>,
    /// The shared table, which only this domain writes.
    pub(super) shared: TableRw,
    pub(super) fd: OwnedFd,
    /// Padding of all slots that have memory, bytes.
    padding_bytes: AtomicU64,
}

impl SlotTable {
    pub(super) fn new(shared: TableRw, fd: OwnedFd) -> SlotTable {
        SlotTable {
            private: (0..shared.count()).map(|_| Slot::default()).collect(),
            shared,
            fd,
            padding_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.private.len()).unwrap_or(u32::MAX)
    }

    /// Returns the private half of a slot that another domain names.
    pub(super) fn get(&self, slot: u32) -> Option<&Slot> {
        self.private.get(slot as usize)
    }

    /// Returns a slot's private half.
    #[inline(always)]
    pub(super) fn private(&self, slot: u32) -> &Slot {
        debug_assert!((slot as usize) < self.private.len());
        // SAFETY: slot numbers come from `SlotNumbers::new(slots.len())` alone; one that a peer names is checked
        // by `take_back` before it gets here.
        unsafe { self.private.get_unchecked(slot as usize) }
    }

    /// Returns a slot's entry in the shared table.
    #[inline(always)]
    pub(super) fn entry(&self, slot: u32) -> &TableSlot {
        debug_assert!(slot < self.shared.count());
        // SAFETY: as for `private`; the table has as many entries.
        unsafe { self.shared.slots().get_unchecked(slot as usize) }
    }

    /// Returns the place of a slot's words.
    #[inline(always)]
    pub(super) fn place_of(&self, slot: u32) -> Place<'_> {
        Place {
            private: self.private(slot),
            entry: self.entry(slot),
        }
    }

    /// Returns the count of handles of a slot's buffer in this process.
    #[inline(always)]
    pub(super) fn handles(&self, slot: u32) -> &Handles {
        &self.private(slot).handles
    }

    #[inline(always)]
    pub(super) fn generation_word(&self, slot: u32) -> &AtomicU32 {
        &self.entry(slot).generation
    }

    #[inline(always)]
    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.generation_word(slot).load(Ordering::Relaxed) // own word
    }

    /// Returns the slot's capacity, bytes.
    pub(super) fn capacity_of(&self, slot: u32) -> u64 {
        self.entry(slot).length.load(Ordering::Relaxed) // own word
    }

    /// Writes a slot's entry: where its memory is from now on. Its generation stays odd.
    pub(super) fn enter(
        &self,
        slot: u32,
        (offset, length): (u64, u64),
        serial: u32,
        class: u8,
        item: Item,
    ) {
        self.private(slot).place_at(offset, class, item);
        let entry = self.entry(slot);
        entry.offset.store(offset, Ordering::Relaxed);
        entry.length.store(length, Ordering::Relaxed);
        entry.serial.store(serial, Ordering::Relaxed);
    }

    /// Notes that the caller's writable buffer, which was never sent, is about to be given away to be written: from its
    /// first send on this domain must not look at it.
    #[inline(always)]
    pub(super) fn leave(&self, slot: u32) {
        // Relaxed: a word of our own, before the generation is made even, by which others here find the buffer.
        let next = generation::published(self.generation(slot));
        self.private(slot).moved.store(next, Ordering::Relaxed);
        // The manager charges it to its holder. It lies on the line that the generation is about to be written to.
        self.entry(slot).moved.store(next, Ordering::Relaxed);
    }

    /// Whether the buffer of this generation of the slot was moved to another domain.
    pub(super) fn is_away(&self, slot: u32, generation: u32) -> bool {
        // Relaxed: as above; the caller has found the generation even.
        self.private(slot).moved.load(Ordering::Relaxed) == generation
    }

    /// At level `half`: notes that `bytes` bytes of the slot's pages are beyond the requested length.
    pub(super) fn set_padding(&self, slot: u32, bytes: u32) {
        let before = self.private(slot).pad(bytes);
        // Relaxed: statistics. Each slot takes away what it added.
        if before != bytes {
            self.padding_bytes
                .fetch_add(bytes.into(), Ordering::Relaxed);
            self.padding_bytes
                .fetch_sub(before.into(), Ordering::Relaxed);
        }
    }

    /// Returns the padding of all slots together, bytes.
    pub(super) fn padding_bytes(&self) -> u64 {
        self.padding_bytes.load(Ordering::Relaxed)
    }

    /// Returns the slots as the collector sees them.
    #[inline(always)]
    pub(super) fn words(&self) -> Own<'_> {
        Own {
            slots: &self.private,
            table: self.shared.slots(),
        }
    }

    /// Goes through the private halves of slots, which are the pool's.
    #[inline(always)]
    pub(super) fn each_private(&self, slots: impl Slots, mut take: impl FnMut(&Slot)) {
        debug_assert!(slots.each().all(|slot| slot < self.count()));
        // SAFETY: as for `private`.
        unsafe { each_among(self.private.as_ptr(), slots, repeat(()), |(), s| take(s)) };
    }
}

/// The pool's private and shared slots as the collector sees them. Their addresses are at hand, because after each
/// acquire load the compiler would load them again. Candidates come out of the pool's own queue.
pub(super) struct Own<'a> {
    slots: &'a [Slot],
    table: &'a [TableSlot],
}

impl Own<'_> {
    #[inline(always)]
    fn generation(&self, slot: u32) -> &AtomicU32 {
        debug_assert!((slot as usize) < self.table.len());
        // SAFETY: as for `SlotTable::entry`.
        unsafe { &self.table.get_unchecked(slot as usize).generation }
    }
}

impl Generations for Own<'_> {
    #[inline(always)]
    fn load(&self, slot: u32) -> u32 {
        self.generation(slot).load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn store(&self, slot: u32, generation: u32) {
        self.generation(slot).store(generation, Ordering::Relaxed);
        crash::point("collect.after_bump");
    }
    #[inline(always)]
    fn change_each(&self, slots: impl Slots, change: impl Fn(u32) -> u32) {
        debug_assert!(slots.each().all(|slot| (slot as usize) < self.table.len()));
        let change = |(), entry: &TableSlot| {
            let was = entry.generation.load(Ordering::Relaxed);
            entry.generation.store(change(was), Ordering::Relaxed);
            crash::point("collect.after_bump");
        };
        // SAFETY: as for `SlotTable::entry`.
        unsafe { each_among(self.table.as_ptr(), slots, repeat(()), change) };
    }
}

impl Words for Own<'_> {
    #[inline(always)]
    fn load(&self, slot: u32) -> u32 {
        debug_assert!((slot as usize) < self.slots.len());
        // SAFETY: as for `SlotTable::private`.
        unsafe { self.slots.get_unchecked(slot as usize) }
            .handles
            .count()
    }
    #[inline(always)]
    fn load_each<T>(
        &self,
        slots: impl Slots,
        beside: impl Iterator<Item = T>,
        mut take: impl FnMut(T, u32),
    ) {
        debug_assert!(slots.each().all(|slot| (slot as usize) < self.slots.len()));
        let load = |t, slot: &Slot| take(t, slot.handles.count());
        // SAFETY: as for `SlotTable::private`.
        unsafe { each_among(self.slots.as_ptr(), slots, beside, load) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> SlotTable {
        let (fd, shared) = TableRw::create(4, 1 << 20, 64 << 10).expect("a table");
        SlotTable::new(shared, fd)
    }

    #[test]
    fn a_slot_is_away_in_the_generation_in_which_it_was_moved() {
        let slots = table();
        slots.enter(1, (4096, 100), 7, 3, Item { slab: 0, index: 0 });
        let first = generation::published(slots.generation(1));
        assert!(!slots.is_away(1, first));
        slots.leave(1);
        assert!(slots.is_away(1, first) && !slots.is_away(2, first));
        assert!(!slots.is_away(1, first + 2));
        let moved = slots.entry(1).moved.load(Ordering::Relaxed);
        assert_eq!((moved, slots.capacity_of(1)), (first, 100));
    }

    #[test]
    fn padding_is_the_sum_over_all_slots() {
        let slots = table();
        slots.set_padding(0, 10);
        slots.set_padding(3, 5);
        slots.set_padding(0, 7);
        assert_eq!(slots.padding_bytes(), 12);
        slots.set_padding(0, 0);
        slots.set_padding(3, 0);
        assert_eq!(slots.padding_bytes(), 0);
    }
}
