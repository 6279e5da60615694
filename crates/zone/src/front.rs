//! The part of a thread's cache that its fast path touches: one cache line.
//!
//! See [`Cache`](crate::cache::Cache) for who may touch it when.

use crate::bucket::Bucket;
use crate::lock::Lock;
use std::cell::UnsafeCell;
use std::hint::cold_path;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use tranship_sys::fork;

/// The counters, the first bucket, and whether it may be used. Two cache lines, so that neighbours do not share, nor are
/// fetched together. All zeros: shut, and empty.
#[repr(C, align(128))]
pub(crate) struct Front {
    /// The control word for which the fast path may be taken; 0 for none.
    pub(crate) seen: AtomicU64,
    /// Twice the items handed out; odd while the owner is busy handing one out. Written by the owner only. A count
    /// that is the busy mark as well saves a store; marks of one byte were measured to cost 2 ns more each, as they
    /// defeat store forwarding.
    allocs: AtomicU64,
    /// The same for items taken back.
    frees: AtomicU64,
    /// Used by both alloc and free, last in first out.
    pub(crate) top: UnsafeCell<Bucket>,
}

// SAFETY: `top` is the only field that is not Sync by itself; see `Cache`.
unsafe impl Sync for Front {}

/// What a thread finds where it has no cache: always shut.
pub(crate) static NOBODYS: Front = Front::shut();

/// The owner is busy from here on; returns the count.
#[inline(always)]
fn begin(count: &AtomicU64) -> u64 {
    let before = count.load(Ordering::Relaxed);
    // Wrapping: that of `NOBODYS`, which many threads change at once, may be anything.
    count.store(before.wrapping_add(1), Ordering::Relaxed);
    // Ordering: the busy mark before `seen`; the processor's half is the membarrier between `shut` and `steal`.
    compiler_fence(Ordering::SeqCst);
    before
}

/// The owner is busy no more.
#[inline(always)]
fn end(count: &AtomicU64, value: u64) {
    // Ordering: pairs with the acquire in `is_busy` (what was done to the bucket is seen by the thief) and in `allocs`
    // and `frees` (who sees a free counted sees the alloc that came before it).
    count.store(value, Ordering::Release);
}

/// The owner is busy no more, and has done nothing. Not `end`, so that this and the fast path have no store in common, behind
/// which it would have to be asked again which of the two it was; not a call, for which registers would be saved.
#[inline(always)]
fn end_for_nothing(count: &AtomicU64) {
    cold_path();
    // Ordering: as in `end`.
    count.fetch_sub(1, Ordering::Release);
}

impl Front {
    pub(crate) const fn shut() -> Self {
        Self {
            seen: AtomicU64::new(0),
            allocs: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            top: UnsafeCell::new(Bucket::none()),
        }
    }

    /// An item from the bucket, if `control` is what was seen last.
    ///
    /// # Safety
    /// The calling thread owns it, or it is always shut.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self, control: &AtomicU64) -> Option<u32> {
        let before = begin(&self.allocs);
        if self.seen.load(Ordering::Relaxed) == control.load(Ordering::Relaxed) {
            // SAFETY: nobody else touches the bucket: a thief that does has cleared `seen`, made this thread pass a
            // fence after that, and then found it not busy; so this thread would have found `seen` cleared.
            let top = unsafe { &mut *self.top.get() };
            if let Some(item) = top.pop() {
                end(&self.allocs, before + 2);
                return Some(item);
            }
        }
        end_for_nothing(&self.allocs);
        None
    }

    /// Puts an item into the bucket, if `control` is what was seen last and there is room.
    ///
    /// # Safety
    /// As [`pop`](Self::pop).
    #[inline(always)]
    pub(crate) unsafe fn push(&self, control: &AtomicU64, item: u32) -> bool {
        let before = begin(&self.frees);
        if self.seen.load(Ordering::Relaxed) == control.load(Ordering::Relaxed) {
            // SAFETY: as in `pop`.
            let top = unsafe { &mut *self.top.get() };
            if top.push(item) {
                end(&self.frees, before + 2);
                return true;
            }
        }
        end_for_nothing(&self.frees);
        false
    }

    /// As [`push`](Self::push), of several: how many there was room for, the first ones. The last of them is handed out first.
    ///
    /// # Safety
    /// As [`pop`](Self::pop).
    #[inline(always)]
    pub(crate) unsafe fn push_many(&self, control: &AtomicU64, items: &[u32]) -> usize {
        let before = begin(&self.frees);
        if self.seen.load(Ordering::Relaxed) == control.load(Ordering::Relaxed) {
            // SAFETY: as in `pop`.
            let count = unsafe { &mut *self.top.get() }.push_many(items);
            end(&self.frees, before.wrapping_add(2 * count as u64));
            return count;
        }
        end_for_nothing(&self.frees);
        0
    }

    /// The owner counts one item handed out in its slow path.
    pub(crate) fn count_alloc(&self) {
        // One writer, so no read-modify-write.
        end(&self.allocs, self.allocs.load(Ordering::Relaxed) + 2);
    }

    /// The owner counts one item taken back in its slow path.
    pub(crate) fn count_free(&self) {
        end(&self.frees, self.frees.load(Ordering::Relaxed) + 2);
    }

    /// Items handed out.
    pub(crate) fn allocs(&self) -> u64 {
        // Ordering: pairs with `end`.
        self.allocs.load(Ordering::Acquire) / 2
    }

    /// Items taken back.
    pub(crate) fn frees(&self) -> u64 {
        // Ordering: pairs with `end`.
        self.frees.load(Ordering::Acquire) / 2
    }

    /// Whether the owner is in its fast path.
    pub(crate) fn is_busy(&self) -> bool {
        // Ordering: pairs with `end`.
        (self.allocs.load(Ordering::Acquire) | self.frees.load(Ordering::Acquire)) & 1 == 1
    }
}

/// A front of one's own.
pub(crate) struct OwnFront {
    at: NonNull<Front>,
    wiped: bool,
}

// SAFETY: what it points to is Sync, and its own.
unsafe impl Send for OwnFront {}
// SAFETY: as above.
unsafe impl Sync for OwnFront {}

/// Fronts that nobody uses, of memory that the kernel clears in a forked child. They are never unmapped.
static WIPED: Lock<Vec<Free>> = Lock::new(Vec::new());

struct Free(NonNull<Front>);

// SAFETY: nobody uses it.
unsafe impl Send for Free {}

impl OwnFront {
    /// A front that is shut.
    pub(crate) fn new() -> Self {
        Self {
            at: NonNull::from(Box::leak(Box::new(Front::shut()))),
            wiped: false,
        }
    }

    /// One that is shut in a forked child, whatever it was in the parent: what a child may not touch it then does not find
    /// in its caches, without having to ask whether it is a child. `None` if there is no memory.
    pub(crate) fn wiped() -> Option<Self> {
        let mut free = WIPED.lock();
        if free.is_empty() {
            let page = fork::wiped_page().ok()?.cast::<Front>();
            let fronts = tranship_sys::page_size() / size_of::<Front>();
            // SAFETY: a page of zeros holds so many; all zeros are a front that is shut.
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
        // SAFETY: it is there as long as this is.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for OwnFront {
    fn drop(&mut self) {
        // SAFETY: nobody else knows it any more.
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

/// Gives it back.
///
/// # Safety
/// As [`Lock::release`].
pub(crate) unsafe fn release() {
    // SAFETY: passed on to the caller.
    unsafe { WIPED.release() };
}
