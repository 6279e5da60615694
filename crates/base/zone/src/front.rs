//! The part of a thread's cache that its fast path touches: one cache line.
//!
//! [`Cache`](crate::cache::Cache) says which thread may touch it when.

use crate::bucket::{self, Bucket};
use crate::lock::Lock;
use std::cell::UnsafeCell;
use std::hint::cold_path;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use tranship_sys::fork;

/// The counters, the first bucket, and whether it may be used. It takes two cache lines and uses the first, so that
/// neighbours neither share a line nor are fetched together. All zeros mean shut and empty.
#[repr(C, align(128))]
pub(crate) struct Front {
    /// The control word for which the fast path may be taken; 0 for none.
    pub(crate) seen: AtomicU64,
    /// Twice the items handed out; odd while the owner is busy handing one out. Written by the owner only. The count is
    /// also the busy mark, which saves a store. A mark of one byte costs 2 ns more, because it defeats store
    /// forwarding.
    allocs: AtomicU64,
    /// Items taken back, counted as in `allocs`.
    frees: AtomicU64,
    /// Used by both alloc and free, last in first out.
    top: UnsafeCell<Top>,
    /// Items that the owner handed out, and took back, in its slow path.
    slow_allocs: AtomicU64,
    slow_frees: AtomicU64,
}

/// The first bucket. It stores no index: the difference of the two counts gives its fill level. `alloc` and `free`
/// update these counts anyway, each its own. With an index that both write, each would wait for the other's latest
/// store.
struct Top {
    /// The next item's address if both counts were equal. It is only a number: it may be outside of the bucket.
    origin: *mut u32,
    first: *mut u32,
    end: *mut u32,
}

impl Top {
    const fn none() -> Self {
        let null = ptr::null_mut();
        Self {
            origin: null,
            first: null,
            end: null,
        }
    }

    /// Returns the next item's address, at these counts.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // 64-bit only; of either sign
    fn next(&self, allocs: u64, frees: u64) -> *mut u32 {
        // Two for each item, which has four bytes.
        const { assert!(size_of::<u32>() == 4) };
        let ahead = frees.wrapping_sub(allocs) as isize;
        self.origin.wrapping_byte_offset(ahead.wrapping_mul(2))
    }
}

// SAFETY: `top` is the only field that is not Sync by itself; see `Cache`.
unsafe impl Sync for Front {}

/// The front of a thread without a cache: always shut.
pub(crate) static NOBODYS: Front = Front::shut();

/// Says that the owner is busy from here on; returns the count.
#[inline(always)]
fn begin(count: &AtomicU64) -> u64 {
    let before = count.load(Ordering::Relaxed);
    // Wrapping: that of `NOBODYS`, which many threads change at once, may be anything.
    count.store(before.wrapping_add(1), Ordering::Relaxed);
    // Ordering: the busy mark before `seen`; the processor's half is the membarrier between `shut` and `steal`.
    compiler_fence(Ordering::SeqCst);
    before
}

/// Says that the owner is no longer busy.
#[inline(always)]
fn end(count: &AtomicU64, value: u64) {
    // Ordering: pairs with the acquire in `is_busy` (the thief sees the changes of the bucket) and in `allocs` and
    // `frees` (a thread that sees a free counted sees the alloc before it).
    count.store(value, Ordering::Release);
}

/// Says that the owner is no longer busy, and has done nothing. It is not `end`: if this and the fast path shared a
/// store, the code behind it would have to ask again which of the two it was. It is not a call either, which would save
/// registers.
#[inline(always)]
fn end_for_nothing(count: &AtomicU64) {
    cold_path();
    // Ordering: as in `end`.
    count.fetch_sub(1, Ordering::Release);
}

/// Adds to a counter. There is one writer, so no read-modify-write is needed.
fn count_more(count: &AtomicU64, more: u64) {
    // Ordering: as in `end`.
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Release);
}

