//! An arena: a window of addresses, cut into runs of pages, with a map from each page to its owner.
//!
//! Kegs take their slabs from it. A caller that needs pages by themselves (a large allocation) takes them with
//! [`Arena::alloc_pages`]. All records about the pages lie outside of them. [`Arena::owner`] finds the owner of an
//! address by one load from a table beside the window.

mod map;
mod memory;
mod pages;

pub use memory::{File, Memory, OwnPages, Private};

pub(crate) use map::PageMap;

use map::Entry;
use pages::Pages;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_zone::lock::{Guard, Lock};
use tranship_zone::reaper::Shared;
use tranship_zone::{PAGE, Run};

/// The longest window: items are named by their offset in units of [`UNIT`], in 32 bits.
pub const MAX_BYTES: u64 = UNIT << 32;
/// Bytes of the unit in which items are named, and their least alignment.
pub const UNIT: u64 = 16;

/// Tag of pages that were taken with [`Arena::alloc_pages`].
pub const PAGES_TAG: u8 = 255;

const CHUNK: u64 = 2 << 20;

/// The owner of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// An item of the keg with this tag (or the waste at the end of one of its slabs).
    Keg(u8),
    /// Pages of [`Arena::alloc_pages`]; how many, if the address is on the first of them.
    Pages(Option<u32>),
}

/// The size of an arena.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArenaStats {
    /// Pages of slabs and of [`Arena::alloc_pages`].
    pub used_pages: u64,
    /// Pages with memory: pages in use, and free ones that were in use lately.
    pub committed_pages: u64,
    /// Pages whose memory was given back since the beginning.
    pub given_back_pages: u64,
    /// Times that the memory or the window refused.
    pub failures: u64,
}

/// A window of at most 64 GiB. Share it with an `Arc`. All methods may be called by any thread.
///
/// ```
/// # mod tranship { pub use tranship_items as zone; }
/// use tranship::zone::Arena;
///
/// let arena = Arena::private(1 << 30)?;
/// let pages = arena.alloc_pages(4).unwrap();
/// assert_eq!(arena.offset_of(pages.as_ptr()).unwrap() % 4096, 0);
/// // SAFETY: allocated above, freed once, and not used after.
/// unsafe { arena.free_pages(pages) };
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Arena {
    base: NonNull<u8>,
    bytes: u64,
    map: PageMap,
    pages: Lock<Pages>,
    tags: Lock<[u64; 4]>,
    period: AtomicU64,
    /// Pages in use, and free pages with memory, as they were when the lock was last released.
    used: AtomicU64,
    spare: AtomicU64,
    given_back: AtomicU64,
    failures: AtomicU64,
    memory: Box<dyn Memory>,
}

