//! Buffers of one's own that change hands the long way: their pages change what can be done with them then (level `half`), or what is done with
//! them is noted, or recorded.

use super::own::OwnPool;
use super::tag::Tag;
use crate::domain::Subject;
use std::sync::atomic::Ordering;
use tranship_region::layout::trace::What;
use tranship_sys::map::Access;

impl OwnPool {
    /// A buffer that goes the long way is handed out.
    #[cold]
    pub(super) fn hand_out_long(&self, slot: u32, len: usize) {
        if let Some(notes) = &self.domain.leaks {
            notes.got(self.id, slot, None);
        }
        if self.is_guarded() {
            self.open_slot(slot);
            let beyond = self.capacity_of(slot).saturating_sub(len as u64);
            self.set_padding(slot, u32::try_from(beyond).unwrap_or(u32::MAX));
        }
        if self.flags() & Tag::TRACED != 0 {
            let mut subject = self.subject(slot);
            subject.length = len as u64;
            self.domain.note(What::Allocated, subject);
        }
    }

    /// At level `half`: so many bytes of the slot's pages are beyond what was asked for.
    pub(super) fn set_padding(&self, slot: u32, bytes: u32) {
        let before = self.private(slot).pad(bytes);
        let sum = &self.counters.padding_bytes;
        // Relaxed: statistics. Of each slot what was added is what is taken away.
        if before != bytes {
            sum.fetch_add(bytes.into(), Ordering::Relaxed);
            sum.fetch_sub(before.into(), Ordering::Relaxed);
        }
    }

    fn subject(&self, slot: u32) -> Subject {
        Subject {
            id: self.id_of(slot),
            offset: self.private(slot).offset(),
            length: self.capacity_of(slot),
        }
    }

    /// A handle of a traced buffer goes.
    #[cold]
    pub(crate) fn note_release(&self, slot: u32) {
        if !self.fork.is_child() {
            self.domain.note(What::Released, self.subject(slot));
        }
    }

    /// At level `half`: the slot's pages can be written here.
    #[cold]
    pub(crate) fn open_slot(&self, slot: u32) {
        let private = self.private(slot);
        // Relaxed: whoever has the slot to himself got it through a lock or a handle passed on.
        if !private.open.swap(true, Ordering::Relaxed) {
            let bytes = self.entry(slot).length.load(Ordering::Relaxed);
            self.window.open(private.offset(), bytes, Access::ReadWrite);
        }
    }

    /// At level `half`: they can only be read, or not even that.
    #[cold]
    pub(crate) fn close_slot(&self, slot: u32, left: Access) {
        let private = self.private(slot);
        private.open.store(false, Ordering::Relaxed);
        let bytes = self.entry(slot).length.load(Ordering::Relaxed);
        // SAFETY: the pages are the slot's alone, and a buffer that is frozen is written by nobody here, and one that is about to be moved
        // is read by nobody either.
        unsafe { self.window.close(private.offset(), bytes, left) };
    }

    /// A frozen buffer becomes a writable one again, which nobody else ever knew.
    #[cold]
    pub(crate) fn open_again(&self, slot: u32) {
        if let Some(notes) = &self.domain.leaks {
            notes.set_frozen(self.id, slot, false);
        }
        if self.is_guarded() {
            self.open_slot(slot);
        }
    }

    /// A writable buffer that goes the long way is frozen. Its tag from here on.
    pub(crate) fn freeze_long(&self, tag: Tag) -> Tag {
        let slot = tag.slot();
        if let Some(notes) = &self.domain.leaks {
            notes.set_frozen(self.id, slot, true);
        }
        if tag.has(Tag::MOVED) {
            return Tag::own(slot, self.private(slot).class(), self.flags());
        }
        if self.is_guarded() {
            self.close_slot(slot, Access::Read);
        }
        self.begin_sharing(slot);
        tag
    }

    /// A writable buffer that goes the long way goes.
    pub(crate) fn release_long(&self, tag: Tag) {
        let (slot, class) = (tag.slot(), tag.class());
        if let Some(notes) = &self.domain.leaks {
            notes.gone(self.id, slot);
        }
        if tag.has(Tag::TRACED) {
            self.note_release(slot);
        }
        if tag.has(Tag::MOVED) {
            return self.release(slot, self.private(slot).class());
        }
        match self.zones.get(usize::from(class)) {
            Some(zone) if zone.free_cached(slot) => {}
            zone => self.free_uncached(zone, slot),
        }
    }

    /// At level `half`: the caller's writable buffer is about to be moved, for the first time, so that nobody here has to do with its pages.
    #[cold]
    pub(crate) fn take_away(&self, slot: u32) {
        if let Some(notes) = &self.domain.leaks {
            notes.gone(self.id, slot);
        }
        if self.is_guarded() {
            self.close_slot(slot, Access::None);
        }
    }
}
