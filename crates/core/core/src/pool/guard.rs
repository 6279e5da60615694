//! Pools of level `half`: each domain takes from its own mapping the rights that a buffer's state forbids, so that its
//! mistakes fault. The kernel's seals do not forbid them: see `docs/threat-model.md`.
//!
//! Each buffer has whole pages. Protecting some of a chunk's pages makes mappings, of which the kernel gives only so
//! many; they are set aside when the pool is made, or opened. If the kernel gives none after all, the whole chunks are
//! opened instead: this needs no mapping, and only mistakes go unnoticed.

use crate::error::Violation;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tranship_proto::BufferId;
use tranship_region::{Mappings, NoMappings, Window, WindowError};
use tranship_sys::map::Access;
use tranship_zone::PAGE;

/// Buffers of a foreign pool that this domain holds, and the mappings set aside for them.
#[derive(Debug)]
pub(crate) struct Guard {
    held: Mutex<Held>,
    _mappings: Mappings,
}

/// Places of buffers: window offset and length, whole pages.
#[derive(Debug, Default)]
struct Held {
    by_slot: HashMap<u32, Guarded>,
    by_offset: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Guarded {
    offset: u64,
    bytes: u64,
    /// Handles that may write the buffer. An honest writer's buffer has at most one.
    writers: u32,
}

/// Sets aside the mappings for `slots` buffers in `chunks` chunks.
pub(crate) fn mappings(slots: u32, chunks: u64) -> Result<Mappings, NoMappings> {
    Mappings::take(u64::from(slots).saturating_add(chunks))
}

impl Held {
    /// Whether no page of these bytes is another buffer's.
    fn is_free(&self, offset: u64, length: u64) -> bool {
        let before = self.by_offset.range(..offset + length).next_back();
        before.is_none_or(|(other, other_length)| other + other_length <= offset)
    }

