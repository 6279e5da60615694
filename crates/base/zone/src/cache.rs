//! One thread's two buckets of one zone, and how another thread may take them.
//!
//! The owner's fast path takes no lock and does no atomic read-modify-write. It says that it is busy, compares `seen`
//! with the zone's control word, works, and says that it is done. Everything else, the owner's slow path included,
//! happens under `lock`. A thief is another thread that drains. It takes the lock, clears `seen`, makes every running
//! thread pass a fence (`membarrier`), and waits until the owner is not busy. From then on the owner finds `seen`
//! cleared and takes the lock.
//!
//! ```text
//! owner: busy; [compiler fence]; seen == control?        thief: seen = 0; membarrier; busy?
//! ```
//! Either the owner sees `seen` cleared, or the thief sees it busy and waits for the end of a dozen instructions.

use crate::bucket::Bucket;
use crate::front::{Front, OwnFront};
use crate::lock::{Guard, Lock};
use std::cell::UnsafeCell;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The destination of a cache's items when its thread ends.
pub(crate) trait Home: Send + Sync {
    /// Ends the use of `cache` by the calling thread, which owns it.
    fn thread_exit(&self, cache: &Cache);
}

/// The two buckets.
pub(crate) struct Buckets<'a> {
    /// Used by both alloc and free, last in first out.
    pub(crate) top: &'a mut Bucket,
    /// The second bucket, almost full or almost empty. It is swapped with `top` when `top` runs empty or full.
    pub(crate) spare: &'a mut Bucket,
}

/// One thread's cache of one zone.
pub(crate) struct Cache {
    front: OwnFront,
    spare: UnsafeCell<Bucket>,
    lock: Lock<()>,
    /// Allocations and frees when a period was last over, and for how many periods they have not changed.
    acts: AtomicU64,
    idle: AtomicU32,
    /// The owner was left behind by a fork.
    orphan: AtomicBool,
    pub(crate) home: Weak<dyn Home>,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("allocs", &self.front.allocs())
            .field("frees", &self.front.frees())
            .finish_non_exhaustive()
    }
}

// SAFETY: the buckets are all that is not Sync by itself. The owner touches the front's while `busy` with `seen` found
// equal to the control word. Any thread, the owner too, touches them while it holds `lock` and the owner cannot be in
// its fast path, see `Shut::steal`.
unsafe impl Sync for Cache {}
// SAFETY: nothing in it belongs to a thread but by the protocol above.
unsafe impl Send for Cache {}

/// Exclusive use of a cache's buckets, under its lock.
pub(crate) struct Claim<'a> {
    cache: &'a Cache,
    /// The front's, as long as the claim is there.
    top: Bucket,
    _lock: Guard<'a, ()>,
}

impl Cache {
    pub(crate) fn new(front: OwnFront, home: Weak<dyn Home>) -> Self {
        Self {
            front,
            spare: UnsafeCell::default(),
            lock: Lock::new(()),
            acts: AtomicU64::new(0),
            idle: AtomicU32::new(0),
            orphan: AtomicBool::new(false),
            home,
        }
    }

    /// Returns the part that the owner's fast path touches.
    pub(crate) fn front(&self) -> &Front {
        &self.front
    }

    /// Ends a period; returns for how many periods the owner has done nothing.
    pub(crate) fn period(&self) -> u32 {
        let acts = self.front.allocs() + self.front.frees();
        // Only the thread that keeps time writes these.
        let idle = if self.acts.swap(acts, Ordering::Relaxed) == acts {
            self.idle.load(Ordering::Relaxed).saturating_add(1)
        } else {
            0
        };
        self.idle.store(idle, Ordering::Relaxed);
        idle
    }

    /// Says whether the owner did something within the last `periods`.
    pub(crate) fn is_awake(&self, periods: u32) -> bool {
        self.idle.load(Ordering::Relaxed) < periods
    }

    /// Records that the owner does not exist in this process: a fork left it behind.
    pub(crate) fn set_orphan(&self) {
        self.orphan.store(true, Ordering::Relaxed);
        // After one more period, the cache is emptied.
        self.idle.store(3, Ordering::Relaxed);
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Relaxed)
    }

    /// Takes the lock before a fork; see [`Lock::hold`].
    pub(crate) fn hold(&self) {
        self.lock.hold();
    }

    /// # Safety
    /// The rules of [`Lock::release`] hold.
    pub(crate) unsafe fn release(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.lock.release() };
    }

    /// Begins the owner's slow path.
    ///
    /// # Safety
    /// The calling thread owns this cache.
    pub(crate) unsafe fn claim(&self) -> Claim<'_> {
        let lock = self.lock();
        // SAFETY: the owner is here, and not in its fast path.
        unsafe { Claim::of(self, lock) }
    }

    /// Locks the owner out of its slow path and, after a fence in its thread, out of the fast one.
    pub(crate) fn shut(&self) -> Shut<'_> {
        let lock = self.lock();
        self.front.seen.store(0, Ordering::Relaxed);
        Shut { cache: self, lock }
    }

    fn lock(&self) -> Guard<'_, ()> {
        self.lock.lock()
    }
}

/// A cache whose owner cannot begin anything new once it has passed a fence.
pub(crate) struct Shut<'a> {
    cache: &'a Cache,
    lock: Guard<'a, ()>,
}

impl<'a> Shut<'a> {
    /// Takes the buckets for the thief. Returns `None` if the owner does not leave its fast path (it is not running).
    ///
    /// # Safety
    /// Every running thread has passed a full fence since `shut`, or the caller owns the cache.
    pub(crate) unsafe fn steal(self) -> Option<Claim<'a>> {
        for round in 0..1 << 16 {
            if !self.cache.front.is_busy() {
                // SAFETY: the owner has ended its operation, and begins no new one.
                return Some(unsafe { Claim::of(self.cache, self.lock) });
            }
            if self.cache.is_orphan() {
                // The owner was left behind in the middle of an operation: its buckets may be half changed, and stay as
                // they are.
                return None;
            }
            if round % 64 == 63 {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
        None
    }
}

impl<'a> Claim<'a> {
    /// # Safety
    /// The lock is the cache's, and the owner is not in its fast path as long as it is held: it holds it itself, or was
    /// excluded, see `steal`.
    unsafe fn of(cache: &'a Cache, lock: Guard<'a, ()>) -> Self {
        Claim {
            cache,
            // SAFETY: as the caller promises.
            top: unsafe { cache.front.take_top() },
            _lock: lock,
        }
    }

    pub(crate) fn buckets(&mut self) -> Buckets<'_> {
        Buckets {
            top: &mut self.top,
            // SAFETY: only touched under the lock, which is held.
            spare: unsafe { &mut *self.cache.spare.get() },
        }
    }

    pub(crate) fn seen(&self) -> u64 {
        self.cache.front.seen.load(Ordering::Relaxed)
    }

    /// Opens the fast path for as long as the control word is `control`. Only the owner may, at the end of its claim.
    pub(crate) fn set_seen(&mut self, control: u64) {
        self.cache.front.seen.store(control, Ordering::Relaxed);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // SAFETY: as said to `of`; the lock is still held.
        unsafe { self.cache.front.put_top(std::mem::take(&mut self.top)) };
    }
}
