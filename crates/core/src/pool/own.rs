//! A pool of one's own: the writer's side.

use super::gc::Gc;
use super::place::Place;
use super::raw::RawBuf;
use super::resizing::Resizing;
use super::short::{Kind, Short, rounded};
use super::slots::{HUGE, Slot};
use super::store::Store;
use super::tag::Tag;
use super::waiters::Waiters;
use crate::base::lock;
use crate::domain::{DomainCore, Offer};
use crate::options::PoolOptions;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tranship_ledger::{Handles, LetGo, generation};
use tranship_proto::{CbufId, PoolId, Trust};
use tranship_region::layout::{LoadU64, Slot as TableSlot, TableRw};
use tranship_region::{Mappings, Window};
use tranship_sync::SlotQueue;
use tranship_sys::ForkGuard;
use tranship_zone::{CachePlace, Classes, Zone};

/// The writer's side of a pool: memory, slot table, allocator, collector. Aligned as handles need it.
#[repr(align(128))]
pub(crate) struct OwnPool {
    pub(crate) domain: DomainCore,
    /// The domain's, at hand.
    pub(super) fork: ForkGuard,
    pub(super) id: PoolId,
    pub(super) base: NonNull<u8>,
    /// Of all handles: whether their bytes may be had as slices.
    pub(super) flags: AtomicU32,
    /// Of the smallest buffer, and what the size of each is a multiple of: a power of two.
    pub(super) least_bytes: u64,
    /// The fewest bytes of a large buffer of level `none`.
    pub(super) seals_from: u64,
    /// Held while one of them is sealed.
    pub(super) sealing: Mutex<()>,
    /// At level `half`: the mappings that it may need.
    pub(super) _mappings: Option<Mappings>,
    /// Set while somebody waits for memory: then nobody passes the queue.
    pub(super) contended: AtomicBool,
    pub(super) classes: Classes,
    pub(super) short: Short,
    pub(super) zones: Box<[Zone<Class>]>,
    pub(super) slots: Box<[Slot]>,
    pub(super) table: TableRw,
    pub(super) sent: SlotQueue,
    pub(super) gc: Mutex<Gc>,
    pub(super) store: Mutex<Store>,
    pub(super) waiters: Waiters,
    /// Held while chunks are added or returned. Never waited for under the socket's lock.
    pub(super) resizing: Mutex<Resizing>,
    pub(super) window: Window,
    pub(super) chunk_shift: u32,
    /// What a new manager is shown: serial and descriptor by window index. Held for moments only.
    pub(super) chunk_fds: Mutex<HashMap<u32, (u32, Arc<OwnedFd>)>>,
    /// Serial of the chunk at each window index; 0: none.
    pub(super) serials: Box<[AtomicU32]>,
    pub(super) table_fd: OwnedFd,
    /// Index in the control page.
    pub(super) control_page_entry: AtomicU32,
    pub(super) handles: AtomicU32,
    pub(super) shrink_target: AtomicU64,
    pub(crate) options: PoolOptions,
    pub(crate) max_bytes: u64,
    pub(super) counters: Counters,
    pub(super) me: Weak<OwnPool>,
}

// SAFETY: `base` points into `window`, which the pool owns; all else is Send and Sync by itself.
unsafe impl Send for OwnPool {}
// SAFETY: as above; memory behind `base` is reached only through unique or frozen buffers.
unsafe impl Sync for OwnPool {}

/// What the slow path has done.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) blocked_ns: AtomicU64,
    pub(super) collect_ns: AtomicU64,
    pub(super) collections: AtomicU64,
    pub(super) collected: AtomicU64,
    pub(super) collected_bytes: AtomicU64,
    /// Dead when it was last looked, bytes.
    pub(super) garbage_bytes: AtomicU64,
    /// Sum over all slots that have memory.
    pub(super) padding_bytes: AtomicU64,
}

/// The backend of one class's zone.
pub(super) struct Class {
    pub(super) pool: Weak<OwnPool>,
    pub(super) class: usize,
}

/// The place in the control page of a pool that has none at the moment.
pub(super) const NO_ENTRY: u32 = u32::MAX;

