//! What a handle knows of its slot, in one word.
//!
//! Handles consist of whole words: a struct with bytes in it is written by parts and moved by wider loads, which the
//! processor cannot forward from the stores and holds up until they are all in the cache.

use tranship_zone::CachePlace;

/// Slot, generation and flags. A buffer of our own has, where others have the generation, its class and the place of its zone's caches.
///
/// In halves, each of which is set as a whole: what one frees a buffer with does not depend on the slot, which comes late.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Tag {
    slot: u32,
    /// Above the flags; below, the generation, or class and place.
    rest: u32,
}

/// Of the flags, in the rest. The constants are those of a pool's word of flags.
const FLAGS: u32 = 24;
const PLACE: u32 = 8;
const SLOT_MASK: u32 = (1 << 20) - 1;
const GENERATION_MASK: u32 = (1 << FLAGS) - 1;

const _: () = assert!(
    tranship_proto::SLOT_LIMIT == SLOT_MASK + 1 && tranship_ledger::generation::BITS <= FLAGS
);

/// Flags of a pool's word as they are in a tag.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // their byte, moved down
fn of_word(flags: u64) -> u32 {
    debug_assert!(flags << 8 == 0);
    (flags >> (32 + FLAGS) << FLAGS) as u32
}

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
    /// What is done with it is recorded (`session/trace.rs`). It is asked for together with other bits, so that who does not record pays nothing.
    pub(crate) const TRACED: u64 = 1 << 61;
    /// A large one of a pool of level `none`, in chunks of its own. Of our pools: nobody can write them once it is sent (`pool/large.rs`). Of
    /// another's: nobody can, and they stay where they are as long as it is held (`pool/pins.rs`). Such a one has [`LONG`](Tag::LONG), too.
    pub(crate) const SEALED: u64 = 1 << 62;

    /// A buffer of our own, with its size class, so that freeing it needs no look-up.
    #[inline(always)]
    pub(crate) fn own(slot: u32, class: u8, flags: u64) -> Tag {
        debug_assert!(slot <= SLOT_MASK);
        let rest = u32::from(class) | of_word(flags);
        Tag { slot, rest }
    }

    /// One of our own, with the place of its zone's caches, so that freeing it needs no look-up of that either. Without it freeing takes longer.
    #[inline(always)]
    pub(crate) fn with_place(self, place: CachePlace) -> Tag {
        debug_assert!(!self.has(Tag::FOREIGN));
        let rest = self.rest | u32::from(place.number()) << PLACE;
        Tag { rest, ..self }
    }

    /// A received buffer: slot and generation out of its id, whose bit fields have the same width.
    #[inline(always)]
    pub(crate) fn foreign(slot: u32, generation: u32, flags: u64) -> Tag {
        debug_assert!(slot <= SLOT_MASK && generation <= GENERATION_MASK);
        let rest = generation | of_word(Tag::FOREIGN | flags);
        Tag { slot, rest }
    }

    /// The same with these flags, too.
    pub(crate) fn with(self, flags: u64) -> Tag {
        let rest = self.rest | of_word(flags);
        Tag { rest, ..self }
    }

    #[inline(always)]
    pub(crate) fn has(self, flag: u64) -> bool {
        self.rest & of_word(flag) != 0
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        self.slot & SLOT_MASK
    }

    #[inline(always)]
    pub(crate) fn generation(self) -> u32 {
        self.rest & GENERATION_MASK
    }

    #[inline(always)]
    pub(crate) fn class(self) -> u8 {
        self.rest.to_le_bytes()[0]
    }

    #[inline(always)]
    pub(crate) fn place(self) -> CachePlace {
        CachePlace::numbered(self.rest.to_le_bytes()[1])
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
                assert_eq!((tag.slot(), tag.generation()), (slot, generation));
                assert!(tag.has(Tag::FOREIGN) && tag.has(Tag::TRUSTED));
            }
            for class in [0, 1, 255] {
                let tag = Tag::own(slot, class, Tag::TRUSTED);
                assert_eq!((tag.slot(), tag.class()), (slot, class));
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
