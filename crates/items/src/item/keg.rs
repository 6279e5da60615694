//! A keg of items in an arena, shared by the zones over it.

use crate::arena::{Arena, PageMap, UNIT};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tranship_zone::SlotSet;
use tranship_zone::lock::Lock;
use tranship_zone::reaper::Shared;
use tranship_zone::{ItemPlace, Keg, NewSlab, SlabHooks, SlabShape, SlabSource};
use tranship_zone::{PAGE, Run};

/// The largest items of kegs, bytes. For a larger item, pages of the arena are better.
pub const MAX_ITEM_BYTES: u64 = 1 << 20;

/// Errors of making a keg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KegError {
    /// Items of that size or alignment are not made.
    #[error(
        "items of {bytes} bytes aligned to {align}: not 1 to {MAX_ITEM_BYTES} bytes, aligned to a power of two up to {PAGE}"
    )]
    Shape {
        /// Bytes of an item.
        bytes: u64,
        /// The alignment, bytes.
        align: u64,
    },
    /// There are no addresses for the items' counters.
    #[error("no addresses for the counters of the items: {0}")]
    Counters(std::io::ErrorKind),
    /// The arena has 254 kegs.
    #[error("the arena has 254 kegs already")]
    Full,
}

/// Cuts slabs of an arena into items of one size. Zones share it with an `Arc`; all metadata is outside the items.
pub struct ItemKeg {
    arena: Arc<Arena>,
    tag: u8,
    bytes: u64,
    stride: u64,
    slabs: Lock<Keg>,
    reserve: AtomicU64,
    counters: Option<PageMap>,
}

impl ItemKeg {
    /// Makes a keg of items of `bytes` bytes, aligned to `align` (a power of two up to 4096; at least 16 is given).
    ///
    /// # Errors
    /// If no such items can be made, or the arena has too many kegs.
    pub fn new(arena: &Arc<Arena>, bytes: u64, align: u64) -> Result<Arc<Self>, KegError> {
        Self::with_slack(arena, bytes, align, 0)
    }