impl OwnPool {
    pub(crate) fn id(&self) -> PoolId {
        self.id
    }
    pub(crate) fn shape(&self) -> Offer {
        Offer {
            pool: self.id,
            writer: self.domain.id(),
            max_bytes: self.max_bytes,
            slots: self.slot_count(),
            chunk_bytes: self.chunk_bytes(),
            trust: self.options.trust,
        }
    }
    pub(crate) fn slot_count(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }
    pub(crate) fn arc(&self) -> Option<Arc<OwnPool>> {
        self.me.upgrade()
    }
    pub(crate) fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }
    /// Ordering: Acquire pairs with the manager's Release, which comes before it lets a source send.
    pub(super) fn control_page_epoch(&self) -> u64 {
        self.epoch_word()
            .map_or(u64::MAX, |e| e.load(Ordering::Acquire))
    }
    /// Where that is. To be loaded with acquire.
    #[inline(always)]
    pub(super) fn epoch_word(&self) -> Option<LoadU64<'_>> {
        let control_page = self.domain.control_page();
        control_page.epoch(self.control_page_entry.load(Ordering::Relaxed))
    }
    /// Whether the control page has the pool. Ordering: Acquire pairs with the manager's Release, which comes before it tells a sink
    /// that it may take.
    pub(super) fn is_listed(&self) -> bool {
        let (control_page, id) = (self.domain.control_page(), u64::from(self.id.0));
        let pools = (0..).map_while(|i| control_page.pool(i));
        pools.map(|p| p.load(Ordering::Acquire)).any(|p| p == id)
    }
    pub(crate) fn quota_bytes(&self) -> u64 {
        if self.domain.fork.is_child() {
            return 0; // the control page is not mapped here
        }
        loop {
            let control_page = self.domain.control_page();
            // Ordering: Acquire pairs with `suspend` and `resume`: with one and the same control page and entry before and
            // after, the quota was of that entry of that control page, or of none.
            let entry = self.control_page_entry.load(Ordering::Acquire);
            let quota = control_page.quota(entry).map(|q| q.load(Ordering::Acquire));
            if std::ptr::eq(control_page, self.domain.control_page())
                && entry == self.control_page_entry.load(Ordering::Acquire)
            {
                // Between two managers nobody knows it; the next one will say.
                return quota.unwrap_or(self.max_bytes).min(self.max_bytes);
            }
        }
    }

    /// A buffer out of the caches or whatever can be had without asking the manager.
    ///
    /// Cost when cached: one class look-up, one pop of the thread's bucket, a few private loads; no shared word, no
    /// locked instruction.
    #[inline(always)]
    pub(crate) fn alloc_now(&self, len: usize) -> Option<RawBuf> {
        let kind = self.kind_of(len)?;
        // SAFETY: there is a zone for each class.
        let zone = unsafe { self.zones.get_unchecked(usize::from(kind.class())) };
        let slot = match zone.alloc_cached_at(kind.place()) {
            Some(slot) => slot,
            None => self.alloc_uncached(zone)?,
        };
        Some(self.hand_out(slot, kind, len))
    }

    /// While somebody waits for memory nothing is cached, so that nobody passes by here either. In a forked child
    /// nothing is cached either: only here need it be asked.
    #[cold]
    #[inline(never)]
    fn alloc_uncached(&self, zone: &Zone<Class>) -> Option<u32> {
        if self.fork.is_child() || self.contended.load(Ordering::Relaxed) {
            return None;
        }
        zone.alloc()
    }

    #[inline(always)]
    pub(super) fn hand_out(&self, slot: u32, kind: Kind, len: usize) -> RawBuf {
        let (class, place) = (kind.class(), kind.place());
        let tag = Tag::own(slot, class, self.flags());
        if tag.has(Tag::LONG | Tag::TRACED) {
            self.hand_out_long(slot, len);
        }
        // Cut out of an attached chunk, at least `len` long by its class, which is one of the pool's; it stays outstanding until its handle is gone.
        let ptr = self.at(self.private(slot).offset());
        RawBuf {
            ptr,
            len,
            place,
            tag,
        }
    }

    /// The same of a buffer larger than a chunk.
    pub(super) fn hand_out_huge(&self, slot: u32, len: usize) -> RawBuf {
        self.hand_out_long(slot, len);
        let tag = Tag::own(slot, Self::HUGE, self.flags() | Tag::LONG);
        let ptr = self.at(self.private(slot).offset());
        RawBuf {
            ptr,
            len,
            place: self.place_of_class(Self::HUGE),
            tag,
        }
    }

    /// Where threads have what is cached of a class; of `HUGE`, of which nothing is, any.
    pub(crate) fn place_of_class(&self, class: u8) -> CachePlace {
        self.short.kind_of_class(class.into()).place()
    }

    /// Whether it is of level `half`.
    pub(super) fn is_guarded(&self) -> bool {
        self.options.trust == Trust::Half
    }

    /// Its capacity, bytes.
    pub(crate) fn capacity_of(&self, slot: u32) -> u64 {
        self.entry(slot).length.load(Ordering::Relaxed)
    }

    /// What handles of its buffers have.
    #[inline(always)]
    pub(super) fn flags(&self) -> u32 {
        // Relaxed: all but one bit stay as they are, and that one says only whether something is recorded.
        self.flags.load(Ordering::Relaxed)
    }

    /// What is done with buffers that are allocated from now on is recorded, or not.
    pub(crate) fn set_traced(&self, on: bool) {
        match on {
            true => self.flags.fetch_or(Tag::TRACED, Ordering::Relaxed),
            false => self.flags.fetch_and(!Tag::TRACED, Ordering::Relaxed),
        };
    }

    /// The caller's writable buffer, which was never sent, is about to be moved to somebody else: from its first send on it is not this
    /// domain's to look at.
    #[inline(always)]
    pub(crate) fn leave(&self, slot: u32) {
        // Relaxed: a word of our own, before the generation is made even, by which others here find the buffer.
        let next = generation::published(self.generation(slot));
        self.private(slot).moved.store(next, Ordering::Relaxed);
        // The manager charges it to whoever has it. On the line that the generation is about to be written to.
        self.entry(slot).moved.store(next, Ordering::Relaxed);
    }

    /// Whether the buffer that has this generation of the slot was moved to somebody else.
    pub(super) fn is_away(&self, slot: u32, generation: u32) -> bool {
        // Relaxed: as above; the caller has found the generation even.
        self.private(slot).moved.load(Ordering::Relaxed) == generation
    }

    /// The size class of a buffer, which is a multiple of the pool's alignment (and then the class is one, too), at level `half` of whole pages.
    #[inline(always)]
    pub(super) fn kind_of(&self, len: usize) -> Option<Kind> {
        match self.short.kind_of(len) {
            None => {
                let class = self.classes.class_of(self.rounded(len))?;
                Some(self.short.kind_of_class(class))
            }
            short => short,
        }
    }

    /// The bytes of a buffer as its pool counts them.
    #[inline(always)]
    pub(super) fn rounded(&self, len: usize) -> u64 {
        rounded(self.least_bytes, len)
    }

    #[inline(always)]
    pub(super) fn at(&self, offset: u64) -> NonNull<u8> {
        // SAFETY: offsets come from the run allocator, which knows only the window's pages.
        #[allow(clippy::cast_possible_truncation)]
        unsafe {
            self.base.add(offset as usize)
        }
    }

    /// Window offset of a pointer into the pool.
    #[inline(always)]
    pub(crate) fn offset_of(&self, ptr: NonNull<u8>) -> u64 {
        (ptr.as_ptr().addr() - self.base.as_ptr().addr()) as u64
    }

    /// Serial of the chunk at a window offset.
    pub(super) fn serial_at(&self, offset: u64) -> u32 {
        #[allow(clippy::cast_possible_truncation)]
        let index = (offset >> self.chunk_shift) as usize;
        self.serials
            .get(index)
            .map_or(0, |s| s.load(Ordering::Relaxed))
    }

    /// What a line says of the chunks that bytes lie in.
    #[inline(always)]
    pub(crate) fn serial_of(&self, offset: u64, length: u64) -> u32 {
        super::serial_of(&self.serials, offset, length, self.chunk_shift)
    }

    /// The same of bytes of a slot's buffer: one that is no larger than a chunk lies in one chunk.
    #[inline(always)]
    pub(crate) fn serial_in(&self, slot: u32, class: u8, offset: u64, length: u64) -> u32 {
        match class {
            HUGE => self.serial_of(offset, length),
            #[allow(clippy::cast_possible_truncation)] // 64-bit only
            _ => self.serial_of_one(self.place_of(slot), offset, length as usize),
        }
    }

    /// The same of one that is no larger than a chunk.
    #[inline(always)]
    pub(crate) fn serial_of_one(&self, place: Place<'_>, offset: u64, length: usize) -> u32 {
        if length == 0 {
            // It may be said to lie where the next one begins.
            std::hint::cold_path();
            return self.serial_of(offset, 0);
        }
        place.serial()
    }

    /// Where a slot's words are.
    #[inline(always)]
    pub(crate) fn place_of(&self, slot: u32) -> Place<'_> {
        Place {
            private: self.private(slot),
            entry: self.entry(slot),
        }
    }

    /// A slot's private half.
    #[inline(always)]
    pub(super) fn private(&self, slot: u32) -> &Slot {
        debug_assert!((slot as usize) < self.slots.len());
        // SAFETY: slot numbers come from `SlotNumbers::new(slots.len())` alone; one that a peer names is checked
        // by `take_back` before it gets here.
        unsafe { self.slots.get_unchecked(slot as usize) }
    }

    /// A slot's entry in the shared table, which only this domain writes.
    #[inline(always)]
    pub(super) fn entry(&self, slot: u32) -> &TableSlot {
        debug_assert!(slot < self.table.count());
        // SAFETY: as for `private`; the table has as many entries.
        unsafe { self.table.slots().get_unchecked(slot as usize) }
    }

    /// The handles of a slot's buffer in this process.
    #[inline(always)]
    pub(crate) fn handles(&self, slot: u32) -> &Handles {
        &self.private(slot).handles
    }

    #[inline(always)]
    pub(crate) fn generation_word(&self, slot: u32) -> &AtomicU32 {
        &self.entry(slot).generation
    }

    #[inline(always)]
    fn generation(&self, slot: u32) -> u32 {
        self.generation_word(slot).load(Ordering::Relaxed) // own word
    }

    /// The id under which others know the slot's buffer, or will.
    #[inline(always)]
    pub(crate) fn id_of(&self, slot: u32) -> CbufId {
        CbufId::new(self.id, slot, generation::published(self.generation(slot)))
    }

    /// Whether the caller's handle is the only one and the buffer was never sent.
    #[inline(always)]
    pub(crate) fn is_private(&self, slot: u32) -> bool {
        self.handles(slot).is_private(self.generation_word(slot))
    }

    /// Another handle.
    pub(crate) fn retain(&self, slot: u32) {
        self.handles(slot).hold();
    }

    /// A buffer is frozen: from here on its handles are counted. A writable one is unique by its type.
    #[inline(always)]
    pub(crate) fn begin_sharing(&self, slot: u32) {
        self.handles(slot).begin();
    }

    /// A writable buffer goes, which nobody else can know.
    ///
    /// # Safety
    /// The tag's class is one of the pool's.
    #[inline(always)]
    pub(crate) unsafe fn free_unfrozen(&self, place: CachePlace, tag: Tag) {
        // SAFETY: there is a zone for each class.
        let zone = unsafe { self.zones.get_unchecked(usize::from(tag.class())) };
        if !zone.free_cached_at(place, tag.slot()) {
            self.free_uncached(Some(zone), tag.slot());
        }
    }

    /// A forked child comes here, for it finds all caches shut: it frees nothing of its parent's.
    #[cold]
    #[inline(never)]
    pub(super) fn free_uncached(&self, zone: Option<&Zone<Class>>, slot: u32) {
        match zone {
            _ if self.fork.is_child() => {}
            Some(zone) => zone.free(slot),
            None => self.free_alone(slot),
        }
    }

    /// A handle goes. The last one frees a buffer that was never sent, and queues one that was.
    #[inline(always)]
    pub(crate) fn release(&self, slot: u32, class: u8) {
        if self.fork.is_child() {
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
        // Once queued it is the collector's, and with it all that kept the pool.
        crate::base::visits::visit(self, |_| {
            self.sent.push(slot);
            self.news_for_waiters();
        });
    }

    /// A sent buffer lost its last handle here, after all its readers perhaps.
    #[inline]
    fn news_for_waiters(&self) {
        // Relaxed: who begins to wait at this moment looks again after its round.
        if self.contended.load(Ordering::Relaxed) {
            self.waiters.memory_came_back();
        }
    }

    #[inline(always)]
    fn free_private(&self, slot: u32, class: u8) {
        match self.zones.get(usize::from(class)) {
            Some(zone) => zone.free(slot),
            None => self.free_alone(slot),
        }
    }

    /// One that nobody else knows, outside of all locks.
    #[cold]
    fn free_alone(&self, slot: u32) {
        let keep = self.arc();
        self.free_huge(slot);
        if keep.is_some() {
            self.give_back_large();
        }
    }

    #[cold]
    pub(super) fn free_huge(&self, slot: u32) {
        let _keep = self.arc(); // once the run is free the pool may be taken down
        let mut store = lock(&self.store);
        let huge = store.huge.remove(&slot);
        if let Some(run) = huge {
            store.runs.free(run);
            self.set_padding(slot, 0);
        }
        if huge.is_some() || store.large.end(slot) {
            store.numbers.give(&tranship_zone::SlotSet::Range {
                first: slot,
                count: 1,
            });
        }
        drop(store);
        self.waiters.memory_came_back();
    }

    /// Puts a sent buffer that was marked for it where the collector finds it.
    #[cold]
    #[inline(never)]
    pub(crate) fn queue_sent(&self, slot: u32) {
        self.sent.push(slot);
    }

    /// Slots of `huge` buffers carry this class.
    pub(super) const HUGE: u8 = HUGE;
}
