//! The process's heap: zones up to a megabyte, mappings above, and pages for alignments of more than a page.

use crate::budget::{Budget, Sizes};
use crate::classes::{self, COUNT};
use crate::helper::Idle;
use crate::inside::{Inside, is_inside};
use crate::marks::{Marks, UNIT};
use crate::{account, fork, helper, huge, inside, meta, window, wrong};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tranship_items::arena::{ArenaStats, Owner, PAGES_TAG};
use tranship_items::item::{Bytes, ItemKeg, ItemOptions, ItemZone};
use tranship_items::{Arena, Level, PAGE, ZoneConfig};
use tranship_sys::time;

const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == PAGE);
/// The largest block of pages; larger ones are mappings of their own.
const MAX_PAGES_BYTES: usize = 1 << 20;
/// The largest alignment of a block that is not a mapping.
const MAX_ALIGN: usize = 64 << 10;

/// Bounds of the free pages that keep their memory: up to an eighth of the pages that are, or lately were, in use.
const LEAST_SPARE_PAGES: u64 = 512;
const MOST_SPARE_PAGES: u64 = 4096;
const TICK_NS: u64 = 250_000_000;
/// Free memory that a silent program may keep: less is not worth the work.
const IDLE_BYTES: u64 = 1 << 20;

pub(crate) struct Heap {
    arena: Arc<Arena>,
    classes: [Class; COUNT],
    budget: Budget,
    /// The most pages that were in use lately: less by a quarter after each period.
    peak_pages: AtomicU64,
    next_tick: AtomicU64,
}

/// The zone of one size.
struct Class {
    zone: ItemZone<Bytes>,
    marks: Marks,
}

/// The heap, once it exists.
static HEAP: AtomicPtr<Heap> = AtomicPtr::new(ptr::null_mut());

#[inline]
fn heap() -> Option<&'static Heap> {
    // Ordering: Acquire pairs with the release in `make`.
    let heap = HEAP.load(Ordering::Acquire);
    // SAFETY: null, or a heap that was leaked.
    unsafe { heap.as_ref() }
}

/// Allocates at least `bytes`, aligned to `align` (a power of two); `None`: refused.
#[inline]
pub(crate) fn alloc(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    if bytes <= classes::MAX_BYTES
        && align <= 16
        && let Some(heap) = heap()
        && let Some(class) = heap.classes.get(classes::class_of(bytes))
        && let Some((item, number)) = class.zone.alloc_cached_numbered()
    {
        // SAFETY: an item of the class, just allocated.
        unsafe { class.marks.set(number) };
        return Some(item);
    }
    alloc_slow(bytes, align)
}

#[cold]
#[inline(never)]
fn alloc_slow(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    if is_inside() {
        return meta::alloc(bytes, align);
    }
    let _inside = Inside::enter();
    let heap = heap().or_else(make)?;
    heap.tick();
    let address = heap.obtain(bytes, align).or_else(|| {
        heap.reclaim();
        heap.obtain(bytes, align)
    });
    helper::allocated(heap);
    address
}

/// Allocates memory of zeros.
#[inline]
pub(crate) fn alloc_zeroed(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let address = alloc(bytes, align)?;
    let fresh = bytes > MAX_PAGES_BYTES && !meta::owns(address.as_ptr())
        || meta::owns(address.as_ptr()) && meta::is_zeroed(bytes, align);
    if !fresh {
        // SAFETY: `bytes` that no other code knows.
        unsafe { ptr::write_bytes(address.as_ptr(), 0, bytes) };
    }
    Some(address)
}

/// Takes memory back. Aborts if it is not allocated.
///
/// # Safety
/// `address` is from this module, and nothing uses the memory there any more.
#[inline(always)]
pub(crate) unsafe fn free(address: NonNull<u8>) {
    if let Some(heap) = heap() {
        let tag = heap.arena.tag_of(address.as_ptr());
        if let Some(class) = heap.classes.get(usize::from(tag).wrapping_sub(1)) {
            let number = heap.number(address);
            let is_aligned = address.addr().get().is_multiple_of(UNIT);
            // SAFETY: the page map says that it lies in a slab of the class.
            if !is_aligned || unsafe { !class.marks.clear(number) } {
                not_out(address, tag);
            }
            // SAFETY: the promise of the caller, and of the mark.
            if unsafe { class.zone.free_cached_numbered(number) } {
                return;
            }
        }
    }
    // SAFETY: passed on.
    unsafe { free_slow(address) };
}

