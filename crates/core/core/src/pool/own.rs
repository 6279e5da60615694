//! An own pool: the writer's side.

use super::class::{Behind, Class};
use super::gc::Collector;
use super::memory::Memory;
use super::place::Place;
use super::raw::RawBuf;
use super::resizing::PERIODS;
use super::slots::HUGE;
use super::tag::Tag;
use super::waiters::Waiters;
use crate::base::lock;
use crate::domain::{DomainCore, Offer};
use crate::error::Error;
use crate::options::PoolOptions;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;
use tranship_ledger::{Handles, LetGo};
use tranship_proto::{BufferId, ChannelId, DomainId, PoolId, PoolShape, Trust};
use tranship_region::layout::RefsRo;
use tranship_sync::DeferProducer;
use tranship_zone::{CachePlace, Zone};

/// The writer's side of a pool: parts that own their data, each in files of its own. Code that needs several parts is
/// `impl OwnPool`. Aligned as handles need it.
#[repr(align(128))]
pub(crate) struct OwnPool {
    pub(super) memory: Memory,
    pub(super) collector: Collector,
    pub(super) waiters: Waiters,
    /// The most bytes of chunks that the manager wants the pool to have.
    pub(super) shrink_target: AtomicU64,
    pub(super) handles: AtomicU32,
    /// At level `none`: the domains that the pool was offered to.
    pub(super) offered: Mutex<Vec<DomainId>>,
    pub(super) me: Weak<OwnPool>,
}

impl Behind for OwnPool {
    fn import(&self, class: usize, out: &mut Vec<u32>, want: usize) {
        self.collector.import(&self.memory, class, out, want);
    }
    fn release(&self, items: &[u32]) {
        self.memory.to_kegs(items);
    }
    fn came_back(&self) {
        self.memory.returned.raise();
    }
}

/// Facts about the pool.
impl OwnPool {
    /// Returns the pool of that id, if it is this domain's.
    pub(crate) fn find(domain: &DomainCore, pool: PoolId) -> Option<Arc<OwnPool>> {
        domain.register.own_as(pool)
    }
    #[inline(always)]
    pub(crate) fn domain(&self) -> &DomainCore {
        self.memory.domain()
    }
    pub(crate) fn id(&self) -> PoolId {
        self.memory.registration.id
    }
    /// Returns the only channel of the pool's buffers, if the pool is a channel's own.
    pub(crate) fn only_over(&self) -> Option<ChannelId> {
        self.options().only_over
    }
    /// Records that a domain is offered the pool, and returns whether that is new. At level `none` a second domain is
    /// `None`, and not recorded, unless the program has `asked` for it.
    pub(crate) fn offered_to(&self, domain: DomainId, asked: bool) -> Option<bool> {
        if self.trust() != Trust::None {
            return Some(false);
        }
        let mut offered = lock(&self.offered);
        let is_new = !offered.contains(&domain);
        if is_new && !asked && !offered.is_empty() {
            return None;
        }
        offered.extend(is_new.then_some(domain));
        Some(is_new)
    }
    /// Records that a domain did not take the pool.
    pub(crate) fn not_taken_by(&self, domain: DomainId) {
        lock(&self.offered).retain(|offered| *offered != domain);
    }
    pub(super) fn options(&self) -> &PoolOptions {
        &self.memory.registration.options
    }
    pub(crate) fn max_bytes(&self) -> u64 {
        self.memory.registration.max_bytes
    }
    pub(crate) fn shape(&self) -> PoolShape {
        PoolShape {
            max_bytes: self.max_bytes(),
            slots: self.slot_count(),
            chunk_bytes: self.chunk_bytes(),
            trust: self.trust(),
        }
    }
    pub(crate) fn trust(&self) -> Trust {
        self.options().trust
    }
    pub(crate) fn offer(&self) -> Offer {
        Offer::new(self.id(), self.domain().id(), self.shape())
    }
    pub(crate) fn slot_count(&self) -> u32 {
        self.memory.slots.count()
    }
    pub(crate) fn arc(&self) -> Option<Arc<OwnPool>> {
        self.me.upgrade()
    }
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.memory.chunks.chunk_bytes()
    }
    pub(crate) fn quota_bytes(&self) -> u64 {
        self.memory.registration.quota_bytes()
    }
    pub(super) fn say_use(&self) {
        let words = self.memory.slots.shared.figures();
        self.waiters.say(words);
        self.memory.say_use(words);
    }
    /// Reports all figures, once a period. `peaks`: the most chunks in use in each of the last periods.
    pub(super) fn say_figures(&self, peaks: &[u32; PERIODS]) {
        let words = self.memory.slots.shared.figures();
        self.waiters.say(words);
        self.collector.say(words);
        // Not under both locks: a collecting thread takes them the other way round.
        self.memory.say(words, peaks, &self.collector.ready());
    }
}

