//! Own buffers that change hands the long way: the rights to their pages change (level `half`), or operations on them
//! are noted or recorded.

use super::memory::Memory;
use super::tag::Tag;
use crate::domain::Subject;
use std::sync::atomic::Ordering;
use tranship_region::layout::trace::What;
use tranship_sys::map::Access;

impl Memory {
    /// Hands out a buffer that goes the long way.
    #[cold]
    pub(super) fn hand_out_long(&self, slot: u32, len: usize) {
        if let Some(notes) = &self.domain().leaks {
            notes.got(self.registration.id, slot, None);
        }
        if self.registration.is_guarded() {
            self.open_slot(slot);
            let beyond = self.slots.capacity_of(slot).saturating_sub(len as u64);
            self.slots
                .set_padding(slot, u32::try_from(beyond).unwrap_or(u32::MAX));
        }
        if self.flags() & Tag::TRACED != 0 {
            let mut subject = self.subject(slot);
            subject.length = len as u64;
            self.domain().note(What::Allocated, subject);
        }
    }

    fn subject(&self, slot: u32) -> Subject {
        Subject {
            id: self.id_of(slot),
            offset: self.slots.private(slot).offset(),
            length: self.slots.capacity_of(slot),
        }
    }

    /// Records the drop of a handle of a traced buffer.
    #[cold]
    pub(super) fn note_release(&self, slot: u32) {
        if !self.registration.fork.is_child() {
            self.domain().note(What::Released, self.subject(slot));
        }
    }

    /// Records the end of a writable buffer.
    pub(super) fn note_end(&self, tag: Tag) {
        if let Some(notes) = &self.domain().leaks {
            notes.gone(self.registration.id, tag.slot());
        }
        if tag.has(Tag::TRACED) {
            self.note_release(tag.slot());
        }
    }

    /// At level `half`: the slot's pages can be written here.
    #[cold]
    pub(super) fn open_slot(&self, slot: u32) {
        let private = self.slots.private(slot);
        // Relaxed: a thread that has the slot to itself got it through a lock or a handle passed on.
        if !private.open.swap(true, Ordering::Relaxed) {
            let bytes = self.slots.capacity_of(slot);
            self.chunks
                .window
                .open(private.offset(), bytes, Access::ReadWrite);
        }
    }

    /// At level `half`: leaves only the right `left` to the slot's pages.
    #[cold]
    pub(super) fn close_slot(&self, slot: u32, left: Access) {
        let private = self.slots.private(slot);
        private.open.store(false, Ordering::Relaxed);
        let bytes = self.slots.capacity_of(slot);
        // SAFETY: the pages are the slot's alone, and a buffer that is frozen is written by nobody here, and one that is about to be moved
        // is read by nobody either.
        unsafe { self.chunks.window.close(private.offset(), bytes, left) };
    }

    /// Makes a frozen buffer writable again, which no other domain ever knew.
    #[cold]
    pub(super) fn open_again(&self, slot: u32) {
        if let Some(notes) = &self.domain().leaks {
            notes.set_frozen(self.registration.id, slot, false);
        }
        if self.registration.is_guarded() {
            self.open_slot(slot);
        }
    }

    /// Freezes a writable buffer that goes the long way. Returns its tag from here on.
    pub(super) fn freeze_long(&self, tag: Tag) -> Tag {
        let slot = tag.slot();
        if let Some(notes) = &self.domain().leaks {
            notes.set_frozen(self.registration.id, slot, true);
        }
        if self.registration.is_guarded() {
            self.close_slot(slot, Access::Read);
        }
        self.slots.handles(slot).begin();
        tag
    }

    /// At level `half`: takes the rights to the pages of the caller's writable buffer, which is about to be moved for
    /// the first time.
    #[cold]
    pub(super) fn take_away(&self, slot: u32) {
        if let Some(notes) = &self.domain().leaks {
            notes.gone(self.registration.id, slot);
        }
        if self.registration.is_guarded() {
            self.close_slot(slot, Access::None);
        }
    }
}
