//! A keg: slabs of one size of item.
//!
//! A slab is a run of pages, cut into items. A bitmap here, outside of the items, says which of them are free. Items
//! come from the fullest slab with a free item, so that the other slabs become empty. An empty slab goes back to its
//! source, except one that is kept, so that slabs do not go back and forth. A slab in a chunk that drains is frozen: it
//! hands out nothing and goes back as soon as it is empty.
//!
//! An item's position is its [`ItemPlace`]. When a slab is cut, the hooks are told all places. They keep them beside
//! their other data about a slot, so that [`Keg::free`] looks nothing up.
//!
//! When slot numbers are short, a slab has fewer of them than items. An item without a number is handed out when
//! [`Keg::name_more`] has got a number for it; [`Keg::trim`] takes the numbers of free items away again.

use crate::runs::{PAGE, Run, RunAllocator};
use crate::slots::SlotSet;
use crate::table::Table;
use std::ops::Range;

/// Most items of a slab.
const MAX_ITEMS: u64 = 256;
const WORDS: usize = 4;
const NONE: u32 = u32::MAX;

/// The source of slabs.
pub trait SlabSource {
    /// Allocates a run of `pages`, or returns `None`.
    fn alloc_run(&mut self, pages: u32) -> Option<Run>;
    /// Takes it back.
    fn free_run(&mut self, run: Run);
    /// Says whether the source wants this run back as soon as possible.
    fn wants_back(&self, run: Run) -> bool;
}

impl SlabSource for RunAllocator {
    fn alloc_run(&mut self, pages: u32) -> Option<Run> {
        self.alloc(pages)
    }

    fn free_run(&mut self, run: Run) {
        self.free(run);
    }

    fn wants_back(&self, run: Run) -> bool {
        self.chunks_of(run).any(|index| self.is_draining(index))
    }
}

/// Items of a slab that are to get slots: item `i` is at `run.offset() + i * item_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSlab<'a> {
    /// The slab's number in its keg.
    pub slab: u32,
    /// The slab's pages.
    pub run: Run,
    /// Bytes of an item.
    pub item_bytes: u64,
    /// Which items.
    pub items: &'a [u16],
}

/// Callbacks when a slab's items get slots and when they lose them.
pub trait SlabHooks {
    /// Gives the items their slot numbers, in the order of `slab.items`. If there are too few, the last items get none;
    /// returns `None` if there is no number at all.
    fn adopt(&mut self, slab: NewSlab<'_>) -> Option<SlotSet>;
    /// Takes slots from items of the slab; all of these items are free.
    fn retire(&mut self, slab: u32, slots: &SlotSet);
}

/// The items of a slab.
const ALL: [u16; 256] = {
    let mut all = [0; 256];
    let (mut index, mut number) = (0, 0);
    while index < all.len() {
        all[index] = number;
        (index, number) = (index + 1, number + 1);
    }
    all
};
const _: () = assert!(MAX_ITEMS == 256, "as many as `ALL` has");

/// An item's position in its keg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ItemPlace {
    /// Number of the slab.
    pub slab: u32,
    /// Number of the item in the slab.
    pub index: u16,
}

/// Why a keg got no new slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    /// The source has no such run: the caller must add another chunk.
    #[error("no run of {pages} pages is free")]
    NoRun {
        /// Pages of a slab.
        pages: u32,
    },
    /// The hooks have no slot number.
    #[error("no slot is free")]
    NoSlots,
}

/// How a keg cuts its slabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabShape {
    /// Bytes of an item.
    pub item_bytes: u64,
    /// Pages of a slab.
    pub pages: u32,
    /// Items of a slab.
    pub items: u16,
}