    /// Makes a keg with at least `slack` bytes between one item's end and the next one's beginning. A debug mode
    /// watches these bytes.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_slack(
        arena: &Arc<Arena>,
        bytes: u64,
        align: u64,
        slack: u64,
    ) -> Result<Arc<Self>, KegError> {
        Self::with(arena, bytes, align, slack, false)
    }

    /// Makes a keg whose items each have a counter of references (`UMA_ZONE_REFCNT`); see [`counter`](Self::counter).
    ///
    /// # Errors
    /// Those of [`new`](Self::new), or if there are no addresses for the counters.
    #[doc(alias = "UMA_ZONE_REFCNT")]
    pub fn with_counters(
        arena: &Arc<Arena>,
        bytes: u64,
        align: u64,
    ) -> Result<Arc<Self>, KegError> {
        Self::with(arena, bytes, align, 0, true)
    }

    fn with(
        arena: &Arc<Arena>,
        bytes: u64,
        align: u64,
        slack: u64,
        counted: bool,
    ) -> Result<Arc<Self>, KegError> {
        let fits = (1..=MAX_ITEM_BYTES).contains(&bytes) && slack <= PAGE;
        if !fits || !align.is_power_of_two() || align > PAGE {
            return Err(KegError::Shape { bytes, align });
        }
        let stride = (bytes + slack).next_multiple_of(align.max(UNIT));
        let counters = counted.then(|| {
            let most = u32::try_from(arena.bytes() >> counter_shift(stride)).unwrap_or(u32::MAX);
            PageMap::new(most).map_err(|error| KegError::Counters(error.kind()))
        });
        let counters = counters.transpose()?;
        let tag = arena.take_tag().ok_or(KegError::Full)?;
        Ok(Arc::new(Self {
            arena: arena.clone(),
            tag,
            bytes,
            stride,
            slabs: Lock::new(Keg::new(SlabShape::new(stride, 2 * MAX_ITEM_BYTES))),
            reserve: AtomicU64::new(0),
            counters,
        }))
    }

    /// Returns the arena.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the tag that [`Arena::tag_of`] gives for the keg's items: 1 to 254, in the order in which an arena's
    /// kegs were made, as long as none was dropped.
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.tag
    }

    /// Returns the bytes of an item.
    #[must_use]
    pub fn item_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes from one item to the next.
    #[must_use]
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// Returns how slabs are cut.
    #[must_use]
    pub fn shape(&self) -> SlabShape {
        self.slabs.lock().shape()
    }

    /// Returns the number of pages in slabs.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let keg = self.slabs.lock();
        keg.slab_count() as u64 * u64::from(keg.shape().pages)
    }

    /// Returns the items that the zones have, those in their caches included.
    #[must_use]
    pub fn used_items(&self) -> u64 {
        self.slabs.lock().used_items()
    }

    /// Keeps `items` free for allocations that ask for the reserve. They are made when next needed, or by
    /// [`preallocate`](Self::preallocate).
    pub fn set_reserve(&self, items: u64) {
        self.reserve.store(items, Ordering::Relaxed);
        let mut keg = self.slabs.lock();
        keep(&mut keg, items);
    }

    /// Makes slabs until at least `items` are free, and keeps that many slabs when they are empty. Returns whether
    /// there was the memory.
    pub fn preallocate(&self, items: u64) -> bool {
        let mut keg = self.slabs.lock();
        let per_slab = u64::from(keg.shape().items);
        keep(&mut keg, items);
        while free_items(&keg) < items.max(1) {
            if self.grow(&mut keg).is_err() {
                return false;
            }
            debug_assert!(per_slab > 0);
        }
        true
    }

    /// Gives empty slabs back to the arena, except reserved ones. Returns the number of pages.
    pub fn reap(&self) -> u64 {
        let mut keg = self.slabs.lock();
        let reserve = self.reserve.load(Ordering::Relaxed);
        let spare = free_items(&keg).saturating_sub(reserve) / u64::from(keg.shape().items);
        let most = usize::try_from(spare).unwrap_or(usize::MAX);
        let slabs = keg.reap_some(most, &mut Pages(&self.arena), &mut Tags(self));
        slabs as u64 * u64::from(keg.shape().pages)
    }

    /// Ends a period.
    pub(crate) fn period(&self) {
        self.slabs.lock().compact();
    }

    /// Says whether an address is the beginning of one of the keg's items (in use or not).
    #[must_use]
    pub fn is_item(&self, address: *const u8) -> bool {
        self.arena
            .offset_of(address)
            .and_then(|offset| self.place(&self.slabs.lock(), offset))
            .is_some()
    }

    /// Appends up to `want` items to `out`, making slabs as needed. It appends fewer when there is no memory.
    pub(crate) fn take(&self, out: &mut Vec<u32>, want: usize, use_reserve: bool) {
        let reserve = if use_reserve {
            0
        } else {
            self.reserve.load(Ordering::Relaxed)
        };
        let mut keg = self.slabs.lock();
        let mut left = want;
        while left > 0 {
            let free = free_items(&keg).saturating_sub(reserve);
            let now = left.min(usize::try_from(free).unwrap_or(usize::MAX));
            let got = keg.alloc(out, now);
            left -= got;
            if left > 0 && got == 0 && self.grow(&mut keg).is_err() {
                break;
            }
        }
    }

    /// Takes items back.
    ///
    /// # Panics
    /// If one of the items is not of this keg, or free already.
    pub(crate) fn give(&self, items: &[u32]) {
        let mut keg = self.slabs.lock();
        for &item in items {
            let offset = u64::from(item) * UNIT;
            let Some(place) = self.place(&keg, offset) else {
                panic!("{:p} is no item of this keg", self.arena.at(offset));
            };
            keg.free(place, &mut Pages(&self.arena), &mut Tags(self));
        }
    }

    /// Returns the counter of an item of a keg that was made [`with_counters`](Self::with_counters)
    /// (`uma_find_refcnt`); `None` if the keg has none, or the address is in none of its slabs. `item` must be the
    /// beginning of an item: an address inside an item may give the counter of the next item. The counter is 0 when the
    /// item comes into the keg, and otherwise the program's: neither allocating nor freeing changes it. Its place is
    /// fixed. Finding it takes no lock.
    #[doc(alias = "uma_find_refcnt")]
    #[must_use]
    pub fn counter(&self, item: NonNull<u8>) -> Option<&AtomicU32> {
        let offset = self.arena.offset_of(item.as_ptr())?;
        let counters =
            (self.counters.as_ref()).filter(|_| self.arena.slab_of(offset).0 == self.tag)?;
        counters.word(offset >> counter_shift(self.stride))
    }

    /// Sets the counters of a new slab's items to 0; returns `false` if there is no memory for them.
    fn clear_counters(&self, run: Run) -> bool {
        let Some(counters) = &self.counters else {
            return true;
        };
        let shift = counter_shift(self.stride);
        let end = run.offset() + u64::from(run.pages) * PAGE;
        let range = run.offset() >> shift..(((end - 1) >> shift) + 1);
        // The keg's lock is held, so one thread at a time covers.
        if !counters.cover(range.clone()) {
            return false;
        }
        let items = (0..).map(|item| run.offset() + item * self.stride);
        for item in items.take_while(|item| item + self.stride <= end) {
            if let Some(counter) = counters.word(item >> shift) {
                // Relaxed: the item is handed out after that, by a lock.
                counter.store(0, Ordering::Relaxed);
            }
        }
        true
    }

    /// Returns the number that zones use for an item: its offset in the arena, in units.
    #[must_use]
    pub fn number_of(&self, item: NonNull<u8>) -> u32 {
        let offset = item.addr().get() - self.arena.base().addr().get();
        u32::try_from(offset as u64 / UNIT).expect("an item lies in the arena's window")
    }

    /// Returns the address of an item.
    #[inline]
    pub(crate) fn address(&self, item: u32) -> NonNull<u8> {
        self.arena.at(u64::from(item) * UNIT)
    }

    /// Returns the number of an item at an address; `None` outside the arena.
    pub(crate) fn number(&self, address: NonNull<u8>) -> Option<u32> {
        u32::try_from(self.arena.offset_of(address.as_ptr())? / UNIT).ok()
    }

    /// Returns the bytes of a slab.
    pub(crate) fn slab_bytes(&self) -> u64 {
        u64::from(self.slabs.lock().shape().pages) * PAGE
    }

    fn grow(&self, keg: &mut Keg) -> Result<(), tranship_zone::GrowError> {
        keg.grow(&mut Pages(&self.arena), &mut Tags(self))
    }

    fn place(&self, keg: &Keg, offset: u64) -> Option<ItemPlace> {
        let (tag, slab) = self.arena.slab_of(offset);
        if tag != self.tag {
            return None;
        }
        let within = offset.checked_sub(keg.run_of(slab)?.offset())?;
        let index = u16::try_from(within / self.stride).ok()?;
        (within % self.stride == 0 && index < keg.shape().items)
            .then_some(ItemPlace { slab, index })
    }
}