/// Slots and their buffers, for the layers above.
impl OwnPool {
    #[inline(always)]
    pub(crate) fn place_of(&self, slot: u32) -> Place<'_> {
        self.memory.slots.place_of(slot)
    }
    #[inline(always)]
    pub(crate) fn handles(&self, slot: u32) -> &Handles {
        self.memory.slots.handles(slot)
    }
    #[inline(always)]
    pub(crate) fn generation_word(&self, slot: u32) -> &AtomicU32 {
        self.memory.slots.generation_word(slot)
    }
    #[inline(always)]
    pub(crate) fn offset_of(&self, ptr: NonNull<u8>) -> u64 {
        self.memory.chunks.offset_of(ptr)
    }
    #[inline(always)]
    pub(crate) fn serial_of(&self, offset: u64, length: u64) -> u32 {
        self.memory.chunks.serial_of(offset, length)
    }
    /// Returns the serial that a line names for a slot's bytes. A buffer that is no larger than a chunk lies in one
    /// chunk.
    #[inline(always)]
    pub(crate) fn serial_in(&self, slot: u32, class: u8, offset: u64, length: u64) -> u32 {
        match class {
            HUGE => self.memory.chunks.serial_of(offset, length),
            #[allow(clippy::cast_possible_truncation)] // 64-bit only
            _ => self.serial_of_one(self.place_of(slot), offset, length as usize),
        }
    }

    /// Returns the serial that a line says of bytes that lie in one chunk.
    #[inline(always)]
    pub(crate) fn serial_of_one(&self, place: Place<'_>, offset: u64, length: usize) -> u32 {
        if length == 0 {
            // The bytes may be named to begin where the next chunk does.
            std::hint::cold_path();
            return self.memory.chunks.serial_of(offset, 0);
        }
        place.serial()
    }

    #[cfg(test)]
    pub(crate) fn place_of_class(&self, class: u8) -> CachePlace {
        self.memory.sizes.place_of_class(class)
    }
    #[inline(always)]
    pub(crate) fn id_of(&self, slot: u32) -> BufferId {
        self.memory.id_of(slot)
    }
}

/// Allocation and release of buffers.
impl OwnPool {
    /// Allocates a buffer out of the caches, or of any memory that needs no answer of the manager.
    ///
    /// Cost when cached: one class look-up, one pop of the thread's bucket, a few private loads; no shared word, no
    /// locked instruction.
    #[inline(always)]
    pub(crate) fn alloc_now(&self, len: usize) -> Option<RawBuf> {
        let kind = self.memory.sizes.kind_of(len)?;
        // SAFETY: there is a zone for each class.
        let zone = unsafe { self.memory.zones.get_unchecked(usize::from(kind.class)) };
        let slot = match zone.alloc_cached_at(kind.place) {
            Some(slot) => slot,
            None => self.alloc_uncached(zone)?,
        };
        Some(self.memory.hand_out(slot, kind, len))
    }

    /// Allocates without a cache. While a caller waits for memory nothing is cached, so no caller passes by here
    /// either. In a forked child nothing is cached either: so only this path checks for the fork.
    #[cold]
    #[inline(never)]
    fn alloc_uncached(&self, zone: &Zone<Class>) -> Option<u32> {
        if self.is_child() || self.waiters.is_contended() {
            return None;
        }
        zone.alloc()
    }

    #[inline(always)]
    fn is_child(&self) -> bool {
        self.memory.registration.fork.is_child()
    }

    /// Whether the caller's handle is the only one and the buffer was never sent.
    #[inline(always)]
    pub(crate) fn is_private(&self, slot: u32) -> bool {
        self.handles(slot).is_private(self.generation_word(slot))
    }

    /// Counts another handle.
    pub(crate) fn retain(&self, slot: u32) {
        self.handles(slot).hold();
    }

    /// Freezes a buffer: from here on its handles are counted. A writable buffer has one handle, by its type.
    #[inline(always)]
    pub(crate) fn begin_sharing(&self, slot: u32) {
        self.handles(slot).begin();
    }

    /// Frees a writable buffer, which no other domain can know.
    ///
    /// # Safety
    /// The tag's class is one of the pool's.
    #[inline(always)]
    pub(crate) unsafe fn free_unfrozen(&self, place: CachePlace, tag: Tag) {
        // SAFETY: there is a zone for each class.
        let zone = unsafe { self.memory.zones.get_unchecked(usize::from(tag.class())) };
        if !zone.free_cached_at(place, tag.slot()) {
            self.free_uncached(Some(zone), tag.slot());
        }
    }

    /// Frees without a cache. A forked child comes here, because it finds all caches shut: it frees nothing of its
    /// parent's.
    #[cold]
    #[inline(never)]
    fn free_uncached(&self, zone: Option<&Zone<Class>>, slot: u32) {
        match zone {
            _ if self.is_child() => {}
            Some(zone) => zone.free(slot),
            None => self.free_alone(slot),
        }
    }