impl SlabShape {
    /// Makes the shape for items of `item_bytes` in chunks of `chunk_bytes`: at most an eighth of a slab is wasted, and
    /// slabs are small, so that they become empty.
    ///
    /// # Panics
    /// If an item is empty or larger than a chunk.
    #[must_use]
    pub fn new(item_bytes: u64, chunk_bytes: u64) -> Self {
        assert!(
            (1..=chunk_bytes).contains(&item_bytes),
            "items of {item_bytes} bytes in chunks of {chunk_bytes}"
        );
        let fits = |pages: u64| {
            let items = (pages * PAGE / item_bytes).min(MAX_ITEMS);
            let waste = pages * PAGE - items * item_bytes;
            (items, waste)
        };
        let most = (chunk_bytes / PAGE).max(1);
        let wanted = ((32 << 10) / item_bytes)
            .min(chunk_bytes / 4 / item_bytes)
            .clamp(1, 8);
        let least = (item_bytes * wanted).div_ceil(PAGE).clamp(1, most);
        let good = (least..=most.min(least + 16)).find(|&pages| fits(pages).1 * 8 <= pages * PAGE);
        let pages = good.unwrap_or(least);
        Self {
            item_bytes,
            pages: u32::try_from(pages).expect("a chunk has fewer than 2^32 pages"),
            items: u16::try_from(fits(pages).0).expect("at most 256"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    /// The slab's chunk drains.
    Frozen,
}

#[derive(Debug)]
struct Slab {
    run: Run,
    /// The slot numbers, by the item's number; [`NONE`] for an item without a slot.
    slots: SlotSet,
    free: [u64; WORDS],
    /// Items that have slots.
    named: u16,
    used: u16,
    state: State,
    /// Neighbours in the list of slabs with equally many used items.
    previous: u32,
    next: u32,
}

/// Slabs of one size of item. Not synchronised: the owner locks it.
#[derive(Debug)]
pub struct Keg {
    shape: SlabShape,
    slabs: Table<Slab>,
    vacant: Vec<u32>,
    /// `heads[n]`: first live slab with `n` used items, `n` below the number of items; full ones are in no list.
    heads: Box<[u32]>,
    keep_empty: u32,
    empty: u32,
    used_items: u64,
    /// Items of slabs that have no slot.
    nameless: u64,
}

impl Keg {
    /// Makes a keg without slabs, which keeps one empty slab.
    #[must_use]
    pub fn new(shape: SlabShape) -> Self {
        Self {
            shape,
            slabs: Table::new(),
            vacant: Vec::new(),
            heads: vec![NONE; usize::from(shape.items)].into(),
            keep_empty: 1,
            empty: 0,
            used_items: 0,
            nameless: 0,
        }
    }

    /// Returns how slabs are cut.
    #[must_use]
    pub fn shape(&self) -> SlabShape {
        self.shape
    }

    /// Sets how many empty slabs stay when items are freed.
    pub fn set_keep_empty(&mut self, slabs: u32) {
        self.keep_empty = slabs;
    }

    /// Slabs in the keg.
    #[must_use]
    pub fn slab_count(&self) -> usize {
        self.slabs.len() - self.vacant.len()
    }

    /// Returns the items that were handed out and not freed, those in a zone's caches included.
    #[must_use]
    pub fn used_items(&self) -> u64 {
        self.used_items
    }

    /// Returns the pages of a slab; `None` if there is no such slab.
    #[must_use]
    pub fn run_of(&self, slab: u32) -> Option<Run> {
        self.slabs.get(slab).map(|slab| slab.run)
    }

    /// Appends up to `want` items of the slabs that are there, the fullest first; returns how many.
    pub fn alloc(&mut self, out: &mut Vec<u32>, want: usize) -> usize {
        let mut left = want;
        let mut level = self.heads.len();
        while left > 0 && level > 0 {
            let number = self.heads[level - 1];
            if number == NONE {
                level -= 1;
                continue;
            }
            self.unlink(number);
            let slab = &mut self.slabs[number];
            while left > 0 && slab.used < slab.named {
                let Some(index) = slab.take_lowest() else {
                    break;
                };
                let Some(slot) = slab.slots.get(index) else {
                    break;
                };
                out.push(slot);
                slab.used += 1;
                self.used_items += 1;
                left -= 1;
            }
            self.link(number);
        }
        want - left
    }

    /// Cuts one more slab.
    ///
    /// # Errors
    /// If the source has no run or the hooks have no slots; nothing has changed then.
    pub fn grow(
        &mut self,
        source: &mut impl SlabSource,
        hooks: &mut impl SlabHooks,
    ) -> Result<(), GrowError> {
        let SlabShape {
            item_bytes,
            pages,
            items,
        } = self.shape;
        let run = source.alloc_run(pages).ok_or(GrowError::NoRun { pages })?;
        let fresh = u32::try_from(self.slabs.len()).expect("fewer slabs than pages");
        let number = self.vacant.last().copied().unwrap_or(fresh);
        let Some(slots) = hooks.adopt(NewSlab {
            slab: number,
            run,
            item_bytes,
            items: &ALL[..usize::from(items)],
        }) else {
            source.free_run(run);
            return Err(GrowError::NoSlots);
        };
        let named = named(&slots, items);
        let mut free = [0; WORDS];
        for index in 0..usize::from(named) {
            free[index / 64] |= 1 << (index % 64);
        }
        self.nameless += u64::from(items - named);
        let slab = Slab {
            run,
            slots,
            free,
            named,
            used: 0,
            state: State::Live,
            previous: NONE,
            next: NONE,
        };
        if number != fresh {
            self.vacant.pop();
        }
        self.slabs.set(number, slab);
        self.link(number);
        Ok(())
    }

    /// Gives slots to the items of a slab without slots. Returns whether any item got one.
    pub fn name_more(&mut self, hooks: &mut impl SlabHooks) -> bool {
        let items = self.shape.items;
        let is_short = |slab: &Slab| slab.named < items && slab.state == State::Live;
        let number = match self.nameless {
            0 => None,
            _ => (0..u32::try_from(self.slabs.len()).expect("fewer slabs than pages"))
                .find(|&number| self.slabs.get(number).is_some_and(is_short)),
        };
        let Some(number) = number else {
            return false;
        };
        let slab = &self.slabs[number];
        let nameless: Vec<u16> = (0..items)
            .filter(|&index| slab.slots.get(index).is_none_or(|slot| slot == NONE))
            .collect();
        let Some(more) = hooks.adopt(NewSlab {
            slab: number,
            run: slab.run,
            item_bytes: self.shape.item_bytes,
            items: &nameless,
        }) else {
            return false;
        };
        let got = named(&more, slab.nameless(items));
        self.unlink(number);
        let slab = &mut self.slabs[number];
        let slots = slab.slots_to_change(items);
        for (&index, slot) in nameless.iter().zip(more.iter()) {
            slots[usize::from(index)] = slot;
        }
        for index in &nameless[..usize::from(got)] {
            slab.free[usize::from(index / 64)] |= 1 << (index % 64);
        }
        slab.named += got;
        self.nameless -= u64::from(got);
        self.link(number);
        true
    }

    /// Takes the slots of all free items away. Empty slabs go to the source.
    pub fn trim(&mut self, source: &mut impl SlabSource, hooks: &mut impl SlabHooks) {
        self.reap(source, hooks);
        let items = self.shape.items;
        for number in 0..u32::try_from(self.slabs.len()).expect("fewer slabs than pages") {
            let there = self.slabs.get(number);
            if there.is_none_or(|slab| slab.used == slab.named) {
                continue;
            }
            self.unlink(number);
            let slab = &mut self.slabs[number];
            let mut lost = Vec::new();
            while let Some(index) = slab.take_lowest() {
                let slot = &mut slab.slots_to_change(items)[usize::from(index)];
                lost.push(std::mem::replace(slot, NONE));
            }
            self.nameless += lost.len() as u64;
            slab.named = slab.used;
            self.link(number);
            hooks.retire(number, &SlotSet::List(lost.into()));
        }
    }

    /// Takes an item back; its slab may go back to the source.
    ///
    /// # Panics
    /// If the item is free already or there is no such place.
    pub fn free(
        &mut self,
        place: ItemPlace,
        source: &mut impl SlabSource,
        hooks: &mut impl SlabHooks,
    ) {
        let ItemPlace {
            slab: number,
            index,
        } = place;
        assert!(
            self.slabs.get(number).is_some() && index < self.shape.items,
            "no item at {place:?}"
        );
        self.unlink(number);
        let slab = &mut self.slabs[number];
        let (word, bit) = (usize::from(index / 64), 1 << (index % 64));
        assert!(
            slab.free[word] & bit == 0,
            "item at {place:?} was free already"
        );
        slab.free[word] |= bit;
        slab.used -= 1;
        self.used_items -= 1;
        let unwanted = slab.state == State::Frozen
            || self.empty >= self.keep_empty
            || source.wants_back(slab.run);
        if slab.used == 0 && unwanted {
            self.give_back(number, source, hooks);
        } else {
            self.link(number);
        }
    }

    /// Gives all empty slabs back; returns how many.
    pub fn reap(&mut self, source: &mut impl SlabSource, hooks: &mut impl SlabHooks) -> usize {
        self.reap_some(usize::MAX, source, hooks)
    }

    /// Gives back at most `most` empty slabs, by the rules of [`reap`](Self::reap).
    pub fn reap_some(
        &mut self,
        most: usize,
        source: &mut impl SlabSource,
        hooks: &mut impl SlabHooks,
    ) -> usize {
        let mut given = 0;
        while given < most
            && let Some(&number) = self.heads.first().filter(|&&number| number != NONE)
        {
            self.unlink(number);
            self.give_back(number, source, hooks);
            given += 1;
        }
        given
    }

    /// Sorts the free numbers of slabs, so that low ones are used first and the table can shrink after a peak.
    pub fn compact(&mut self) {
        self.vacant.sort_unstable_by(|a, b| b.cmp(a));
        self.vacant.shrink_to_fit();
    }

    /// Begins or ends the draining of the chunk with these pages. While it drains, its slabs hand out nothing, and
    /// empty ones go back at once.
    pub fn set_draining(
        &mut self,
        pages: Range<u32>,
        drain: bool,
        source: &mut impl SlabSource,
        hooks: &mut impl SlabHooks,
    ) {
        let (from, to) = if drain {
            (State::Live, State::Frozen)
        } else {
            (State::Frozen, State::Live)
        };
        for number in 0..u32::try_from(self.slabs.len()).expect("fewer slabs than pages") {
            let there = self.slabs.get(number);
            if !there.is_some_and(|slab| slab.state == from && pages.contains(&slab.run.first_page))
            {
                continue;
            }
            self.unlink(number);
            self.slabs[number].state = to;
            if drain && self.slabs[number].used == 0 {
                self.give_back(number, source, hooks);
            } else {
                self.link(number);
            }
        }
    }

    /// Gives an unlinked, empty slab back to its source.
    fn give_back(&mut self, number: u32, source: &mut impl SlabSource, hooks: &mut impl SlabHooks) {
        let Some(slab) = self.slabs.take(number) else {
            return;
        };
        self.vacant.push(number);
        self.nameless -= u64::from(slab.nameless(self.shape.items));
        let slots = match slab.slots {
            SlotSet::List(all) => {
                SlotSet::List(all.iter().copied().filter(|s| *s != NONE).collect())
            }
            slots => slots,
        };
        hooks.retire(number, &slots);
        source.free_run(slab.run);
    }

    /// Says whether a slab is in the list of slabs with equally many used items.
    fn is_listed(&self, slab: &Slab) -> bool {
        slab.state == State::Live && slab.used < slab.named
    }

    fn link(&mut self, number: u32) {
        let slab = &self.slabs[number];
        if !self.is_listed(slab) {
            return;
        }
        let level = usize::from(slab.used);
        self.empty += u32::from(level == 0);
        let next = std::mem::replace(&mut self.heads[level], number);
        let slab = &mut self.slabs[number];
        (slab.previous, slab.next) = (NONE, next);
        if next != NONE {
            self.slabs[next].previous = number;
        }
    }

    fn unlink(&mut self, number: u32) {
        let slab = &self.slabs[number];
        if !self.is_listed(slab) {
            return;
        }
        let (level, previous, next) = (usize::from(slab.used), slab.previous, slab.next);
        self.empty -= u32::from(level == 0);
        if previous == NONE {
            self.heads[level] = next;
        } else {
            self.slabs[previous].next = next;
        }
        if next != NONE {
            self.slabs[next].previous = previous;
        }
    }
}

/// Returns how many of `items` items got slots.
fn named(slots: &SlotSet, items: u16) -> u16 {
    let named = u16::try_from(slots.len()).unwrap_or(u16::MAX);
    assert!(
        (1..=items).contains(&named),
        "{named} slots for {items} items"
    );
    named
}

impl Slab {
    /// Returns the number of items without a slot.
    fn nameless(&self, items: u16) -> u16 {
        items - self.named
    }

    /// Returns the slots of all items, one by one, for changing.
    fn slots_to_change(&mut self, items: u16) -> &mut [u32] {
        if !matches!(&self.slots, SlotSet::List(all) if all.len() == usize::from(items)) {
            let slots = (0..items).map(|index| self.slots.get(index).unwrap_or(NONE));
            self.slots = SlotSet::List(slots.collect());
        }
        match &mut self.slots {
            SlotSet::List(all) => all,
            _ => &mut [],
        }
    }

    fn take_lowest(&mut self) -> Option<u16> {
        let (at, word) = self
            .free
            .iter_mut()
            .enumerate()
            .find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        u16::try_from(at * 64 + bit).ok()
    }
}