#[cold]
fn not_out(address: NonNull<u8>, tag: u8) -> ! {
    let bytes = classes::BYTES[usize::from(tag) - 1];
    wrong::abort(
        address,
        format_args!("was freed before, or is not the beginning of a block (of {bytes} bytes)"),
    )
}

#[cold]
fn not_allocated(address: NonNull<u8>) -> ! {
    wrong::abort(
        address,
        format_args!("was freed before, or never allocated"),
    )
}

/// Does the rest of [`free`]: an item's mark is cleared already.
#[cold]
#[inline(never)]
unsafe fn free_slow(address: NonNull<u8>) {
    if meta::owns(address.as_ptr()) {
        // SAFETY: the caller promises it.
        return unsafe { meta::free(address) };
    }
    let _inside = Inside::enter();
    let Some(heap) = heap() else {
        not_allocated(address);
    };
    match heap.arena.tag_of(address.as_ptr()) {
        // SAFETY: the caller promises it.
        0 if unsafe { huge::free(address) } => {}
        PAGES_TAG if heap.pages(address).is_some() => {
            // SAFETY: as above.
            unsafe { heap.arena.free_pages(address) };
        }
        0 | PAGES_TAG => not_allocated(address),
        tag => {
            let class = usize::from(tag) - 1;
            // SAFETY: as above.
            unsafe { heap.classes[class].zone.free(address) };
            heap.ran_full(class);
        }
    }
    heap.trim();
    heap.tick();
    helper::freed();
}

/// Returns how many bytes may be used at an address; `None`: no allocated block begins there.
pub(crate) fn usable(address: NonNull<u8>) -> Option<usize> {
    if meta::owns(address.as_ptr()) {
        return Some(meta::usable(address));
    }
    let heap = heap()?;
    match heap.arena.tag_of(address.as_ptr()) {
        0 => {
            let _inside = Inside::enter();
            huge::len(address)
        }
        PAGES_TAG => heap.pages(address),
        tag => {
            let class = usize::from(tag) - 1;
            // SAFETY: the page map says that it lies in a slab of the class.
            let is_out = address.addr().get().is_multiple_of(UNIT)
                && unsafe { heap.classes[class].marks.is_out(heap.number(address)) };
            is_out.then_some(classes::BYTES[class] as usize)
        }
    }
}

/// Gives memory another size; it may move. Returns `None`, and changes nothing, if that is refused. Aborts like
/// [`free`].
///
/// # Safety
/// The rules of [`free`] hold; the memory there is at least aligned to `align`.
pub(crate) unsafe fn resize(
    address: NonNull<u8>,
    bytes: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    let usable = usable(address).unwrap_or_else(|| not_allocated(address));
    // A block that shrinks by less than half stays.
    if bytes <= usable && bytes > usable / 2 {
        return Some(address);
    }
    if usable > MAX_PAGES_BYTES && bytes > MAX_PAGES_BYTES && align <= PAGE_BYTES {
        let _inside = Inside::enter();
        // SAFETY: the caller promises it; only mappings are that large.
        let resize = || unsafe { huge::resize(address, bytes) };
        return resize().or_else(|| {
            heap()?.reclaim();
            resize()
        });
    }
    let new = alloc(bytes, align);
    let Some(new) = new else {
        // A block that shrinks may also stay where it is.
        return (bytes <= usable).then_some(address);
    };
    // SAFETY: both are at least that long, and `new` belongs to this call alone.
    unsafe {
        ptr::copy_nonoverlapping(address.as_ptr(), new.as_ptr(), bytes.min(usable));
        free(address);
    }
    Some(new)
}

