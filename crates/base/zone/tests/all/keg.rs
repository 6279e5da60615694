//! Kegs that share runs and slots, against a map of the items in use.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tranship_zone::{
    GrowError, ItemPlace, Keg, NewSlab, PAGE, RunAllocator, SlabHooks, SlabShape, SlotNumbers,
    SlotSet,
};

const CHUNK: u64 = 64 << 10;
const CHUNKS: u32 = 6;

/// The meaning of a slot number.
#[derive(Debug, Clone, Copy)]
struct Item {
    keg: usize,
    place: ItemPlace,
    offset: u64,
    bytes: u64,
}

struct Hooks {
    keg: usize,
    numbers: SlotNumbers,
    items: BTreeMap<u32, Item>,
}

impl SlabHooks for Hooks {
    fn adopt(&mut self, slab: NewSlab<'_>) -> Option<SlotSet> {
        let items = u32::try_from(slab.items.len()).expect("a few");
        let slots = self.numbers.take(items.min(self.numbers.free()))?;
        for (&index, slot) in slab.items.iter().zip(slots.iter()) {
            let offset = slab.run.offset() + u64::from(index) * slab.item_bytes;
            let place = ItemPlace {
                slab: slab.slab,
                index,
            };
            let item = Item {
                keg: self.keg,
                place,
                offset,
                bytes: slab.item_bytes,
            };
            assert!(offset + slab.item_bytes <= slab.run.offset() + slab.run.bytes());
            assert!(self.items.insert(slot, item).is_none(), "slot {slot} twice");
        }
        Some(slots)
    }

