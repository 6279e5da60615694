//! Handing out buffers of the pool's memory: a slot of a zone, or a run of its own, with the handle's words.

use super::memory::Memory;
use super::raw::RawBuf;
use super::short::Kind;
use super::slots::HUGE;
use super::tag::Tag;

impl Memory {
    #[inline(always)]
    pub(super) fn hand_out(&self, slot: u32, kind: Kind, len: usize) -> RawBuf {
        let (class, place) = (kind.class, kind.place);
        let tag = Tag::own(slot, class, self.flags());
        if tag.has(Tag::LONG | Tag::TRACED) {
            self.hand_out_long(slot, len);
        }
        // Cut out of an attached chunk, at least `len` long by its class, which is one of the pool's; it stays outstanding until its handle is gone.
        let ptr = self.chunks.at(self.slots.private(slot).offset());
        RawBuf {
            ptr,
            len,
            place,
            tag,
        }
    }

    /// Hands out a buffer in a run of its own, with these flags besides.
    pub(super) fn hand_out_huge(&self, slot: u32, len: usize, flags: u32) -> RawBuf {
        self.hand_out_long(slot, len);
        RawBuf {
            ptr: self.chunks.at(self.slots.private(slot).offset()),
            len,
            place: self.sizes.place_of_class(HUGE),
            tag: Tag::own(slot, HUGE, flags | Tag::LONG),
        }
    }

    /// Takes a buffer out of the zone of its class, which imports items if it has none.
    pub(super) fn take(&self, kind: Kind, len: usize) -> Option<RawBuf> {
        let slot = self.zones[usize::from(kind.class)].alloc();
        slot.map(|slot| self.hand_out(slot, kind, len))
    }

    /// Takes a buffer with a run of its own.
    pub(super) fn take_huge(&self, len: usize) -> Option<RawBuf> {
        let slot = self.alloc_huge(len)?;
        Some(self.hand_out_huge(slot, len, self.flags()))
    }
}