/// Resizes memory for a thread that is inside for zones other than the heap's: their tables may have come from here.
///
/// # Safety
/// The rules of [`resize`] hold.
pub(crate) unsafe fn move_out(
    address: NonNull<u8>,
    bytes: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    let kept = usable(address).unwrap_or_else(|| not_allocated(address));
    let new = meta::alloc(bytes, align)?;
    // SAFETY: both are at least that long, and `new` belongs to this call alone. The heap's own zones' tables are never
    // from here, so none of their locks is held.
    unsafe {
        ptr::copy_nonoverlapping(address.as_ptr(), new.as_ptr(), kept.min(bytes));
        free(address);
    }
    Some(new)
}

/// Gives free memory back to the kernel, and to the manager.
pub(crate) fn trim_all() {
    let _inside = Inside::enter();
    if let Some(heap) = heap() {
        heap.reclaim();
    }
}

/// Returns the arena's figures, and the bytes and number of mappings.
pub(crate) fn stats() -> (ArenaStats, usize, u64) {
    let _inside = Inside::enter();
    let (mappings, bytes) = huge::usage();
    let arena = heap().map(|heap| heap.arena.stats()).unwrap_or_default();
    (arena, mappings, bytes)
}

/// Makes the heap; `None`: there are no addresses for it.
#[cold]
fn make() -> Option<&'static Heap> {
    static ONCE: OnceLock<bool> = OnceLock::new();
    ONCE.get_or_init(|| {
        let Ok(heap) = Heap::new() else {
            return false;
        };
        // Ordering: Release pairs with the acquire in `heap`.
        HEAP.store(Box::into_raw(Box::new(heap)), Ordering::Release);
        true
    });
    heap()
}

impl Heap {
    fn new() -> std::io::Result<Heap> {
        tranship_items::around_own_work(inside::enter, inside::leave);
        // Before the zones' own handlers, so that their locks are taken before the heap's.
        fork::install()?;
        helper::begin(false);
        let window = window::Charged::reserve()?;
        let tables = window.marks();
        let arena = Arc::new(Arena::new(window)?);
        let classes = std::array::from_fn(|class| {
            let bytes = u64::from(classes::BYTES[class]);
            let keg = ItemKeg::new(&arena, bytes, 16).expect("60 kegs of items of up to 1 MiB");
            assert_eq!(usize::from(keg.tag()), class + 1, "tags are classes");
            Class {
                zone: ItemZone::new(&keg, Bytes, options(class)),
                marks: Marks::of(class, &tables),
            }
        });
        Ok(Heap {
            arena,
            classes,
            budget: Budget::new(),
            peak_pages: AtomicU64::new(0),
            next_tick: AtomicU64::new(0),
        })
    }

    fn obtain(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if let Some(class) = classes::class_aligned(bytes, align) {
            self.budget.ran_empty(class);
            let class = &self.classes[class];
            let item = class.zone.alloc(())?;
            // SAFETY: an item of the class, just allocated.
            unsafe { class.marks.set(self.number(item)) };
            return Some(item);
        }
        if bytes.max(align) > MAX_PAGES_BYTES || align > MAX_ALIGN {
            return huge::alloc(bytes.max(1), align);
        }
        let pages = |bytes: usize| u32::try_from(bytes.div_ceil(PAGE_BYTES)).ok();
        self.arena
            .alloc_pages_aligned(pages(bytes)?.max(1), pages(align)?)
    }

    /// Returns the bytes of the pages that begin there.
    fn pages(&self, address: NonNull<u8>) -> Option<usize> {
        let is_first = address.addr().get().is_multiple_of(PAGE_BYTES);
        match self.arena.owner(address.as_ptr()) {
            Some(Owner::Pages(Some(pages))) if is_first => Some(pages as usize * PAGE_BYTES),
            _ => None,
        }
    }

    /// Returns the number of the item that begins at an address in the arena.
    #[inline(always)]
    fn number(&self, address: NonNull<u8>) -> u32 {
        let offset = address
            .addr()
            .get()
            .wrapping_sub(self.arena.base().addr().get());
        #[allow(clippy::cast_possible_truncation, reason = "a window has 2^32 units")]
        let number = (offset / UNIT) as u32;
        number
    }