impl Front {
    pub(crate) const fn shut() -> Self {
        Self {
            seen: AtomicU64::new(0),
            allocs: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            top: UnsafeCell::new(Top::none()),
            slow_allocs: AtomicU64::new(0),
            slow_frees: AtomicU64::new(0),
        }
    }

    /// Takes an item from the bucket, if `control` is unchanged since it was last seen.
    ///
    /// # Safety
    /// The calling thread owns the front, or it is always shut.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self, control: &AtomicU64) -> Option<u32> {
        let before = begin(&self.allocs);
        if self.seen.load(Ordering::Relaxed) == control.load(Ordering::Relaxed) {
            // SAFETY: no other thread touches the bucket. A thief that does has cleared `seen`, made this thread pass a
            // fence after that, and then found it not busy. This thread would have found `seen` cleared.
            let top = unsafe { &*self.top.get() };
            let next = top.next(before, self.frees.load(Ordering::Relaxed));
            if next != top.first {
                // SAFETY: there is an item below, which was put there by `push` or with the bucket.
                let item = unsafe { next.sub(1).read() };
                end(&self.allocs, before + 2);
                return Some(item);
            }
        }
        end_for_nothing(&self.allocs);
        None
    }

    /// Puts an item into the bucket, if `control` is unchanged since it was last seen and there is room.
    ///
    /// # Safety
    /// The rules of [`pop`](Self::pop) hold.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, control: &AtomicU64, item: u32) -> bool {
        let before = begin(&self.frees);
        if self.seen.load(Ordering::Relaxed) == control.load(Ordering::Relaxed) {
            // SAFETY: as in `pop`.
            let top = unsafe { &*self.top.get() };
            let next = top.next(self.allocs.load(Ordering::Relaxed), before);
            if next != top.end {
                // SAFETY: below the end; no other code has the bucket's memory.
                unsafe { next.write(item) };
                end(&self.frees, before + 2);
                return true;
            }
        }
        end_for_nothing(&self.frees);
        false
    }

    /// Puts several items into the bucket, under the conditions of [`push`](Self::push), if there is room for all. The
    /// last of them is handed out first.
    ///
    /// # Safety
    /// The rules of [`pop`](Self::pop) hold.
    #[inline(always)]
    pub(crate) unsafe fn push_many(&self, control: &AtomicU64, items: &[u32]) -> bool {
        let before = begin(&self.frees);
        if self.seen.load(Ordering::Relaxed) == control.load(Ordering::Relaxed) {
            // SAFETY: as in `pop`.
            let top = unsafe { &*self.top.get() };
            let next = top.next(self.allocs.load(Ordering::Relaxed), before);
            // SAFETY: up to the end; no other code has the bucket's memory.
            if unsafe { bucket::push_many(next, top.end, items) } {
                end(&self.frees, before.wrapping_add(2 * items.len() as u64));
                return true;
            }
        }
        end_for_nothing(&self.frees);
        false
    }

    /// Takes the bucket out, and leaves one for no items.
    ///
    /// # Safety
    /// The caller has the cache's lock, and the owner is not in its fast path.
    pub(crate) unsafe fn take_top(&self) -> Bucket {
        let [allocs, frees] = self.settled();
        // SAFETY: as the caller promises.
        let top = unsafe { &mut *self.top.get() };
        let next = top.next(allocs, frees);
        let Top { first, end, .. } = std::mem::replace(top, Top::none());
        top.origin = Top::none().next(frees, allocs);
        // SAFETY: the parts of a bucket that `put_top` got, and of the items pushed since.
        unsafe { Bucket::from_parts(next, first, end) }
    }

    /// Puts a bucket in place of the one for no items.
    ///
    /// # Safety
    /// The rules of [`take_top`](Self::take_top) hold.
    pub(crate) unsafe fn put_top(&self, bucket: Bucket) {
        let [allocs, frees] = self.settled();
        let [next, first, end] = bucket.into_parts();
        // SAFETY: as the caller promises.
        let top = unsafe { &mut *self.top.get() };
        *top = Top {
            // The distance in the other direction: from the next item to the origin.
            origin: Top {
                origin: next,
                first,
                end,
            }
            .next(frees, allocs),
            first,
            end,
        };
    }

    /// Returns the counts without their lowest bits: an owner that finds its cache shut may just be changing such a
    /// bit.
    fn settled(&self) -> [u64; 2] {
        [&self.allocs, &self.frees].map(|count| count.load(Ordering::Relaxed) & !1)
    }

    /// Counts one item that the owner handed out in its slow path.
    pub(crate) fn count_alloc(&self) {
        count_more(&self.slow_allocs, 1);
    }

    /// Counts one item that the owner took back in its slow path.
    pub(crate) fn count_free(&self) {
        self.count_frees(1);
    }

    /// Counts several frees.
    pub(crate) fn count_frees(&self, items: usize) {
        count_more(&self.slow_frees, items as u64);
    }

    /// Returns the number of items handed out.
    pub(crate) fn allocs(&self) -> u64 {
        // Ordering: pairs with `end` and `count_more`.
        self.allocs.load(Ordering::Acquire) / 2 + self.slow_allocs.load(Ordering::Acquire)
    }

    /// Returns the number of items taken back.
    pub(crate) fn frees(&self) -> u64 {
        // Ordering: pairs with `end` and `count_more`.
        self.frees.load(Ordering::Acquire) / 2 + self.slow_frees.load(Ordering::Acquire)
    }

    /// Says whether the owner is in its fast path.
    pub(crate) fn is_busy(&self) -> bool {
        // Ordering: pairs with `end`.
        (self.allocs.load(Ordering::Acquire) | self.frees.load(Ordering::Acquire)) & 1 == 1
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // SAFETY: no other code knows it any more.
        drop(unsafe { self.take_top() });
    }
}