impl Shared for ItemKeg {
    fn hold(&self) {
        self.slabs.hold();
    }

    unsafe fn release(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.slabs.release() };
    }
}

impl Drop for ItemKeg {
    fn drop(&mut self) {
        let arena = self.arena.clone();
        let mut keg = self.slabs.lock();
        let all = keg.slab_count();
        // Memory that is still in use stays mapped, and the tag taken: a leak, not a danger.
        if keg.used_items() == 0 && keg.reap_some(all, &mut Pages(&arena), &mut Tags(self)) == all {
            drop(keg);
            arena.give_tag(self.tag);
        }
    }
}

impl std::fmt::Debug for ItemKeg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemKeg")
            .field("tag", &self.tag)
            .field("bytes", &self.bytes)
            .field("stride", &self.stride)
            .finish_non_exhaustive()
    }
}

/// Returns the number of bits by which an offset of an item is shifted to give the number of its counter: no two items
/// of `stride` bytes have the same.
fn counter_shift(stride: u64) -> u32 {
    stride.ilog2()
}

fn free_items(keg: &Keg) -> u64 {
    keg.slab_count() as u64 * u64::from(keg.shape().items) - keg.used_items()
}

/// Keeps as many empty slabs as these items need.
fn keep(keg: &mut Keg, items: u64) {
    let slabs = items.div_ceil(u64::from(keg.shape().items)).max(1);
    keg.set_keep_empty(u32::try_from(slabs).unwrap_or(u32::MAX));
}

/// An arena's runs as slabs.
struct Pages<'a>(&'a Arena);

impl SlabSource for Pages<'_> {
    fn alloc_run(&mut self, pages: u32) -> Option<Run> {
        self.0.alloc_run(pages)
    }

    fn free_run(&mut self, run: Run) {
        self.0.untag(run);
        self.0.free_run(run);
    }

    fn wants_back(&self, _run: Run) -> bool {
        false
    }
}

/// Writes slabs into the page map; an item's number is its offset in units.
struct Tags<'a>(&'a ItemKeg);

impl SlabHooks for Tags<'_> {
    fn adopt(&mut self, slab: NewSlab<'_>) -> Option<SlotSet> {
        let unit = |bytes: u64| u32::try_from(bytes / UNIT).expect("at most 64 GiB");
        if !self.0.clear_counters(slab.run) {
            return None;
        }
        self.0.arena.tag_slab(slab.run, self.0.tag, slab.slab);
        Some(SlotSet::Stride {
            first: unit(slab.run.offset()),
            step: unit(slab.item_bytes),
            count: u16::try_from(slab.items.len()).ok()?,
        })
    }

    fn retire(&mut self, _slab: u32, _slots: &SlotSet) {}
}