    /// Trims free pages, so that they keep little memory even if no further call comes.
    fn trim(&self) {
        let (used, spare) = self.arena.used_and_spare();
        let mut peak = self.peak_pages.load(Ordering::Relaxed);
        if used > peak {
            peak = used;
            self.peak_pages.store(peak, Ordering::Relaxed);
        }
        let keep = peak.clamp(LEAST_SPARE_PAGES, MOST_SPARE_PAGES);
        let keep = keep.max(used / 8);
        if spare > keep {
            // An eighth more, so that this does not run for each page.
            self.arena.trim(keep - keep / 8);
        }
    }

    /// Records that a bucket of this class ran full: if that happens often, the buckets should hold more.
    fn ran_full(&self, class: usize) {
        if self.budget.ran_full(class) {
            let zone = &self.classes[class].zone;
            let threads = zone.stats().zone.threads;
            if let Some(sizes) = self.budget.grow(class, threads, self.used_bytes()) {
                zone.resize_caches(sizes.bucket_items, sizes.depot_items);
            }
        }
    }

    fn used_bytes(&self) -> u64 {
        self.arena.used_and_spare().0 * PAGE
    }

    /// Does the periodic work: memory of pages that are free for long, caches, news from the manager.
    fn tick(&self) {
        let now = time::coarse_ns();
        let due = self.next_tick.load(Ordering::Relaxed);
        if now < due {
            return;
        }
        let next = now + TICK_NS;
        let mine = self
            .next_tick
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_err() {
            return;
        }
        if account::listen() {
            return self.reclaim();
        }
        let used = self.used_bytes();
        for (class, Class { zone, .. }) in self.classes.iter().enumerate() {
            if let Some(sizes) = self.budget.period(class, used) {
                zone.resize_caches(sizes.bucket_items, sizes.depot_items);
                zone.drain(Level::All);
            }
            zone.period_over();
            zone.keg().reap();
        }
        let peak = self.peak_pages.load(Ordering::Relaxed);
        self.peak_pages.store(peak - peak / 4, Ordering::Relaxed);
        self.arena.age();
        account::report(self.kept_bytes());
    }

    /// Returns bytes that are free and kept: in caches, and in pages that still have memory.
    fn kept_bytes(&self) -> u64 {
        let zones = self.classes.iter().zip(classes::BYTES);
        let cached: u64 = zones
            .map(|(class, bytes)| class.zone.stats().zone.cached() * u64::from(bytes))
            .sum();
        cached + self.arena.used_and_spare().1 * PAGE
    }

    /// Gives back everything that is not in use.
    fn reclaim(&self) {
        for Class { zone, .. } in &self.classes {
            zone.drain(Level::All);
            zone.keg().reap();
        }
        self.arena.purge();
    }
}

impl Idle for Heap {
    /// The counts of zones, and the present quarter of a second in which a call left its thread's cache.
    fn activity(&self) -> u64 {
        let zones = self.classes.iter().map(|class| {
            let stats = class.zone.stats().zone;
            stats.allocs.wrapping_add(stats.frees)
        });
        let ticks = self.next_tick.load(Ordering::Relaxed);
        zones.fold(ticks, u64::wrapping_add)
    }

    fn held_bytes(&self) -> u64 {
        let (used, spare) = self.arena.used_and_spare();
        (used + spare) * PAGE
    }

    fn give_back_idle(&self) {
        if self.kept_bytes() > IDLE_BYTES {
            self.reclaim();
        }
        account::settle(self.kept_bytes());
    }
}

fn options(class: usize) -> ItemOptions {
    let first = Sizes::first(class);
    let cache = ZoneConfig {
        initial: first.bucket_items,
        max: first.bucket_items,
        depot_items: first.depot_items,
        allocator: true,
        ..ZoneConfig::for_item(u64::from(classes::BYTES[class]))
    };
    ItemOptions {
        cache: Some(cache),
        ..ItemOptions::named("heap")
    }
}
