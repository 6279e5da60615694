//! Kinds 4 and 5: how often each slot was sent into a queue, or received out of it. `sent` is written by the
//! source, `rcvd` by the sink; the pool's writer and the manager read.

use super::header::{Kind, Says};
use super::{CreateError, LoadU32, OpenError, SLOT_LIMIT, check_count, rounded};
use crate::{RoMapping, RwMapping};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

const COUNTS: usize = 64;

/// The direction of a counter page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Sent,
    Rcvd,
}

/// Returns the length of the object, bytes.
pub fn len(slots: u32) -> usize {
    rounded(COUNTS, size_of::<AtomicU32>(), slots)
}

fn says(way: Way, slots: u32) -> Says {
    Says {
        kind: match way {
            Way::Sent => Kind::Sent,
            Way::Rcvd => Kind::Rcvd,
        },
        count: slots,
        extra: [0; 2],
    }
}

/// The counting side: it writes.
#[derive(Debug)]
pub struct CountsRw {
    counts: NonNull<AtomicU32>,
    count: u32,
    map: RwMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for CountsRw {}
// SAFETY: as for Send.
unsafe impl Sync for CountsRw {}

impl CountsRw {
    /// Makes a counter page, all 0.
    pub fn create(way: Way, slots: u32) -> Result<(OwnedFd, CountsRw), CreateError> {
        check_count("slots", slots, 1, SLOT_LIMIT)?;
        let (fd, map) = says(way, slots).create(len(slots), |_| {})?;
        let counts = CountsRw {
            counts: map.array(COUNTS, slots as usize),
            count: slots,
            map,
        };
        Ok((fd, counts))
    }

    /// Returns all counters.
    #[inline]
    pub fn counts(&self) -> &[AtomicU32] {
        // SAFETY: the count was checked against the length; atomics; mapped as long as `self`.
        unsafe { std::slice::from_raw_parts(self.counts.as_ptr(), self.count as usize) }
    }

    /// Returns the counter of a slot.
    #[inline]
    pub fn get(&self, i: u32) -> Option<&AtomicU32> {
        self.counts().get(i as usize)
    }

    /// Returns the memory.
    pub fn mapping(&self) -> &RwMapping {
        &self.map
    }
}

/// The side of the pool's writer and of the manager: they read.
#[derive(Debug)]
pub struct CountsRo {
    counts: NonNull<AtomicU32>,
    count: u32,
    map: RoMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for CountsRo {}
// SAFETY: as for Send.
unsafe impl Sync for CountsRo {}

impl CountsRo {
    /// Maps a counter page, and checks it against the agreed values.
    pub fn open(fd: impl AsFd, way: Way, slots: u32) -> Result<CountsRo, OpenError> {
        check_count("slots", slots, 1, SLOT_LIMIT)?;
        let map = says(way, slots).open(fd, len(slots))?;
        Ok(CountsRo {
            counts: map.array(COUNTS, slots as usize),
            count: slots,
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
        (i < self.count).then(|| LoadU32::new(unsafe { self.counts.add(i as usize).as_ref() }))
    }

    /// Returns the address of the first of [`CountsRo::count`] words, for loops. Mapped read-only: relaxed loads and
    /// fences only.
    #[inline]
    pub fn counts_ptr(&self) -> *const AtomicU32 {
        self.counts.as_ptr()
    }

    /// Returns the memory.
    pub fn mapping(&self) -> &RoMapping {
        &self.map
    }
}
