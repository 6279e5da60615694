//! Kind 3: the references of one reading domain. That domain writes them; the pool's writer and the manager read them.

use super::header::{Kind, Says};
use super::{CreateError, LoadU32, OpenError, SLOT_LIMIT, check_count, rounded};
use crate::{RoMapping, RwMapping};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

const WAKE: usize = 64;
const REFS: usize = 128;

/// Returns the length of the object, bytes.
pub fn len(slots: u32) -> usize {
    rounded(REFS, size_of::<AtomicU32>(), slots)
}

fn says(slots: u32) -> Says {
    Says {
        kind: Kind::Refs,
        count: slots,
        extra: [0; 2],
    }
}

/// The reading domain's side: it writes.
#[derive(Debug)]
pub struct RefsRw {
    refs: NonNull<AtomicU32>,
    count: u32,
    wake: NonNull<AtomicU32>,
    map: RwMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for RefsRw {}
// SAFETY: as for Send.
unsafe impl Sync for RefsRw {}

impl RefsRw {
    /// Makes a reference page, all 0.
    pub fn create(slots: u32) -> Result<(OwnedFd, RefsRw), CreateError> {
        check_count("slots", slots, 1, SLOT_LIMIT)?;
        let (fd, map) = says(slots).create(len(slots), |_| {})?;
        let refs = RefsRw {
            refs: map.array(REFS, slots as usize),
            count: slots,
            wake: map.at(WAKE),
            map,
        };
        Ok((fd, refs))
    }

    /// Returns all counters.
    #[inline]
    pub fn refs(&self) -> &[AtomicU32] {
        // SAFETY: the count was checked against the length; atomics; mapped as long as `self`.
        unsafe { std::slice::from_raw_parts(self.refs.as_ptr(), self.count as usize) }
    }

    /// Returns the counter of a slot.
    #[inline]
    pub fn get(&self, i: u32) -> Option<&AtomicU32> {
        self.refs().get(i as usize)
    }

    /// Returns the futex word on which the pool's writer waits for releases.
    #[inline]
    pub fn wake(&self) -> &AtomicU32 {
        // SAFETY: an atomic in the mapping.
        unsafe { self.wake.as_ref() }
    }

    /// Returns the memory.
    pub fn mapping(&self) -> &RwMapping {
        &self.map
    }
}

/// The side of the pool's writer and of the manager: they read.
#[derive(Debug)]
pub struct RefsRo {
    refs: NonNull<AtomicU32>,
    count: u32,
    wake: NonNull<AtomicU32>,
    map: RoMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for RefsRo {}
// SAFETY: as for Send.
unsafe impl Sync for RefsRo {}

impl RefsRo {
    /// Maps a reference page, and checks it against the agreed values.
    pub fn open(fd: impl AsFd, slots: u32) -> Result<RefsRo, OpenError> {
        check_count("slots", slots, 1, SLOT_LIMIT)?;
        let map = says(slots).open(fd, len(slots))?;
        Ok(RefsRo {
            refs: map.array(REFS, slots as usize),
            count: slots,
            wake: map.at(WAKE),
            map,
        })
    }

    /// Returns the number of counters.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the counter of a slot.
    #[inline]
    pub fn get(&self, i: u32) -> Option<LoadU32<'_>> {
        // SAFETY: below the count that was checked against the length; an atomic; mapped as long as `self`.
        (i < self.count).then(|| LoadU32::new(unsafe { self.refs.add(i as usize).as_ref() }))
    }

    /// Returns the address of the first of [`RefsRo::count`] words, for loops. Mapped read-only: relaxed loads and
    /// fences only.
    #[inline]
    pub fn counts_ptr(&self) -> *const AtomicU32 {
        self.refs.as_ptr()
    }

    /// Returns the futex word on which to wait for releases.
    #[inline]
    pub fn wake(&self) -> LoadU32<'_> {
        // SAFETY: an atomic in the mapping.
        LoadU32::new(unsafe { self.wake.as_ref() })
    }

    /// Returns the address of the wake-up word.
    #[inline]
    pub fn wake_ptr(&self) -> *const AtomicU32 {
        self.wake.as_ptr()
    }

    /// Returns the memory.
    pub fn mapping(&self) -> &RoMapping {
        &self.map
    }
}