    /// Drops a writable buffer that goes the long way.
    pub(crate) fn release_long(&self, tag: Tag) {
        let (slot, class) = (tag.slot(), tag.class());
        self.memory.note_end(tag);
        match self.memory.zones.get(usize::from(class)) {
            Some(zone) if zone.free_cached(slot) => {}
            zone => self.free_uncached(zone, slot),
        }
    }

    /// Drops a handle. The last handle frees a buffer that was never sent, and queues a sent one.
    #[inline(always)]
    pub(crate) fn release(&self, slot: u32, class: u8) {
        if self.is_child() {
            return;
        }
        match self.handles(slot).let_go(self.generation_word(slot)) {
            LetGo::Unsent => self.free_private(slot, class),
            LetGo::Left => {}
            LetGo::ToQueue => self.queue_released(slot),
        }
    }

    #[inline(never)]
    fn queue_released(&self, slot: u32) {
        // A queued buffer is the collector's, and only this visit still keeps the pool.
        crate::base::visits::visit(self, |_| {
            self.collector.sent.push(slot);
            self.news_for_waiters();
        });
    }

    /// Tells waiting callers that a sent buffer lost its last handle in this process, perhaps after all its readers.
    #[inline]
    fn news_for_waiters(&self) {
        // Relaxed: a caller that begins to wait at this moment looks again after its round.
        if self.waiters.is_contended() {
            self.memory.returned.raise();
        }
    }

    #[inline(always)]
    fn free_private(&self, slot: u32, class: u8) {
        match self.memory.zones.get(usize::from(class)) {
            Some(zone) => zone.free(slot),
            None => self.free_alone(slot),
        }
    }

    /// Frees a buffer with memory of its own that no other domain knows, outside of all locks.
    #[cold]
    fn free_alone(&self, slot: u32) {
        let keep = self.arc(); // once the run is free the pool may be taken down
        self.memory.free_huge(slot);
        if keep.is_some() {
            self.memory.give_back_large();
        }
    }

    /// Puts a sent buffer that was marked for it where the collector finds it.
    #[cold]
    #[inline(never)]
    pub(crate) fn queue_sent(&self, slot: u32) {
        self.collector.sent.push(slot);
    }

    /// Looks at the oldest [`FEW`](super::FEW) buffers of a sender's defer queue, unless a caller waits for memory:
    /// that caller collects by itself, and no buffer goes past it.
    #[inline]
    pub(crate) fn collect_few(&self, defer: &DeferProducer) {
        if !self.waiters.is_contended() {
            self.collector.collect_few(&self.memory, defer);
        }
    }

    /// Looks at a few more of these buffers, if more are queued than go round, unless a caller waits for memory.
    #[cold]
    pub(crate) fn collect_more(&self, defer: &DeferProducer, are_few: bool) {
        if !self.waiters.is_contended() {
            self.collector.collect_more(&self.memory, defer, are_few);
        }
    }

    /// Looks at the oldest buffers of a sender's defer queue one by one, as long as they are dead, unless a caller
    /// waits for memory.
    pub(crate) fn collect_warm(&self, defer: &DeferProducer) {
        if !self.waiters.is_contended() {
            self.collector.collect_warm(&self.memory, defer);
        }
    }
}

/// Operations of single parts.
impl OwnPool {
    #[inline(always)]
    pub(crate) fn leave(&self, slot: u32) {
        self.memory.slots.leave(slot);
    }
    pub(crate) fn note_release(&self, slot: u32) {
        self.memory.note_release(slot);
    }
    pub(crate) fn open_again(&self, slot: u32) {
        self.memory.open_again(slot);
    }
    pub(crate) fn freeze_long(&self, tag: Tag) -> Tag {
        self.memory.freeze_long(tag)
    }
    pub(crate) fn take_away(&self, slot: u32) {
        self.memory.take_away(slot);
    }
    pub(crate) fn is_sealed(&self, slot: u32) -> bool {
        self.memory.is_sealed(slot)
    }
    pub(crate) fn seal(&self, slot: u32, deadline: Option<Instant>) -> Result<(), Error> {
        self.memory.seal(slot, deadline)
    }
    pub(crate) fn is_held_by(&self, slot: u32, domain: DomainId) -> bool {
        self.collector.is_held_by(slot, domain)
    }
    /// Returns a reader's counters of references, if the reader is on the reader set.
    pub(crate) fn refs_of(&self, domain: DomainId) -> Option<Arc<RefsRo>> {
        self.collector.refs_of(domain)
    }
    pub(crate) fn new_defer_queue(&self) -> DeferProducer {
        self.collector.new_defer_queue()
    }
}
