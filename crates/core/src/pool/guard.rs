//! Pools of level `half`: each domain takes away from itself what it is not to do with a buffer at the moment, so that its own
//! mistakes fault. What keeps a domain out is its own mapping, not the kernel's seals: see `docs/threat-model.md`.
//!
//! Each buffer has whole pages. Protecting some of a chunk's pages makes mappings, of which the kernel gives only so many; they are
//! set aside when the pool is made, or opened. Where it gives none after all, the whole chunks are opened instead: that
//! needs none, and only mistakes go unnoticed.

use crate::error::Violation;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tranship_proto::CbufId;
use tranship_region::{Mappings, NoMappings, Window, WindowError};
use tranship_sys::map::Access;
use tranship_zone::PAGE;

/// What is held here of another's pool, and the mappings that are set aside for it.
#[derive(Debug)]
pub(crate) struct Guard {
    held: Mutex<Held>,
    _mappings: Mappings,
}

/// Places of buffers: window offset and length, whole pages.
#[derive(Debug, Default)]
struct Held {
    by_slot: HashMap<u32, (u64, u64)>,
    by_offset: BTreeMap<u64, u64>,
}

/// Those of so many buffers in so many chunks.
pub(crate) fn mappings(slots: u32, chunks: u64) -> Result<Mappings, NoMappings> {
    Mappings::take(u64::from(slots).saturating_add(chunks))
}

impl Held {
    /// Whether no page of it is another buffer's.
    fn is_free(&self, offset: u64, length: u64) -> bool {
        let before = self.by_offset.range(..offset + length).next_back();
        before.is_none_or(|(other, other_length)| other + other_length <= offset)
    }
}

impl Guard {
    /// For so many buffers in so many chunks.
    pub(crate) fn new(slots: u32, chunks: u64) -> Result<Guard, NoMappings> {
        Ok(Guard {
            held: Mutex::default(),
            _mappings: mappings(slots, chunks)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps a chunk: nothing of it can be read until a buffer of it is held. Of an honest writer nothing is held where a chunk is
    /// new. What a liar made us keep must not fault for a moment: then all of the chunk can be read, from the start.
    pub(crate) fn attach(
        &self,
        window: &Window,
        index: u32,
        chunk_bytes: u64,
        fd: &OwnedFd,
    ) -> Result<(), WindowError> {
        let held = self.lock();
        let access = match held.is_free(u64::from(index) * chunk_bytes, chunk_bytes) {
            true => Access::None,
            false => Access::Read,
        };
        window.attach_shared(index, fd, access)
    }

    /// A reference to a buffer of another's pool: `raise` counts it, and then `place` says where its writer says that the buffer
    /// lies. Its pages can be read from here on.
    ///
    /// A liar that says that two buffers share a page would make one's release take the other away: it is refused. The
    /// reference stays counted then.
    pub(crate) fn hold(
        &self,
        window: &Window,
        (id, offset, length): (CbufId, u64, u64),
        raise: impl FnOnce(),
        place: impl FnOnce() -> Option<(u64, u64)>,
    ) -> Result<(), Violation> {
        let elsewhere = Violation::Elsewhere { id, offset, length };
        let mut held = self.lock();
        raise();
        let inside = |place: &(u64, u64)| {
            let begin = offset.checked_sub(place.0);
            let end = begin.and_then(|at| at.checked_add(length));
            end.is_some_and(|end| end <= place.1)
        };
        if let Some(known) = held.by_slot.get(&id.slot()) {
            return inside(known).then_some(()).ok_or(elsewhere);
        }
        let max = window.max_bytes() as u64;
        let sound = |(at, bytes): &(u64, u64)| {
            let end = at.checked_add(*bytes);
            *bytes > 0
                && (at | bytes).is_multiple_of(PAGE)
                && end.is_some_and(|end| end <= max)
                && inside(&(*at, *bytes))
        };
        let Some((at, bytes)) = place().filter(sound) else {
            return Err(elsewhere);
        };
        if !held.is_free(at, bytes) {
            return Err(elsewhere);
        }
        held.by_slot.insert(id.slot(), (at, bytes));
        held.by_offset.insert(at, bytes);
        window.open(at, bytes, Access::Read);
        Ok(())
    }

    /// A reference goes, by `lower`. If it is the last, the pages go first.
    pub(crate) fn let_go(
        &self,
        window: &Window,
        slot: u32,
        is_last: impl FnOnce() -> bool,
        lower: impl FnOnce(),
    ) {
        let mut held = self.lock();
        if is_last()
            && let Some((at, bytes)) = held.by_slot.remove(&slot)
        {
            held.by_offset.remove(&at);
            // SAFETY: the last reference goes, and with it the last handle; no other buffer that is held has one of these pages.
            unsafe { window.close(at, bytes, Access::None) };
        }
        lower();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Of a liar's buffers none takes a page from under another one, or from somewhere else.
    #[test]
    fn a_place_that_cannot_be_is_refused() {
        let window = Window::reserve(4 << 16, 1 << 16).expect("a window");
        let guard = Guard::new(8, 4).expect("few");
        let hold = |slot, offset, length, place| {
            let counted = Cell::new(false);
            let id = CbufId::new(tranship_proto::PoolId(1), slot, 2);
            let held = guard.hold(
                &window,
                (id, offset, length),
                || counted.set(true),
                || Some(place),
            );
            assert!(counted.get());
            held.is_ok()
        };
        assert!(hold(1, 4096, 10, (4096, 8192)));
        // A part of it, whatever is said of its place by now; not more than it.
        assert!(hold(1, 12000, 288, (0, 4096)));
        assert!(!hold(1, 12000, 289, (0, 1 << 16)));
        let wrong = [
            (8192, 10, (8192, 4096)),
            (0, 10, (0, 8192)),
            (0, 10, (0, 1 << 16)),
            (16384, 10, (16384, 100)),
            (16400, 10, (16400, 4096)),
            (16384, 10, (20480, 4096)),
            (16384, 5000, (16384, 4096)),
            (16384, 0, (16384, 0)),
            (16384, 10, (16384, 1 << 20)),
            (16384, 10, (16384, u64::MAX - 4095)),
        ];
        for (offset, length, place) in wrong {
            assert!(!hold(2, offset, length, place), "{offset} {place:?}");
        }
        assert!(hold(2, 0, 4096, (0, 4096)) && hold(3, 12288, 1, (12288, 4096)));
        assert!(!guard.lock().is_free(0, 1 << 16) && guard.lock().is_free(1 << 16, 1 << 16));
        for slot in 1..4 {
            guard.let_go(&window, slot, || true, || {});
        }
        assert!(guard.lock().is_free(0, 1 << 16));
    }
}
