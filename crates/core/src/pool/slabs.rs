//! Items of slabs, and runs of their own: where new slots come from, and where those go that no zone caches.

use super::own::OwnPool;
use crate::base::lock;
use std::sync::atomic::Ordering;
use tranship_zone::{NewSlab, Place, SlabHooks, SlotNumbers, SlotSet};

impl OwnPool {
    pub(super) fn cut_slabs(&self, class: usize, out: &mut Vec<u32>, want: usize) {
        let store = &mut *lock(&self.store);
        let keg = &mut store.kegs[class];
        keg.alloc(out, want - out.len());
        let mut hooks = Hooks {
            pool: self,
            class,
            numbers: &mut store.numbers,
        };
        while out.len() < want && keg.grow(&mut store.runs, &mut hooks).is_ok() {
            keg.alloc(out, want - out.len());
        }
    }

    /// Items go back from a zone to their slabs.
    pub(super) fn to_kegs(&self, items: &[u32]) {
        let store = &mut *lock(&self.store);
        for &slot in items {
            let private = &self.slots[slot as usize];
            let class = usize::from(private.class());
            let Some(keg) = store.kegs.get_mut(class) else {
                continue;
            };
            let mut hooks = Hooks {
                pool: self,
                class,
                numbers: &mut store.numbers,
            };
            keg.free(private.place(), &mut store.runs, &mut hooks);
        }
    }

    /// Empty slabs go back to the runs.
    pub(super) fn reap(&self) {
        let store = &mut *lock(&self.store);
        for (class, keg) in store.kegs.iter_mut().enumerate() {
            let mut hooks = Hooks {
                pool: self,
                class,
                numbers: &mut store.numbers,
            };
            keg.reap(&mut store.runs, &mut hooks);
        }
    }

    /// A run of its own for a buffer larger than a chunk.
    pub(super) fn alloc_huge(&self, len: usize) -> Option<u32> {
        let store = &mut *lock(&self.store);
        let pages = u32::try_from(self.rounded(len).div_ceil(4096)).ok()?;
        let run = store.runs.alloc(pages)?;
        let Some(set) = store.numbers.take(1) else {
            store.runs.free(run);
            return None;
        };
        let slot = set.get(0)?;
        self.enter(
            slot,
            run.offset(),
            run.bytes(),
            Self::HUGE,
            Place { slab: 0, index: 0 },
        );
        store.huge.insert(slot, run);
        store.huge_allocs += 1;
        Some(slot)
    }

    /// Writes a slot's entry: where its memory is from now on. Its generation stays odd.
    pub(super) fn enter(&self, slot: u32, offset: u64, length: u64, class: u8, place: Place) {
        self.slots[slot as usize].place_at(offset, class, place);
        let entry = &self.table.slots()[slot as usize];
        entry.offset.store(offset, Ordering::Relaxed);
        entry.length.store(length, Ordering::Relaxed);
        entry
            .serial
            .store(self.serial_at(offset), Ordering::Relaxed);
    }
}

/// Gives the items of a new slab their slots.
pub(super) struct Hooks<'a> {
    pub(super) pool: &'a OwnPool,
    pub(super) class: usize,
    pub(super) numbers: &'a mut SlotNumbers,
}

impl SlabHooks for Hooks<'_> {
    fn adopt(&mut self, slab: NewSlab) -> Option<SlotSet> {
        let set = self.numbers.take(slab.items.into())?;
        let class = u8::try_from(self.class).ok()?;
        for (index, slot) in (0u16..).zip(set.iter()) {
            let offset = slab.run.offset() + u64::from(index) * slab.item_bytes;
            self.pool.enter(
                slot,
                offset,
                slab.item_bytes,
                class,
                Place {
                    slab: slab.slab,
                    index,
                },
            );
        }
        Some(set)
    }
    fn retire(&mut self, _slab: u32, slots: &SlotSet) {
        if self.pool.is_guarded() {
            slots.iter().for_each(|slot| self.pool.set_padding(slot, 0));
        }
        self.numbers.give(slots);
    }
}