// SAFETY: `base` is only an address; the tables are locked or atomic.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Makes an arena over private anonymous memory of at most `bytes` (a promise of addresses only).
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn private(bytes: u64) -> io::Result<Self> {
        Self::new(Private::reserve(bytes.min(MAX_BYTES))?)
    }

    /// Makes an arena over `memory`.
    ///
    /// # Errors
    /// If the window is longer than 64 GiB or no multiple of 2 MiB, or there is no room for the page map.
    pub fn new(memory: impl Memory) -> io::Result<Self> {
        let (base, bytes) = (memory.base(), memory.bytes());
        if bytes > MAX_BYTES || !bytes.is_multiple_of(CHUNK) || bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a window of {bytes} bytes: not a multiple of {CHUNK} up to {MAX_BYTES}"),
            ));
        }
        let chunks = u32::try_from(bytes / CHUNK).expect("at most 2^15");
        let pages = Pages::new(chunks, CHUNK);
        let map = PageMap::new(u32::try_from(bytes / PAGE).expect("at most 2^24"))?;
        let mut tags = [0; 4];
        tags[0] |= 1;
        tags[usize::from(PAGES_TAG) / 64] |= 1 << (PAGES_TAG % 64);
        Ok(Self {
            base,
            bytes,
            map,
            pages: Lock::new(pages),
            tags: Lock::new(tags),
            period: AtomicU64::new(0),
            used: AtomicU64::new(0),
            spare: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            memory: Box::new(memory),
        })
    }

    /// Returns the address of the window's start.
    #[inline]
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length of the window, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the memory of the pages.
    #[must_use]
    pub fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    /// Returns the offset of an address in the window; `None` outside of it.
    #[inline]
    #[must_use]
    pub fn offset_of(&self, address: *const u8) -> Option<u64> {
        let offset = address.addr().wrapping_sub(self.base.addr().get()) as u64;
        (offset < self.bytes).then_some(offset)
    }

    /// Returns the tag of the keg that an address belongs to, [`PAGES_TAG`] for pages, and 0 for neither and outside of
    /// the window. Cost: one comparison and one load. The answer is exact for a caller that holds memory at the
    /// address, and a hint for others.
    #[inline]
    #[must_use]
    pub fn tag_of(&self, address: *const u8) -> u8 {
        let offset = address.addr().wrapping_sub(self.base.addr().get()) as u64;
        self.map.get(offset / PAGE).tag
    }

    /// Returns the owner of an address, or `None` if there is none.
    #[must_use]
    pub fn owner(&self, address: *const u8) -> Option<Owner> {
        let entry = self.map.get(self.offset_of(address)? / PAGE);
        match entry.tag {
            0 => None,
            PAGES_TAG => Some(Owner::Pages((entry.number > 0).then_some(entry.number))),
            tag => Some(Owner::Keg(tag)),
        }
    }

    /// Allocates consecutive pages of 4096 bytes, with undefined contents. Returns `None` if the window or the memory
    /// has not enough.
    #[must_use]
    pub fn alloc_pages(&self, pages: u32) -> Option<NonNull<u8>> {
        let run = self.alloc_run(pages)?;
        self.tag_pages(run);
        Some(self.at(run.offset()))
    }

    /// Allocates pages that begin at a multiple of `align` pages.
    #[must_use]
    pub fn alloc_pages_aligned(&self, pages: u32, align: u32) -> Option<NonNull<u8>> {
        if align <= 1 {
            return self.alloc_pages(pages);
        }
        let run = self.alloc_run(pages.checked_add(align - 1)?)?;
        let base = self.base.addr().get() as u64 / PAGE;
        let first = (base + u64::from(run.first_page)).next_multiple_of(u64::from(align)) - base;
        let first = u32::try_from(first).expect("inside the run");
        let end = run.first_page + run.pages;
        for (from, to) in [(run.first_page, first), (first + pages, end)] {
            if from < to {
                self.free_run(Run {
                    first_page: from,
                    pages: to - from,
                });
            }
        }
        let run = Run {
            first_page: first,
            pages,
        };
        self.tag_pages(run);
        Some(self.at(run.offset()))
    }

    /// Takes pages back.
    ///
    /// # Safety
    /// Nothing uses the pages any more.
    ///
    /// # Panics
    /// If `first` is not a result of `alloc_pages`.
    pub unsafe fn free_pages(&self, first: NonNull<u8>) {
        let Some(Owner::Pages(Some(pages))) = self.owner(first.as_ptr()) else {
            panic!("{first:p} is not the first of some pages");
        };
        let offset = self.offset_of(first.as_ptr()).expect("it has an owner");
        let run = Run {
            first_page: u32::try_from(offset / PAGE).expect("at most 2^24 pages"),
            pages,
        };
        self.set_entries(run, |_| Entry { tag: 0, number: 0 });
        self.free_run(run);
    }

    /// Gives back the memory that free pages have had for at least one period. The thread that keeps time calls it once
    /// a period. Returns the number of pages.
    pub fn age(&self) -> u64 {
        let mut pages = self.pages.lock();
        let given = pages.age(|range| self.memory.decommit(range));
        self.note(pages);
        self.given_back.fetch_add(given, Ordering::Relaxed);
        given
    }

    /// Gives the memory of all free pages back, at once. Returns how many pages.
    pub fn purge(&self) -> u64 {
        let mut pages = self.pages.lock();
        let given = pages.purge(|range| self.memory.decommit(range));
        self.note(pages);
        self.given_back.fetch_add(given, Ordering::Relaxed);
        given
    }

    /// Gives memory of free pages back, the longest free first, until about `keep` of them have some. Returns the
    /// number of pages.
    pub fn trim(&self, keep: u64) -> u64 {
        let mut pages = self.pages.lock();
        let given = pages.trim(keep, |range| self.memory.decommit(range));
        self.note(pages);
        self.given_back.fetch_add(given, Ordering::Relaxed);
        given
    }

    /// Returns the arena's figures.
    #[must_use]
    pub fn stats(&self) -> ArenaStats {
        let (used_pages, committed_pages) = self.pages.lock().counts();
        ArenaStats {
            used_pages,
            committed_pages,
            given_back_pages: self.given_back.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// Returns the numbers of pages in use, and of free pages with memory. It takes no lock, so the numbers may be
    /// outdated.
    #[must_use]
    pub fn used_and_spare(&self) -> (u64, u64) {
        // Relaxed: figures.
        (
            self.used.load(Ordering::Relaxed),
            self.spare.load(Ordering::Relaxed),
        )
    }

    /// Records the present size, and releases the lock.
    fn note(&self, pages: Guard<'_, Pages>) {
        let (used, committed) = pages.counts();
        self.used.store(used, Ordering::Relaxed);
        self.spare.store(committed - used, Ordering::Relaxed);
    }

    /// Ends a period, if that was not recorded already; returns whether free pages have memory.
    pub(crate) fn period(&self, number: u64) -> bool {
        if self.period.swap(number, Ordering::Relaxed) != number {
            self.age();
        }
        let (used, committed) = self.pages.lock().counts();
        committed > used
    }

    /// Returns the address at an offset in the window.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < self.bytes);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "below the length of a mapping"
        )]
        let offset = offset as usize;
        // SAFETY: below `bytes`, inside the memory's mapping.
        unsafe { self.base.add(offset) }
    }

    pub(crate) fn alloc_run(&self, pages: u32) -> Option<Run> {
        if pages == 0 || u64::from(pages) >= MAX_BYTES / PAGE {
            return None;
        }
        if let Some(own) = self.memory.own_pages() {
            let run = self.alloc_own(own, pages);
            if run.is_none() {
                self.failures.fetch_add(1, Ordering::Relaxed);
            }
            return run;
        }
        let mut state = self.pages.lock();
        let attempt = |state: &mut Pages| {
            state.alloc(
                pages,
                |range| {
                    self.map.cover(range.start / PAGE..range.end / PAGE)
                        && self.memory.commit(range)
                },
                |range| self.memory.decommit(range),
            )
        };
        if let Some(run) = attempt(&mut state) {
            self.note(state);
            return Some(run);
        }
        // Memory of free pages may be the memory that is missing.
        let given = state.purge(|range| self.memory.decommit(range));
        self.given_back.fetch_add(given, Ordering::Relaxed);
        let run = (given > 0).then(|| attempt(&mut state)).flatten();
        self.note(state);
        if run.is_none() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        run
    }

    /// Takes a run of pages from the memory's own allocator. A run outside of the window goes back.
    fn alloc_own(&self, own: &dyn OwnPages, pages: u32) -> Option<Run> {
        let bytes = u64::from(pages) * PAGE;
        let first = own.alloc(bytes)?;
        let run = self.offset_of(first.as_ptr()).and_then(|offset| {
            let fits = offset.is_multiple_of(PAGE) && offset + bytes <= self.bytes;
            let first_page = u32::try_from(offset / PAGE).ok().filter(|_| fits)?;
            let mut state = self.pages.lock();
            let covered = self.map.cover(offset / PAGE..(offset + bytes) / PAGE);
            covered.then(|| {
                state.took_own(pages);
                self.note(state);
                Run { first_page, pages }
            })
        });
        if run.is_none() {
            own.free(first, bytes);
        }
        run
    }

    pub(crate) fn free_run(&self, run: Run) {
        if let Some(own) = self.memory.own_pages() {
            own.free(self.at(run.offset()), u64::from(run.pages) * PAGE);
            let mut state = self.pages.lock();
            state.gave_own(run.pages);
            self.note(state);
            return;
        }
        let mut pages = self.pages.lock();
        pages.free(run);
        self.note(pages);
    }

    /// Takes a tag for a keg; `None` if all 254 are taken.
    pub(crate) fn take_tag(&self) -> Option<u8> {
        let mut tags = self.tags.lock();
        let tag = (1..PAGES_TAG).find(|&tag| tags[usize::from(tag) / 64] >> (tag % 64) & 1 == 0)?;
        tags[usize::from(tag) / 64] |= 1 << (tag % 64);
        Some(tag)
    }

    pub(crate) fn give_tag(&self, tag: u8) {
        self.tags.lock()[usize::from(tag) / 64] &= !(1 << (tag % 64));
    }

    /// Records that the pages are slab `slab` of the keg with this tag.
    pub(crate) fn tag_slab(&self, run: Run, tag: u8, slab: u32) {
        self.set_entries(run, |_| Entry { tag, number: slab });
    }

    pub(crate) fn untag(&self, run: Run) {
        self.set_entries(run, |_| Entry { tag: 0, number: 0 });
    }

    /// Returns the keg and slab of an offset.
    pub(crate) fn slab_of(&self, offset: u64) -> (u8, u32) {
        let entry = self.map.get(offset / PAGE);
        (entry.tag, entry.number)
    }

    fn tag_pages(&self, run: Run) {
        self.set_entries(run, |page| Entry {
            tag: PAGES_TAG,
            number: if page == run.first_page { run.pages } else { 0 },
        });
    }

    fn set_entries(&self, run: Run, entry: impl Fn(u32) -> Entry) {
        for page in run.first_page..run.first_page + run.pages {
            self.map.set(page, entry(page));
        }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("base", &self.base)
            .field("bytes", &self.bytes)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Shared for Arena {
    fn hold(&self) {
        self.pages.hold();
        self.tags.hold();
    }

    unsafe fn release(&self) {
        // SAFETY: passed on to the caller.
        unsafe {
            self.tags.release();
            self.pages.release();
        }
    }
}