    /// Takes the right to write from a handle of a slot's buffer that other handles still hold.
    fn end_writing(&mut self, window: &Window, slot: u32) {
        if let Some(place) = self.by_slot.get_mut(&slot) {
            place.writers = place.writers.saturating_sub(1);
            if place.writers == 0 {
                // SAFETY: no handle is left that may write it, and no other buffer that is held has one of these pages.
                unsafe { window.close(place.offset, place.bytes, Access::Read) };
            }
        }
    }
}

impl Guard {
    /// Makes a guard for `slots` buffers in `chunks` chunks.
    pub(crate) fn new(slots: u32, chunks: u64) -> Result<Guard, NoMappings> {
        Ok(Guard {
            held: Mutex::default(),
            _mappings: mappings(slots, chunks)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps a chunk: nothing of it can be read until a buffer of it is held. An honest writer has no held buffer at the
    /// place of a new chunk. A buffer that a liar made this domain keep must not fault for a moment: then all of the
    /// chunk can be touched from the start.
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
            false => Access::ReadWrite,
        };
        window.attach_shared(index, fd, access)
    }

    /// Takes a reference to a buffer of a foreign pool: `raise` counts it, and then `place` returns the place that the
    /// writer names. The buffer's pages can be read from here on, or also written, as `access` says.
    ///
    /// A liar could name two buffers that share a page, so that the release of one closes the other: this is refused.
    /// The reference stays counted then.
    pub(crate) fn hold(
        &self,
        window: &Window,
        (id, offset, length): (BufferId, u64, u64),
        access: Access,
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
        let writers = u32::from(access == Access::ReadWrite);
        if let Some(known) = held.by_slot.get_mut(&id.slot()) {
            if !inside(&(known.offset, known.bytes)) {
                return Err(elsewhere);
            }
            if known.writers == 0 && writers > 0 {
                window.open(known.offset, known.bytes, access);
            }
            known.writers += writers;
            return Ok(());
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
        let place = Guarded {
            offset: at,
            bytes,
            writers,
        };
        held.by_slot.insert(id.slot(), place);
        held.by_offset.insert(at, bytes);
        window.open(at, bytes, access);
        Ok(())
    }

    /// Takes the right to write from a handle.
    pub(crate) fn end_writing(&self, window: &Window, slot: u32) {
        self.lock().end_writing(window, slot);
    }

    /// Lets a reference with that access go by calling `lower`. If it is the last one, its pages are closed first.
    pub(crate) fn let_go(
        &self,
        window: &Window,
        slot: u32,
        access: Access,
        is_last: impl FnOnce() -> bool,
        lower: impl FnOnce(),
    ) {
        let mut held = self.lock();
        if is_last() {
            if let Some(Guarded { offset, bytes, .. }) = held.by_slot.remove(&slot) {
                held.by_offset.remove(&offset);
                // SAFETY: the last reference goes, and with it the last handle; no other buffer that is held has one of these pages.
                unsafe { window.close(offset, bytes, Access::None) };
            }
        } else if access == Access::ReadWrite {
            held.end_writing(window, slot);
        }
        lower();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tranship_region::{Opts, Sealing, make};
    use tranship_testkit::probe::{Access as Can, Probe};

    /// No buffer of a liar takes a page of another buffer, or of another place.
    #[test]
    fn a_place_that_cannot_be_is_refused() {
        let window = Window::reserve(4 << 16, 1 << 16).expect("a window");
        let guard = Guard::new(8, 4).expect("few");
        let hold = |slot, offset, length, place| {
            let counted = Cell::new(false);
            let id = BufferId::new(tranship_proto::PoolId(1), slot, 2);
            let held = guard.hold(
                &window,
                (id, offset, length),
                Access::Read,
                || counted.set(true),
                || Some(place),
            );
            assert!(counted.get());
            held.is_ok()
        };
        assert!(hold(1, 4096, 10, (4096, 8192)));
        // A part of the held buffer is allowed whatever place is named now; more than that is not.
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
            guard.let_go(&window, slot, Access::Read, || true, || {});
        }
        assert!(guard.lock().is_free(0, 1 << 16));
    }

    /// Pages can be written as long as one handle may write them. This holds also if a liar moves a buffer that this
    /// domain has already, and one of the two handles is frozen.
    #[test]
    fn the_last_writer_takes_writing_along() {
        let window = Window::reserve(4 << 16, 1 << 16).expect("a window");
        let opts = Opts {
            sealing: Sealing::Shared,
            ..Opts::default()
        };
        let (chunk, _) = make("chunk", 1 << 16, opts).expect("a chunk");
        let guard = Guard::new(8, 4).expect("few");
        guard.attach(&window, 0, 1 << 16, &chunk).expect("attached");
        let probe = Probe::new();
        let can = || probe.touch(window.base().wrapping_add(4096).expose_provenance());
        let hold = |access| {
            let id = BufferId::new(tranship_proto::PoolId(1), 1, 2);
            let held = guard.hold(
                &window,
                (id, 4096, 10),
                access,
                || {},
                || Some((4096, 4096)),
            );
            held.expect("a good place");
        };
        let let_go = |access, last| guard.let_go(&window, 1, access, || last, || {});
        assert_eq!(can(), Can::None);
        hold(Access::Read);
        assert_eq!(can(), Can::Read);
        hold(Access::ReadWrite);
        hold(Access::ReadWrite);
        assert_eq!(can(), Can::ReadWrite);
        guard.end_writing(&window, 1);
        assert_eq!(can(), Can::ReadWrite);
        let_go(Access::ReadWrite, false);
        assert_eq!(can(), Can::Read);
        let_go(Access::Read, false);
        assert_eq!(can(), Can::Read);
        let_go(Access::Read, true);
        assert_eq!(can(), Can::None);
        hold(Access::ReadWrite);
        assert_eq!(can(), Can::ReadWrite);
        let_go(Access::ReadWrite, true);
        assert_eq!(can(), Can::None);
    }
}