/// A front that belongs to its holder.
pub(crate) struct OwnFront {
    at: NonNull<Front>,
    wiped: bool,
}

// SAFETY: the front that it points to is Sync, and belongs to it.
unsafe impl Send for OwnFront {}
// SAFETY: as above.
unsafe impl Sync for OwnFront {}

/// Unused fronts, in memory that the kernel clears in a forked child. They are never unmapped.
static WIPED: Lock<Vec<Free>> = Lock::new(Vec::new());

struct Free(NonNull<Front>);

// SAFETY: nothing uses it.
unsafe impl Send for Free {}

impl OwnFront {
    /// Makes a front that is shut.
    pub(crate) fn new() -> Self {
        Self {
            at: NonNull::from(Box::leak(Box::new(Front::shut()))),
            wiped: false,
        }
    }

    /// Makes a front that is shut in a forked child, whatever its state in the parent. The child then finds no
    /// inherited items in its caches, and need not ask whether it is a child. Returns `None` if there is no memory.
    pub(crate) fn wiped() -> Option<Self> {
        let mut free = WIPED.lock();
        if free.is_empty() {
            let page = fork::wiped_page().ok()?.cast::<Front>();
            let fronts = tranship_sys::page_size() / size_of::<Front>();
            // SAFETY: a page holds `fronts` fronts, and a front whose bytes are all zero is one that is shut.
            free.extend((0..fronts).map(|at| Free(unsafe { page.add(at) })));
        }
        let Free(at) = free.pop()?;
        Some(Self { at, wiped: true })
    }
}

impl Deref for OwnFront {
    type Target = Front;

    #[inline]
    fn deref(&self) -> &Front {
        // SAFETY: `self` owns the front at `at`.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for OwnFront {
    fn drop(&mut self) {
        // SAFETY: no other code knows it any more.
        unsafe {
            if self.wiped {
                self.at.replace(Front::shut());
                WIPED.lock().push(Free(self.at));
            } else {
                drop(Box::from_raw(self.at.as_ptr()));
            }
        }
    }
}

/// Takes the lock before a fork.
pub(crate) fn hold() {
    WIPED.hold();
}

/// Releases the lock.
///
/// # Safety
/// The rules of [`Lock::release`] hold.
pub(crate) unsafe fn release() {
    // SAFETY: passed on to the caller.
    unsafe { WIPED.release() };
}
