//! Items of slabs, and runs of their own: the source of new slots, and the place of slots that no zone caches.

use super::memory::Memory;
use super::slots::HUGE;
use super::store::Store;
use crate::base::lock;
use tranship_zone::{ItemPlace, Keg, NewSlab, PAGE, RunAllocator, SlabHooks, SlotNumbers, SlotSet};

/// With fewer free slots than this, a slab gets at most a quarter of them, so that buffers of other sizes have some.
const SHORT: u32 = 256;

/// Place of a buffer that is no item of a slab.
const NOWHERE: ItemPlace = ItemPlace { slab: 0, index: 0 };

impl Memory {
    pub(super) fn cut_slabs(&self, class: usize, out: &mut Vec<u32>, want: usize) {
        let store = &mut *lock(&self.store);
        self.cut_some(store, class, out, want);
        if out.is_empty() && store.numbers.free() == 0 {
            self.free_numbers(store);
            self.cut_some(store, class, out, want);
        }
    }

    fn cut_some(&self, store: &mut Store, class: usize, out: &mut Vec<u32>, want: usize) {
        self.with_keg(store, class, |keg, runs, hooks| {
            keg.alloc(out, want - out.len());
            // Where slots are short, no more than one look's worth: others need some, too.
            while out.len() < want
                && (out.is_empty() || !hooks.is_short())
                && (keg.name_more(hooks) || keg.grow(runs, hooks).is_ok())
            {
                keg.alloc(out, want - out.len());
            }
        });
    }

    /// Takes the slots away from free items, in slabs of any size.
    fn free_numbers(&self, store: &mut Store) {
        for class in 0..store.kegs.len() {
            self.with_keg(store, class, |keg, runs, hooks| keg.trim(runs, hooks));
        }
    }

    /// Takes a slot for a run of its own.
    fn take_number(&self, store: &mut Store) -> Option<u32> {
        store.take_number().or_else(|| {
            self.free_numbers(store);
            store.take_number()
        })
    }

    /// Gives items of a zone back to their slabs.
    pub(super) fn to_kegs(&self, items: &[u32]) {
        let store = &mut *lock(&self.store);
        for &slot in items {
            let private = self.slots.private(slot);
            let class = usize::from(private.class());
            self.with_keg(store, class, |keg, runs, hooks| {
                keg.free(private.place(), runs, hooks);
            });
        }
    }

    /// Gives empty slabs back to the runs.
    pub(super) fn reap(&self) {
        let store = &mut *lock(&self.store);
        for class in 0..store.kegs.len() {
            self.with_keg(store, class, |keg, runs, hooks| {
                keg.reap(runs, hooks);
            });
        }
    }

    /// Stops or resumes allocation from a chunk.
    pub(super) fn set_draining(&self, store: &mut Store, index: u32, drain: bool) {
        store.runs.set_draining(index, drain);
        let pages = store.runs.pages_of(index);
        for class in 0..store.kegs.len() {
            self.with_keg(store, class, |keg, runs, hooks| {
                keg.set_draining(pages.clone(), drain, runs, hooks);
            });
        }
    }

    /// Does something with a class's keg, if it has one.
    fn with_keg(
        &self,
        store: &mut Store,
        class: usize,
        work: impl FnOnce(&mut Keg, &mut RunAllocator, &mut Hooks<'_>),
    ) {
        if let Some(keg) = store.kegs.get_mut(class) {
            let mut hooks = Hooks {
                memory: self,
                class,
                numbers: &mut store.numbers,
            };
            work(keg, &mut store.runs, &mut hooks);
        }
    }

    /// Allocates a run of its own for a buffer larger than a chunk.
    pub(super) fn alloc_huge(&self, len: usize) -> Option<u32> {
        let store = &mut *lock(&self.store);
        let run = store.runs.alloc(self.sizes.pages_of_run(len))?;
        let Some(slot) = self.take_number(store) else {
            store.runs.free(run);
            return None;
        };
        self.enter(slot, run.offset(), run.bytes(), HUGE, NOWHERE);
        store.huge.insert(slot, run);
        store.huge_allocs += 1;
        Some(slot)
    }

    /// Frees a buffer with a run of its own, or a large one.
    #[cold]
    pub(super) fn free_huge(&self, slot: u32) {
        let mut store = lock(&self.store);
        let huge = store.huge.remove(&slot);
        if let Some(run) = huge {
            store.runs.free(run);
            self.slots.set_padding(slot, 0);
        }
        if huge.is_some() || store.large.end(slot) {
            store.give_number(slot);
        }
        drop(store);
        self.returned.raise();
    }

    /// Takes a large buffer out of the runs that were made for it.
    pub(super) fn begin_large(&self, pages: u32) -> Option<u32> {
        let store = &mut *lock(&self.store);
        let run = store.large.take_ready(pages)?;
        let Some(slot) = self.take_number(store) else {
            store.large.give_ready(run);
            return None;
        };
        self.enter(slot, run.offset(), run.bytes(), HUGE, NOWHERE);
        store.large.begin(slot, run);
        store.huge_allocs += 1;
        Some(slot)
    }

    /// Whether the memory in use, cached items not counted, would fit into fewer chunks.
    pub(super) fn is_scattered(&self) -> bool {
        let store = lock(&self.store);
        let all = self.zones.iter().zip(&store.kegs);
        let cached: u64 = all
            .map(|(zone, keg)| zone.stats().cached() * keg.shape().item_bytes)
            .sum();
        let used = (store.runs.total_used_pages() * PAGE).saturating_sub(cached);
        u64::from(store.runs.busy()) > used.div_ceil(self.chunks.chunk_bytes())
    }

    fn enter(&self, slot: u32, offset: u64, length: u64, class: u8, item: ItemPlace) {
        let serial = self.chunks.serial_at(offset);
        self.slots
            .enter(slot, (offset, length), serial, class, item);
    }
}

/// Gives the items of a new slab their slots.
struct Hooks<'a> {
    memory: &'a Memory,
    class: usize,
    numbers: &'a mut SlotNumbers,
}

impl Hooks<'_> {
    /// Whether a slab gets only a part of the free slots, because they are few.
    fn is_short(&self) -> bool {
        self.numbers.free() < SHORT
    }
}

impl SlabHooks for Hooks<'_> {
    fn adopt(&mut self, slab: NewSlab<'_>) -> Option<SlotSet> {
        let class = u8::try_from(self.class).ok()?;
        let items = u32::try_from(slab.items.len()).ok()?;
        let most = match self.is_short() {
            true => self.numbers.free().div_ceil(4),
            false => items,
        };
        let set = self.numbers.take(items.min(most))?;
        for (&index, slot) in slab.items.iter().zip(set.iter()) {
            let offset = slab.run.offset() + u64::from(index) * slab.item_bytes;
            let item = ItemPlace {
                slab: slab.slab,
                index,
            };
            self.memory
                .enter(slot, offset, slab.item_bytes, class, item);
        }
        Some(set)
    }
    fn retire(&mut self, _slab: u32, slots: &SlotSet) {
        if self.memory.registration.is_guarded() {
            let slots_of = &self.memory.slots;
            slots.iter().for_each(|slot| slots_of.set_padding(slot, 0));
        }
        self.numbers.give(slots);
    }
}
