//! A handle's data of its slot, in one word.
//!
//! Handles consist of whole words: a struct with bytes in it is written by parts and moved by wider loads, which the
//! processor cannot forward from the stores and holds up until they are all in the cache.

/// Slot, generation and flags. A buffer of our own has its class where others have the generation.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Tag {
    slot: u32,
    /// The flags in the upper bits; below them the generation, or the class.
    rest: u32,
}

/// The lowest bit of the flags, in the rest.
const FLAGS: u32 = 24;
const SLOT_MASK: u32 = (1 << 20) - 1;
const GENERATION_MASK: u32 = (1 << FLAGS) - 1;

const _: () = assert!(
    tranship_proto::SLOT_LIMIT == SLOT_MASK + 1 && tranship_ledger::generation::BITS <= FLAGS
);

impl Tag {
    /// The slot is of another domain's pool.
    pub(crate) const FOREIGN: u32 = 1 << 24;
    /// The bytes may be read as a slice.
    pub(crate) const TRUSTED: u32 = 1 << 25;
    /// The buffer changes hands the long way. Its pages change their rights then (level `half`), it is a writable one
    /// that is larger than a chunk, or a writable one that was [`MOVED`](Tag::MOVED) here. One bit, so that the short
    /// way asks once.
    pub(crate) const LONG: u32 = 1 << 26;
    /// The buffer was given away to this domain, so this handle can hand it back. Its clones cannot.
    pub(crate) const MOVED: u32 = 1 << 27;
    /// The bytes of a writable buffer may be written as a slice.
    pub(crate) const SLICE_MUT: u32 = 1 << 28;
    /// Operations on the buffer are recorded (`session/trace.rs`). The bit is tested together with others, so that it
    /// costs nothing while nothing is recorded.
    pub(crate) const TRACED: u32 = 1 << 29;
    /// The buffer is a large one of a pool of level `none`, in chunks of its own. Once it is sent no process can write
    /// them (`pool/large.rs`). Those of a foreign pool stay where they are as long as the buffer is held
    /// (`pool/pins.rs`). Such a tag has [`LONG`](Tag::LONG), too.
    pub(crate) const SEALED: u32 = 1 << 30;

    /// A buffer of our own, with its size class, so that freeing it needs no look-up.
    #[inline(always)]
    pub(crate) fn own(slot: u32, class: u8, flags: u32) -> Tag {
        debug_assert!(slot <= SLOT_MASK && flags & (GENERATION_MASK | Tag::FOREIGN) == 0);
        let rest = u32::from(class) | flags;
        Tag { slot, rest }
    }

    /// A received buffer: slot and generation out of its id, whose bit fields have the same width.
    #[inline(always)]
    pub(crate) fn foreign(slot: u32, generation: u32, flags: u32) -> Tag {
        debug_assert!(slot <= SLOT_MASK && generation <= GENERATION_MASK);
        let rest = generation | Tag::FOREIGN | flags;
        Tag { slot, rest }
    }

    /// Returns the tag with these flags, too.
    pub(crate) fn with(self, flags: u32) -> Tag {
        let rest = self.rest | flags;
        Tag { rest, ..self }
    }

    /// Returns the tag without these flags.
    #[inline(always)]
    pub(crate) fn without(self, flags: u32) -> Tag {
        let rest = self.rest & !flags;
        Tag { rest, ..self }
    }

    #[inline(always)]
    pub(crate) fn has(self, flag: u32) -> bool {
        self.rest & flag != 0
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
}

#[cfg(test)]
mod tests {
    use super::Tag;

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
            }
        }
    }
}