    fn retire(&mut self, slab: u32, slots: &SlotSet) {
        for slot in slots.iter() {
            let item = self.items.remove(&slot).expect("a slot of a slab");
            assert_eq!((item.keg, item.place.slab), (self.keg, slab));
        }
        self.numbers.give(slots);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Alloc(usize, usize),
    Free(usize),
    Drain(u32, bool),
    Reap(usize),
    Trim(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0usize..3, 1usize..20).prop_map(|(keg, want)| Step::Alloc(keg, want)),
        12 => any::<usize>().prop_map(Step::Free),
        1 => (0..CHUNKS, any::<bool>()).prop_map(|(chunk, on)| Step::Drain(chunk, on)),
        1 => (0usize..3).prop_map(Step::Reap),
        1 => (0usize..3).prop_map(Step::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_byte_twice_and_none_lost(
        sizes in prop::array::uniform3(prop::sample::select(vec![64u64, 192, 640, 3584, 4096, 12288, 65536])),
        slots in 1u32..400,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut runs = RunAllocator::new(CHUNKS, CHUNK);
        (0..CHUNKS).for_each(|index| assert!(runs.add_chunk(index)));
        let mut kegs = sizes.map(|bytes| Keg::new(SlabShape::new(bytes, CHUNK)));
        let mut hooks = Hooks { keg: 0, numbers: SlotNumbers::new(slots), items: BTreeMap::new() };
        let mut live: Vec<u32> = Vec::new();
        for step in steps {
            match step {
                Step::Alloc(keg, want) => {
                    hooks.keg = keg;
                    let before = (runs.total_used_pages(), hooks.numbers.free());
                    let mut got = Vec::new();
                    if kegs[keg].alloc(&mut got, want) == 0 {
                        let grown = match kegs[keg].name_more(&mut hooks) {
                            true => Ok(()),
                            false => kegs[keg].grow(&mut runs, &mut hooks),
                        };
                        match grown {
                            Ok(()) => prop_assert!(kegs[keg].alloc(&mut got, want) > 0),
                            Err(GrowError::NoRun { pages }) => prop_assert!(runs.alloc(pages).is_none()),
                            Err(GrowError::NoSlots) => {
                                prop_assert_eq!(hooks.numbers.free(), 0);
                                prop_assert_eq!((runs.total_used_pages(), hooks.numbers.free()), before);
                            }
                        }
                    }
                    prop_assert!(got.len() <= want);
                    for slot in got {
                        let item = hooks.items[&slot];
                        prop_assert_eq!((item.keg, item.bytes), (keg, sizes[keg]));
                        let chunk = u32::try_from(item.offset / CHUNK).expect("small");
                        prop_assert!(!runs.is_draining(chunk), "an item of a chunk that drains");
                        for other in &live {
                            let other = hooks.items[other];
                            let apart = other.offset + other.bytes <= item.offset
                                || item.offset + item.bytes <= other.offset;
                            prop_assert!(apart, "{item:?} overlaps {other:?}");
                        }
                        live.push(slot);
                    }
                }
                Step::Free(at) if !live.is_empty() => {
                    let slot = live.swap_remove(at % live.len());
                    let item = hooks.items[&slot];
                    hooks.keg = item.keg;
                    kegs[item.keg].free(item.place, &mut runs, &mut hooks);
                }
                Step::Free(_) => {}
                Step::Drain(index, on) => {
                    runs.set_draining(index, on);
                    for (number, keg) in kegs.iter_mut().enumerate() {
                        hooks.keg = number;
                        keg.set_draining(runs.pages_of(index), on, &mut runs, &mut hooks);
                    }
                }
                Step::Reap(keg) => {
                    hooks.keg = keg;
                    kegs[keg].reap(&mut runs, &mut hooks);
                }
                Step::Trim(keg) => {
                    hooks.keg = keg;
                    kegs[keg].trim(&mut runs, &mut hooks);
                    let named = hooks.items.values().filter(|item| item.keg == keg).count() as u64;
                    prop_assert_eq!(named, kegs[keg].used_items(), "what is free has no slot");
                }
            }
            // A chunk that drains holds slabs only while some of their items are out.
            for index in (0..CHUNKS).filter(|&index| runs.is_draining(index)) {
                let out = live.iter().any(|slot| hooks.items[slot].offset / CHUNK == u64::from(index));
                prop_assert_eq!(runs.used_pages(index) > 0, out);
            }
            prop_assert_eq!(kegs.iter().map(Keg::used_items).sum::<u64>(), live.len() as u64);
            let pages: u64 = kegs.iter().map(|keg| keg.slab_count() as u64 * u64::from(keg.shape().pages)).sum();
            prop_assert_eq!(runs.total_used_pages(), pages);
        }
        for slot in live {
            let item = hooks.items[&slot];
            hooks.keg = item.keg;
            kegs[item.keg].free(item.place, &mut runs, &mut hooks);
        }
        for (number, keg) in kegs.iter_mut().enumerate() {
            hooks.keg = number;
            keg.reap(&mut runs, &mut hooks);
        }
        prop_assert_eq!(runs.free_chunks().count(), CHUNKS as usize);
        prop_assert_eq!(hooks.numbers.free(), slots);
        prop_assert!(hooks.items.is_empty());
    }
}

#[test]
fn a_slab_wastes_at_most_an_eighth() {
    for chunk in [64 << 10, 1 << 20, 64 << 20] {
        let classes = tranship_zone::Classes::new(chunk);
        for bytes in (0..classes.count()).map(|class| classes.bytes_of(class)) {
            let shape = SlabShape::new(bytes, chunk);
            let total = u64::from(shape.pages) * PAGE;
            let waste = total - u64::from(shape.items) * bytes;
            assert!(
                waste * 8 <= total && total <= chunk && shape.items > 0,
                "{shape:?}"
            );
        }
    }
}

#[test]
fn the_fullest_slab_is_used_first() {
    let mut runs = RunAllocator::new(1, 1 << 20);
    assert!(runs.add_chunk(0));
    let mut keg = Keg::new(SlabShape::new(4096, 1 << 20));
    let mut hooks = Hooks {
        keg: 0,
        numbers: SlotNumbers::new(100),
        items: BTreeMap::new(),
    };
    let mut out = Vec::new();
    for _ in 0..3 {
        keg.grow(&mut runs, &mut hooks)
            .expect("a chunk and slots are free");
    }
    assert_eq!(keg.alloc(&mut out, 100), 24);
    // 5 free in the first slab taken from, 1 in the second, 3 in the third.
    for (slab, count) in [(0, 5), (1, 1), (2, 3)] {
        for &slot in &out[slab * 8..slab * 8 + count] {
            keg.free(hooks.items[&slot].place, &mut runs, &mut hooks);
        }
    }
    let slabs: Vec<u32> = [0, 1, 2]
        .map(|slab: usize| hooks.items[&out[slab * 8]].place.slab)
        .into();
    let mut again = Vec::new();
    assert_eq!(keg.alloc(&mut again, 9), 9);
    let order: Vec<u32> = again
        .iter()
        .map(|slot| hooks.items[slot].place.slab)
        .collect();
    let expected = [(1, 1), (2, 3), (0, 5)]
        .map(|(slab, count)| vec![slabs[slab]; count])
        .concat();
    assert_eq!(order, expected);
}
