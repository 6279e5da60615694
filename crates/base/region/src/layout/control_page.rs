//! Kind 8: the control page on which the manager tells one client epochs and quotas.

use super::header::{Kind, Says};
use super::{CreateError, LoadU32, LoadU64, OpenError, check_count, rounded};
use crate::{RoMapping, RwMapping};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most entries of a control page.
pub const MAX_ENTRIES: u32 = 1 << 16;
const WAKE: usize = 64;
const INSTANCE: usize = 72;
const SCHEDULED: usize = 80;
const ENTRIES: usize = 4096;

/// The manager's words about one pool.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    /// The epoch of the reader set: the collector runs only while it has mapped this epoch.
    pub epoch: AtomicU64,
    /// Bytes of chunks that the pool may have.
    pub quota: AtomicU64,
    /// The pool's id; 0: the entry is not used.
    pub pool: AtomicU64,
    zero: u64,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// Returns the length of the object, bytes.
pub fn len(entries: u32) -> usize {
    rounded(ENTRIES, size_of::<Entry>(), entries)
}

fn says(entries: u32) -> Says {
    Says {
        kind: Kind::ControlPage,
        count: entries,
        extra: [0; 2],
    }
}

/// The manager's side.
#[derive(Debug)]
pub struct ControlPageRw {
    entries: NonNull<Entry>,
    count: u32,
    wake: NonNull<AtomicU32>,
    map: RwMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for ControlPageRw {}
// SAFETY: as for Send.
unsafe impl Sync for ControlPageRw {}

impl ControlPageRw {
    /// Makes a control page; `instance` is the manager's random number.
    pub fn create(entries: u32, instance: u64) -> Result<(OwnedFd, ControlPageRw), CreateError> {
        check_count("control page entries", entries, 1, MAX_ENTRIES)?;
        let (fd, map) = says(entries).create(len(entries), |map| {
            // SAFETY: in bounds and aligned, as `at` checked; no other process or thread has been shown it yet.
            unsafe { map.at::<u64>(INSTANCE).as_ptr().write(instance) };
        })?;
        let control_page = ControlPageRw {
            entries: map.array(ENTRIES, entries as usize),
            count: entries,
            wake: map.at(WAKE),
            map,
        };
        Ok((fd, control_page))
    }

    /// Returns all entries.
    #[inline]
    pub fn entries(&self) -> &[Entry] {
        // SAFETY: the count was checked against the length; atomics (`zero` is never written); mapped as long as
        // `self`.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr(), self.count as usize) }
    }

    /// Returns the entry of the client's i-th pool.
    #[inline]
    pub fn entry(&self, i: u32) -> Option<&Entry> {
        self.entries().get(i as usize)
    }

    /// Says that quotas change without a request, so that a size which does not fit now may fit later. The manager sets
    /// this before it shows the control page, or as soon as quotas begin to change.
    pub fn set_scheduled(&self) {
        // SAFETY: an atomic in the mapping.
        unsafe { self.map.at::<AtomicU32>(SCHEDULED).as_ref() }.store(1, Ordering::Relaxed);
    }

    /// Returns the word that rises whenever an event was queued for the client.
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

/// The client's side.
#[derive(Debug)]
pub struct ControlPageRo {
    entries: NonNull<Entry>,
    count: u32,
    wake: NonNull<AtomicU32>,
    instance: AtomicU64,
    map: RoMapping,
}

// SAFETY: pointers to atomics inside `map`, which lives as long.
unsafe impl Send for ControlPageRo {}
// SAFETY: as for Send.
unsafe impl Sync for ControlPageRo {}

impl ControlPageRo {
    /// Maps a control page, and checks it against the agreed values.
    pub fn open(fd: impl AsFd, entries: u32, instance: u64) -> Result<ControlPageRo, OpenError> {
        check_count("control page entries", entries, 1, MAX_ENTRIES)?;
        let map = says(entries).open(fd, len(entries))?;
        let found = map.view().read::<u64>(INSTANCE).unwrap_or(!instance);
        if found != instance {
            return Err(OpenError::Header {
                field: "instance",
                found,
                expected: instance,
            });
        }
        Ok(ControlPageRo {
            entries: map.array(ENTRIES, entries as usize),
            count: entries,
            wake: map.at(WAKE),
            instance: AtomicU64::new(instance),
            map,
        })
    }

    /// Returns the number of entries.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Says whether quotas change without a request.
    pub fn is_scheduled(&self) -> bool {
        // SAFETY: an atomic in the mapping.
        let word = LoadU32::new(unsafe { self.map.at::<AtomicU32>(SCHEDULED).as_ref() });
        word.load(Ordering::Relaxed) != 0
    }

    /// Returns the manager's random number.
    #[inline]
    pub fn instance(&self) -> u64 {
        self.instance.load(Ordering::Relaxed)
    }

    /// Replaces the mapping by another manager's control page, at the same addresses. A thread that reads meanwhile
    /// sees one page or the other. Returns the new page if its size differs.
    pub fn show_instead(&self, new: ControlPageRo) -> Result<(), ControlPageRo> {
        let ControlPageRo {
            entries,
            count,
            wake,
            instance,
            map,
        } = new;
        match self.map.show_instead(map) {
            Ok(()) => {
                self.instance
                    .store(instance.into_inner(), Ordering::Relaxed);
                Ok(())
            }
            Err(map) => Err(ControlPageRo {
                entries,
                count,
                wake,
                instance,
                map,
            }),
        }
    }

    #[inline]
    fn entry(&self, i: u32) -> Option<&Entry> {
        // SAFETY: below the count that was checked against the length; atomics; mapped as long as `self`.
        (i < self.count).then(|| unsafe { self.entries.add(i as usize).as_ref() })
    }

    /// Returns the reader set's epoch of the i-th pool.
    #[inline]
    pub fn epoch(&self, i: u32) -> Option<LoadU64<'_>> {
        self.entry(i).map(|entry| LoadU64::new(&entry.epoch))
    }

    /// Returns the quota of the i-th pool, bytes.
    #[inline]
    pub fn quota(&self, i: u32) -> Option<LoadU64<'_>> {
        self.entry(i).map(|entry| LoadU64::new(&entry.quota))
    }

    /// Returns the id of the i-th pool; 0: not used.
    #[inline]
    pub fn pool(&self, i: u32) -> Option<LoadU64<'_>> {
        self.entry(i).map(|entry| LoadU64::new(&entry.pool))
    }

    /// Returns the word that rises whenever the manager has queued an event for this client.
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
