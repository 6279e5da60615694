//! What a handle knows of its slot, in one word.
//!
//! Handles consist of whole words: a struct with bytes in it is written by parts and moved by wider loads, which the
//! processor cannot forward from the stores and holds up until they are all in the cache.

use tranship_zone::CachePlace;

/// Slot, generation, class and flags. A buffer of our own has, where others have the generation, the place of its zone's caches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(u64);

const GENERATION: u32 = 20;
const CLASS: u32 = GENERATION + tranship_ledger::generation::BITS;
const FLAGS: u32 = 56;
const SLOT_MASK: u64 = (1 << GENERATION) - 1;
const GENERATION_MASK: u64 = (1 << (CLASS - GENERATION)) - 1;

const _: () = assert!(tranship_proto::SLOT_LIMIT as u64 == SLOT_MASK + 1 && CLASS + 8 <= FLAGS);

impl Tag {
    /// The slot is of another domain's pool.
    pub(crate) const FOREIGN: u64 = 1 << 56;
    /// The bytes may be read as a slice.
    pub(crate) const TRUSTED: u64 = 1 << 57;
    /// It changes hands the long way: its pages change what can be done with them then (level `half`), it is a writable one that is larger
    /// than a chunk, or one that was [`MOVED`](Tag::MOVED) here. One bit, so that the short way asks once.
    pub(crate) const LONG: u64 = 1 << 58;
    /// A writable one that came by a move: it is counted as a received one, whosever pool it is of.
    pub(crate) const MOVED: u64 = 1 << 59;
    /// The bytes of a writable one may be written as a slice.
    pub(crate) const SLICE_MUT: u64 = 1 << 60;
    /// What is done with it is recorded (`domain/trace.rs`). It is asked for together with other bits, so that who does not record pays nothing.
    pub(crate) const TRACED: u64 = 1 << 61;
    /// A large one of a pool of level `none`, in chunks of its own. Of our pools: nobody can write them once it is sent (`pool/large.rs`). Of
    /// another's: nobody can, and they stay where they are as long as it is held (`pool/pins.rs`). Such a one has [`LONG`](Tag::LONG), too.
    pub(crate) const SEALED: u64 = 1 << 62;

    /// A buffer of our own, with its size class, so that freeing it needs no look-up.
    #[inline(always)]
    pub(crate) fn own(slot: u32, class: u8, flags: u64) -> Tag {
        debug_assert!(u64::from(slot) <= SLOT_MASK && flags >> FLAGS << FLAGS == flags);
        // Masked, so that the compiler knows what is in each part: else the class and the place would wait for the slot.
        let (slot, flags) = (u64::from(slot) & SLOT_MASK, flags >> FLAGS << FLAGS);
        Tag(slot | u64::from(class) << CLASS | flags)
    }

    /// One of our own, with the place of its zone's caches, so that freeing it needs no look-up of that either. Without it freeing takes longer.
    #[inline(always)]
    pub(crate) fn with_place(self, place: CachePlace) -> Tag {
        debug_assert!(!self.has(Tag::FOREIGN) && self.generation() == 0);
        Tag(self.0 | u64::from(place.number()) << GENERATION)
    }

    /// A received buffer: slot and generation out of its id, whose bit fields have the same width.
    #[inline(always)]
    pub(crate) fn foreign(slot: u32, generation: u32, flags: u64) -> Tag {
        debug_assert!(u64::from(slot) <= SLOT_MASK && u64::from(generation) <= GENERATION_MASK);
        Tag(u64::from(slot) | u64::from(generation) << GENERATION | Tag::FOREIGN | flags)
    }

    /// The same with these flags, too.
    pub(crate) fn with(self, flags: u64) -> Tag {
        debug_assert!(flags >> FLAGS << FLAGS == flags);
        Tag(self.0 | flags)
    }

    #[inline(always)]
    pub(crate) fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // masked to 20 bits
    pub(crate) fn slot(self) -> u32 {
        (self.0 & SLOT_MASK) as u32
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // masked to 24 bits
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION & GENERATION_MASK) as u32
    }

    #[inline(always)]
    pub(crate) fn class(self) -> u8 {
        (self.0 >> CLASS).to_le_bytes()[0]
    }

    #[inline(always)]
    pub(crate) fn place(self) -> CachePlace {
        CachePlace::numbered((self.0 >> GENERATION).to_le_bytes()[0])
    }
}

#[cfg(test)]
mod tests {
    use super::{CachePlace, Tag};

    #[test]
    fn nothing_runs_into_its_neighbour() {
        let (slot, generation) = ((1 << 20) - 1, (1 << 24) - 1);
        for slot in [0, 1, slot] {
            for generation in [0, 2, generation] {
                let tag = Tag::foreign(slot, generation, Tag::TRUSTED);
                assert_eq!(
                    (tag.slot(), tag.generation(), tag.class()),
                    (slot, generation, 0)
                );
                assert!(tag.has(Tag::FOREIGN) && tag.has(Tag::TRUSTED));
            }
            for class in [0, 1, 255] {
                let tag = Tag::own(slot, class, Tag::TRUSTED);
                assert_eq!(
                    (tag.slot(), tag.generation(), tag.class()),
                    (slot, 0, class)
                );
                assert!(!tag.has(Tag::FOREIGN) && tag.has(Tag::TRUSTED));
                for place in [0, 1, 127].map(CachePlace::numbered) {
                    let tag = tag.with_place(place);
                    assert_eq!((tag.slot(), tag.place(), tag.class()), (slot, place, class));
                    assert!(!tag.has(Tag::FOREIGN) && tag.has(Tag::TRUSTED));
                }
            }
        }
    }
}
