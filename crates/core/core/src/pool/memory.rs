//! Memory of a pool's buffers: an allocator over chunks that the manager grants. It does not know which buffers are
//! dead, nor which callers wait.
//!
//! Slots and their memory go from chunks to runs, slabs (`slabs.rs`) and zones, and back. `grow.rs` has the growth by
//! chunks, `large.rs` that of large buffers, `long.rs` the other work on buffers that go the long way.

use super::chunks::Chunks;
use super::class::Class;
use super::registration::Registration;
use super::resizing::Resizing;
use super::sizes::Sizes;
use super::slot_table::SlotTable;
use super::store::Store;
use super::tag::Tag;
use crate::base::lock;
use crate::domain::DomainCore;
use crate::error::{Error, TooLarge};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_ledger::{generation, want_releases};
use tranship_proto::BufferId;
use tranship_region::Mappings;
use tranship_zone::Zone;

/// The pool's memory.
pub(super) struct Memory {
    pub(super) registration: Registration,
    /// Flags of all handles: whether their bytes may be had as slices, and whether they are recorded.
    pub(super) flags: AtomicU32,
    pub(super) sizes: Sizes,
    pub(super) zones: Box<[Zone<Class>]>,
    pub(super) slots: SlotTable,
    pub(super) chunks: Chunks,
    pub(super) store: Mutex<Store>,
    /// Held while chunks are added or returned. Never waited for under the socket's lock.
    pub(super) resizing: Mutex<Resizing>,
    /// Held while a large buffer is sealed.
    pub(super) sealing: Mutex<()>,
    pub(super) returned: Returned,
    /// At level `half`: the mappings that it may need.
    pub(super) _mappings: Option<Mappings>,
}

/// Word that rises when memory came back inside this process, or the reader set changed.
#[derive(Debug, Default)]
pub(super) struct Returned(pub(super) AtomicU32);

impl Returned {
    pub(super) fn raise(&self) {
        // Ordering: what came back is there; partner: the acquire in `wait_in_queue`, before it looks.
        self.0.fetch_add(1, Ordering::Release);
        let _ = tranship_sys::futex::wake(&self.0, 1);
    }
}

impl Memory {
    #[inline(always)]
    pub(super) fn domain(&self) -> &DomainCore {
        &self.registration.domain
    }

    /// Returns the flags of handles of its buffers.
    #[inline(always)]
    pub(super) fn flags(&self) -> u32 {
        // Relaxed: all but one bit stay as they are, and that bit only switches the record.
        self.flags.load(Ordering::Relaxed)
    }

    /// Switches the record of operations on buffers that are allocated from now on.
    pub(super) fn set_traced(&self, on: bool) {
        match on {
            true => self.flags.fetch_or(Tag::TRACED, Ordering::Relaxed),
            false => self.flags.fetch_and(!Tag::TRACED, Ordering::Relaxed),
        };
    }

    /// Returns the id under which other domains know the slot's buffer, or will know it.
    #[inline(always)]
    pub(super) fn id_of(&self, slot: u32) -> BufferId {
        let generation = generation::published(self.slots.generation(slot));
        BufferId::new(self.registration.id, slot, generation)
    }

    /// Returns the number of contiguous pages that a buffer of this length needs, or a slab of such buffers.
    pub(super) fn pages_for(&self, len: usize) -> u32 {
        match self.sizes.kind_of(len) {
            Some(kind) => {
                lock(&self.store).kegs[usize::from(kind.class)]
                    .shape()
                    .pages
            }
            None => self.sizes.pages_of_run(len),
        }
    }

    /// Returns the bytes of chunks that a buffer of this length needs.
    pub(super) fn need_bytes(&self, len: usize) -> u64 {
        (len as u64)
            .max(1)
            .checked_next_multiple_of(self.chunks.chunk_bytes())
            .unwrap_or(u64::MAX)
    }

    /// Refuses a need that can never be met. Only the pool's maximum is for ever: a quota below the need may be another
    /// one later.
    pub(super) fn check_need(&self, need_bytes: u64) -> Result<(), Error> {
        let max_bytes = self.registration.max_bytes;
        if need_bytes > max_bytes {
            return Err(TooLarge {
                need_bytes,
                max_bytes,
            }
            .into());
        }
        Ok(())
    }

    pub(super) fn bytes_present(&self) -> u64 {
        self.chunks.bytes_of(lock(&self.store).runs.present())
    }

    /// Switches pressure: then freed memory is not cached, and readers tell of releases. Not under the lock of the
    /// slabs.
    pub(super) fn press(&self, wanted: bool) {
        self.zones.iter().for_each(|zone| zone.set_pressure(wanted));
        let relinquish = self.slots.shared.relinquish();
        if (relinquish.load(Ordering::Relaxed) != 0) != wanted {
            want_releases(relinquish, wanted);
        }
    }

    /// Moves the memory that threads have cached to the slabs.
    pub(super) fn drain_caches(&self) {
        for zone in &self.zones {
            if zone.stats().cached() > 0 {
                zone.drain(tranship_zone::Level::All);
            }
        }
    }
}
